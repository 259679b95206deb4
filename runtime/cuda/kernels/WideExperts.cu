//===- WideExperts.cu - Products of experts by wgmma ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The products of Experts.cu for sm_90a and up to 128 tokens of an expert at
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
// A step of a warp is its weights of two blocks, expanded unit by unit, and
// behind each unit its four products. No register of a product is written again
// before the step's end, where all are waited for: ptxas then needs no waits of
// its own.
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
  static constexpr int kStages = kShape.stages;
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
  int steps, blocks, groups; ///< Blocks of 16 rows; groups of kOwn blocks.
  // Of the ring, the same in all threads that go through it.
  int slot = 0, parity = 0;

  explicit WideProduct(const MoeWideArgs &args) : args(args) {
    const auto base = reinterpret_cast<uintptr_t>(sharedMemory());
    slots = sharedMemory() + (-base & (kAtomBytes - 1));
    results = slots + kStages * kSlotBytes;
    full = reinterpret_cast<Signal *>(results + 4 * kPanelBytes);
    empty = full + kStages;
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

  template <int Tokens> PLUM_INLINE void multiply(float (&sum)[2][Tokens / 2]) {
    const char *to = slots + slot * kSlotBytes;
    const char *stage[2] = {to + kTokenBytes + block(0) * Format::kBytes,
                            to + kTokenBytes + block(1) * Format::kBytes};
    waitFor(full + slot, parity);
    const typename Format::Scales scales[2] = {Format::scales(stage[0]),
                                               Format::scales(stage[1])};
    uint32_t a[Format::kUnits][2][2][4];
#pragma unroll
    for (int i = 0; i < Format::kUnits; ++i) {
#pragma unroll
      for (int m = 0; m < 2; ++m)
        Format::expand(stage[m], scales[m], i, a[i][m]);
      beginProducts();
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int k = 2 * i + j; // Of the step's products.
        const char *b = to + k / 4 * Tokens * kPanelRowBytes + k % 4 * 32;
#pragma unroll
        for (int m = 0; m < 2; ++m)
          multiplyWide<Tokens>(sum[m], a[i][m][j], b);
      }
      commitProducts();
    }
    waitForProducts<0>();
    settle(sum[0]);
    settle(sum[1]);
    if (lane() == 0)
      arrive(empty + slot);
    advance();
  }

  template <int Tokens> PLUM_INLINE void item(const MoeTile &tile, int number) {
    float sum[2][Tokens / 2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < Tokens / 2; ++i)
        sum[m][i] = 0;
    for (int step = 0; step < steps; ++step)
      multiply<Tokens>(sum);
#pragma unroll
    for (int first = 0; first < Tokens; first += kRounds) {
      groupBarrier(1 + group()); // The round before has been read.
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
      const int64_t to = args.order[tile.begin + first + row];
      *reinterpret_cast<Bytes16 *>(static_cast<uint16_t *>(args.y.data) +
                                   to * args.y.stride + column) =
          readShared(panel(m) + pieceAt(row, piece));
    }
  }

  PLUM_INLINE void consume() {
    const int count = items();
    for (int at = int(blockX()); at < count; at += int(gridX())) {
      const int number = at / groups, rest = at - number * groups;
      const MoeTile tile = args.tiles[number];
      const int rows = panelRows(tile.count);
      if (rows == 8)
        item<8>(tile, rest);
      else if (rows == 16)
        item<16>(tile, rest);
      if constexpr (kShape.tokens > 16) {
        if (rows == 32)
          item<32>(tile, rest);
        else if (rows == 48)
          item<48>(tile, rest);
        else if (rows == 64)
          item<64>(tile, rest);
        else if (rows == 80)
          item<80>(tile, rest);
        else if (rows == 96)
          item<96>(tile, rest);
        else if (rows == 112)
          item<112>(tile, rest);
        else if (rows == 128)
          item<128>(tile, rest);
      }
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
PLUM_WIDE_EXPERTS(1, 128)
