//===- WideExperts.cu - Products of experts by wgmma ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The products of Experts.cu for sm_90a and up to 96 tokens of an expert at
// once: each weight is unpacked once for all of them. Two warpgroups multiply,
// 128 rows of weights each, as the left operand in registers; tokens are the
// right one in shared memory, in panels (Panels.h). A thread of a third
// warpgroup has the copy engine fill a ring of stages, each a step of columns:
// the tile's tokens, and 16 blocks of weights as they are packed.
//
// Blocks stay on their multiprocessor and take one item after the other, an
// item being a tile of tokens and a group of rows; the ring goes on across
// items, so the next one's weights arrive while results are written. Neighbours
// have the same tokens.
//
// A step of a warp is its weights of two blocks, unit by unit, four products
// each. Between the products of a unit stand the instructions that expand the
// next one, a quarter behind each: warps issue in order and may wait at a
// product until the tensor core takes it, so what stands behind the last of a
// unit runs while the tensor core has less to do. The next step's first unit is
// read while the last products are under way. No operand or sum is written
// again before the step's end, where all are waited for: ptxas then needs no
// waits of its own.
//
// Results go through shared memory, 32 tokens at a time. A gated product's
// become panels of the next: a warpgroup has the rows of weights that are a
// whole panel there.
//
// Columns are summed in the order of Experts.cu.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Activations.h"
#include "runtime/cuda/kernels/Panels.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kConsumers = 256, kWideThreads = 384;

