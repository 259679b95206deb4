//===- LowerToCPU.cpp - Plans and layers to CPU kernels ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One kernel per planned function and one step kernel per layer. The lowering
// writes vector code directly, instead of going through linalg and
// bufferization: the shapes are few and known, the tiles follow from the
// register file, and a layer compiles in a fraction of a second.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#define DEBUG_TYPE "plum-lower-to-cpu"

namespace plum {
#define GEN_PASS_DEF_LOWERTOCPUPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;

namespace {

struct LowerToCPUPass : public plum::impl::LowerToCPUPassBase<LowerToCPUPass> {
  using LowerToCPUPassBase::LowerToCPUPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    cpu::Machine machine{lanes, registers, x86};
    // A kernel's states are [K, V] in memory; the caller transposes. Taking
    // another layout for this one would go unnoticed.
    for (auto layer : module.getOps<assoc::LayerOp>())
      for (BlockArgument state : layer.argumentsOf(assoc::Role::State))
        if (auto type = dyn_cast<assoc::StateType>(state.getType());
            type && type.getLayout() != assoc::Layout::KV) {
          layer.emitOpError()
              << "expects states in layout kv, got " << state.getType();
          return signalPassFailure();
        }
    SmallVector<Operation *> lowered;
    for (func::FuncOp source :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (source->hasAttr(kChunkAttr) && !source->hasAttr(kWorkspaceAttr)) {
        cpu::lowerChunkFunction(source, machine);
        lowered.push_back(source);
      }
    for (auto layer :
         llvm::make_early_inc_range(module.getOps<assoc::LayerOp>())) {
      if (!cpu::lowerStepLayer(layer, machine))
        return signalPassFailure();
      lowered.push_back(layer);
    }
    for (Operation *op : lowered)
      op->erase();
  }
};

} // namespace
