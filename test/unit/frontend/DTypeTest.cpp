//===- DTypeTest.cpp - Exact conversions of storage types -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Support/DType.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace plum;

TEST(DType, NamesRoundTrip) {
  for (DType type :
       {DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64})
    EXPECT_EQ(parseDType(name(type)), type);
  EXPECT_EQ(parseDType("f8"), std::nullopt);
  EXPECT_EQ(parseDType(""), std::nullopt);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(floatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-8f), 0x3f80);            // Tie to even.
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);  // Tie to even.
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81); // Above a tie.
  EXPECT_EQ(floatToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(floatToBf16(-0.0f), 0x8000);
}

TEST(DType, Bf16KeepsNanWhoseUpperHalfIsInfinity) {
  float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(bf16ToFloat(floatToBf16(nan))));
}

TEST(DType, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = f16ToFloat(uint16_t(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(f16ToFloat(floatToF16(value)))) << bits;
    else
      EXPECT_EQ(floatToF16(value), bits);
  }
}

TEST(DType, F16RoundsToNearestEvenBetweenAnyTwo) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    float low = f16ToFloat(uint16_t(bits)),
          high = f16ToFloat(uint16_t(bits + 1));
    float middle = low + (high - low) / 2; // Exact in f32.
    EXPECT_EQ(floatToF16(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(floatToF16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(floatToF16(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(floatToF16(65519.0f), 0x7bff);
  EXPECT_EQ(floatToF16(65520.0f), 0x7c00);
  EXPECT_EQ(floatToF16(-INFINITY), 0xfc00);
}

TEST(DType, LoadsAndStoresElements) {
  uint16_t halves[2] = {0, 0};
  storeFromDouble(halves, DType::BF16, 1, -1.5);
  EXPECT_EQ(halves[0], 0);
  EXPECT_EQ(loadAsDouble(halves, DType::BF16, 1), -1.5);
  float floats[2] = {};
  storeFromDouble(floats, DType::F32, 1, 0.1);
  EXPECT_EQ(loadAsDouble(floats, DType::F32, 1), double(0.1f));
  int64_t longs[2] = {};
  storeFromDouble(longs, DType::I64, 1, -3.0);
  EXPECT_EQ(loadAsDouble(longs, DType::I64, 1), -3.0);
}

TEST(DType, StoresIntegersSaturated) {
  int32_t ints[1];
  int64_t longs[1];
  storeFromDouble(ints, DType::I32, 0, 1e300);
  EXPECT_EQ(ints[0], std::numeric_limits<int32_t>::max());
  storeFromDouble(longs, DType::I64, 0, -INFINITY);
  EXPECT_EQ(longs[0], std::numeric_limits<int64_t>::min());
  storeFromDouble(longs, DType::I64, 0, 0x1p63);
  EXPECT_EQ(longs[0], std::numeric_limits<int64_t>::max());
  storeFromDouble(ints, DType::I32, 0, NAN);
  EXPECT_EQ(ints[0], 0);
}
