//===- LayersTest.cpp - Every shipped layer at every phase ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The IR of assoc, normal, chunk and plan computes the recurrence of the spec,
// to the rounding of float64: sums in another order, nothing else.
//
//===----------------------------------------------------------------------===//

#include "PhaseRun.h"

#include "gtest/gtest.h"

#include <set>

using namespace plum;
using namespace plum::test;
using interpreter::PhaseProgram;

static constexpr double kLimit = 1e-11;

namespace {
struct Dims {
  int64_t K, V;
};

class ShippedLayers
    : public testing::TestWithParam<std::tuple<std::string, Dims>> {
protected:
  PhaseRun make(std::vector<int64_t> chunks) const {
    auto [name, dims] = GetParam();
    CompileOptions options;
    options.spec.dims = {{"K", dims.K}, {"V", dims.V}};
    options.chunks = std::move(chunks);
    return PhaseRun(shippedLayer(name), options);
  }
};
} // namespace

INSTANTIATE_TEST_SUITE_P(
    All, ShippedLayers,
    testing::Combine(testing::Values("attention", "deltanet", "deltaproduct",
                                     "gated_deltanet", "gdn2", "gla", "kda",
                                     "kda_k3", "linear_attention", "mamba2",
                                     "retnet", "rwkv7"),
                     testing::Values(Dims{8, 4}, Dims{3, 5}, Dims{1, 1})),
    [](const auto &info) {
      const Dims &dims = std::get<1>(info.param);
      return std::get<0>(info.param) + "_" + std::to_string(dims.K) + "x" +
             std::to_string(dims.V);
    });

TEST_P(ShippedLayers, TokenByTokenEqualsTheRecurrence) {
  PhaseRun run = make({64});
  ASSERT_TRUE(run.ok());
  for (std::string phase : {"assoc", "normal"}) {
    auto program = run.read(run.ir(phase));
    ASSERT_TRUE(program);
    ASSERT_EQ(program->entries().size(), 1u);
    for (int64_t tokens : {0, 1, 70}) {
      run.makeData(tokens);
      EXPECT_LE(run.error(*program, program->entries().front()), kLimit)
          << phase << ", T = " << tokens;
    }
  }
}

TEST_P(ShippedLayers, ChunkwiseEqualsTheRecurrence) {
  std::vector<int64_t> chunks = {1, 2, 8, 16, 64};
  PhaseRun run = make(chunks);
  ASSERT_TRUE(run.ok());
  for (std::string phase : {"chunk", "plan"}) {
    auto program = run.read(run.ir(phase));
    ASSERT_TRUE(program);
    std::set<int64_t> seen;
    for (const PhaseProgram::Entry &entry : program->entries()) {
      int64_t C = entry.chunk;
      if (C == 0)
        continue;
      seen.insert(C);
      for (int64_t tokens : std::set<int64_t>{0, 1, C - 1, C, C + 1, 70}) {
        run.makeData(tokens);
        EXPECT_LE(run.error(*program, entry), kLimit)
            << phase << ", C = " << C << ", T = " << tokens;
      }
    }
    EXPECT_EQ(seen, std::set<int64_t>(chunks.begin(), chunks.end())) << phase;
  }
}