template <typename Format, bool Gated, int Index> struct WideProduct {
  static constexpr WideShape kShape = kWideShapes[Index];
  static constexpr int kStages =
      kShape.stages(Format::kColumns, Format::kBytes);
  static constexpr int kTokenBytes = kShape.tokens * Format::kColumns * 2;
  static constexpr int kSlotBytes =
      kShape.slotBytes(Format::kColumns, Format::kBytes);
  static constexpr int kBlocks = WideShape::kBlocks;
  static constexpr int kRounds = WideShape::kRounds;
  static constexpr int kPanelBytes = kRounds * kPanelRowBytes;
  /// Blocks of a matrix's rows in an item.
  static constexpr int kOwn = Gated ? kBlocks / 2 : kBlocks;
  static_assert(kTokenBytes % kAtomBytes == 0 && kSlotBytes % kAtomBytes == 0);

  const MoeWideArgs &args;
  char *slots;
  char *results; ///< Two panels of kRounds tokens for each warpgroup.
  Signal *full, *empty;
  int32_t *pairs;            ///< Of the warpgroup's tile.
  int steps, blocks, groups; ///< Blocks of 16 rows; groups of kOwn blocks.
  // Of the ring, the same in all threads that go through it.
  int slot = 0, parity = 0;

  explicit WideProduct(const MoeWideArgs &args) : args(args) {
    const auto base = reinterpret_cast<uintptr_t>(sharedMemory());
    slots = sharedMemory() + (-base & (kAtomBytes - 1));
    results = slots + kStages * kSlotBytes;
    full = reinterpret_cast<Signal *>(results + 4 * kPanelBytes);
    empty = full + kStages;
    pairs = reinterpret_cast<int32_t *>(empty + kStages) +
            threadIndex() / 128 * kShape.tokens; // Not the third's.
    steps = ceilDiv(args.columns, Format::kColumns);
    blocks = ceilDiv(args.rows, kExpertRows);
    groups = ceilDiv(blocks, kOwn);
  }

  PLUM_INLINE void advance() {
    if (++slot == kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
  PLUM_INLINE int items() const { return *args.tileCount * groups; }

  //===--- The thread that fills the ring ---------------------------------===//

  PLUM_INLINE void fill() {
    const int count = items();
    const uint32_t rowBytes = uint32_t(steps) * Format::kBytes; // Of a block.
    for (int item = int(blockX()); item < count; item += int(gridX())) {
      const int number = item / groups;
      const int firstBlock = (item - number * groups) * kOwn;
      const int there = smaller(blocks - firstBlock, kOwn);
      const MoeTile tile = args.tiles[number];
      const int stepBytes = panelRows(tile.count) * Format::kColumns * 2;
      const char *x = args.x + Panels<Format>::bytes(tile.row, args.columns);
      const char *weights = args.weights[0] + tile.expert * args.expertBytes +
                            int64_t(firstBlock) * rowBytes;
      const int64_t apart = args.weights[1] - args.weights[0];
      const int bytes = stepBytes + there * Format::kBytes * (Gated ? 2 : 1);
      for (int step = 0; step < steps; ++step) {
        waitFor(empty + slot, parity ^ 1);
        char *to = slots + slot * kSlotBytes;
        arriveExpecting(full + slot, bytes);
        copyBulk(to, x, stepBytes, full + slot);
        to += kTokenBytes;
        const char *from = weights;
#pragma unroll 1
        for (int b = 0; b < there; ++b) {
          copyBulk(to, from, Format::kBytes, full + slot);
          if (Gated)
            copyBulk(to + kOwn * Format::kBytes, from + apart, Format::kBytes,
                     full + slot);
          to += Format::kBytes;
          from += rowBytes;
        }
        x += stepBytes;
        weights += Format::kBytes;
        advance();
      }
    }
  }

  //===--- The warps that multiply ----------------------------------------===//

  PLUM_INLINE static int group() { return warp() / 4; }
  /// Of the item's blocks, a warp's with number m.
  PLUM_INLINE static int block(int m) {
    if (!Gated)
      return 8 * group() + 4 * m + warp() % 4;
    return m * kOwn + Format::blockOf(group(), warp() % 4);
  }

  using Operands = uint32_t[2][2][4]; // Of a unit.

  /// What the warp has of a stage, and its first unit, nearly expanded.
  struct Stage {
    const char *tokens, *blocks[2];
    typename Format::Scales scales[2];
    Bytes16 spread[2][2];
  };
  /// The next stage, if there is one. Else `now` is whatever is there, for
  /// nobody.
  PLUM_INLINE void begin(Stage &now, bool there) const {
    if (there)
      waitFor(full + slot, parity);
    now.tokens = slots + slot * kSlotBytes;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      now.blocks[m] = now.tokens + kTokenBytes + block(m) * Format::kBytes;
      now.scales[m] = Format::scales(now.blocks[m]);
      const typename Format::Unit unit = Format::read(now.blocks[m], 0);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        now.spread[m][half] = Format::spread(unit, half);
    }
  }

  /// The products of a step; `now` becomes the next stage.
  template <int Tokens>
  PLUM_INLINE void multiply(float (&sum)[2][Tokens / 2], Stage &now,
                            bool more) {
    Operands a[Format::kUnits];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        Format::finish(now.spread[m][half], now.scales[m], half, a[0][m]);
#pragma unroll
    for (int i = 0; i < Format::kUnits; ++i) {
      const bool last = i + 1 == Format::kUnits;
      typename Format::Unit units[2];
#pragma unroll
      for (int m = 0; m < 2; ++m)
        if (!last)
          units[m] = Format::read(now.blocks[m], i + 1);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int k = 2 * i + j; // Of the step's products.
        const char *b =
            now.tokens + k / 4 * Tokens * kPanelRowBytes + k % 4 * 32;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          beginProducts();
          multiplyWide<Tokens>(sum[m], a[i][m][j], b);
          commitProducts();
          if (!last)
            Format::finish(Format::spread(units[m], j), now.scales[m], j,
                           a[i + 1][m]);
        }
      }
    }
    Signal *own = empty + slot;
    advance();
    if (Format::kSpread)
      begin(now, more);
    waitForProducts<0>();
    settle(sum[0]);
    settle(sum[1]);
    if (lane() == 0)
      arrive(own);
    if (!Format::kSpread)
      begin(now, more);
  }

  /// `next` becomes tile `following`.
  template <int Tokens>
  PLUM_INLINE void item(const MoeTile &tile, int number, int following,
                        MoeTile &next) {
    const int thread = threadIndex() % 128;
    const int pair =
        !Gated && thread < tile.count ? args.order[tile.begin + thread] : 0;
    float sum[2][Tokens / 2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < Tokens / 2; ++i)
        sum[m][i] = 0;
    Stage now;
    begin(now, true);
    for (int step = 0; step < steps; ++step)
      multiply<Tokens>(sum, now, step + 1 < steps);
    next = args.tiles[following]; // Is there when results are written.
#pragma unroll
    for (int first = 0; first < Tokens; first += kRounds) {
      groupBarrier(1 + group()); // The round before has been read.
      if (!Gated && first == 0 && thread < Tokens)
        pairs[thread] = pair;
#pragma unroll
      for (int n = first / 8; n < smaller(first + kRounds, Tokens) / 8; ++n)
#pragma unroll
        for (int m = 0; m < 2; ++m)
          keep(m, n * 8 - first, sum[m] + 4 * n);
      groupBarrier(1 + group());
      if (Gated)
        writeHidden(tile, number, first);
      else
        write(tile, number, first);
    }
  }

  PLUM_INLINE char *panel(int m) const {
    return results + (2 * group() + m) * kPanelBytes;
  }

  /// Sums of a block and 8 tokens, from `row` on, into panel m.
  PLUM_INLINE void keep(int m, int row, const float *sum) const {
    row += lane() / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = transpose(narrowPair(
          sum[2 * half] * Format::kScale, sum[2 * half + 1] * Format::kScale));
      const int column = 16 * (Gated ? block(0) : warp() % 4) + 8 * half +
                         2 * (lane() % 4); // Rows of weights are columns here.
      int piece = column / 8, element = column % 8;
      if (Gated) {
        const auto at = Panels<Format>::position(column % Format::kColumns);
        piece = at.piece % Panels<Format>::kPieces;
        element = at.element;
      }
      *reinterpret_cast<uint32_t *>(panel(m) + pieceAt(row, piece) +
                                    element * 2) = pair;
    }
  }

  PLUM_INLINE uint32_t activated(uint32_t gates, uint32_t ups, int columns) {
    float y[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float gate = i ? widenHigh(gates) : widenLow(gates);
      const float up = i ? widenHigh(ups) : widenLow(ups);
      y[i] = i >= columns
                 ? 0
                 : GatedBf16(args.situ, args.beta, args.lambda)(gate, up);
    }
    return narrowPair(y[0], y[1]);
  }

  /// Gates and ups of a round, as a panel of the next product.
  PLUM_INLINE void writeHidden(const MoeTile &tile, int number, int first) {
    const int rows = panelRows(tile.count);
    const int64_t panels = Panels<Format>::bytes(1, args.rows) / kPanelRowBytes;
    const int64_t which = 2 * number + group();
    if (which >= panels)
      return;
    char *to = args.hidden + Panels<Format>::bytes(tile.row, args.rows) +
               (which * rows + first) * kPanelRowBytes;
    const int pieces = smaller(rows - first, kRounds) * (kPanelRowBytes / 16);
    for (int at = threadIndex() % 128; at < pieces; at += 128) {
      const Bytes16 gate = readShared(panel(0) + at * 16),
                    up = readShared(panel(1) + at * 16);
      // Columns 2 c, 2 c + 1 of unit i of the four lanes.
      const int piece = (at ^ at / 8) % 8 + which % Panels<Format>::kEach * 8;
      Bytes16 y;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int column =
            int(which / Panels<Format>::kEach) * Format::kColumns +
            Format::unit(piece / 4, t) * 8 + piece % 4 * 2;
        y.word[t] = activated(gate.word[t], up.word[t], args.rows - column);
      }
      *reinterpret_cast<Bytes16 *>(to + at * 16) = y;
    }
  }

  /// Rows of results of a round, 64 columns from each panel.
  PLUM_INLINE void write(const MoeTile &tile, int number, int first) const {
    const int count = smaller(tile.count - first, kRounds);
    for (int at = threadIndex() % 128; at < count * 16; at += 128) {
      const int row = at / 16, m = at / 8 % 2, piece = at % 8;
      const int column = number * kBlocks * kExpertRows +
                         (8 * group() + 4 * m) * kExpertRows + piece * 8;
      if (column >= args.rows)
        continue;
      const int64_t to = pairs[first + row];
      *reinterpret_cast<Bytes16 *>(static_cast<uint16_t *>(args.y.data) +
                                   to * args.y.stride + column) =
          readShared(panel(m) + pieceAt(row, piece));
    }
  }

  template <int Tokens>
  PLUM_INLINE bool take(const MoeTile &tile, int number, int following,
                        MoeTile &next) {
    if (panelRows(tile.count) != Tokens)
      return false;
    item<Tokens>(tile, number, following, next);
    return true;
  }

  PLUM_INLINE void consume() {
    const int count = items();
    if (int(blockX()) >= count)
      return;
    MoeTile tile = args.tiles[int(blockX()) / groups];
    for (int at = int(blockX()); at < count;) {
      const int rest = at % groups;
      at += int(gridX());
      const int following = smaller(at, count - 1) / groups;
      MoeTile next = tile;
      const bool done = take<8>(tile, rest, following, next) ||
                        take<16>(tile, rest, following, next);
      if constexpr (kShape.tokens > 16)
        (void)(done || take<32>(tile, rest, following, next) ||
               take<48>(tile, rest, following, next) ||
               take<64>(tile, rest, following, next) ||
               take<80>(tile, rest, following, next) ||
               take<96>(tile, rest, following, next));
      tile = next;
    }
  }

  PLUM_INLINE void run() {
    if (threadIndex() == 0) {
      for (int i = 0; i < kStages; ++i) {
        initSignal(full + i, 1);
        initSignal(empty + i, kConsumers / kWarp);
      }
      publishSignals();
    }
    barrier();
    if (threadIndex() >= kConsumers) {
      giveRegisters<kShape.otherRegisters()>();
      if (threadIndex() == kConsumers)
        fill();
    } else {
      takeRegisters<kShape.registers>();
      consume();
    }
  }
};

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

// Grid: as many blocks as stay on the device.
#define PLUM_WIDE_PRODUCT(NAME, FORMAT, GATED, INDEX)                          \
  PLUM_KERNEL(NAME, MoeWideArgs, kWideThreads, kWideShapes[INDEX].blocks) {    \
    WideProduct<FORMAT, GATED, INDEX>(args).run();                             \
  }
#define PLUM_WIDE_EXPERTS(INDEX, TOKENS)                                       \
  static_assert(kWideShapes[INDEX].tokens == TOKENS);                          \
  PLUM_WIDE_PRODUCT(plum_wide_mxfp4_gated_##TOKENS, Mxfp4, true, INDEX)        \
  PLUM_WIDE_PRODUCT(plum_wide_mxfp4_##TOKENS, Mxfp4, false, INDEX)             \
  PLUM_WIDE_PRODUCT(plum_wide_bf16_gated_##TOKENS, Bf16, true, INDEX)          \
  PLUM_WIDE_PRODUCT(plum_wide_bf16_##TOKENS, Bf16, false, INDEX)

PLUM_WIDE_EXPERTS(0, 16)
PLUM_WIDE_EXPERTS(1, 96)
