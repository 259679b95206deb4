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

#include "plum/ABI/GpuABI.h"
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

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

/// sums[i] = what the sequences before i have, for i up to `count`, by one
/// warp.
static void emitSums(Ptx &p, Value count, Value sums,
                     function_ref<Value(Value)> ofSequence) {
  Type i32 = p.getI32Type();
  Value lane = p.tid();
  p.loop(p.i32(0), p.add(count, 1), 32, ValueRange{p.i32(0)},
         [&](Value base, ValueRange state) -> Values {
           Value i = p.add(base, lane);
           Value own = p.ifElse(
               p.lt(i, count), i32, [&]() -> Values { return {ofSequence(i)}; },
               [&]() -> Values { return {p.i32(0)}; })[0];
           Value sum = own;
           for (int64_t d : {1, 2, 4, 8, 16}) {
             Value up = p.shuffleUp(sum, d);
             sum = p.select(p.ge(lane, p.i32(d)), p.add(sum, up), sum);
           }
           Value before = p.add(state[0], p.sub(sum, own));
           p.ifThen(p.ge(count, i), [&] {
             p.store(before, p.global(p.add(sums, p.shl(p.toI64(i), 2))));
           });
           p.syncWarp();
           return {p.add(state[0], p.shuffleIndex(sum, p.i32(31)))};
         });
}

/// chunk_offsets: the chunks and, where the run wants them, the snapshots of
/// the sequences before each.
static KernelShape emitIndex(Ptx &p, int64_t C) {
  Type i32 = p.getI32Type();
  Value count = p.argument(ARG(sequences), i32);
  Value cu = p.argument(ARG(cu_seqlens), p.getI64Type());
  Value flags = p.argument(ARG(flags), i32);
  Value offsets = p.argument(ARG(chunk_offsets), p.getI64Type());
  auto length = [&](Value i) {
    return p.sub(sequenceStart(p, cu, flags, p.add(i, 1)),
                 sequenceStart(p, cu, flags, i));
  };
  emitSums(p, count, offsets,
           [&](Value i) { return p.divu(p.add(length(i), C - 1), C); });
  Value every = p.argument(ARG(snapshot_every), i32);
  p.ifThen(p.lt(p.i32(0), every), [&] {
    Value second = p.add(offsets, p.shl(p.toI64(p.add(count, 1)), 2));
    emitSums(p, count, second, [&](Value i) {
      Value number = p.divu(p.divu(length(i), p.i32(C)), every);
      return p.select(p.ge(slotOf(p, i), p.i32(0)), number, p.i32(0));
    });
  });
  KernelShape shape;
  shape.threads = 32;
  return shape;
}

namespace {
struct TileToNVVMPass : public plum::impl::TileToNVVMPassBase<TileToNVVMPass> {
  using TileToNVVMPassBase::TileToNVVMPassBase;

  /// plum_kda_prepare64 gives plum_kda_index64.
  static std::string nameBeside(tile::KernelOp kernel, StringRef role) {
    auto [before, after] = kernel.getSymName().rsplit(kernel.getRole());
    return (before + role + after).str();
  }

  static void describe(Ptx &p, StringRef role, int64_t chunk,
                       const KernelShape &shape, StringRef grid) {
    LLVM::LLVMFuncOp f = p.function();
    auto number = [&](int64_t n) { return p.getI64IntegerAttr(n); };
    f->setAttr(kFormAttr, p.getStringAttr("chunk"));
    f->setAttr(kChunkAttr, number(chunk));
    f->setAttr(kRoleAttr, p.getStringAttr(role));
    f->setAttr(kGridAttr, p.getStringAttr(grid));
    f->setAttr(kSlicesAttr, number(1));
    f->setAttr(kThreadsAttr, number(shape.threads));
    f->setAttr(kSharedBytesAttr, number(shape.sharedBytes));
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
        describe(p, "index", chunk, shape, "one");
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
      describe(p, kernel.getRole(), chunk, shape,
               scan ? "sequences" : "chunks");
      p.function()->setAttr(kSlicesAttr, p.getI64IntegerAttr(emitter.slices()));
      if (kernel.getRole() == "summary") {
        const Segment &segment = emitter.segmentShape();
        p.function()->setAttr(kSegmentBytesAttr,
                              p.getI64IntegerAttr(segment.bytes()));
        Ptx combine(module, nameBeside(kernel, "combine"), chip);
        KernelShape combineShape = emitCombine(combine, segment);
        combine.finish(combineShape);
        describe(combine, "combine", chunk, combineShape, "sequences");
        combine.function()->setAttr(
            kSlicesAttr, p.getI64IntegerAttr(combineSlices(segment)));
      }
      if (!scan)
        p.function()->setAttr(kBlobBytesAttr,
                              p.getI64IntegerAttr(kernel.getBlob()));
      kernel.erase();
    }
  }
};
} // namespace
