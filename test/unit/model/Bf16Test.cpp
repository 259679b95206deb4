//===- Bf16Test.cpp - What rounding to bf16 costs -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With compute bf16 values are rounded where the models' own code rounds. The
// logits then differ by about the rounding of a few dozen operations in a row;
// where the two likeliest tokens are further apart than that, the choice is the
// same.
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

class Bf16 : public testing::TestWithParam<const char *> {};

TEST_P(Bf16, TheLikeliestTokenStaysWhereItIsClear) {
  Fixture fixture = readFixture(GetParam());
  Model model = openFixture(GetParam(), "", Compute::BF16);
  StatePool pool = makePool(model, 2);
  Piece pieces[] = {{0, fixture.ids[0]}, {1, fixture.ids[1]}};
  Result<Rows> logits = model.forward(pool, pieces, {.logits = Logits::All});
  ASSERT_TRUE(logits) << logits.error().str();
  Difference difference;
  difference.add(logits->rows(0, fixture.tokens), fixture, 0, 0);
  difference.add(logits->rows(fixture.tokens, fixture.tokens), fixture, 1, 0);
  int64_t clear = 0;
  for (int64_t r = 0; r < logits->count; ++r) {
    const double *expected = fixture.logits.data() + r * fixture.vocab;
    std::vector<double> sorted(expected, expected + fixture.vocab);
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(),
                      std::greater<>());
    if (sorted[0] - sorted[1] < 2 * difference.perRow[size_t(r)])
      continue;
    ++clear;
    const float *row = logits->row(r);
    EXPECT_EQ(std::max_element(row, row + fixture.vocab) - row,
              std::max_element(expected, expected + fixture.vocab) - expected);
  }
  EXPECT_GT(clear, 0);
  // Rounding makes a token choose another expert now and then, which among
  // random experts moves its row as a whole; models without do much better.
  bool experts = fixture.name != "gpt2-a" && fixture.name != "mamba2-a" &&
                 !fixture.name.starts_with("plain");
  EXPECT_LT(difference.medianRow(), (experts ? 0.7 : 0.06) * fixture.spread);
  if (std::getenv("PLUM_SHOW"))
    std::printf("%-18s bf16: median row %.3f spread, max %.3f spread, rms %.4f "
                "spread, %d of %d rows clear\n",
                GetParam(), difference.medianRow() / fixture.spread,
                difference.largest / fixture.spread,
                difference.rms() / fixture.spread, int(clear),
                int(logits->count));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Bf16, testing::ValuesIn(fixtures),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace

} // namespace plum::model::test
