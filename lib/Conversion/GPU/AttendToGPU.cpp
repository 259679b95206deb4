//===- AttendToGPU.cpp - Layers with growing states on a GPU ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

#include "plum/Conversion/Passes.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#define DEBUG_TYPE "plum-attend-to-gpu"

namespace plum {
#define GEN_PASS_DEF_ATTENDTOGPUPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;

namespace {

struct AttendToGPUPass
    : public plum::impl::AttendToGPUPassBase<AttendToGPUPass> {
  using AttendToGPUPassBase::AttendToGPUPassBase;

  /// The kernels for chunks of so many tokens, or for single ones, in the order
  /// of their launch.
  static LogicalResult lower(LayerOp op, const AttendLayer &layer, Chip chip,
                             int64_t chunk) {
    FailureOr<AttendShape> shape =
        layer.exact() ? AttendShape::chooseExact(layer)
                      : AttendShape::choose(layer, chip, chunk);
    if (failed(shape))
      return failure();
    const bool step = shape->step();
    LogicalResult result = success();
    auto make = [&](StringRef role, StringRef grid, int64_t slices,
                    function_ref<KernelShape(Ptx &)> emit) {
      std::string name = ("plum_" + op.getSymName() + "_" + role).str();
      if (!step)
        name += std::to_string(chunk);
      Ptx p(op->getParentOfType<ModuleOp>(), name, chip);
      p.setLoc(op.getLoc());
      KernelShape launch = emit(p);
      p.finish(launch);
      describe(p, {step ? "step" : "chunk", role, grid, chunk, slices}, launch);
      return p.function();
    };
    auto emitter = [&](KernelShape (AttendEmitter::*kernel)()) {
      return [&, kernel](Ptx &p) {
        AttendEmitter emitter(p, layer, *shape);
        KernelShape launch = (emitter.*kernel)();
        if (emitter.failed())
          result = failure();
        return launch;
      };
    };
    if (!step)
      make("index", "one", 1, [&](Ptx &p) { return emitIndex(p, chunk); });
    make("carry", "sequences", AttendEmitter::kCarrySlices,
         emitter(&AttendEmitter::carry));
    StringRef each = step ? "tokens" : "chunks";
    make("append", each, 1, emitter(&AttendEmitter::append));
    auto attend = make("attend", each, shape->splits,
                       emitter(layer.exact() ? &AttendEmitter::attendExact
                                             : &AttendEmitter::attend));
    if (step) {
      const int64_t bytes = shape->splits * AttendShape::partBytes(layer);
      attend->setAttr(kBlobBytesAttr, Builder(op).getI64IntegerAttr(bytes));
      if (shape->heads())
        attend->setAttr(kHeadBlockAttr,
                        Builder(op).getI64IntegerAttr(shape->rows()));
      make("merge", each, 1, emitter(&AttendEmitter::merge));
    }
    return result;
  }

  static void warnOfChunks(const AttendLayer &layer) {
    StringRef name =
        cast<ArgAttr>(layer.op.getArgs()[layer.beyondBF16.getArgNumber()])
            .getName();
    InFlightDiagnostic warning =
        layer.op.emitWarning()
        << "no chunk kernels for this layer on a GPU: input '" << name
        << "' is not bf16";
    warning.attachNote() << "the step kernel runs it";
  }

  void runOnOperation() override {
    for (auto op :
         llvm::make_early_inc_range(getOperation().getOps<LayerOp>())) {
      if (!AttendLayer::grows(op))
        continue;
      FailureOr<AttendLayer> layer = AttendLayer::read(op);
      if (failed(layer))
        return signalPassFailure();
      SmallVector<int64_t> sizes(chunks.begin(), chunks.end());
      if (layer->exact() && !sizes.empty()) {
        warnOfChunks(*layer);
        sizes.clear();
      }
      sizes.push_back(1);
      for (int64_t size : sizes)
        if (failed(lower(op, *layer, Chip{sm}, size)))
          return signalPassFailure();
      op.erase();
    }
  }
};

} // namespace
