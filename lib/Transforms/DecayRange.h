//===- DecayRange.h - Intervals of elementwise expressions ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interval arithmetic over the arith and math ops that compute a gate, to
// prove bounds of a decay: -5 * sigmoid(x) lies in [-5, 0] whatever x is.
// Bounds hold for the exact value; rounding can leave them by an ulp.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TRANSFORMS_DECAYRANGE_H
#define PLUM_LIB_TRANSFORMS_DECAYRANGE_H

#include "mlir/IR/Value.h"

namespace plum {

struct Interval {
  double low, high;
};

/// An interval that holds every element of `value` (f32 or a row); the whole
/// line when nothing is known.
Interval intervalOf(mlir::Value value);

} // namespace plum

#endif // PLUM_LIB_TRANSFORMS_DECAYRANGE_H
