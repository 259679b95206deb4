//===- HeatMapTest.cpp - Results as a picture -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Tuning/HeatMap.h"
#include "Samples.h"

#include <gtest/gtest.h>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

namespace {

size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++found;
  return found;
}

TuningDatabase sample() {
  TuningDatabase database;
  database.add(sampleKey(), sampleResult(0, 9));
  database.add(sampleKey(), sampleResult(16, 2));
  TuningResult wrong = sampleResult(64, 1);
  wrong.errors.r = 1;
  database.add(sampleKey(), wrong);
  database.add(sampleKey(1024), sampleResult(16, 0.5, 1024));
  return database;
}

TEST(TuningHeatMap, ACellForEachChunkAndLength) {
  std::string svg = heatMap(sample(), sampleKey());
  EXPECT_EQ(count(svg, "<rect "), 1u + 2 * 3 * 2);
  EXPECT_EQ(count(svg, "stroke-width=\"2\""), 4u); // Two columns, two maps.
  EXPECT_EQ(count(svg, "line-through"), 2u);
  EXPECT_EQ(count(svg, "BH&lt;=8 T&lt;=1024"), 2u);
}

TEST(TuningHeatMap, NamesAreEscaped) {
  TuningKey key = sampleKey();
  key.device = "<&\"\x01\xc3";
  TuningDatabase database;
  database.add(key, sampleResult(16, 2));
  std::string svg = heatMap(database, key);
  EXPECT_NE(svg.find("&lt;&amp;&quot;??"), std::string::npos);
}

TEST(TuningHeatMap, TheTableMarksTheChoice) {
  std::string text = table(sample(), sampleKey());
  EXPECT_NE(text.find("2  1.00e-03 *"), std::string::npos) << text;
  EXPECT_NE(text.find("1  1.00e+00 !"), std::string::npos) << text;
}

} // namespace
