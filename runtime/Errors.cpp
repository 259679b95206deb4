//===- Errors.cpp - How far from the truth --------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plum::runtime {

namespace {

constexpr int64_t windowTokens = 16;
constexpr double windowFloor = 0.05;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// max that lets NaN through.
double worse(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? nan : std::max(a, b);
}

/// 0 / 0 is no error at all, x / 0 an infinite one.
double ratio(double error, double reference) {
  return error == 0 && reference == 0 ? 0 : error / reference;
}

struct Sums {
  double error = 0, reference = 0; ///< Of squares.
  double maxError = 0, maxReference = 0;
  void add(double x, double ref) {
    double difference = x - ref;
    error += difference * difference;
    reference += ref * ref;
    maxError = std::max(maxError, std::abs(difference));
    maxReference = std::max(maxReference, std::abs(ref));
  }
};

} // namespace

void ErrorMeasures::merge(const ErrorMeasures &other) {
  r = worse(r, other.r);
  w = worse(w, other.w);
  m = worse(m, other.m);
  nonFinite += other.nonFinite;
}

ErrorMeasures measure(std::span<const double> x, std::span<const double> ref,
                      int64_t tokens, int64_t heads, int64_t d) {
  ErrorMeasures result;
  Sums all;
  bool finite = true;
  for (size_t i = 0; i < x.size(); ++i) {
    result.nonFinite += !std::isfinite(x[i]);
    finite &= std::isfinite(x[i]) && std::isfinite(ref[i]);
    all.add(x[i], ref[i]);
  }
  if (!finite) {
    result.r = result.w = result.m = nan;
    return result;
  }
  result.r = std::sqrt(ratio(all.error, all.reference));
  result.m = ratio(all.maxError, all.maxReference);
  double floor = x.empty() ? 0
                           : windowFloor * windowFloor * all.reference /
                                 double(x.size()); // Mean square.
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t begin = 0; begin < tokens; begin += windowTokens) {
      int64_t end = std::min(tokens, begin + windowTokens);
      Sums window;
      for (int64_t t = begin; t < end; ++t)
        for (int64_t c = 0; c < d; ++c) {
          size_t i = size_t((t * heads + head) * d + c);
          window.add(x[i], ref[i]);
        }
      double count = double((end - begin) * d);
      result.w = worse(result.w,
                       std::sqrt(ratio(window.error, std::max(window.reference,
                                                              floor * count))));
    }
  return result;
}

ErrorMeasures measure(std::span<const double> x, std::span<const double> ref) {
  ErrorMeasures result = measure(x, ref, 0, 0, 0);
  result.w = result.r;
  return result;
}

ErrorLimits standardLimits(const Manifest &manifest) {
  bool wide = true;
  for (const auto *list : {&manifest.inputs, &manifest.outputs})
    for (const ManifestTensor &tensor : *list)
      wide &= tensor.dtype == DType::F32;
  return wide ? ErrorLimits{1e-5, 2e-5, 4e-5, 1e-5}
              : ErrorLimits{5e-3, 1e-2, 2e-2, 5e-3};
}

// Written so that NaN fails.
bool passes(const ErrorMeasures &errors, const ErrorLimits &limits) {
  return errors.nonFinite == 0 && errors.r <= limits.r &&
         errors.w <= limits.w && errors.m <= limits.m;
}

bool passesState(const ErrorMeasures &errors, const ErrorLimits &limits) {
  return errors.nonFinite == 0 && errors.r <= limits.stateR;
}

} // namespace plum::runtime
