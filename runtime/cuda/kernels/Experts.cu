//===- Experts.cu - Products of experts with their tokens -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// y = W x^T for the tokens of a tile (Plan.cu): rows of weights are the left
// operand of multiplyAdd, 16 at a time, tokens the right one, 8 at a time. A
// warp has two tiles of rows, gate and up of the same rows or two neighbours,
// and all tokens of the tile. Its weights go through a ring of stages in shared
// memory that each lane fills and reads for itself, so they are read from
// memory once, in order, with three steps in flight.
//
//   direct   up to 32 tokens: inputs come from the caches as they are needed.
//            Warps know nothing of each other. For decoding: bound by memory.
//   staged   48 to 128 tokens: 8 warps share the inputs of a step in shared
//   memory.
//            For prefill: bound by tensor cores.
//
// The products of one row and one token are summed in the same order in both,
// and whichever other tokens there are, so their bits are the same.
//
// Gated products end in bf16(act(bf16(gate), bf16(up))), others in bf16.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Activations.h"
#include "runtime/cuda/kernels/ExpertWeights.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

template <typename Format, bool Gated, int Index> struct Product {
  static constexpr MoeShape kShape = kMoeShapes[Index];
  static constexpr int kStages = MoeShape::kStages;
  static constexpr int kSlots = MoeShape::kSlots;
  static constexpr bool Staged = kShape.staged;
  static constexpr int Warps = kShape.warps;
  static constexpr int Columns = kShape.tokens / 8; ///< Tiles of 8 tokens.
  /// Column tiles that are left out together: a processor has 7 predicates.
  static constexpr int kGroup = Columns > 12 ? 4 : 2;
  static constexpr int kUnits = Format::kColumns / 8; ///< In a row of a step.
  static constexpr int kSlotBytes = kShape.inputBytes(Format::kColumns);

  const MoeProductArgs &args;
  MoeTile tile;
  int first;           ///< The warp's first tile of 16 rows.
  const char *weights; ///< This lane's first byte of it.
  char *ring, *slots;
  int steps, used; ///< Tiles of 8 tokens that are not empty.
  float sum[2][Columns][4];

  explicit Product(const MoeProductArgs &args) : args(args) {}

  /// The row of x of a token of the tile; behind the last token, the last once
  /// more: what becomes of it is not written.
  PLUM_INLINE const char *input(int token) const {
    int64_t row = tile.begin + smaller(token, tile.count - 1);
    if (args.divisor)
      row = args.order[row] / args.divisor;
    return static_cast<const char *>(args.x.data) + row * args.x.stride * 2;
  }
  /// The column of a unit; behind the end of a row, where weights are 0, that
  /// of its last unit.
  PLUM_INLINE int columnOf(int step, int unit) const {
    return smaller(step * Format::kColumns + unit * 8, args.columns - 8);
  }

  /// Blocks of a step, of both tiles of rows.
  PLUM_INLINE void fetchWeights(int step) {
    if (step >= steps)
      return;
    char *stage = ring + step % kStages * 2 * Format::kBytes;
    const char *from = weights + int64_t(step) * Format::kBytes;
    const int64_t apart = Gated ? args.weights[1] - args.weights[0]
                                : int64_t(steps) * Format::kBytes;
    copyBlock<Format>(stage, from, true);
    const bool second = Gated || (first + 1) * kExpertRows < args.rows;
    copyBlock<Format>(stage + Format::kBytes, second ? from + apart : from,
                      second);
  }

  /// Two tiles of rows times the tokens, for one step. operand(i, n): unit i of
  /// this lane's token in column tile n.
  template <typename Operand>
  PLUM_INLINE void multiply(int step, Operand operand) {
    const char *stage = ring + step % kStages * 2 * Format::kBytes;
    const typename Format::Scales scales[2] = {
        Format::scales(stage), Format::scales(stage + Format::kBytes)};
    // Two column tiles at a time, as products of one sum that follow each other
    // would wait; their operands are on the way while the two before multiply.
    constexpr int pair = Columns > 1 ? 2 : 1;
    Bytes16 b[pair];
#pragma unroll
    for (int p = 0; p < pair; ++p)
      b[p] = operand(0, p);
#pragma unroll
    for (int i = 0; i < Format::kUnits; ++i) {
      uint32_t a[2][2][4]; // Tile, pairs of columns.
#pragma unroll
      for (int m = 0; m < 2; ++m)
        expand<Format>(stage + m * Format::kBytes, scales[m], i, a[m]);
#pragma unroll
      for (int n = 0; n < Columns; n += pair) {
        Bytes16 next[pair] = {};
        const bool last = n + pair == Columns;
        if (!last || i + 1 < Format::kUnits) {
#pragma unroll
          for (int p = 0; p < pair; ++p)
            next[p] = operand(last ? i + 1 : i, last ? p : n + pair + p);
        }
        if (Columns == 1 || n / kGroup * kGroup < used) {
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int p = 0; p < pair; ++p)
#pragma unroll
              for (int m = 0; m < 2; ++m)
                multiplyAdd(sum[m][n + p], a[m][j], b[p].word[2 * j],
                            b[p].word[2 * j + 1]);
        }
#pragma unroll
        for (int p = 0; p < pair; ++p)
          b[p] = next[p];
      }
    }
  }

  PLUM_INLINE void direct() {
    const int t = lane() % 4;
    const char *token[Columns];
#pragma unroll
    for (int n = 0; n < Columns; ++n)
      token[n] = input(8 * n + lane() / 4);
    for (int step = 0; step < kStages - 1; ++step) {
      fetchWeights(step);
      commitCopies();
    }
    for (int step = 0; step < steps; ++step) {
      int column[Format::kUnits];
#pragma unroll
      for (int i = 0; i < Format::kUnits; ++i)
        column[i] = columnOf(step, Format::unit(i, t)) * 2;
      auto operand = [&](int i, int n) {
        return *reinterpret_cast<const Bytes16 *>(token[n] + column[i]);
      };
      if constexpr (Columns == 1) {
        // All of a step before the wait, to wait for both at once.
        Bytes16 inputs[Format::kUnits];
#pragma unroll
        for (int i = 0; i < Format::kUnits; ++i)
          inputs[i] = operand(i, 0);
        waitForCopies<kStages - 2>();
        warpBarrier();
        multiply(step, [&](int i, int) { return inputs[i]; });
      } else {
        waitForCopies<kStages - 2>();
        warpBarrier();
        multiply(step, operand);
      }
      warpBarrier(); // All have read what the next copies replace.
      fetchWeights(step + kStages - 1);
      commitCopies();
    }
  }

  /// Inputs of a step, by all threads of the block: each has a unit of some
  /// tokens, an even number of tokens apart.
  PLUM_INLINE void fetchInputs(int step, const char *const *token) {
    if (step >= steps)
      return;
    constexpr int apart = Warps * kWarp / kUnits;
    static_assert(apart % 2 == 0);
    const int first = threadIndex() / kUnits, unit = threadIndex() % kUnits;
    const int column = columnOf(step, unit) * 2;
    char *to = slots + step % kSlots * kSlotBytes + place(first, unit);
#pragma unroll
    for (int i = 0; i < Columns * 8; i += apart)
      if (i + apart <= Columns * 8 || first + i < Columns * 8)
        copyAsync(to + i * kUnits * 16, token[first + i] + column);
  }
  /// Rows of odd tokens are turned by 64 bytes: a quarter of a warp reads two
  /// rows, and so all banks.
  static int place(int row, int unit) {
    return (row * kUnits + (Format::place(unit) ^ (row % 2 * 4))) * 16;
  }

  PLUM_INLINE void staged(const char *const *token) {
    const int g = lane() / 4, t = lane() % 4;
    for (int step = 0; step < kSlots - 1; ++step) {
      fetchWeights(step);
      fetchInputs(step, token);
      commitCopies();
    }
    for (int step = 0; step < steps; ++step) {
      waitForCopies<kSlots - 2>();
      barrier(); // Everybody's copies are here, the last slot has been read.
      fetchWeights(step + kSlots - 1);
      fetchInputs(step + kSlots - 1, token);
      commitCopies();
      const char *slot = slots + step % kSlots * kSlotBytes;
      multiply(step, [&](int i, int n) {
        return readShared(slot + place(8 * n + g, Format::unit(i, t)));
      });
    }
  }

  /// Two columns of weights' rows, as a bf16 pair of tokens, turned over: the
  /// lane gets two rows of its token.
  PLUM_INLINE void write(int tileOfRows, int half, int n, float low,
                         float high) const {
    const uint32_t pair = transpose(narrowPair(low, high));
    const int token = 8 * n + lane() / 4;
    const int row = tileOfRows * kExpertRows + 8 * half;
    if (token >= tile.count || row >= args.rows)
      return;
    int64_t to = tile.begin + token;
    if (!Gated)
      to = args.order[to];
    *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(args.y.data) +
                                  to * args.y.stride + row + 2 * (lane() % 4)) =
        pair;
  }

  PLUM_INLINE float activated(float gate, float up) const {
    gate = roundToBf16(gate * Format::kScale);
    up = roundToBf16(up * Format::kScale);
    return GatedBf16(args.situ, args.beta, args.lambda)(gate, up);
  }

  PLUM_INLINE void finish() const {
#pragma unroll
    for (int n = 0; n < Columns; ++n) {
      if (n >= used)
        continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float *a = sum[0][n] + 2 * half, *b = sum[1][n] + 2 * half;
        if (Gated) {
          write(first, half, n, activated(a[0], b[0]), activated(a[1], b[1]));
        } else {
          write(first, half, n, a[0] * Format::kScale, a[1] * Format::kScale);
          write(first + 1, half, n, b[0] * Format::kScale,
                b[1] * Format::kScale);
        }
      }
    }
  }

  static constexpr int kWarpRows = Gated ? kExpertRows : 2 * kExpertRows;

  /// The tile and the rows of this block; false where there is nothing to do.
  PLUM_INLINE bool start() {
    const int groups = ceilDiv(args.rows, Warps * kWarpRows);
    const int number = int(blockX() / groups);
    if (number >= *args.tileCount)
      return false;
    tile = args.tiles[number];
    const int group = int(blockX() - int64_t(number) * groups);
    first = (group * Warps + warp()) * (kWarpRows / kExpertRows);
    steps = ceilDiv(args.columns, Format::kColumns);
    used = ceilDiv(tile.count, 8);
    // A warp without rows only helps with the inputs, beside weights of others.
    const int own = first * kExpertRows < args.rows ? first : 0;
    weights = args.weights[0] + tile.expert * args.expertBytes +
              int64_t(own) * steps * Format::kBytes + lane() * 16;
    slots = sharedMemory();
    ring = sharedMemory() + (Staged ? kSlots * kSlotBytes : 0) +
           warp() * kStages * 2 * Format::kBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int n = 0; n < Columns; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sum[i][n][j] = 0;
    return true;
  }

  PLUM_INLINE void run(const char **token) {
    if (!start())
      return;
    if constexpr (Staged) {
      for (int row = threadIndex(); row < Columns * 8; row += Warps * kWarp)
        token[row] = input(row);
      barrier();
      staged(token);
    } else {
      if (first * kExpertRows >= args.rows)
        return;
      direct();
    }
    finish();
  }
};

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

