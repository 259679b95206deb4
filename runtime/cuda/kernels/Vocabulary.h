//===- Vocabulary.h - What device kernels are written with ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels around a model's memory layers (norms, activations, routers,
// experts) are C++ that uses the words of this header and nothing of CUDA's
// toolkit. Each .cu file is compiled twice:
//
//   for the GPU   by clang alone, to PTX text that the runtime carries along
//                 (Kernels.h); VocabularyGpu.h says each word as a builtin or
//                 an instruction
//   for the CPU   into a test library that runs them thread by thread
//                 (test/unit/kernels); VocabularyCpu.h declares the words that
//                 it defines
//
// so the numbers of every kernel are checked without a GPU. A kernel takes one
// struct of Args.h:
//
//   PLUM_KERNEL(plum_gather, GatherArgs, 256, 1) { ... args.rows ... }
//
// means blocks of 256 threads, at least 1 resident block per multiprocessor.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_VOCABULARY_H
#define PLUM_RUNTIME_CUDA_KERNELS_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDA__
#include "runtime/cuda/kernels/VocabularyGpu.h"
#else
#include "runtime/cuda/kernels/VocabularyCpu.h"
#endif

#include "runtime/cuda/kernels/Args.h"

/// For functions that share registers with their caller: one that is called out
/// of line would have them in memory.
#define PLUM_INLINE __attribute__((always_inline)) inline

#pragma clang force_cuda_host_device begin
namespace plum::kernels {

constexpr int kWarp = 32;

inline int lane() { return threadIndex() % kWarp; }
inline int warp() { return threadIndex() / kWarp; }

template <typename T> constexpr T smaller(T a, T b) { return a < b ? a : b; }
template <typename T> constexpr T larger(T a, T b) { return a > b ? a : b; }
template <typename T> constexpr T ceilDiv(T a, T b) { return (a + b - 1) / b; }

/// The sum over a warp, in every lane, the same bits in each.
inline float warpSum(float x) {
  for (int mask = kWarp / 2; mask; mask /= 2)
    x += shuffleXor(x, mask);
  return x;
}
inline float warpMax(float x) {
  for (int mask = kWarp / 2; mask; mask /= 2)
    x = larger(x, shuffleXor(x, mask));
  return x;
}

/// The sum over a block of `Warps` warps; `scratch` is shared, Warps floats.
template <int Warps> float blockSum(float x, float *scratch) {
  x = warpSum(x);
  barrier(); // `scratch` may be in use from the sum before.
  if (lane() == 0)
    scratch[warp()] = x;
  barrier();
  float sum = 0;
  for (int w = 0; w < Warps; ++w)
    sum += scratch[w];
  return sum;
}

//===----------------------------------------------------------------------===//
// Elements in memory
//===----------------------------------------------------------------------===//

inline float widen(uint16_t bf16) {
  return __builtin_bit_cast(float, uint32_t(bf16) << 16);
}
/// Two bf16 of one register.
inline float widenLow(uint32_t pair) {
  return __builtin_bit_cast(float, pair << 16);
}
inline float widenHigh(uint32_t pair) {
  return __builtin_bit_cast(float, pair & 0xffff0000u);
}
inline uint16_t narrow(float x) { return uint16_t(narrowPair(x, 0)); }
/// A bf16 point: where a model's own code rounds.
inline float roundToBf16(float x) { return widen(narrow(x)); }

struct alignas(16) Bytes16 {
  uint32_t word[4];
};

/// N elements (1 or 8) from `data` + `at`. 8 want 16-byte alignment.
template <int N> void load(const void *data, Type type, int64_t at, float *to) {
  if constexpr (N == 1) {
    *to = type == Type::F32 ? static_cast<const float *>(data)[at]
                            : widen(static_cast<const uint16_t *>(data)[at]);
  } else {
    static_assert(N == 8);
    if (type == Type::F32) {
      const auto *from = reinterpret_cast<const Bytes16 *>(
          static_cast<const float *>(data) + at);
      Bytes16 low = from[0], high = from[1];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[i] = __builtin_bit_cast(float, low.word[i]);
        to[i + 4] = __builtin_bit_cast(float, high.word[i]);
      }
    } else {
      Bytes16 all = *reinterpret_cast<const Bytes16 *>(
          static_cast<const uint16_t *>(data) + at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[2 * i] = widenLow(all.word[i]);
        to[2 * i + 1] = widenHigh(all.word[i]);
      }
    }
  }
}

