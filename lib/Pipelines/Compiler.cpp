//===- Compiler.cpp - A spec in, a phase's IR or a bundle out ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Pipelines/Compiler.h"

#include "BundleWriter.h"
#include "KernelFacts.h"
#include "plum/ABI/GpuABI.h"
#include "plum/ABI/KernelABI.h"
#include "plum/Conversion/Passes.h"
#include "plum/Emit/EmitAssoc.h"
#include "plum/Pipelines/Maths.h"
#include "plum/Pipelines/Phases.h"
#include "plum/Target/GpuChip.h"
#include "plum/Target/HostTarget.h"
#include "plum/Target/NVPTXTarget.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <chrono>
#include <cmath>

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

  /// Runs the phases of IR up to and including `last`.
  Status run(StringRef last);
  std::string print();
  /// A phase after those of IR: `ptx` or `obj`.
  Result<std::string> text(StringRef phase);
  /// All that a bundle holds of code.
  Result<BundleCode> code();
  /// Without kernels.
  Manifest manifest();
  Status addKernels(Manifest &manifest);
  /// After phase normal.
  LayerFacts facts();

private:
  Status chooseTarget();
  std::vector<int64_t> chunks() const;
  Result<std::string> ptx();
  Result<std::string> cubin(const std::string &ptx, const std::string &ptxas);
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
  std::optional<HostTarget> host; ///< Or
  const GpuChip *chip = nullptr;  ///< a GPU.
  int64_t steps = 1; ///< Updates a token, once the normal form is there.
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

/// CPU or GPU.
static Result<Machine> machineOf(const std::string &target) {
  if (target == "cpu")
    return Machine::CPU;
  if (findGpuChip(target))
    return Machine::GPU;
  return Error{"--target",
               "unknown target '" + target + "', expected one of cpu, " +
                   gpuChipNames(),
               {}};
}

Status Compilation::chooseTarget() {
  Result<Machine> machine = machineOf(options.target);
  if (!machine)
    return machine.error();
  if (*machine == Machine::GPU) {
    chip = findGpuChip(options.target);
    return Status::ok();
  }
  Result<HostTarget> made = HostTarget::create(options.cpu);
  if (!made)
    return made.error();
  host.emplace(std::move(*made));
  return Status::ok();
}

/// Updates that a token makes to a state in turn; of the state with most.
static int64_t stepsOf(ModuleOp module) {
  llvm::DenseMap<Value, int64_t> count;
  int64_t most = 1;
  module.walk([&](assoc::StepOp step) {
    int64_t n = count.lookup(step.getState()) + 1;
    count[step.getResult()] = n;
    most = std::max(most, n);
  });
  return most;
}

std::vector<int64_t> Compilation::chunks() const {
  if (!options.chunks.empty())
    return options.chunks;
  // A GPU's chunk has a row for each update.
  int64_t size = 64;
  if (chip && !layer->states.empty() &&
      llvm::all_of(layer->states, [&](const frontend::Symbol *state) {
        return state->shape.kind == frontend::Shape::List &&
               gpuTokensOfList(*chip, state->shape.cols) == 128;
      }))
    size = 128;
  int64_t rows = size;
  for (const frontend::Symbol *state : layer->states)
    if (state->shape.kind == frontend::Shape::Matrix)
      rows = std::min(rows, gpuChunkRows(state->shape.rows));
  while (chip && size > 16 && size * steps > rows)
    size /= 2;
  return {size};
}

