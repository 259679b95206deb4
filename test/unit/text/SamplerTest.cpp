//===- SamplerTest.cpp - Choosing the next token --------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Sampler.h"

#include <cmath>
#include <gtest/gtest.h>

namespace plum::text {

namespace {

const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f),
                                std::log(0.3f)};

/// How often each token is drawn.
std::vector<int> draws(SamplerOptions options, int count = 20000) {
  Sampler sampler(options);
  std::vector<int> seen(logits.size());
  for (int i = 0; i < count; ++i)
    ++seen[size_t(sampler.next(logits, {}))];
  return seen;
}

TEST(Sampler, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(Sampler({}).next(logits, {}), 1);
  std::vector<float> equal{0, 1, 1};
  EXPECT_EQ(Sampler({}).next(equal, {}), 1);
  std::vector<float> broken{NAN, 1, INFINITY, 2};
  EXPECT_EQ(Sampler({}).next(broken, {}), 2);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  std::vector<int> seen = draws({.temperature = 1, .seed = 3});
  const double expected[] = {0.1, 0.4, 0.2, 0.3};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(seen[i] / 20000.0, expected[i], 0.015);
  seen = draws({.temperature = 0.5});
  EXPECT_NEAR(seen[0] / 20000.0, 0.01 / 0.3, 0.01);
}

TEST(Sampler, FiltersKeepTheLikely) {
  EXPECT_EQ(draws({.temperature = 1, .topK = 1})[1], 20000);
  std::vector<int> seen = draws({.temperature = 1, .topK = 2});
  EXPECT_EQ(seen[0] + seen[2], 0);
  EXPECT_NEAR(seen[1] / 20000.0, 4.0 / 7, 0.02);
  seen = draws({.temperature = 1, .topP = 0.65});
  EXPECT_EQ(seen[0] + seen[2], 0);
  seen = draws({.temperature = 1, .topP = 0});
  EXPECT_EQ(seen[1], 20000);
  seen = draws({.temperature = 1, .minP = 0.4});
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[2], 0);
}

TEST(Sampler, RepeatedTokensBecomeLessLikely) {
  std::vector<float> positive{2, 1.5f, -1};
  std::vector<int32_t> history{0, 2};
  EXPECT_EQ(Sampler({.repeatPenalty = 2}).next(positive, history), 1);
  // Only the last so many count.
  EXPECT_EQ(
      Sampler({.repeatPenalty = 2, .repeatLast = 1}).next(positive, history),
      0);
}

TEST(Sampler, ASeedGivesTheSameTokensEverywhere) {
  Sampler sampler({.temperature = 1, .seed = 42});
  std::vector<int32_t> ids;
  for (int i = 0; i < 12; ++i)
    ids.push_back(sampler.next(logits, {}));
  Sampler again({.temperature = 1, .seed = 42});
  for (int32_t id : ids)
    EXPECT_EQ(again.next(logits, {}), id);
  // mt19937_64 is specified to the last bit.
  EXPECT_EQ(std::mt19937_64(42)(), 13930160852258120406u);
}

} // namespace

} // namespace plum::text
