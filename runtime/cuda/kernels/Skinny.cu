//===- Skinny.cu - Up to 64 rows times weights, in bf16 ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decoding: weights are read once, as they are stored, and that takes the time.
// Rows of a weight are the left operand of multiplyAdd, 16 at a time, rows of x
// the right one, 8 at a time. Both operands come straight from memory, 16 bytes
// a lane: lane 4 g + t has columns 8 t .. 8 t + 7 of a step of 32 in row g of
// either, which is not the order of the instruction's columns but the same for
// both, and a sum over columns does not mind.
//
// The 8 warps of a block share its rows of the weight: each sums an eighth of
// the columns, then the eight sums are added, in order. That order depends on
// the number of columns alone, so a row of x has the same bits in every batch.
//
// One launch does several products, each with its own x. Latent attention has a
// product for each head, all of one shape: kernels of their own do these, with
// the few registers more that it takes.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kStep = 32; ///< Columns.

/// 8 columns of a row of x, as bf16 pairs.
template <bool Wide>
PLUM_INLINE Bytes16 operand(const SkinnyPart &part, int64_t row, int column) {
  if constexpr (!Wide) {
    return *reinterpret_cast<const Bytes16 *>(
        static_cast<const uint16_t *>(part.x) + row * part.ldx + column);
  } else {
    float x[8];
    load<8>(part.x, Type::F32, row * part.ldx + column, x);
    Bytes16 pairs;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs.word[i] = narrowPair(x[2 * i], x[2 * i + 1]);
    return pairs;
  }
}

/// The product that a block has a part of: one of several, or, with `Heads`,
/// that of a head. `block` counts from its first one.
template <bool Heads, int Rows>
PLUM_INLINE SkinnyPart product(const SkinnyArgs &args, int64_t &block) {
  if constexpr (Heads) {
    SkinnyPart part = args.parts[0];
    const int64_t blocks = ceilDiv(part.outs, int64_t(16 * Rows));
    const int64_t head = blockX() / blocks;
    block = blockX() % blocks;
    part.x = static_cast<const char *>(part.x) + head * part.xHead;
    part.w = static_cast<const uint16_t *>(part.w) + head * part.wHead;
    part.y += head * part.yHead;
    return part;
  } else {
    int index = 0;
    while (index + 1 < args.count &&
           blockX() >= args.parts[index + 1].firstBlock)
      ++index;
    block = blockX() - args.parts[index].firstBlock;
    return args.parts[index];
  }
}

/// Up to 8 * Tiles rows of x, 16 * Rows rows of a weight.
template <int Tiles, int Rows, bool Wide, bool Heads>
PLUM_INLINE void skinny(const SkinnyArgs &args, float *shared) {
  int64_t block = 0;
  const SkinnyPart part = product<Heads, Rows>(args, block);
  const int g = lane() / 4, t = lane() % 4;
  const int64_t firstOut = block * (16 * int64_t(Rows));
  const int64_t firstRow = int64_t(blockY()) * (8 * Tiles);
  // Behind the last row, the last once more: nobody writes what comes of it.
  const uint16_t *weight[Rows][2];
#pragma unroll
  for (int m = 0; m < Rows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      weight[m][half] =
          static_cast<const uint16_t *>(part.w) +
          smaller(firstOut + 16 * m + 8 * half + g, part.outs - 1) * part.cols;
  int64_t row[Tiles];
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
    row[n] = smaller(firstRow + 8 * n + g, args.rows - 1);

  float sum[Rows][Tiles][4];
#pragma unroll
  for (int m = 0; m < Rows; ++m)
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[m][n][i] = 0;
  const int steps = int(ceilDiv(part.cols, int64_t(kStep)));
  const int share = ceilDiv(steps, kWarps);
  const int begin = warp() * share, end = smaller(begin + share, steps);
  constexpr int kAhead = ///< Steps whose loads go together.
      Rows == 1   ? 4
      : Tiles < 8 ? 2
                  : 1;
  for (int first = begin; first < end; first += kAhead) {
    Bytes16 a[kAhead][Rows][2];
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      const int column = (first + s) * kStep + 8 * t;
#pragma unroll
      for (int m = 0; m < Rows; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          a[s][m][half] =
              first + s < end && column < part.cols
                  ? *reinterpret_cast<const Bytes16 *>(weight[m][half] + column)
                  : Bytes16{};
    }
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      const int column = (first + s) * kStep + 8 * t;
      const bool there = first + s < end && column < part.cols;
#pragma unroll
      for (int n = 0; n < Tiles; ++n) {
        const Bytes16 b =
            there ? operand<Wide>(part, row[n], column) : Bytes16{};
#pragma unroll
        for (int m = 0; m < Rows; ++m)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const uint32_t left[4] = {
                a[s][m][0].word[2 * j], a[s][m][1].word[2 * j],
                a[s][m][0].word[2 * j + 1], a[s][m][1].word[2 * j + 1]};
            multiplyAdd(sum[m][n], left, b.word[2 * j], b.word[2 * j + 1]);
          }
      }
    }
  }

  // shared: [warps][16 rows of the weight][8 rows of x].
#pragma unroll
  for (int m = 0; m < Rows; ++m)
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      float *mine = shared + warp() * 128;
      mine[g * 8 + 2 * t] = sum[m][n][0];
      mine[g * 8 + 2 * t + 1] = sum[m][n][1];
      mine[(g + 8) * 8 + 2 * t] = sum[m][n][2];
      mine[(g + 8) * 8 + 2 * t + 1] = sum[m][n][3];
      barrier();
      const int place = threadIndex();
      // Neighbours write neighbouring outputs of one row of x.
      const int64_t out = firstOut + 16 * m + place % 16;
      const int64_t to = firstRow + 8 * n + place / 16;
      if (place < 128 && out < part.outs && to < args.rows) {
        float all = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
          all += shared[w * 128 + place % 16 * 8 + place / 16];
        part.y[to * part.ldy + out] = all;
      }
      barrier();
    }
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

// Grid: blocks of all parts, or heads, then of rows of x.
#define PLUM_SKINNY_KERNEL(NAME, ROWS_OF_X, OUTS, WIDE, HEADS, BLOCKS)         \
  PLUM_KERNEL(NAME, SkinnyArgs, kWarps * 32, BLOCKS) {                         \
    PLUM_SHARED float shared[kWarps * 128];                                    \
    skinny<ROWS_OF_X / 8, OUTS / 16, WIDE, HEADS>(args, shared);               \
  }
#define PLUM_SKINNY(ROWS_OF_X, OUTS, WIDE, BLOCKS)                             \
  PLUM_SKINNY_KERNEL(plum_skinny_##ROWS_OF_X, ROWS_OF_X, OUTS, WIDE, false,    \
                     BLOCKS)                                                   \
  PLUM_SKINNY_KERNEL(plum_skinny_heads_##ROWS_OF_X, ROWS_OF_X, OUTS, WIDE,     \
                     true, (BLOCKS + 1) / 2)

PLUM_SKINNY(8, 16, true, 3)
PLUM_SKINNY(16, 16, true, 3)
PLUM_SKINNY(32, 32, false, 2)
PLUM_SKINNY(64, 32, false, 1) // Two would spill.
// Rows of x are read half as often. In the same order: the bits are the same.
PLUM_SKINNY_KERNEL(plum_skinny_tall_64, 64, 64, false, false, 1)
