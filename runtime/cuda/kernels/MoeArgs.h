//===- MoeArgs.h - What the kernels of a mixture are given ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pair is a token and one of its slots, number token * chosen + slot; pairs
// are ordered by expert. Callers use Moe.h.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_MOEARGS_H
#define PLUM_RUNTIME_CUDA_KERNELS_MOEARGS_H

#include "runtime/cuda/kernels/Args.h"

namespace plum::kernels {

constexpr int kMoeExperts = 1024, kMoeChosen = 32;

/// The experts of each token, best first, and their weights.
struct MoeRouteArgs {
  Rows logits = {}; ///< f32 [tokens, experts].
  const float *bias = nullptr;
  int32_t *experts = nullptr; ///< [tokens, chosen].
  float *weights = nullptr;   ///< [tokens, chosen].
  int64_t tokens = 0;
  int32_t count = 0, chosen = 0; ///< Of experts.
  bool softmax = false, renormalize = true;
  float scale = 1;
};

/// Some of one expert's pairs: a product's columns.
struct MoeTile {
  int32_t expert, begin, count;
  int32_t row; ///< The first of panelRows(count) rows of panels.
};

/// Tokens that a product by wgmma has for so many pairs.
constexpr int panelRows(int pairs) {
  return pairs <= 8 ? 8 : (pairs + 15) / 16 * 16;
}

constexpr int kMoeChunk = 1024; ///< Pairs that a block of the plan looks at.

struct MoePlanArgs {
  const int32_t *experts = nullptr; ///< [pairs].
  int32_t *ranks = nullptr;         ///< [pairs], among its expert's of a chunk.
  /// [chunks, count]: an expert's pairs in a chunk, then those before it.
  int32_t *histogram = nullptr;
  int32_t *order = nullptr; ///< [pairs]: the pair at each position.
  MoeTile *tiles = nullptr;
  int32_t *tileCount = nullptr;
  int64_t pairs = 0, chunks = 0;
  int32_t count = 0;      ///< Of experts, at most kMoeExperts.
  int32_t tileTokens = 0; ///< The most pairs of a tile.
  bool even = false;      ///< An expert's tiles are as large as each other.
};

// Blocks of packed weights (ExpertWeights.h): 16 rows by so many columns.
constexpr int kExpertRows = 16;
constexpr int kMxfp4Columns = 128, kMxfp4Bytes = 1088;
constexpr int kBf16Columns = 64, kBf16Bytes = 2048;

/// How a product of experts is cut up, by the most tokens that a tile of it
/// has.
struct MoeShape {
  int tokens, warps;
  bool staged; ///< Inputs pass through shared memory.

  static constexpr int kStages = 4; ///< Of weights, for each warp.
  static constexpr int kSlots = 3;  ///< Of staged inputs.
  constexpr int inputBytes(int columns) const {
    return staged ? tokens * columns * 2 : 0; ///< Of a slot.
  }
  constexpr int sharedBytes(int columns, int blockBytes) const {
    return kSlots * inputBytes(columns) + warps * kStages * 2 * blockBytes;
  }
};
constexpr MoeShape kMoeShapes[] = {{8, 4, false},  {16, 4, false},
                                   {32, 4, false}, {48, 8, true},
                                   {96, 8, true},  {128, 8, true}};

/// Products of experts with their rows. Two tiles of 16 rows of weights go
/// through a warp together: gate and up, or neighbours of one matrix.
struct MoeProductArgs {
  const char *weights[2] = {}; ///< Gate and up, or the matrix twice.
  int64_t expertBytes = 0;     ///< From one expert to the next.
  int32_t rows = 0, columns = 0;
  Rows x = {};         ///< bf16.
  int32_t divisor = 1; ///< Of the pair, for its row of x; 0: by position.
  Rows y = {};         ///< bf16: gated by position, else by pair.
  const MoeTile *tiles = nullptr;
  const int32_t *tileCount = nullptr;
  const int32_t *order = nullptr;
  bool situ = false; ///< Else silu(gate) * up.
  float beta = 0, lambda = 0;
};

/// The same by wgmma: blocks that stay and take one tile after the other.
struct WideShape {
  int tokens;    ///< The most of a tile.
  int most;      ///< Stages of weights and inputs in shared memory.
  int blocks;    ///< Of threads, on a multiprocessor.
  int registers; ///< Of a thread that multiplies.

  /// Those that are left for the third warpgroup.
  constexpr int otherRegisters() const { return 512 / blocks - 2 * registers; }

  /// Blocks of 16 rows of weights in a stage: of two warpgroups, each of four
  /// warps with two.
  static constexpr int kBlocks = 16;
  static constexpr int kRounds = 32; ///< Tokens of results at a time.
  constexpr int slotBytes(int columns, int blockBytes) const {
    return tokens * columns * 2 + kBlocks * blockBytes;
  }
  /// Beside stages and their two signals: two panels of results and the pairs
  /// of a tile for each warpgroup; what it takes to begin at a multiple of
  /// 1024.
  constexpr int otherBytes() const {
    return 4 * kRounds * 128 + 2 * tokens * 4 + 1024;
  }
  constexpr int stages(int columns, int blockBytes) const {
    constexpr int shared = 227 << 10;
    const int fit =
        (shared - otherBytes()) / (slotBytes(columns, blockBytes) + 16);
    return fit < most ? fit : most;
  }
  constexpr int sharedBytes(int columns, int blockBytes) const {
    return stages(columns, blockBytes) * (slotBytes(columns, blockBytes) + 16) +
           otherBytes();
  }
};
constexpr WideShape kWideShapes[] = {{16, 9, 1, 224}, {96, 5, 1, 224}};

/// Inputs of a product as it reads them: of each tile, for every step of
/// columns, panels of panelRows(count) rows (Panels.h).
struct MoeGatherArgs {
  Rows x = {};         ///< bf16.
  int32_t divisor = 1; ///< Of the pair, for its row of x.
  int32_t columns = 0;
  char *panels = nullptr;
  const MoeTile *tiles = nullptr;
  const int32_t *tileCount = nullptr;
  const int32_t *order = nullptr;
};

struct MoeWideArgs {
  const char *weights[2] = {}; ///< Gate and up, or the matrix twice.
  int64_t expertBytes = 0;     ///< From one expert to the next.
  int32_t rows = 0, columns = 0;
  const char *x = nullptr; ///< Panels.
  char *hidden = nullptr;  ///< Gated: panels of the next product.
  Rows y = {};             ///< Else bf16, by pair.
  const MoeTile *tiles = nullptr;
  const int32_t *tileCount = nullptr;
  const int32_t *order = nullptr;
  bool situ = false; ///< Else silu(gate) * up.
  float beta = 0, lambda = 0;
};

/// y[t] = sum over slots of weights[t, slot] x[t * chosen + slot].
struct MoeCombineArgs {
  Rows x = {}, y = {};
  const float *weights = nullptr;
  int64_t tokens = 0, width = 0;
  int32_t chosen = 0;
};

/// One expert's matrix, [rows, columns], to packed blocks.
struct MoePackArgs {
  const void *weights = nullptr;   ///< bf16, or nibbles, the low one first.
  const uint8_t *scales = nullptr; ///< [rows, columns / 32], for nibbles.
  char *to = nullptr;
  int64_t rows = 0, columns = 0;
};

} // namespace plum::kernels

#endif // PLUM_RUNTIME_CUDA_KERNELS_MOEARGS_H