template <int N>
void store(void *data, Type type, int64_t at, const float *from) {
  if constexpr (N == 1) {
    if (type == Type::F32)
      static_cast<float *>(data)[at] = *from;
    else
      static_cast<uint16_t *>(data)[at] = narrow(*from);
  } else {
    static_assert(N == 8);
    if (type == Type::F32) {
      auto *to = reinterpret_cast<Bytes16 *>(static_cast<float *>(data) + at);
      Bytes16 low, high;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        low.word[i] = __builtin_bit_cast(uint32_t, from[i]);
        high.word[i] = __builtin_bit_cast(uint32_t, from[i + 4]);
      }
      to[0] = low;
      to[1] = high;
    } else {
      Bytes16 all;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        all.word[i] = narrowPair(from[2 * i], from[2 * i + 1]);
      *reinterpret_cast<Bytes16 *>(static_cast<uint16_t *>(data) + at) = all;
    }
  }
}

/// N elements of a row from `column`, as they are read or written.
template <int N>
void load(const Rows &rows, int64_t row, int64_t column, float *to) {
  load<N>(rows.data, rows.type, row * rows.stride + column, to);
}
template <int N>
void store(const Rows &rows, int64_t row, int64_t column, const float *from) {
  store<N>(rows.data, rows.type, row * rows.stride + column, from);
}
/// What a later load will give.
inline float stored(Type type, float x) {
  return type == Type::F32 ? x : roundToBf16(x);
}

//===----------------------------------------------------------------------===//
// Functions of a number, to a few ulp, NaN to NaN
//===----------------------------------------------------------------------===//

inline float expAccurate(float x) {
  // exp2 of the product's two parts: one rounding of x * log2(e) alone would
  // cost |x| ulp. Outside these limits the result is inf or 0.
  x = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
  constexpr float log2e = 1.44269504f, rest = 1.92596299e-8f;
  float high = x * log2e;
  float low = __builtin_fmaf(x, log2e, -high) + x * rest;
  float power = exp2Fast(high);
  return __builtin_fmaf(power, low * 0.693147181f, power);
}

inline float sigmoid(float x) { return reciprocal(1.0f + expAccurate(-x)); }
inline float silu(float x) { return x * sigmoid(x); }

inline float tanhAccurate(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  if (a < 0.6f) { // 1 - 2 / (e + 1) would lose what small x are about.
    float p = -6.2691197e-3f;
    p = __builtin_fmaf(p, s, 2.1110959e-2f);
    p = __builtin_fmaf(p, s, -5.3873949e-2f);
    p = __builtin_fmaf(p, s, 1.3332915e-1f);
    p = __builtin_fmaf(p, s, -3.3333330e-1f);
    return __builtin_fmaf(p * s, x, x);
  }
  float y = 1.0f - 2.0f * reciprocal(expAccurate(2.0f * a) + 1.0f);
  return __builtin_copysignf(y, x);
}

inline float erfAccurate(float x) {
  float a = __builtin_fabsf(x);
  if (a < 1.0f) {
    float s = x * x, p = 7.8758750e-5f;
    p = __builtin_fmaf(p, s, -8.0168643e-4f);
    p = __builtin_fmaf(p, s, 5.1890874e-3f);
    p = __builtin_fmaf(p, s, -2.6854212e-2f);
    p = __builtin_fmaf(p, s, 1.1283595e-1f);
    p = __builtin_fmaf(p, s, -3.7612627e-1f);
    p = __builtin_fmaf(p, s, 1.1283792f);
    return p * x;
  }
  float b = a > 4.0f ? 4.0f : a, p = -1.6371514e-6f; // -log(erfc)
  p = __builtin_fmaf(p, b, 4.6058043e-5f);
  p = __builtin_fmaf(p, b, -5.9680563e-4f);
  p = __builtin_fmaf(p, b, 4.7595963e-3f);
  p = __builtin_fmaf(p, b, -2.6421136e-2f);
  p = __builtin_fmaf(p, b, 1.1008008e-1f);
  p = __builtin_fmaf(p, b, 6.3182605e-1f);
  p = __builtin_fmaf(p, b, 1.1302334f);
  p = __builtin_fmaf(p, b, -3.2013805e-4f);
  return __builtin_copysignf(1.0f - expAccurate(-p), x);
}

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_VOCABULARY_H
