//===- ErrorsTest.cpp -----------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Errors.h"

#include "ToyLayer.h"

#include <cmath>
#include <limits>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

TEST(Errors, MeasuresByHand) {
  // T = 2, H = 1, d = 2.
  std::vector<double> ref{3, 4, 0, 0}, x{3, 4.5, 0, 0};
  ErrorMeasures e = measure(x, ref, 2, 1, 2);
  EXPECT_DOUBLE_EQ(e.r, 0.1);
  EXPECT_DOUBLE_EQ(e.m, 0.125);
  EXPECT_DOUBLE_EQ(e.w, 0.1); // One window holds both tokens.
}

TEST(Errors, WindowFindsABadTailAndABadHead) {
  // T = 32, H = 2, d = 1: head 1 is off by 10 % in the last 16 tokens.
  std::vector<double> ref(64, 1), x = ref;
  for (size_t t = 16; t < 32; ++t)
    x[t * 2 + 1] = 1.1;
  ErrorMeasures e = measure(x, ref, 32, 2, 1);
  EXPECT_NEAR(e.w, 0.1, 1e-12);
  EXPECT_NEAR(e.r, 0.05, 1e-12);
}

TEST(Errors, SilentWindowHasAFloor) {
  // 16 tokens of 1, then 16 of 0 where x is 0.01.
  std::vector<double> ref(32, 0), x(32, 0.01);
  for (size_t t = 0; t < 16; ++t)
    x[t] = ref[t] = 1;
  double rms = std::sqrt(0.5);
  EXPECT_NEAR(measure(x, ref, 32, 1, 1).w, 0.01 / (0.05 * rms), 1e-12);
}

TEST(Errors, NaNNeverPasses) {
  ErrorLimits limits = standardLimits(toyManifest());
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<double> ref{1, 2}, x{1, bad};
    ErrorMeasures e = measure(x, ref, 2, 1, 1);
    EXPECT_EQ(e.nonFinite, 1);
    EXPECT_FALSE(passes(e, limits));
    EXPECT_FALSE(passesState(e, limits));
    ErrorMeasures merged = measure(ref, ref, 2, 1, 1);
    EXPECT_TRUE(passes(merged, limits));
    merged.merge(e);
    EXPECT_FALSE(passes(merged, limits));
    merged.merge(measure(ref, ref, 2, 1, 1));
    EXPECT_FALSE(passes(merged, limits));
    // Nor does a reference that is not finite, even when x agrees.
    EXPECT_FALSE(passes(measure(ref, x, 2, 1, 1), limits));
  }
}

TEST(Errors, ZeroIsExactlyZero) {
  std::vector<double> zero(4, 0), x{0, 0, 1e-9, 0};
  ErrorLimits limits = standardLimits(toyManifest());
  EXPECT_TRUE(passes(measure(zero, zero, 4, 1, 1), limits));
  EXPECT_FALSE(passes(measure(x, zero, 4, 1, 1), limits));
  EXPECT_TRUE(passes(measure({}, {}, 0, 1, 1), limits));
}

TEST(Errors, LimitsFollowStorage) {
  Manifest manifest = toyManifest();
  EXPECT_EQ(standardLimits(manifest).r, 5e-3); // v is bf16.
  manifest.inputs[2].dtype = DType::F32;
  EXPECT_EQ(standardLimits(manifest).r, 1e-5);
}
