//===- Compiler.cpp - A spec in, a phase's IR or a bundle out ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Pipelines/Compiler.h"

#include "BundleWriter.h"
#include "plum/ABI/KernelABI.h"
#include "plum/Conversion/Passes.h"
#include "plum/Emit/EmitAssoc.h"
#include "plum/Pipelines/Maths.h"
#include "plum/Pipelines/Phases.h"
#include "plum/Target/HostTarget.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace mlir;
using namespace plum;
using namespace plum::runtime;

namespace {

/// One compilation: the layer, the module and what was said about them.
class Compilation {
public:
  Compilation(const Source &source, const CompileOptions &options,
              CompileReport &report)
      : source(source), options(options), report(report), diags(source),
        context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.printOpOnDiagnostic(false); // messages point into the spec
  }

  /// Runs the phases up to and including `last`.
  Status run(StringRef last);
  std::string print();
  Result<std::string> object();
  Manifest manifest();

private:
  void listen(mlir::Diagnostic &diag);
  plum::Range rangeOf(Location loc);
  Error failure();
  template <typename Work> auto timed(StringRef what, Work work);

  const Source &source;
  const CompileOptions &options;
  CompileReport &report;
  Diagnostics diags;
  MLIRContext context;
  std::unique_ptr<frontend::Layer> layer;
  OwningOpRef<ModuleOp> module;
  std::optional<HostTarget> target;
  std::vector<std::string> logDecays;
};

template <typename Work> auto Compilation::timed(StringRef what, Work work) {
  auto start = std::chrono::steady_clock::now();
  auto result = work();
  if (options.timing) {
    std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    llvm::raw_string_ostream out(report.timing);
    out << llvm::format("%8.1f ms  ", spent.count()) << what << "\n";
  }
  return result;
}

/// The place in the spec that an MLIR location names.
plum::Range Compilation::rangeOf(Location loc) {
  if (auto named = dyn_cast<NameLoc>(loc))
    return rangeOf(named.getChildLoc());
  if (auto fused = dyn_cast<FusedLoc>(loc))
    return fused.getLocations().empty() ? plum::Range()
                                        : rangeOf(fused.getLocations().front());
  auto place = dyn_cast<FileLineColLoc>(loc);
  if (!place || !place.getLine())
    return {};
  std::string_view line = source.line(place.getLine());
  uint32_t begin =
      uint32_t(line.data() - source.text().data()) + place.getColumn() - 1;
  return {begin, begin + 1};
}

void Compilation::listen(mlir::Diagnostic &diag) {
  plum::Range range = rangeOf(diag.getLocation());
  switch (diag.getSeverity()) {
  case DiagnosticSeverity::Error:
    diags.error(range, diag.str());
    break;
  case DiagnosticSeverity::Warning:
    diags.warning(range, diag.str());
    break;
  default:
    diags.remark(range, diag.str());
  }
  for (mlir::Diagnostic &note : diag.getNotes())
    diags.note(rangeOf(note.getLocation()), note.str());
}

Error Compilation::failure() {
  // Rendered messages carry their own places.
  std::string text = diags.render();
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return Error{kRendered, text, {}};
}

Status Compilation::run(StringRef last) {
  if (options.target != "cpu")
    return Error{"--target",
                 "unknown target '" + options.target + "', expected 'cpu'",
                 {}};
  for (int64_t chunk : options.chunks)
    if (chunk < 1 || chunk > 256 || !llvm::isPowerOf2_64(uint64_t(chunk)))
      return Error{"--chunk",
                   "chunk size " + std::to_string(chunk) +
                       " is not a power of two from 1 to 256",
                   {}};
  Result<HostTarget> made = HostTarget::create(options.cpu);
  if (!made)
    return made.error();
  target.emplace(std::move(*made));

  frontend::SpecOptions spec = options.spec;
  spec.stepOnly |= options.form == Form::Step;
  layer = timed("parse and check",
                [&] { return frontend::parseSpec(diags, spec); });
  if (!layer)
    return failure();
  ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diag) {
    listen(diag);
    return success();
  });
  EmitOptions emit;
  emit.f32Storage = options.precision == Precision::F32;
  module =
      timed("assoc", [&] { return emitAssoc(*layer, source, emit, context); });
  if (!module || mlir::failed(mlir::verify(*module)))
    return failure();

  PhaseOptions phase;
  phase.chunks.clear();
  if (options.form != Form::Step)
    phase.chunks.assign(options.chunks.begin(), options.chunks.end());
  phase.lanes = target->lanes();
  phase.registers = target->registers();
  phase.x86 = target->isX86();
  for (const Phase &each : phases()) {
    if (each.build) {
      PassManager pm(&context);
      each.build(pm, phase);
      if (mlir::failed(timed(each.name, [&] { return pm.run(*module); })))
        return failure();
    }
    if (each.name == "normal")
      module->walk([&](assoc::StepOp step) {
        if (!step.getBoundsAttr() || !step.getBoundsAttr().getAssumed())
          return;
        Value decay = step.getDecay();
        while (Operation *op = decay.getDefiningOp())
          decay = op->getOperand(0);
        auto op = step->getParentOfType<assoc::LayerOp>();
        unsigned number = cast<BlockArgument>(decay).getArgNumber();
        std::string name =
            cast<assoc::ArgAttr>(op.getArgs()[number]).getName().str();
        if (!llvm::is_contained(logDecays, name))
          logDecays.push_back(name);
      });
    // A warning has said why; whoever asked for chunks gets nothing else.
    if (each.name == "chunk" && options.form == Form::Chunk &&
        module->getOps<func::FuncOp>().empty()) {
      diags.error(layer->range, "layer '" + layer->name +
                                    "' has no chunkwise form, as asked for "
                                    "with '--form chunk'");
      return failure();
    }
    if (options.phasesDone)
      ++*options.phasesDone;
    if (each.name == last)
      break;
  }
  report.messages = diags.render(/*remarks=*/false);
  report.remarks = diags.render(/*remarks=*/true);
  return Status::ok();
}

