//===- GpuStatesTest.cpp - Rolling back on the GPU backend ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pass with checkpoints over drafted tokens has the bits of decoding them,
// and so has what follows when some of them are dropped. PLUM_GPU_BUNDLES has
// these tests run on a GPU, with its compiled memories.
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"
#include "test/unit/model/HostGpu.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

using Ids = std::span<const int32_t>;

class GpuStates
    : public testing::TestWithParam<std::tuple<const char *, Compute>> {
protected:
  Compute compute = std::get<1>(GetParam());
  Fixture fixture = readFixture(std::get<0>(GetParam()));
  std::shared_ptr<GpuBackend> gpu = someGpu({.compute = compute});
  Model model = openFixture(fixture.name, bundleOf(fixture.name), compute, gpu);
  /// What is drafted lies in the first half, what it is compared with behind.
  StatePool pool = makePool(model, 6);

  Ids ids(size_t sequence, size_t begin, size_t count) const {
    return Ids(fixture.ids[sequence]).subspan(begin, count);
  }
  std::vector<std::vector<float>> feed(std::vector<Piece> pieces,
                                       bool checkpoints = false,
                                       Logits which = Logits::All) {
    Result<Rows> logits = model.forward(
        pool, pieces, {.logits = which, .checkpoints = checkpoints});
    EXPECT_TRUE(logits) << logits.error().str();
    std::vector<std::vector<float>> rows;
    for (int64_t r = 0; logits && r < logits->count; ++r)
      rows.emplace_back(logits->row(r), logits->row(r) + logits->width);
    return rows;
  }
  /// One after the other, as decoding does.
  std::vector<std::vector<float>> decode(int64_t slot, Ids tokens) {
    std::vector<std::vector<float>> rows;
    for (size_t t = 0; t < tokens.size(); ++t)
      rows.push_back(feed({{slot, tokens.subspan(t, 1)}})[0]);
    return rows;
  }
  void drop(int64_t slot, int64_t count) {
    Status status = pool.rollBack(slot, count);
    ASSERT_TRUE(status) << status.error().str();
  }
  /// The same tokens so far, and the same bits from here on.
  void expectAlike(int64_t a, int64_t b) {
    EXPECT_EQ(pool.tokens(a), pool.tokens(b));
    Ids next = ids(1, 20, 1);
    EXPECT_EQ(feed({{a, next}}), feed({{b, next}}));
  }
};

TEST_P(GpuStates, DroppedTokensHaveNeverBeenThere) {
  feed({{0, ids(0, 0, 5)}});
  Ids draft = ids(1, 0, 4);
  for (size_t dropped : {1u, 3u, 4u}) {
    pool.fork(0, 1);
    pool.fork(0, 3);
    auto drafted = feed({{1, draft}}, /*checkpoints=*/true);
    drop(1, int64_t(dropped));
    size_t left = draft.size() - dropped;
    auto decoded = decode(3, draft.first(left));
    drafted.resize(left);
    EXPECT_EQ(drafted, decoded) << dropped;
    expectAlike(1, 3);
  }
}

TEST_P(GpuStates, SequencesDropTheirOwnNumberOfTokens) {
  const struct {
    size_t before, length;
    int64_t dropped;
  } cases[] = {{4, 3, 2}, {7, 1, 0}, {2, 5, 4}};
  std::vector<Piece> pieces;
  for (int64_t s : {2, 0, 1}) { // In no order.
    feed({{s, ids(0, size_t(s), cases[s].before)}});
    pool.fork(s, s + 3);
    pieces.push_back({s, ids(1, size_t(s), cases[s].length)});
  }
  auto drafted = feed(pieces, /*checkpoints=*/true);
  for (const Piece &piece : pieces)
    drop(piece.slot, cases[piece.slot].dropped);
  auto row = drafted.begin();
  for (const Piece &piece : pieces) {
    const auto &own = cases[piece.slot];
    auto decoded = decode(piece.slot + 3,
                          piece.ids.first(own.length - size_t(own.dropped)));
    EXPECT_TRUE(std::equal(decoded.begin(), decoded.end(), row));
    row += int64_t(own.length);
    expectAlike(piece.slot, piece.slot + 3);
  }
}

// As it is, recorded, replayed; passes that decode in between.
TEST_P(GpuStates, RecordedPassesKeepWhatIsDropped) {
  feed({{0, ids(0, 0, 4)}, {1, ids(1, 0, 2)}});
  pool.fork(0, 3);
  pool.fork(1, 4);
  for (size_t turn = 0; turn < 3; ++turn) {
    Ids a = ids(0, 4 + 3 * turn, 3), b = ids(1, 20 + turn, 3);
    auto last = feed({{0, a}, {1, b}}, /*checkpoints=*/true, Logits::Last);
    size_t dropped = turn * 3 / 2; // 0, 1, 3
    drop(0, int64_t(dropped));
    decode(3, a.first(3 - dropped));
    EXPECT_EQ(last[1], decode(4, b).back());
    Ids next = ids(1, 30, 1);
    EXPECT_EQ(feed({{0, next}, {1, next}}), feed({{3, next}, {4, next}}))
        << "turn " << turn;
  }
}

TEST_P(GpuStates, WhatWasRolledBackIsForkedAndSaved) {
  std::string path = testing::TempDir() + "plum_gpu_state_" +
                     std::to_string(::getpid()) + ".safetensors";
  feed({{0, ids(0, 0, 4)}, {3, ids(0, 0, 4)}});
  feed({{0, ids(1, 0, 4)}}, /*checkpoints=*/true);
  drop(0, 3);
  pool.fork(0, 1);
  Status saved = pool.save(0, path);
  ASSERT_TRUE(saved) << saved.error().str();
  drop(0, 1); // One more of the same pass: copies do not mind.
  Status restored = pool.restore(2, path);
  std::filesystem::remove(path);
  ASSERT_TRUE(restored) << restored.error().str();
  pool.fork(3, 5);
  decode(3, ids(1, 0, 1));
  pool.fork(3, 4);
  expectAlike(0, 5);
  expectAlike(1, 3);
  expectAlike(2, 4);
}

TEST_P(GpuStates, OnlyTheLastPassOfWhatIsInTheSlotIsDropped) {
  feed({{0, ids(0, 0, 4)}, {1, ids(1, 0, 6)}});
  feed({{0, ids(1, 0, 3)}}, /*checkpoints=*/true);
  EXPECT_FALSE(pool.rollBack(0, 4));
  EXPECT_FALSE(pool.rollBack(1, 1));
  pool.fork(1, 0);
  EXPECT_FALSE(pool.rollBack(0, 1));
  feed({{0, ids(1, 0, 3)}});
  EXPECT_FALSE(pool.rollBack(0, 1));
}

std::string nameOf(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Caches alone; memories with convolutions, without, and beside latent
// attention and experts.
INSTANTIATE_TEST_SUITE_P(
    Fixtures, GpuStates,
    testing::Values(std::tuple("gpt2-a", Compute::F32),
                    std::tuple("mamba2-a", Compute::F32),
                    std::tuple("plain-kda-a", Compute::F32),
                    std::tuple("plain-kda-a", Compute::BF16),
                    std::tuple("k3-a", Compute::F32),
                    std::tuple("k3-a", Compute::BF16)),
    [](const auto &info) {
      bool narrow = std::get<1>(info.param) == Compute::BF16;
      return nameOf(std::get<0>(info.param)) + (narrow ? "_bf16" : "_f32");
    });

} // namespace

} // namespace plum::model::test
