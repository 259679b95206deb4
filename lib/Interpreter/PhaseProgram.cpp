//===- PhaseProgram.cpp - A layer at one phase, to be run -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Interpreter/PhaseProgram.h"

#include "plum/Frontend/Affine.h"
#include "plum/Interpreter/Interpreter.h"
#include "plum/Pipelines/Phases.h"
#include "plum/Transforms/Passes.h"

#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace plum;
using namespace plum::interpreter;

std::vector<std::string> interpreter::interpretedPhases() {
  std::vector<std::string> names;
  for (const Phase &phase : phases()) {
    if (phase.name == "llvm")
      break;
    names.push_back(phase.name.str());
  }
  return names;
}

struct PhaseProgram::Module {
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> op;
  std::vector<double> constants;
  std::vector<Entry> entries;
};

PhaseProgram::PhaseProgram() = default;
PhaseProgram::PhaseProgram(PhaseProgram &&) noexcept = default;
PhaseProgram::~PhaseProgram() = default;

const std::vector<PhaseProgram::Entry> &PhaseProgram::entries() const {
  return module->entries;
}

Result<PhaseProgram> PhaseProgram::parse(std::string_view ir,
                                         std::vector<double> constants) {
  PhaseProgram program;
  program.module = std::make_unique<Module>();
  Module &module = *program.module;
  module.constants = std::move(constants);
  DialectRegistry registry;
  registerDialects(registry);
  module.context.appendDialectRegistry(registry);
  std::string messages;
  ScopedDiagnosticHandler handler(&module.context, [&](mlir::Diagnostic &diag) {
    llvm::raw_string_ostream out(messages);
    out << (messages.empty() ? "" : "; ") << diag.getLocation() << ": " << diag;
    return success();
  });
  module.op = parseSourceString<ModuleOp>(StringRef(ir.data(), ir.size()),
                                          &module.context);
  if (!module.op)
    return Error{"", "the IR cannot be read: " + messages, {}};
  for (Operation &op : module.op->getOps()) {
    if (auto layer = dyn_cast<assoc::LayerOp>(op))
      module.entries.push_back({layer.getSymName().str(), 0});
    else if (auto chunk = op.getAttrOfType<IntegerAttr>(kChunkAttr);
             chunk && isa<func::FuncOp>(op))
      module.entries.push_back(
          {cast<func::FuncOp>(op).getSymName().str(), chunk.getInt()});
  }
  llvm::sort(module.entries, [](const Entry &a, const Entry &b) {
    return std::tie(a.chunk, a.name) < std::tie(b.chunk, b.name);
  });
  return program;
}

Result<PhaseProgram> PhaseProgram::compile(const Source &source,
                                           const CompileOptions &options,
                                           std::string_view phase,
                                           CompileReport &report) {
  Result<std::string> ir = compileToPhase(source, options, phase, report);
  if (!ir)
    return ir.error();
  // Its diagnostics are those of the compilation: there are no errors left.
  Diagnostics diags(source);
  frontend::SpecOptions spec = options.spec;
  spec.stepOnly |= options.form == Form::Step;
  std::unique_ptr<frontend::Layer> layer = frontend::parseSpec(diags, spec);
  return parse(*ir, layer ? constantsOf(*layer) : std::vector<double>());
}

Status PhaseProgram::run(const Entry &entry, reference::Head &head) const {
  return interpret(*module->op, entry.name, head, module->constants);
}

std::vector<double> interpreter::constantsOf(const frontend::Layer &layer) {
  std::vector<double> constants;
  for (const frontend::Expr &expr : layer.exprs) {
    if (std::optional<double> value = frontend::constantValue(&expr))
      constants.push_back(*value);
    if (expr.kind == frontend::ExprKind::Pow)
      constants.push_back(expr.number);
    if (expr.kind == frontend::ExprKind::Call) {
      constants.push_back(expr.eps);
      if (expr.func == frontend::Func::RmsNorm)
        constants.push_back(1 / double(expr.shape.cols));
    }
  }
  return constants;
}
