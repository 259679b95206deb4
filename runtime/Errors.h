//===- Errors.h - How far from the truth ------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three measures of x against a float64 reference, each a ratio:
//
//   R = rms(x - ref) / rms(ref)              over the tensor
//   W = worst R over heads and windows of 16 tokens, the window's rms(ref)
//       being at least 5 % of the tensor's
//   M = max |x - ref| / max |ref|
//
// R alone hides a bad head or a bad tail; W finds those and M single values.
// Where a value is not finite all three are NaN, and NaN passes no limit.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_ERRORS_H
#define PLUM_RUNTIME_ERRORS_H

#include "runtime/Manifest.h"

#include <cstdint>
#include <span>

namespace plum::runtime {

struct ErrorMeasures {
  double r = 0, w = 0, m = 0;
  int64_t nonFinite = 0; ///< Values of x that are NaN or infinite.

  /// The worse of both, measure by measure; NaN is worst.
  void merge(const ErrorMeasures &other);
};

/// x and ref: [T, H, d], dense.
ErrorMeasures measure(std::span<const double> x, std::span<const double> ref,
                      int64_t tokens, int64_t heads, int64_t d);
/// No windows: W = R.
ErrorMeasures measure(std::span<const double> x, std::span<const double> ref);

struct ErrorLimits {
  double r, w, m;
  double stateR;
};
/// 16-bit tensors: 5e-3, 1e-2, 2e-2; 5e-3 for states. When everything a kernel
/// reads and writes is f32: 1e-5, 2e-5, 4e-5; 1e-5.
ErrorLimits standardLimits(const Manifest &manifest);

bool passes(const ErrorMeasures &errors, const ErrorLimits &limits);
bool passesState(const ErrorMeasures &errors, const ErrorLimits &limits);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_ERRORS_H