// Grid: tiles of tokens, and for each, groups of warps that cover the rows.
#define PLUM_PRODUCT(NAME, FORMAT, GATED, INDEX, BLOCKS)                       \
  PLUM_KERNEL(NAME, MoeProductArgs, kMoeShapes[INDEX].warps * 32, BLOCKS) {    \
    PLUM_SHARED const char *token[kMoeShapes[INDEX].tokens];                   \
    Product<FORMAT, GATED, INDEX>(args).run(token);                            \
  }
#define PLUM_EXPERTS(INDEX, TOKENS, BLOCKS)                                    \
  static_assert(kMoeShapes[INDEX].tokens == TOKENS);                           \
  PLUM_PRODUCT(plum_experts_mxfp4_gated_##TOKENS, Mxfp4, true, INDEX, BLOCKS)  \
  PLUM_PRODUCT(plum_experts_mxfp4_##TOKENS, Mxfp4, false, INDEX, BLOCKS)       \
  PLUM_PRODUCT(plum_experts_bf16_gated_##TOKENS, Bf16, true, INDEX, BLOCKS)    \
  PLUM_PRODUCT(plum_experts_bf16_##TOKENS, Bf16, false, INDEX, BLOCKS)

PLUM_EXPERTS(0, 8, 6)
PLUM_EXPERTS(1, 16, 4)
PLUM_EXPERTS(2, 32, 3)
PLUM_EXPERTS(3, 48, 2)
PLUM_EXPERTS(4, 96, 1)
PLUM_EXPERTS(5, 128, 1)