std::string Compilation::print() {
  std::string text = describeChunks(*module);
  llvm::raw_string_ostream out(text);
  module->print(out, OpPrintingFlags().printNameLocAsPrefix(true));
  out << "\n";
  return text;
}

Result<std::string> Compilation::object() {
  return timed("obj", [&] { return target->emitObject(*module); });
}

Manifest Compilation::manifest() {
  Manifest m;
  m.abi = PLUM_KERNEL_ABI;
  m.plum = PLUM_VERSION;
  m.llvm = LLVM_VERSION_STRING;
  m.layer = layer->name;
  m.target = options.target;
  m.cpu = target->cpuName();
  m.features = target->features();
  m.precision = options.precision == Precision::F32      ? "f32"
                : options.precision == Precision::Robust ? "robust"
                                                         : "default";
  for (const frontend::Symbol *dim : layer->dims)
    m.dims.push_back({dim->name, dim->value});
  auto describe = [&](const frontend::Symbol *symbol) {
    ManifestTensor tensor;
    tensor.name = symbol->name;
    if (symbol->shape.kind == frontend::Shape::Matrix)
      tensor.shape = {symbol->shape.rows, symbol->shape.cols};
    else if (symbol->shape.kind == frontend::Shape::Row)
      tensor.shape = {symbol->shape.cols};
    tensor.declared = symbol->dtype;
    tensor.dtype =
        options.precision == Precision::F32 ? DType::F32 : symbol->dtype;
    return tensor;
  };
  for (const frontend::Symbol *symbol : layer->params)
    m.params.push_back(describe(symbol));
  for (const frontend::Symbol *symbol : layer->inputs)
    m.inputs.push_back(describe(symbol));
  for (const frontend::Symbol *symbol : layer->states)
    m.states.push_back(describe(symbol));
  for (const frontend::Symbol *symbol : layer->outputs)
    m.outputs.push_back(describe(symbol));
  m.logDecays = logDecays;
  for (LLVM::LLVMFuncOp function : module->getOps<LLVM::LLVMFuncOp>()) {
    auto bytes = function->getAttrOfType<IntegerAttr>(kWorkspaceAttr);
    if (!bytes)
      continue;
    ManifestKernel kernel;
    kernel.symbol = function.getName().str();
    kernel.workspaceBytes = bytes.getInt();
    if (auto chunk = function->getAttrOfType<IntegerAttr>(kChunkAttr)) {
      kernel.form = KernelForm::Chunk;
      kernel.chunk = chunk.getInt();
    }
    if (auto flops = function->getAttrOfType<IntegerAttr>(kFlopsAttr))
      kernel.flopsPerChunk = flops.getInt();
    auto products = function->getAttrOfType<ArrayAttr>(kMatmulsAttr);
    for (auto product : products.getAsRange<DictionaryAttr>()) {
      auto number = [&](StringRef key) {
        return product.getAs<IntegerAttr>(key).getInt();
      };
      ManifestMatmul matmul{product.getAs<StringAttr>("what").getValue().str(),
                            number("m"), number("n"), number("k"), 1};
      kernel.flopsPerChunk += 2 * matmul.m * matmul.n * matmul.k;
      kernel.matmuls.push_back(matmul);
    }
    m.kernels.push_back(std::move(kernel));
  }
  // Step first, then chunks in the order they were asked for.
  std::sort(m.kernels.begin(), m.kernels.end(),
            [&](const auto &a, const auto &b) {
              auto rank = [&](const ManifestKernel &kernel) {
                if (kernel.form == KernelForm::Step)
                  return std::ptrdiff_t(-1);
                return llvm::find(options.chunks, kernel.chunk) -
                       options.chunks.begin();
              };
              return rank(a) < rank(b);
            });
  return m;
}

} // namespace

Result<std::string> plum::compileToPhase(const Source &source,
                                         const CompileOptions &options,
                                         std::string_view phase,
                                         CompileReport &report) {
  StringRef last(phase.data(), phase.size());
  auto known = llvm::any_of(
      phases(), [&](const Phase &each) { return each.name == last; });
  if (!known) {
    std::string names;
    for (const Phase &each : phases())
      names += (names.empty() ? "" : ", ") + each.name.str();
    return Error{"--stop-after",
                 "unknown phase '" + last.str() + "', expected one of " + names,
                 {}};
  }
  Compilation compilation(source, options, report);
  if (Status status = compilation.run(last == "obj" ? "llvm" : last); !status)
    return status.error();
  if (last == "obj")
    return compilation.object();
  return compilation.print();
}

Status plum::compileBundle(const Source &source, const CompileOptions &options,
                           const std::string &dir, CompileReport &report) {
  Compilation compilation(source, options, report);
  if (Status status = compilation.run("llvm"); !status)
    return status;
  Result<std::string> object = compilation.object();
  if (!object)
    return object.error();
  return writeBundle(dir, compilation.manifest(), *object, source.text(),
                     options.keepExisting);
}

Result<Manifest> plum::describeLayer(const Source &source,
                                     const CompileOptions &options,
                                     CompileReport &report) {
  Compilation compilation(source, options, report);
  if (Status status = compilation.run("normal"); !status)
    return status.error();
  return compilation.manifest();
}
