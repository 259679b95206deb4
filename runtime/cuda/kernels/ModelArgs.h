//===- ModelArgs.h - What the kernels of whole models are given -*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products, attention, rotations and mixtures. What a row needs to know of its
// sequence it looks up: `sequence[row]`, `position[row]`, and the address of a
// cache by sequence. These lists lie in device memory, so that a recorded pass
// serves the next token as well.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_MODELARGS_H
#define PLUM_RUNTIME_CUDA_KERNELS_MODELARGS_H

#include "runtime/cuda/kernels/Args.h"

namespace plum::kernels {

enum class WeightKind : int32_t { F32, BF16, MXFP4 };

/// y[r, n] = x[r] . w[n]. With `heads` > 1 head h = n / (outs / heads) reads
/// columns h * cols .. of x and row h * headRows + firstRow + n % (outs /
/// heads) of w. With `choice`, row r reads row r / share of x and the weight
/// weights[choice[r]].
struct DotsArgs {
  Rows x, y;
  const void *weight = nullptr;
  const uint8_t *scales = nullptr; ///< MXFP4: [rows of w, cols / 32].
  WeightKind kind = WeightKind::F32;
  const int32_t *choice = nullptr;
  const uint64_t *weights = nullptr, *scaleLists = nullptr; ///< By choice.
  int64_t rows = 0, cols = 0, outs = 0;
  int32_t heads = 1, share = 1;
  int64_t headRows = 0, firstRow = 0;
};

/// y [rows, outs] = x [rows, cols] w [outs, cols]^T. w is bf16; x is f32 in the
/// kernels for 8 and 16 rows and bf16 in the others. Rows are 16-byte aligned.
struct SkinnyPart {
  const void *x = nullptr, *w = nullptr;
  float *y = nullptr;
  int64_t ldx = 0, ldy = 0, outs = 0, cols = 0;
  int64_t firstBlock = 0;
};
constexpr int kMaxParts = 8;
struct SkinnyArgs {
  SkinnyPart parts[kMaxParts];
  int32_t count = 0;
  int64_t rows = 0;
};

struct CombineRowsArgs {
  Rows parts, y;                 ///< y[r] = sum_i weight[r, i] parts[r, i].
  const float *weight = nullptr; ///< [rows, chosen].
  int64_t rows = 0, width = 0;
  int32_t chosen = 0;
};

/// Rows `x` to row position[r] of its sequence's cache, from column `begin` on.
struct AppendArgs {
  Rows x;
  const uint64_t *caches = nullptr; ///< By sequence.
  const int32_t *sequence = nullptr, *position = nullptr;
  Type cacheType = Type::F32;
  int64_t cacheStride = 0, begin = 0;
  int64_t rows = 0, width = 0;
};

/// Keys that one step of plum_attend takes.
constexpr int kAttendKeys = 128;

/// Causal softmax attention of each row to its sequence's cache, which has
/// position[r] + 1 rows: head h uses group g = h / (heads / groups), keys at
/// column g * keyDim, values at valueBegin + g * valueDim. With several splits
/// each takes a share of the keys and leaves (acc, largest, sum) in `partial`
/// for plum_attend_combine.
struct AttendArgs {
  Rows q, y;
  const uint64_t *caches = nullptr;
  const int32_t *sequence = nullptr, *position = nullptr;
  Type cacheType = Type::F32;
  int64_t cacheStride = 0, valueBegin = 0;
  int64_t rows = 0;
  int32_t heads = 0, groups = 0, keyDim = 0, valueDim = 0;
  float scale = 1;
  int32_t splits = 1;
  float *partial = nullptr; ///< [rows, heads, splits, valueDim + 2].
};
constexpr int kMaxKeyDim = 1024, kMaxValueDim = 512;

/// Latent.cu: heads of a block, keys of a step, parts of a score; bytes from a
/// row of a tile and of weights to the next, floats of a part's.
constexpr int kLatentHeads = 32, kLatentKeys = 64, kLatentParts = 4;
constexpr int latentRow(int columns) { return columns * 2 + 16; }
constexpr int kLatentWeights = kLatentKeys * 2 + 16;
constexpr int kLatentPart = kLatentKeys + 8;
/// Shared memory of such a kernel.
constexpr int latentBytes(int columns) {
  return 2 * kLatentKeys * latentRow(columns) +
         kLatentHeads * (kLatentParts * kLatentPart * 4 + kLatentWeights + 4);
}

constexpr int kFlashQueries = 64, kFlashKeys = 64; ///< Of a block; of a step.

/// Causal attention of many queries, on bf16 keys and values. A key of head h's
/// group has ownDim columns at ownBegin + group * ownGroup and the rest at
/// sharedBegin of its cache row; values are beside the former. Those are in the
/// cache, or, where there is one, in `expanded`, from row expandedBegin[s] on.
struct FlashArgs {
  Rows q, y;
  const uint64_t *caches = nullptr; ///< By sequence.
  const void *expanded = nullptr;
  const int64_t *expandedBegin = nullptr; ///< By sequence.
  const int32_t *tiles = nullptr; ///< (sequence, first row) of each block.
  const int32_t *begins = nullptr, *position = nullptr;
  int64_t ownStride = 0, ownBegin = 0, ownGroup = 0;
  int64_t valueBegin = 0, valueGroup = 0;
  int64_t sharedStride = 0, sharedBegin = 0;
  int32_t ownDim = 0; ///< A multiple of 8.
  int32_t heads = 0, groups = 0;
  float scale = 1;
};
/// Shared memory of such a kernel.
constexpr int flashBytes(int keyDim, int valueDim) {
  return 2 * kFlashKeys *
         (keyDim * 2 + (keyDim / 32 % 2 ? 0 : 64) + valueDim * 2 +
          (valueDim / 32 % 2 ? 0 : 64));
}

/// Rows of a block of plum_absorb.
constexpr int kAbsorbRows = 4;

/// Queries of latent attention in the cache's space: head h of y is
/// [q_nope W_UK | q_pe], with W_UK rows h * (nope + valueDim) .. of `expand`.
struct AbsorbArgs {
  Rows q, y;
  const void *expand = nullptr;
  WeightKind kind = WeightKind::F32;
  int64_t rows = 0;
  int32_t heads = 0, nope = 0, pe = 0, valueDim = 0, latent = 0;
};

/// Columns c and c + dims / 2 of each head turn by (cosine, sine) of
/// table[position, c].
struct RotateArgs {
  Rows x;
  const float *table = nullptr; ///< [positions, dims / 2, 2].
  const int32_t *position = nullptr;
  int64_t rows = 0;
  int32_t heads = 0, width = 0, dims = 0;
};

/// y's head h, `width` columns, from x's columns h * stride + begin.
struct PickArgs {
  Rows x, y;
  int64_t rows = 0;
  int32_t heads = 0, width = 0, stride = 0, begin = 0;
};

constexpr int kMaxSources = 32;

/// Softmax over the sources of a row, scored by norm(source) . mixer.
struct MixtureArgs {
  Rows sources[kMaxSources];
  Rows y;
  const float *mixer = nullptr;
  int64_t rows = 0;
  int32_t count = 0, width = 0;
};

/// Random weights: values of about `spread`, or, for MXFP4, any codes, and
/// scales near 2^-6.
struct FillArgs {
  void *data = nullptr;
  int64_t count = 0; ///< Elements; of MXFP4, bytes.
  WeightKind kind = WeightKind::BF16;
  bool scales = false;
  float spread = 1;
  uint32_t seed = 0;
};

} // namespace plum::kernels

#endif // PLUM_RUNTIME_CUDA_KERNELS_MODELARGS_H
