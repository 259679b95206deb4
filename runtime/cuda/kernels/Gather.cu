//===- Gather.cu - Rows of tokens to panels of experts ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each pair's row of x to its place in the panels of its expert (Panels.h),
// zeros behind the last pair of a tile and the last column. A thread has a unit
// of all four lanes: 4 pieces of 16 bytes, which it turns over.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Panels.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kThreads = 256, kRows = 8; ///< Of a block of threads.

template <typename Format> void gather(const MoeGatherArgs &args) {
  if (blockX() >= *args.tileCount)
    return;
  const MoeTile tile = args.tiles[blockX()];
  const int rows = panelRows(tile.count), first = blockY() * kRows;
  if (first >= rows)
    return;
  const int steps = ceilDiv(args.columns, Format::kColumns);
  char *to = args.panels + Panels<Format>::bytes(tile.row, args.columns);
  const int64_t stepBytes = int64_t(rows) * Format::kColumns * 2;
  // Threads beside each other have units beside each other: of a row's lines.
  for (int at = threadIndex(); at < kRows * steps * Format::kUnits;
       at += kThreads) {
    const int unit = at % Format::kUnits, step = at / Format::kUnits % steps;
    const int row = first + at / Format::kUnits / steps;
    Bytes16 in[4] = {};
    if (row < tile.count) {
      const char *x =
          static_cast<const char *>(args.x.data) +
          args.order[tile.begin + row] / args.divisor * args.x.stride * 2;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int column = step * Format::kColumns + Format::unit(unit, t) * 8;
        if (column < args.columns)
          in[t] = *reinterpret_cast<const Bytes16 *>(x + column * 2);
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
      *reinterpret_cast<Bytes16 *>(
          to + step * stepBytes +
          Panels<Format>::at(rows, row, 4 * unit + c)) = {
          {in[0].word[c], in[1].word[c], in[2].word[c], in[3].word[c]}};
  }
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

// Grid: tiles, then 8 of the most rows that one has.
PLUM_KERNEL(plum_moe_gather_mxfp4, MoeGatherArgs, 256, 4) {
  gather<Mxfp4>(args);
}
PLUM_KERNEL(plum_moe_gather_bf16, MoeGatherArgs, 256, 4) { gather<Bf16>(args); }
