//===- Phases.cpp - The one table of phases ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Pipelines/Phases.h"

#include "plum/Conversion/Passes.h"
#include "plum/Target/NVPTXTarget.h"
#include "plum/Transforms/Passes.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace plum;

static void toNormal(OpPassManager &pm, const PhaseOptions &) {
  pm.addPass(createCSEPass());
  pm.addNestedPass<assoc::LayerOp>(createNormalizePass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

static void toChunk(OpPassManager &pm, const PhaseOptions &options) {
  if (options.chunks.empty())
    return;
  ToChunkPassOptions chunk;
  chunk.chunks.assign(options.chunks.begin(), options.chunks.end());
  pm.addPass(createToChunkPass(chunk));
  pm.addPass(createCSEPass());
}

static void toPlan(OpPassManager &pm, const PhaseOptions &) {
  pm.addNestedPass<func::FuncOp>(createPlanPass());
}

static void toLLVM(OpPassManager &pm, const PhaseOptions &options) {
  LowerToCPUPassOptions cpu;
  cpu.lanes = options.lanes;
  cpu.registers = options.registers;
  cpu.x86 = options.x86;
  pm.addPass(createLowerToCPUPass(cpu));
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  pm.addPass(arith::createArithExpandOpsPass(expand));
  pm.addPass(createExpandMathsPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(createSCFToControlFlowPass());
  ConvertVectorToLLVMPassOptions vector;
  vector.reassociateFPReductions = true;
  pm.addPass(createConvertVectorToLLVMPass(vector));
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCSEPass());
}

static void toTile(OpPassManager &pm, const PhaseOptions &options) {
  ToTilePassOptions tile;
  tile.shared = gpuChipOf(options.sm).sharedBytes;
  tile.slice = options.slice;
  tile.stages = options.stages;
  tile.terms = options.terms;
  pm.addPass(createToTilePass(tile));
  pm.addNestedPass<tile::KernelOp>(createFoldMathsPass());
  pm.addNestedPass<tile::KernelOp>(createAssignLayoutsPass());
  pm.addPass(createCSEPass());
}

static void toNVVM(OpPassManager &pm, const PhaseOptions &options) {
  TileToNVVMPassOptions tile;
  tile.sm = options.sm;
  pm.addPass(createTileToNVVMPass(tile));
  AttendToGPUPassOptions attend;
  attend.sm = options.sm;
  attend.chunks.assign(options.chunks.begin(), options.chunks.end());
  pm.addPass(createAttendToGPUPass(attend));
  StepToGPUPassOptions step;
  step.sm = options.sm;
  pm.addPass(createStepToGPUPass(step));
  pm.addPass(createCSEPass());
}

ArrayRef<Phase> plum::phases() {
  using enum Machine;
  static constexpr Phase table[] = {
      {"assoc", All, "one token: the spec as updates of the state", nullptr},
      {"normal", All, "the same, every update a decay, erases and writes",
       toNormal},
      {"chunk", All, "C tokens: the chunkwise WY form as equations", toChunk},
      {"plan", All, "the equations split by what depends on the state", toPlan},
      {"llvm", CPU, "kernels in the llvm dialect", toLLVM},
      {"tile", GPU, "kernels of tiles: registers, shared memory, products",
       toTile},
      {"nvvm", GPU, "kernels as one thread runs them", toNVVM},
      {"ptx", GPU, "their PTX, as text", nullptr},
      {"obj", All, "the object file; for a GPU a cubin", nullptr},
  };
  return table;
}

SmallVector<Phase> plum::phasesFor(Machine machine) {
  SmallVector<Phase> some;
  for (const Phase &phase : phases())
    if (phase.machine == machine || phase.machine == Machine::All)
      some.push_back(phase);
  return some;
}

StringRef plum::stringify(Machine machine) {
  return machine == Machine::All   ? "all"
         : machine == Machine::CPU ? "cpu"
                                   : "gpu";
}

namespace {
/// The options of every phase on plum-opt's command line.
struct PhasePipelineOptions : public PassPipelineOptions<PhasePipelineOptions> {
  ListOption<int64_t> chunks{*this, "chunks",
                             llvm::cl::desc("chunk sizes C in tokens")};
  Option<int64_t> lanes{*this, "lanes",
                        llvm::cl::desc("f32 lanes of a vector register"),
                        llvm::cl::init(16)};
  Option<int64_t> registers{*this, "registers",
                            llvm::cl::desc("vector registers"),
                            llvm::cl::init(32)};
  Option<int64_t> sm{*this, "sm",
                     llvm::cl::desc("the GPU: 80, or 90 for sm_90a"),
                     llvm::cl::init(90)};
  Option<int64_t> slice{*this, "slice",
                        llvm::cl::desc("columns of V per team of a scan"),
                        llvm::cl::init(0)};
  Option<int64_t> stages{*this, "stages",
                         llvm::cl::desc("stages of a scan's rings"),
                         llvm::cl::init(0)};
  Option<int64_t> terms{*this, "terms",
                        llvm::cl::desc("bf16 terms of an fp32 operand"),
                        llvm::cl::init(1)};
};
} // namespace

void plum::registerPipelines() {
  registerTransformsPasses();
  registerConversionPasses();
  for (const Phase &phase : phases()) {
    if (!phase.build)
      continue;
    auto build = phase.build;
    // The registry keeps the pipeline; nothing else is to be done with it.
    static_cast<void>(PassPipelineRegistration<PhasePipelineOptions>(
        ("phase-" + phase.name).str(), phase.description,
        [build](OpPassManager &pm, const PhasePipelineOptions &given) {
          PhaseOptions options;
          if (!given.chunks.empty())
            options.chunks.assign(given.chunks.begin(), given.chunks.end());
          options.lanes = given.lanes;
          options.registers = given.registers;
          options.sm = given.sm;
          options.slice = given.slice;
          options.stages = given.stages;
          options.terms = given.terms;
          build(pm, options);
        }));
  }
}

void plum::registerDialects(DialectRegistry &registry) {
  registry.insert<assoc::AssocDialect, chunk::ChunkDialect, tile::TileDialect,
                  arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                  math::MathDialect, scf::SCFDialect, tensor::TensorDialect,
                  vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVPTXTranslations(registry);
}
