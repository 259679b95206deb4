//===- ModelArgs.h - What the kernels of whole models are given -*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products, caches, rotations and mixtures. What a row needs to know of its
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
/// columns h * headColumns .. of x and row h * headRows + firstRow + n % (outs
/// / heads) of w. With `choice`, row r reads row r / share of x and the weight
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
  int64_t headColumns = 0, headRows = 0, firstRow = 0;
};

/// y [rows, outs] = x [rows, cols] w [outs, cols]^T. w is bf16; x is f32 in the
/// kernels for 8 and 16 rows and bf16 in the others. Rows are 16-byte aligned.
/// Kernels for heads do part 0 for each of them; from one to the next it is so
/// many elements of w and y, and bytes of x.
struct SkinnyPart {
  const void *x = nullptr, *w = nullptr;
  float *y = nullptr;
  int64_t ldx = 0, ldy = 0, outs = 0, cols = 0;
  int64_t xHead = 0, wHead = 0, yHead = 0;
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

/// Rows `x` to row position[r] of its sequence's cache.
struct AppendArgs {
  Rows x;
  const int64_t *caches = nullptr; ///< Addresses, by sequence.
  const int32_t *sequence = nullptr, *position = nullptr;
  Type cacheType = Type::F32;
  int64_t cacheStride = 0;
  int64_t rows = 0, width = 0;
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
