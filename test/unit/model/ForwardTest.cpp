//===- ForwardTest.cpp - The fixtures, memories interpreted ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The whole CPU path without a compiler, so that the sanitizer build runs it.
// test/integration/models does the same with compiled memories.
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"

#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

class Forward : public testing::TestWithParam<const char *> {};

TEST_P(Forward, WholeSequences) {
  expectFullForward(openFixture(GetParam(), ""), readFixture(GetParam()));
}

TEST_P(Forward, TokenByToken) {
  expectChunked(openFixture(GetParam(), ""), readFixture(GetParam()), 1);
}

TEST_P(Forward, PiecesOf7) {
  expectChunked(openFixture(GetParam(), ""), readFixture(GetParam()), 7);
}

TEST_P(Forward, PiecesOf64) {
  expectChunked(openFixture(GetParam(), ""), readFixture(GetParam()), 64);
}

TEST_P(Forward, Greedy) {
  expectGreedy(openFixture(GetParam(), ""), readFixture(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Forward, testing::ValuesIn(fixtures),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace

} // namespace plum::model::test
