//===- Gather.cu - Rows of tokens to panels of experts ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each pair's row of x to its place in the panels of its expert (Panels.h),
// zeros behind the last pair of a tile and the last column. A warp has a row,
// and a lane pieces of it: 4 times 4 bytes, columns 2 c, 2 c + 1 of a unit of
// the four lanes of a product. Neighbours read neighbours and write whole rows
// of panels.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Panels.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kRows = 8; ///< Of a block: a warp has one.

template <typename Format> void gather(const MoeGatherArgs &args) {
  if (blockX() >= *args.tileCount)
    return;
  const MoeTile tile = args.tiles[blockX()];
  const int rows = panelRows(tile.count), row = blockY() * kRows + warp();
  if (row >= rows)
    return;
  constexpr int pieces = 4 * Format::kUnits; // Of a row in a step.
  static_assert(kWarp % pieces == 0);
  const int unit = lane() % pieces / 4, c = lane() % 4;
  const int steps = ceilDiv(args.columns, Format::kColumns);
  char *to = args.panels + Panels<Format>::bytes(tile.row, args.columns) +
             Panels<Format>::at(rows, row, lane() % pieces);
  const int64_t stepBytes = int64_t(rows) * Format::kColumns * 2;
  const bool there = row < tile.count;
  const int64_t from = there ? args.order[tile.begin + row] / args.divisor : 0;
  const auto *x =
      static_cast<const uint16_t *>(args.x.data) + from * args.x.stride + 2 * c;
#pragma unroll 4
  for (int step = lane() / pieces; step < steps; step += kWarp / pieces) {
    Bytes16 y = {};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int column = step * Format::kColumns + Format::unit(unit, t) * 8;
      if (there && column < args.columns)
        y.word[t] = *reinterpret_cast<const uint32_t *>(x + column);
    }
    *reinterpret_cast<Bytes16 *>(to + step * stepBytes) = y;
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
