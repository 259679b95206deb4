//===- TileToNVVM.cpp - Tile kernels to what threads do ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One llvm.func for each tile.kernel, and beside them the kernels that need no
// tiles: `index`, which counts the chunks and snapshots of packed sequences,
// and `combine`.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include "plum/Conversion/Passes.h"
#include "plum/Target/GpuChip.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#define DEBUG_TYPE "plum-tile-to-nvvm"

namespace plum {
#define GEN_PASS_DEF_TILETONVVMPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

namespace {
struct TileToNVVMPass : public plum::impl::TileToNVVMPassBase<TileToNVVMPass> {
  using TileToNVVMPassBase::TileToNVVMPassBase;

  /// plum_kda_prepare64 gives plum_kda_index64.
  static std::string nameBeside(tile::KernelOp kernel, StringRef role) {
    auto [before, after] = kernel.getSymName().rsplit(kernel.getRole());
    return (before + role + after).str();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Chip chip{sm};
    for (auto kernel :
         llvm::make_early_inc_range(module.getOps<tile::KernelOp>())) {
      const int64_t chunk = kernel.getChunk();
      if (kernel.getRole() == "prepare") {
        Ptx p(module, nameBeside(kernel, "index"), chip);
        KernelShape shape = emitIndex(p, chunk);
        p.finish(shape);
        describe(p, {"chunk", "index", "one", chunk}, shape);
      }
      Ptx p(module, kernel.getSymName(), chip);
      TileEmitter emitter(p, kernel);
      KernelShape shape = emitter.emit();
      if (shape.sharedBytes > gpuChipOf(sm).sharedBytes) {
        kernel.emitOpError()
            << "needs " << shape.sharedBytes
            << " bytes of shared memory, more than a CTA can have";
        return signalPassFailure();
      }
      p.finish(shape);
      bool scan = kernel.getRole() != "prepare";
      describe(p,
               {"chunk", kernel.getRole(), scan ? "sequences" : "chunks", chunk,
                emitter.slices()},
               shape);
      if (kernel.getRole() == "summary") {
        const Segment &segment = emitter.segmentShape();
        p.function()->setAttr(kSegmentBytesAttr,
                              p.getI64IntegerAttr(segment.bytes()));
        Ptx combine(module, nameBeside(kernel, "combine"), chip);
        KernelShape combineShape = emitCombine(combine, segment);
        combine.finish(combineShape);
        describe(
            combine,
            {"chunk", "combine", "sequences", chunk, combineSlices(segment)},
            combineShape);
      }
      if (!scan)
        p.function()->setAttr(kBlobBytesAttr,
                              p.getI64IntegerAttr(kernel.getBlob()));
      kernel.erase();
    }
  }
};
} // namespace
