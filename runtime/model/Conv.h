//===- Conv.h - Short causal convolution ------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Per channel c: y[t] = silu(bias + sum_j w[c, j] x[t - (W - 1) + j]), where
// what came before the first token is 0. The state is the last W - 1 inputs.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_CONV_H
#define PLUM_RUNTIME_MODEL_CONV_H

#include "runtime/model/States.h"

namespace plum::model {

struct ShortConv {
  int64_t channels = 0, width = 0; ///< W.
  Vector taps;                     ///< [W, channels], transposed when read.
  Vector bias;                     ///< [channels]; may be empty.
  int64_t state = 0;               ///< [W - 1, channels] in the StateLayout.

  /// Appends channels whose weight is [count, W].
  void addChannels(const Vector &weight, int64_t count);
  Rows run(const Work &work, const View &x) const;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_CONV_H
