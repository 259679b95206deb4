//===- GpuForwardTest.cpp - The fixtures through the GPU backend ----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything that a GPU would do but its memory layers: the backend's launches,
// its kernels, recorded passes. See HostGpu.h.
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"
#include "test/unit/model/HostGpu.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

class OnGpu : public testing::TestWithParam<const char *> {
protected:
  Fixture fixture = readFixture(GetParam());
};

TEST_P(OnGpu, WholeSequences) {
  expectFullForward(openFixture(GetParam(), "", Compute::F32, hostGpu()),
                    fixture);
}

TEST_P(OnGpu, PiecesOf7) {
  expectChunked(openFixture(GetParam(), "", Compute::F32, hostGpu()), fixture,
                7);
}

TEST_P(OnGpu, Greedy) {
  expectGreedy(openFixture(GetParam(), "", Compute::F32, hostGpu()), fixture);
}

TEST_P(OnGpu, ASequenceHasTheSameBitsInEveryBatch) {
  Model model = openFixture(GetParam(), "", Compute::F32, hostGpu());
  StatePool pool = makePool(model, 3);
  std::span<const int32_t> first = fixture.ids[0], second = fixture.ids[1];
  auto feed = [&](std::vector<Piece> pieces) {
    Result<Rows> logits = model.forward(pool, pieces);
    EXPECT_TRUE(logits) << logits.error().str();
    return std::move(*logits);
  };
  auto expectSame = [&](const float *a, const float *b) {
    for (int64_t c = 0; c < fixture.vocab; ++c)
      ASSERT_EQ(a[c], b[c]) << "column " << c;
  };
  Rows alone = feed({{0, first.first(9)}});
  Rows both = feed({{2, second.first(5)}, {1, first.first(9)}});
  expectSame(alone.row(0), both.row(1));
  // Single tokens: as they are, recorded, replayed; with others, and beside
  // a longer piece.
  for (size_t t = 9; t < 13; ++t) {
    alone = feed({{0, first.subspan(t, 1)}});
    if (t < 12) {
      both = feed({{1, first.subspan(t, 1)}, {2, second.subspan(t, 1)}});
      expectSame(alone.row(0), both.row(0));
    } else {
      both = feed({{2, second.subspan(t, 3)}, {1, first.subspan(t, 1)}});
      expectSame(alone.row(0), both.row(1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, OnGpu, testing::ValuesIn(fixtures),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace

} // namespace plum::model::test
