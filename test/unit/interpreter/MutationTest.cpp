//===- MutationTest.cpp - One wrong thing in the IR is noticed ------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A check is worth what it catches. Each case edits the text of a phase in one
// way that still parses and verifies, and must be far beyond the limit.
//
//===----------------------------------------------------------------------===//

#include "PhaseRun.h"

#include "gtest/gtest.h"

#include <regex>

using namespace plum;
using namespace plum::test;
using interpreter::PhaseProgram;

namespace {
struct Mutation {
  const char *name, *layer, *phase, *find, *put;
};
void PrintTo(const Mutation &mutation, std::ostream *out) {
  *out << mutation.find;
}

class Mutations : public testing::TestWithParam<Mutation> {};
} // namespace

INSTANTIATE_TEST_SUITE_P(
    All, Mutations,
    testing::Values(
        Mutation{"BetaOfDelta", "deltanet", "assoc",
                 R"((assoc\.delta %\w+, %\w+, %\w+, )%\w+)", "$1%one"},
        Mutation{"SignOfErase", "kda", "normal", R"(arith\.negf (%\w+ : f32))",
                 "math.absf $1"},
        Mutation{"EraseBeforeDecay", "kda", "normal", R"(decayed \[true\])",
                 "decayed [false]"},
        Mutation{"DomainOfDecay", "gla", "normal", R"(decay log\()",
                 "decay linear("},
        Mutation{"MomentOfErase", "kda", "chunk", R"(#chunk\.at<0, decayed>)",
                 "#chunk.at<0, before>"},
        Mutation{"MomentOfRemoval", "rwkv7", "chunk",
                 R"(#chunk\.at<0, before>)", "#chunk.at<0, decayed>"},
        Mutation{"MomentOfOutput", "gla", "chunk",
                 R"((chunk\.scores %\w+ \[#chunk\.at<0, )after>)",
                 "$1decayed>"},
        Mutation{"StepOfErase", "deltaproduct", "chunk",
                 R"(#chunk\.at<0, after>\], %E)", "#chunk.at<0, decayed>], %E"},
        Mutation{"DecayOfCarry", "kda", "chunk",
                 R"((chunk\.carry .*) decay\([^)]*\))", "$1"},
        Mutation{"DecayOfRead", "retnet", "chunk",
                 R"((chunk\.read .*) decay\([^)]*\))", "$1"},
        Mutation{"DecayOfScores", "gated_deltanet", "chunk",
                 R"((chunk\.scores .*) decay\([^)]*\))", "$1"},
        Mutation{"ScaleOfInverse", "kda_k3", "chunk",
                 R"((chunk\.inverse %\w+) scaled\([^)]*\))", "$1"},
        Mutation{"FillOfDecay", "mamba2", "chunk",
                 R"((chunk\.map .* fill) \[0\.000000e\+00)",
                 "$1 [-1.000000e+00"},
        Mutation{"SumOfMatmul", "linear_attention", "plan",
                 R"((chunk\.matmul .*) onto\([^)]*\))", "$1"},
        Mutation{"ValueOfConstant", "kda_k3", "plan", R"(-5\.0+e\+00)",
                 "-5.5e+00"}),
    [](const testing::TestParamInfo<Mutation> &info) {
      return std::string(info.param.name);
    });

TEST_P(Mutations, AreFarBeyondTheLimit) {
  const Mutation &mutation = GetParam();
  CompileOptions options;
  options.spec.dims = {{"K", 8}, {"V", 4}};
  options.chunks = {16};
  PhaseRun run(shippedLayer(mutation.layer), options);
  ASSERT_TRUE(run.ok());
  run.makeData(70);
  std::string ir = run.ir(mutation.phase);
  std::string mutated =
      std::regex_replace(ir, std::regex(mutation.find), mutation.put);
  ASSERT_TRUE(mutated != ir) << "nothing to mutate:\n" << ir;
  // A value for those that need one.
  mutated = std::regex_replace(mutated, std::regex(R"((\^bb0\([^{]*\):\n))"),
                               "$1 %one = arith.constant 1.0 : f32\n",
                               std::regex_constants::format_first_only);
  auto right = run.read(ir), wrong = run.read(mutated);
  ASSERT_TRUE(right && wrong);
  bool perToken = std::string(mutation.phase) == "normal" ||
                  std::string(mutation.phase) == "assoc";
  for (const PhaseProgram::Entry &entry : right->entries()) {
    if (perToken != (entry.chunk == 0))
      continue;
    EXPECT_LE(run.error(*right, entry), 1e-11);
    EXPECT_FALSE(run.error(*wrong, entry) < 1e-4) << mutated;
  }
}
