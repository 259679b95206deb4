//===- StatesTest.cpp - Save, restore, fork, roll back --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// k3-a has every kind of state: memories, convolutions and a cache.
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

class States : public testing::Test {
protected:
  Model model = openFixture("k3-a", "");
  Fixture fixture = readFixture("k3-a");
  StatePool pool = makePool(model, 3);
  std::string path = testing::TempDir() + "plum_state_" +
                     std::to_string(::getpid()) + ".safetensors";

  ~States() override { std::filesystem::remove(path); }

  std::span<const int32_t> ids(size_t begin, size_t count) const {
    return std::span(fixture.ids[0]).subspan(begin, count);
  }
  std::vector<float> feed(int64_t slot, std::span<const int32_t> tokens,
                          bool checkpoints = false) {
    Piece piece{slot, tokens};
    Result<Rows> logits =
        model.forward(pool, {&piece, 1}, {.checkpoints = checkpoints});
    EXPECT_TRUE(logits) << logits.error().str();
    return {logits->row(0), logits->row(0) + fixture.vocab};
  }
  std::string problem(const Status &status) {
    EXPECT_FALSE(status);
    return status ? "" : status.error().str();
  }
};

TEST_F(States, AForkGoesOnByItself) {
  feed(0, ids(0, 20));
  pool.fork(0, 1);
  std::vector<float> a = feed(0, ids(20, 5));
  std::vector<float> other = feed(1, ids(40, 5));
  pool.reset(2);
  feed(2, ids(0, 20));
  EXPECT_EQ(feed(2, ids(20, 5)), a);
  EXPECT_NE(other, a);
  EXPECT_EQ(pool.tokens(1).size(), 25u);
}

TEST_F(States, ASavedSequenceGoesOnWithTheSameBits) {
  feed(0, ids(0, 20));
  ASSERT_TRUE(pool.save(0, path));
  std::vector<float> expected = feed(0, ids(20, 5));
  feed(1, ids(50, 3)); // What was there before does not matter.
  Status restored = pool.restore(1, path);
  ASSERT_TRUE(restored) << restored.error().str();
  EXPECT_EQ(pool.tokens(1),
            std::vector<int32_t>(ids(0, 20).begin(), ids(0, 20).end()));
  EXPECT_EQ(feed(1, ids(20, 5)), expected);
}

TEST_F(States, ADamagedFileIsRefusedAndLeavesTheSlot) {
  feed(0, ids(0, 20));
  ASSERT_TRUE(pool.save(0, path));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('x');
  }
  std::string message = problem(pool.restore(0, path));
  EXPECT_NE(message.find("its checksum does not fit"), std::string::npos)
      << message;
  pool.fork(0, 1);
  EXPECT_EQ(feed(0, ids(20, 1)), feed(1, ids(20, 1)));
}

TEST_F(States, AFileOfAnotherModelIsRefused) {
  Model other = openFixture("kimi-linear-a", "");
  StatePool otherPool = makePool(other, 1);
  ASSERT_TRUE(otherPool.save(0, path));
  std::string message = problem(pool.restore(0, path));
  EXPECT_NE(message.find("holds the state of another model"), std::string::npos)
      << message;
  message = problem(pool.restore(0, fixturePath("k3-a/model.safetensors")));
  EXPECT_NE(message.find("has no tensor 'plum.state'"), std::string::npos)
      << message;
}

TEST_F(States, ARollBackGivesTheBitsOfNeverHavingSeenTheTokens) {
  for (int64_t rejected : {1, 3, 6}) {
    pool.reset(0);
    pool.reset(1);
    feed(0, ids(0, 20));
    pool.fork(0, 1);
    std::vector<int32_t> draft(fixture.ids[1].begin(),
                               fixture.ids[1].begin() + 6);
    feed(0, draft, /*checkpoints=*/true);
    Status status = pool.rollBack(0, rejected);
    ASSERT_TRUE(status) << status.error().str();
    for (size_t i = 0; i + size_t(rejected) < draft.size(); ++i)
      feed(1, {&draft[i], 1}); // As decoding would have.
    EXPECT_EQ(pool.tokens(0), pool.tokens(1));
    std::vector<float> a = feed(0, ids(20, 1)), b = feed(1, ids(20, 1));
    for (size_t c = 0; c < a.size(); ++c)
      ASSERT_NEAR(a[c], b[c], 1e-4) << rejected;
  }
}

TEST_F(States, ARollBackNeedsCheckpoints) {
  feed(0, ids(0, 20));
  std::string message = problem(pool.rollBack(0, 2));
  EXPECT_NE(message.find("slot 0 cannot drop 2 tokens"), std::string::npos)
      << message;
  feed(0, ids(20, 3), true);
  EXPECT_FALSE(pool.rollBack(0, 4));
  EXPECT_TRUE(pool.rollBack(0, 2));
}

TEST_F(States, WhatReplacedASequenceCannotBeRolledBack) {
  auto draft = [&] {
    pool.reset(0);
    feed(0, ids(0, 20));
    feed(1, ids(0, 22));
    ASSERT_TRUE(pool.save(1, path));
    feed(0, ids(20, 3), true);
  };
  draft();
  pool.fork(1, 0);
  EXPECT_FALSE(pool.rollBack(0, 1));
  pool.reset(1);
  draft();
  ASSERT_TRUE(pool.restore(0, path));
  EXPECT_FALSE(pool.rollBack(0, 1));
}

TEST_F(States, BadBatchesTouchNothing) {
  int32_t good = 1, bad = 512, negative = -1;
  auto error = [&](std::vector<Piece> pieces) {
    Result<Rows> rows = model.forward(pool, pieces);
    EXPECT_FALSE(rows);
    return rows ? "" : rows.error().message;
  };
  EXPECT_EQ(error({{0, {&bad, 1}}}),
            "token 512 is not in the vocabulary of 512");
  EXPECT_EQ(error({{0, {&negative, 1}}}),
            "token -1 is not in the vocabulary of 512");
  EXPECT_EQ(error({{3, {&good, 1}}}), "slot 3 is not one of 3");
  EXPECT_EQ(error({{1, {&good, 1}}, {1, {&good, 1}}}),
            "slot 1 appears twice in a batch");
  EXPECT_TRUE(pool.tokens(0).empty() && pool.tokens(1).empty());
}

TEST_F(States, PositionsEndWhereTheModelSays) {
  Model gpt2 = openFixture("gpt2-a", "");
  StatePool states = makePool(gpt2, 1);
  std::vector<int32_t> many(257, 1);
  Result<Rows> rows = gpt2.prefill(states, 0, many);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message,
            "a sequence of 257 tokens, this model has positions for 256");
}

TEST_F(States, ASequenceAloneOrInABatchDecodesToTheSameBits) {
  feed(0, ids(0, 20));
  pool.fork(0, 1);
  pool.fork(0, 2);
  int32_t next = fixture.ids[0][20], other = fixture.ids[1][3];
  std::vector<float> alone = feed(2, {&next, 1});
  Piece both[] = {{1, {&other, 1}}, {0, {&next, 1}}};
  Result<Rows> rows = model.forward(pool, both);
  ASSERT_TRUE(rows);
  EXPECT_EQ(
      0, std::memcmp(rows->row(1), alone.data(), alone.size() * sizeof(float)));
}

} // namespace

} // namespace plum::model::test
