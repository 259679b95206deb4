//===- Blas.h - OpenBLAS, loaded when there is one --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// OpenBLAS is loaded at run time, so that nothing needs it to build or to run.
// It is told to use one thread: each of ours calls it for its own part.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_BLAS_H
#define PLUM_RUNTIME_MODEL_BLAS_H

#include <cstdint>

namespace plum::model {

/// From so many rows on it is faster than one row after the other (Dots.h).
inline constexpr int64_t manyRows = 12;

/// Null when there is no libopenblas.so.0; the same for the whole process.
struct Blas {
  static const Blas *get();

  /// C [m, n] = A [m, k] B^T: row-major, B is [n, k].
  void timesTransposed(int64_t m, int64_t n, int64_t k, const float *a,
                       int64_t lda, const float *b, int64_t ldb, float *c,
                       int64_t ldc) const;
  /// C [m, n] = A [m, k] B: B is [k, n].
  void times(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
             const float *b, int64_t ldb, float *c, int64_t ldc) const;

  using Sgemm = void (*)(int order, int transA, int transB, int m, int n, int k,
                         float alpha, const float *a, int lda, const float *b,
                         int ldb, float beta, float *c, int ldc);
  Sgemm sgemm = nullptr;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_BLAS_H
