//===- Dots.h - Few tokens times a weight -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decoding reads every weight once for a handful of tokens, so what counts is
// to read it as it is stored (bf16, MXFP4) at the speed of memory. No BLAS does
// that. An element's bits depend on its own row of x and of w alone, not on how
// many rows there are.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_DOTS_H
#define PLUM_RUNTIME_MODEL_DOTS_H

#include "runtime/model/Tensor.h"

namespace plum::model {

struct DotKernels {
  /// y[t, r] = x[t] . w[r], for every row of x and of w.
  void (*dots)(const Matrix &w, const View &x, const View &y);
  /// y = sum over r of a[r] * w[r]; y has w.cols values.
  void (*combine)(const Matrix &w, const float *a, float *y);
  /// The rows of w as f32, [w.rows, w.cols] at `to`.
  void (*widen)(const Matrix &w, float *to);

  /// The ones for this CPU.
  static const DotKernels &get();
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_DOTS_H
