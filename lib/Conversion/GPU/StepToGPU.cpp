//===- StepToGPU.cpp - The step form of a layer as a GPU kernel -*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decode: one token, or a few, of many sequences. A CTA keeps a slice of one
// head's states in registers from the first token to the last, so that each is
// read once and written once (StepShape.h); what threads need of each other
// goes through shared memory, at as few barriers as the equations allow
// (StepGraph.h).
//
// Not handled: states that do not fit into the registers of one CTA where a row
// of V is needed whole, and updates that read with rows of a state (`S @ S`).
//
//===----------------------------------------------------------------------===//

#include "Place.h"
#include "StepEmitter.h"

#include "plum/ABI/GpuABI.h"
#include "plum/Conversion/Passes.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#define DEBUG_TYPE "plum-step-to-gpu"

namespace plum {
#define GEN_PASS_DEF_STEPTOGPUPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;

/// A decay is a factor on the way to the states, so its exp is an op like any
/// other: computed once for each channel, not by every thread that needs it.
static void makeDecaysLinear(LayerOp layer) {
  layer.walk([](StepOp op) {
    if (!op.getDecay() || *op.getDomain() != Domain::Log)
      return;
    OpBuilder builder(op);
    op.getDecayMutable().assign(
        math::ExpOp::create(builder, op.getLoc(), op.getDecay()));
    op.setDomain(Domain::Linear);
    op.removeBoundsAttr();
  });
}

static LogicalResult checkTensors(LayerOp layer) {
  for (BlockArgument state : layer.argumentsOf(Role::State))
    if (isa<ListType>(state.getType()))
      return layer.emitOpError() << "has growing state " << state.getArgNumber()
                                 << ", which plum-attend-to-gpu lowers";
  // Params, inputs; states before and after; outputs; snapshots.
  size_t count = layer.getArgs().size() + layer.getOutputs().size() +
                 2 * layer.argumentsOf(Role::State).size();
  if (count <= PLUM_GPU_MAX_TENSORS)
    return success();
  return layer.emitOpError()
         << "has " << count << " tensors, a GPU kernel takes at most "
         << PLUM_GPU_MAX_TENSORS;
}

/// The layer's chunk kernels are there already, as tiles or as threads.
static bool hasChunkKernels(LayerOp layer) {
  for (Operation &op : *layer->getBlock()) {
    auto form = op.getAttrOfType<StringAttr>(kFormAttr);
    if (isa<tile::KernelOp>(op) || (form && form.getValue() == "chunk"))
      return true;
  }
  return false;
}

static LogicalResult lower(LayerOp layer, Chip chip) {
  makeDecaysLinear(layer);
  if (failed(checkTensors(layer)))
    return failure();
  FailureOr<StepGraph> graph = StepGraph::read(layer);
  if (failed(graph))
    return failure();
  bool hasChunks = hasChunkKernels(layer);
  FailureOr<StepShape> shape = StepShape::choose(layer, *graph, hasChunks);
  if (failed(shape))
    return success(hasChunks);
  Ptx b(layer->getParentOfType<ModuleOp>(),
        ("plum_" + layer.getSymName() + "_step").str(), chip);
  b.setLoc(layer.getLoc());
  StepEmitter emitter(layer, *graph, *shape, b);
  if (failed(emitter.run()))
    return failure();
  KernelShape launch{.threads = shape->threads,
                     .sharedBytes = emitter.sharedBytes()};
  b.finish(launch);
  describe(b, {"step", "step", "sequences", 1, shape->slices}, launch);
  b.function()->setAttr(kFlopsAttr, b.getI64IntegerAttr(emitter.flops()));
  return success();
}

namespace {

struct StepToGPUPass : public plum::impl::StepToGPUPassBase<StepToGPUPass> {
  using StepToGPUPassBase::StepToGPUPassBase;

  void runOnOperation() override {
    for (auto layer :
         llvm::make_early_inc_range(getOperation().getOps<LayerOp>())) {
      if (failed(lower(layer, Chip{sm})))
        return signalPassFailure();
      layer.erase();
    }
  }
};

} // namespace
