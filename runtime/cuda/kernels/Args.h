//===- Args.h - What device kernels are given -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One struct for each kernel, the same on both sides of a launch. Callers use
// the functions of Ops.h and Moe.h, which check them and know the grids.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_ARGS_H
#define PLUM_RUNTIME_CUDA_KERNELS_ARGS_H

#include <stdint.h>

namespace plum::kernels {

enum class Type : int32_t { F32, BF16 };

/// A matrix in device memory by its rows: row i begins at data + i * stride
/// elements. Absent: data is null.
struct Rows {
  void *data = nullptr;
  int64_t stride = 0;
  Type type = Type::BF16;
};

/// Numbers one after the other in device memory. Absent: data is null.
struct Vector {
  const void *data = nullptr;
  Type type = Type::F32;
};

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

enum class NormGate : int32_t {
  None,
  Sigmoid,    ///< norm(x) * weight * sigmoid(gate)
  SiLU,       ///< norm(x) * weight * silu(gate)
  SiLUBefore, ///< norm(x * silu(gate)) * weight
};

/// y = norm(x) * weight on slices of `width` columns, `slices` of them in a
/// row; norm(x) = x * rsqrt(mean x^2 + eps).
struct NormArgs {
  Rows x = {}, y = {}; ///< y may be x.
  Rows residual = {};  ///< When present: residual += x, and that is normalised.
  Rows gate = {};      ///< As wide as x.
  Vector weight = {};  ///< `width` numbers for every slice; absent: 1.
  Vector bias = {};    ///< Added at the end.
  int64_t rows = 0;
  int32_t slices = 1, width = 0;
  float eps = 0;
  NormGate act = NormGate::None;
  bool center = false;     ///< Subtract the mean first (LayerNorm).
  bool plusOne = false;    ///< weight + 1 in the place of weight.
  bool roundFirst = false; ///< To bf16 before the weight: a bf16 point.
  bool vectorized = false; ///< Ops.cpp decides.
};

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

enum class Elementwise : int32_t {
  Copy,            ///< x, for a change of type or stride
  Add,             ///< x + u
  SiLUTimes,       ///< silu(x) * u
  SiTU,            ///< beta tanh(x/beta) sigmoid(x) * lambda tanh(u/lambda)
  Gelu,            ///< x/2 (1 + erf(x / sqrt 2))
  GeluTanh,        ///< its approximation by tanh
  TimesSigmoid,    ///< x * sigmoid(u)
  TimesSigmoidRow, ///< x * sigmoid(u[row, 0])
};

struct ElementwiseArgs {
  Elementwise op = Elementwise::Copy;
  Rows x = {}, u = {},
       y = {}; ///< u.stride 0: one row for all. y may be x or u.
  int64_t rows = 0, width = 0;
  float beta = 0, lambda = 0; ///< SiTU; lambda 0: u as it is.
  bool roundGate = false;     ///< The sigmoid of u is a bf16 point.
  bool vectorized = false;    ///< Ops.cpp decides.
};

/// y[i] = table[ids[i]]; a row of NaN where there is no such row.
struct GatherArgs {
  Rows table = {}, y = {};
  const int32_t *ids = nullptr;
  int64_t rows = 0, width = 0, tableRows = 0;
  bool vectorized = false; ///< Ops.cpp decides.
};

//===----------------------------------------------------------------------===//
// Short causal convolution
//===----------------------------------------------------------------------===//

constexpr int kMaxConvWidth = 8;

/// Per channel c: y[t] = silu(bias + sum_j taps[j, c] x[t - (width - 1) + j]).
/// Sequence s has rows begins[s] .. begins[s + 1]; what came before its first
/// row is in the states: row j after slots[s] * slotStride elements holds input
/// number j of the last width - 1. A slot of -1 has zeros, and keeps nothing.
struct ConvArgs {
  Rows x = {}, y = {}, states = {};
  const float *taps = nullptr; ///< [width, channels].
  const float *bias = nullptr; ///< [channels], or absent.
  const int32_t *begins = nullptr, *slots = nullptr;
  int64_t rows = 0, sequences = 0, channels = 0;
  int64_t slotStride = 0; ///< 0: slots follow each other.
  /// When present, states stay as they are, and those after row r go to slot
  /// places[r] of `kept`, which is laid out like `states`.
  Rows kept = {};
  const int32_t *places = nullptr;
  int32_t width = 0;
  bool activate = true;    ///< silu, else none.
  bool vectorized = false; ///< Ops.cpp decides.
};

} // namespace plum::kernels

#endif // PLUM_RUNTIME_CUDA_KERNELS_ARGS_H