Status Compilation::run(StringRef last) {
  if (Status status = chooseTarget(); !status)
    return status;
  for (int64_t chunk : options.chunks)
    if (chunk < 1 || chunk > 256 || !llvm::isPowerOf2_64(uint64_t(chunk)))
      return Error{"--chunk",
                   "chunk size " + std::to_string(chunk) +
                       " is not a power of two from 1 to 256",
                   {}};

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
  if (host) {
    phase.lanes = host->lanes();
    phase.registers = host->registers();
    phase.x86 = host->isX86();
  } else {
    phase.sm = chip->sm;
    phase.slice = options.slice;
    phase.stages = options.stages;
    phase.terms = options.precision == Precision::Robust ? 2 : 1;
  }
  for (const Phase &each : phasesFor(chip ? Machine::GPU : Machine::CPU)) {
    if (each.name == "chunk" && options.form != Form::Step) {
      steps = stepsOf(*module);
      std::vector<int64_t> sizes = chunks();
      phase.chunks.assign(sizes.begin(), sizes.end());
    }
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

Result<std::string> Compilation::ptx() {
  return timed("ptx", [&] { return translateToPTX(*module, *chip); });
}

Result<std::string> Compilation::cubin(const std::string &ptx,
                                       const std::string &ptxas) {
  Result<AssembledKernels> kernels =
      timed("obj", [&] { return assemblePTX(ptx, *chip, ptxas); });
  if (!kernels)
    return kernels.error();
  llvm::raw_string_ostream remarks(report.remarks);
  for (const KernelResources &kernel : kernels->kernels) {
    remarks << "remark: " << describe(kernel) << "\n";
    report.kernels.push_back({kernel.symbol, kernel.registers,
                              kernel.spillStoreBytes + kernel.spillLoadBytes});
  }
  for (const std::string &warning : kernels->warnings) {
    report.messages += "ptxas: warning: " + warning + "\n";
    remarks << "ptxas: warning: " << warning << "\n";
  }
  return std::move(kernels->cubin);
}

Result<std::string> Compilation::text(StringRef phase) {
  if (host)
    return timed("obj", [&] { return host->emitObject(*module); });
  Manifest unused;
  if (Status status = addKernels(unused); !status)
    return status.error();
  Result<std::string> ptxas = std::string();
  if (phase == "obj" && !(ptxas = findPtxas(options.ptxas)))
    return ptxas.error(); // Known before the work is done.
  Result<std::string> text = ptx();
  if (!text || phase == "ptx")
    return text;
  return cubin(*text, *ptxas);
}

Result<BundleCode> Compilation::code() {
  BundleCode code;
  Result<std::string> text = this->text(host ? "obj" : "ptx");
  if (!text)
    return text.error();
  if (host) {
    code.object = std::move(*text);
    return code;
  }
  code.ptx = std::move(*text);
  Result<std::string> ptxas = findPtxas(options.ptxas);
  if (!ptxas) {
    if (!options.ptxas.empty())
      return ptxas.error();
    report.remarks += "remark: no ptxas found: the bundle holds PTX only, "
                      "which the driver compiles when it is loaded\n";
    return code;
  }
  Result<std::string> binary = cubin(code.ptx, *ptxas);
  if (!binary)
    return binary.error();
  code.cubin = std::move(*binary);
  return code;
}

Manifest Compilation::manifest() {
  Manifest m;
  m.abi = chip ? PLUM_GPU_ABI : PLUM_KERNEL_ABI;
  m.plum = PLUM_VERSION;
  m.llvm = LLVM_VERSION_STRING;
  m.layer = layer->name;
  m.target = options.target;
  if (host) {
    m.cpu = host->cpuName();
    m.features = host->features();
  } else {
    m.object = "kernels.ptx";
  }
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
    else if (symbol->shape.kind != frontend::Shape::Scalar)
      tensor.shape = {symbol->shape.cols};
    tensor.grows = symbol->shape.kind == frontend::Shape::List;
    if (const frontend::Symbol *rows = layer->rowsOf(*symbol))
      tensor.rows = rows->name;
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
  m.tuning = options.tuning;
  return m;
}

Status Compilation::addKernels(Manifest &manifest) {
  ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diag) {
    listen(diag);
    return success();
  });
  if (mlir::failed(readKernelFacts(*module, chip != nullptr, chunks(),
                                   manifest.kernels)))
    return failure();
  const bool chunkOnly = options.form == Form::Chunk;
  for (const ManifestKernel &kernel : manifest.kernels)
    if (!chunkOnly || kernel.form == KernelForm::Chunk)
      return Status::ok();
  // Rendered together with the warning that says why.
  diags.error(layer->range, "layer '" + layer->name + "' has no " +
                                (chunkOnly ? "chunk " : "") +
                                "kernels for target '" + options.target + "'");
  return failure();
}

LayerFacts Compilation::facts() {
  LayerFacts facts;
  facts.manifest = manifest();
  facts.chunked = layer->affine;
  facts.steps = stepsOf(*module);
  module->walk([&](assoc::StepOp step) {
    facts.erases += step.getAlong().size();
    facts.writes += step.getKeys().size();
    if (!step.getDecay())
      return;
    auto bounds = step.getBoundsAttr();
    double low = bounds ? bounds.getLow().convertToDouble() : -HUGE_VAL;
    bool isLog = step.getDomain() == assoc::Domain::Log;
    if (!isLog) // A factor.
      low = low > 0 ? std::log(low) : -HUGE_VAL;
    if (!std::isfinite(low))
      facts.lowestLogDecay.reset();
    else if (facts.lowestLogDecay)
      facts.lowestLogDecay = std::min(*facts.lowestLogDecay, low);
  });
  // Values are numbered, so that nobody's names or places are in the text.
  std::string text = options.precision == Precision::F32 ? "f32\n" : "";
  llvm::raw_string_ostream out(text);
  module->print(out);
  facts.signature =
      llvm::utohexstr(llvm::xxh3_64bits(StringRef(text)), true, 16);
  return facts;
}

} // namespace

Result<std::string> plum::compileToPhase(const Source &source,
                                         const CompileOptions &options,
                                         std::string_view phase,
                                         CompileReport &report) {
  StringRef last(phase.data(), phase.size());
  Result<Machine> machine = machineOf(options.target);
  if (!machine)
    return machine.error();
  std::string names;
  bool known = false;
  for (const Phase &each : phasesFor(*machine)) {
    names += (names.empty() ? "" : ", ") + each.name.str();
    known |= each.name == last;
  }
  if (!known)
    return Error{"--stop-after",
                 "target '" + options.target + "' has no phase '" + last.str() +
                     "', expected one of " + names,
                 {}};
  Compilation compilation(source, options, report);
  if (Status status = compilation.run(last); !status)
    return status.error();
  if (last == "ptx" || last == "obj")
    return compilation.text(last);
  return compilation.print();
}

Status plum::compileBundle(const Source &source, const CompileOptions &options,
                           const std::string &dir, CompileReport &report) {
  Compilation compilation(source, options, report);
  if (Status status = compilation.run("obj"); !status)
    return status;
  Manifest manifest = compilation.manifest();
  if (Status status = compilation.addKernels(manifest); !status)
    return status;
  Result<BundleCode> code = compilation.code();
  if (!code)
    return code.error();
  return writeBundle(dir, manifest, *code, source.text(), options.keepExisting);
}

Result<LayerFacts> plum::layerFacts(const Source &source,
                                    const CompileOptions &options,
                                    CompileReport &report) {
  Compilation compilation(source, options, report);
  if (Status status = compilation.run("normal"); !status)
    return status.error();
  return compilation.facts();
}

Result<Manifest> plum::describeLayer(const Source &source,
                                     const CompileOptions &options,
                                     CompileReport &report) {
  Compilation compilation(source, options, report);
  if (Status status = compilation.run("normal"); !status)
    return status.error();
  return compilation.manifest();
}
