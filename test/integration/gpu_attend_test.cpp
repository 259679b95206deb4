//===- gpu_attend_test.cpp - Growing states on GPUs, emulated -------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax attention and its relatives as chunk and step kernels, on both chips,
// against float64: lengths around the block, any past, packed sequences, pools,
// lists in f32 and bf16, in place and apart, heads that share lists, latents;
// rows of f32 in fp32.
//
//===----------------------------------------------------------------------===//

#include "test/integration/AttendEmulation.h"

#include "gtest/gtest.h"

#include <array>
#include <cmath>

using namespace plum;
using namespace plum::test;

namespace {

const Spec attention = shippedSpec("attention", {{"K", 64}, {"V", 64}});

Spec sized(int64_t K, int64_t V) {
  return shippedSpec("attention", {{"K", K}, {"V", V}});
}
Spec latents(int64_t C, int64_t R) {
  return shippedSpec("mla", {{"C", C}, {"R", R}});
}

Spec prefill(int64_t N, int64_t R, int64_t V) {
  return shippedSpec("mla_prefill", {{"N", N}, {"R", R}, {"V", V}});
}

/// Maths before rows are appended, of queries and of answers.
const Spec around = {"around",
                     R"(
layer around(K = 48, V = 96) {
  param  w    : [V] bf16
  input  q, k : [K] bf16
  input  v, g : [V] bf16
  input  b    : bf16
  state  keys   : [*, K] f32
  state  values : [*, V] f32
  keys   = append(keys, 3 * l2norm(k))
  values = append(values, sigmoid(b) * v)
  a = attend(softplus(b) * rmsnorm(q), keys, values)
  output o : [V] bf16 = w * rmsnorm(a) * sigmoid(g)
  output n : bf16 = sum(abs(a))
})",
                     {}};

/// Reads before its own row is there: the first token of all reads nothing.
const Spec earlier = {"earlier",
                      R"(
layer earlier(K = 32, V = 32) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  state  keys   : [*, K] f32
  state  values : [*, V] f32
  output o : [V] bf16 = 0.25 * v + attend(K^-0.5 * q, keys, values)
  keys   = append(keys, k)
  values = append(values, v)
})",
                      {}};

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

/// Chunk and step kernels on both chips; the first in all its parts.
class GpuAttend
    : public testing::TestWithParam<std::pair<std::string, int64_t>> {
protected:
  AttendRun of(const Spec &spec) const {
    AttendRun run{.spec = spec};
    std::tie(run.target, run.chunk) = GetParam();
    return run;
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, GpuAttend,
    testing::Values(std::pair("sm_90a", 128), std::pair("sm_90a", 64),
                    std::pair("sm_90a", 0), std::pair("sm_80", 64),
                    std::pair("sm_80", 0)),
    [](const auto &info) {
      const int64_t chunk = info.param.second;
      return info.param.first +
             (chunk ? "_chunk" + std::to_string(chunk) : "_step");
    });

TEST_P(GpuAttend, Lengths) {
  for (int64_t tokens : {1, 15, 16, 17, 63, 64, 65, 130}) {
    AttendRun run = of(attention);
    run.heads = 2;
    run.lengths = {tokens, tokens, tokens};
    run.past = {0, 37, tokens == 64 ? 64 : 200};
    run.seed = uint64_t(tokens);
    emulate(run);
  }
}

TEST_P(GpuAttend, PackedWithEmptySequences) {
  AttendRun run = of(attention);
  run.heads = 3;
  run.lengths = {0, 4, 0, 0, 65, 1, 128, 17, 0};
  run.packed = true;
  run.past = {5, 0, 0, 3, 64, 190, 1, 63, 9};
  for (bool wide : {false, true}) {
    run.wide = wide;
    emulate(run);
  }
}

TEST_P(GpuAttend, SlotsOfAPoolWithPadding) {
  AttendRun run = of(attention);
  run.heads = 2;
  run.lengths = {3, 20, 66, 1};
  run.packed = true;
  run.past = {70, 12, 0, 129};
  run.slots = {3, -1, 0, 1};
  emulate(run);
}

TEST_P(GpuAttend, ListsAtPlacesOfTheirOwn) {
  for (bool offsets : {false, true}) {
    AttendRun run = of(attention);
    run.tables = true;
    run.wide = offsets;
    run.heads = 4;
    run.listHeads = 2;
    run.lengths = {3, 66, 1};
    run.packed = true;
    run.past = {70, 0, 129};
    run.slots = {3, 0, 1};
    run.list = offsets ? DType::F32 : DType::BF16;
    emulate(run);
  }
}

TEST_P(GpuAttend, ListsInF32AndApart) {
  AttendRun run = of(attention);
  run.lengths = {70, 70};
  run.past = {3, 90};
  for (bool apart : {false, true})
    for (DType list : {DType::F32, DType::BF16}) {
      run.apart = apart;
      run.list = list;
      emulate(run);
    }
}

//===----------------------------------------------------------------------===//
// Heads and sizes
//===----------------------------------------------------------------------===//

TEST_P(GpuAttend, HeadsShareLists) {
  for (auto [heads, lists] :
       {std::pair(4, 1), std::pair(6, 3), std::pair(34, 2), std::pair(20, 1)}) {
    AttendRun run = of(attention);
    run.heads = heads;
    run.listHeads = lists;
    run.lengths = {1, 18};
    run.packed = true;
    run.past = {150, 20};
    emulate(run);
  }
}

TEST_P(GpuAttend, Sizes) {
  for (auto [K, V] : {std::pair(32, 32), std::pair(16, 48), std::pair(96, 96),
                      std::pair(128, 128), std::pair(192, 128),
                      std::pair(256, 256), std::pair(64, 192)}) {
    AttendRun run = of(sized(K, V));
    run.lengths = {GetParam().second ? 80 : 3};
    run.past = {70};
    emulate(run);
  }
}

// What products take of a row is filled up with zeros; behind the row lies NaN.
TEST_P(GpuAttend, WidthsBetween) {
  for (auto [K, V] :
       {std::pair(8, 8), std::pair(24, 40), std::pair(72, 16),
        std::pair(64, 56), std::pair(136, 120), std::pair(200, 248)})
    for (DType list : {DType::BF16, DType::F32}) {
      AttendRun run = of(sized(K, V));
      run.heads = 2;
      run.lengths = {GetParam().second ? 66 : 2};
      run.past = {70};
      run.list = list;
      emulate(run);
    }
}

// One warp, and eight.
TEST(GpuAttendChunks, OtherSizes) {
  for (int64_t chunk : {16, 128})
    for (std::string target : {"sm_90a", "sm_80"}) {
      AttendRun run{.spec = attention, .target = target, .chunk = chunk};
      run.heads = 2;
      run.lengths = {130, 0, 15};
      run.packed = true;
      run.past = {9, 3, 128};
      emulate(run);
    }
}

TEST_P(GpuAttend, Latents) {
  for (auto [C, R] : {std::pair(64, 32), std::pair(512, 64), std::pair(32, 8),
                      std::pair(40, 24)}) {
    AttendRun run = of(latents(C, R));
    run.heads = 20;
    run.listHeads = 1;
    run.lengths = {1, GetParam().second ? 66 : 2};
    if (GetParam().second) {
      run.heads = 2;
      run.chunk = 64; // With 128 tokens there is no room for such rows.
    }
    run.packed = true;
    run.past = {100, 31};
    run.scale = 0.5;
    emulate(run);
  }
}

// One head makes one of the lists; the others are each head's own.
TEST_P(GpuAttend, HeadsShareOneOfTheLists) {
  for (auto [N, R, V] : {std::array<int64_t, 3>{32, 8, 24},
                         std::array<int64_t, 3>{128, 64, 128}})
    for (int64_t lists : {1, 2}) {
      AttendRun run = of(prefill(N, R, V));
      run.heads = 4;
      run.headsOf["places"] = lists;
      run.lengths = {1, GetParam().second ? 66 : 2, 0};
      run.packed = true;
      run.past = {100, 31, 7};
      run.slots = {2, 0, 1};
      run.apart = lists == 2;
      emulate(run);
    }
}

// 64 rows of a block, all of them used and not; a share of the keys for each of
// five blocks.
TEST(GpuAttendHeads, ShareLatents) {
  for (auto [heads, past] :
       {std::pair(64, 100), std::pair(70, 9), std::pair(4, 1100)}) {
    AttendRun run{.spec = latents(512, 64), .chunk = 0};
    run.heads = heads;
    run.listHeads = 1;
    run.lengths = {1};
    run.past = {past};
    run.scale = 0.5;
    emulate(run);
  }
}

// Values that are no keys have a ring of their own; f32 rows.
TEST(GpuAttendHeads, HaveLongValues) {
  AttendRun run{.spec = sized(64, 384), .chunk = 0};
  run.heads = 6;
  run.listHeads = 2;
  run.lengths = {2, 1};
  run.packed = true;
  run.past = {200, 64};
  for (DType list : {DType::F32, DType::BF16}) {
    run.list = list;
    emulate(run);
  }
}

// Queries have the sign of what scores are multiplied by.
TEST_P(GpuAttend, NegativeFactors) {
  for (const char *factor : {"-2 * scale", "-K^-0.5"}) {
    AttendRun run = of(attention);
    size_t at = run.spec.text.find("scale * q");
    ASSERT_NE(at, std::string::npos);
    run.spec.text.replace(at, 5, factor);
    run.lengths = {70};
    run.past = {70};
    emulate(run);
  }
}

TEST_P(GpuAttend, MathsAround) {
  AttendRun run = of(around);
  run.heads = 2;
  run.scale = 0.3; // Queries that are computed are rounded to bf16.
  run.lengths = {30, 65};
  run.packed = true;
  run.past = {0, 100};
  emulate(run);
  run.list = DType::F32;
  emulate(run);
}

TEST_P(GpuAttend, BeforeTheOwnRow) {
  AttendRun run = of(earlier);
  run.lengths = {70, 1, 64};
  run.packed = true;
  run.past = {0, 0, 64};
  emulate(run);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

// Scores of hundreds: products of queries and keys are exact, and so is what
// the softmax makes of them.
TEST_P(GpuAttend, LargeScores) {
  AttendRun run = of(attention);
  run.lengths = {66};
  run.past = {150};
  run.scale = 8;
  emulate(run);
}

// All that a row sees is far below zero, and what it must not see is not.
TEST_P(GpuAttend, HugelyNegativeScores) {
  AttendRun run = of(attention);
  run.lengths = {20};
  run.past = {80};
  run.change = [](const std::string &name, int64_t, int64_t t, int64_t,
                  int64_t c, double x) {
    if (name == "q")
      return t == 7 ? (c ? 0. : 1e15) : c ? x : 0.;
    if (name == "k" || name == "keys")
      return c ? x : name == "k" && t > 7 ? 1e15 : -1e15;
    return x;
  };
  emulate(run);
}

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

TEST_P(GpuAttend, BitsDoNotDependOnTheBatch) {
  AttendRun run = of(attention);
  run.heads = 2;
  run.lengths = {65, 65};
  run.past = {80, 80};
  std::vector<double> both = emulate(run);
  run.lengths = {65};
  run.past = {80};
  run.apart = true;
  std::vector<double> one = emulate(run);
  ASSERT_EQ(2 * one.size(), both.size());
  both.resize(one.size());
  EXPECT_EQ(both, one);
}

//===----------------------------------------------------------------------===//
// Plain fp32
//===----------------------------------------------------------------------===//

/// Step kernels of rows that bf16 does not hold.
class GpuAttendExact : public testing::TestWithParam<std::string> {
protected:
  static constexpr double kLimit = 1e-6;
  AttendRun of(const Spec &spec) const {
    return {.spec = spec,
            .target = GetParam(),
            .precision = Precision::F32,
            .chunk = 0,
            .list = DType::F32};
  }
};

INSTANTIATE_TEST_SUITE_P(All, GpuAttendExact,
                         testing::Values("sm_90a", "sm_80"),
                         [](const auto &info) { return info.param; });

// Up to five blocks share the keys; lanes of one have a key more than others.
TEST_P(GpuAttendExact, Lengths) {
  for (int64_t past : {0, 1, 62, 63, 64, 300, 1100}) {
    AttendRun run = of(attention);
    run.heads = 2;
    run.lengths = {2, 2};
    run.past = {past, 17};
    run.seed = uint64_t(past);
    emulate(run, kLimit);
  }
}

TEST_P(GpuAttendExact, PackedSlotsOfAPoolWithPadding) {
  AttendRun run = of(attention);
  run.heads = 2;
  run.lengths = {3, 20, 0, 6, 1};
  run.packed = true;
  run.past = {70, 12, 5, 0, 129};
  run.slots = {3, -1, 4, 0, 1};
  emulate(run, kLimit);
}

// What is read is what the list holds, rounded or not.
TEST_P(GpuAttendExact, ListsInBF16AndApart) {
  AttendRun run = of(attention);
  run.lengths = {5, 5};
  run.past = {3, 90};
  for (bool apart : {false, true})
    for (DType list : {DType::F32, DType::BF16}) {
      run.apart = apart;
      run.list = list;
      run.change = [](const std::string &name, int64_t, int64_t, int64_t,
                      int64_t, double x) {
        return name == "q" ? x : double(bf16ToFloat(floatToBf16(float(x))));
      };
      emulate(run, kLimit);
    }
}

TEST_P(GpuAttendExact, HeadsShareLists) {
  for (auto [heads, lists] :
       {std::pair(4, 1), std::pair(34, 2), std::pair(20, 1)}) {
    AttendRun run = of(attention);
    run.heads = heads;
    run.listHeads = lists;
    run.lengths = {1, 3};
    run.packed = true;
    run.past = {150, 20};
    emulate(run, kLimit);
  }
}

TEST_P(GpuAttendExact, Sizes) {
  for (auto [K, V] : {std::pair(16, 48), std::pair(8, 24), std::pair(96, 96),
                      std::pair(192, 128), std::pair(256, 256)}) {
    AttendRun run = of(sized(K, V));
    run.lengths = {2};
    run.past = {290};
    emulate(run, kLimit);
  }
}

TEST_P(GpuAttendExact, Latents) {
  for (auto [C, R] : {std::pair(80, 8), std::pair(512, 64)}) {
    AttendRun run = of(latents(C, R));
    run.heads = 4;
    run.listHeads = 1;
    run.lengths = {1, 2};
    run.packed = true;
    run.past = {300, 31};
    run.scale = 0.5;
    emulate(run, kLimit);
  }
}

TEST_P(GpuAttendExact, HeadsShareOneOfTheLists) {
  AttendRun run = of(prefill(128, 64, 128));
  run.heads = 4;
  run.headsOf["places"] = 1;
  run.lengths = {1, 2};
  run.packed = true;
  run.past = {300, 31};
  emulate(run, kLimit);
}

TEST_P(GpuAttendExact, MathsAround) {
  AttendRun run = of(around);
  run.heads = 2;
  run.lengths = {3, 6};
  run.packed = true;
  run.past = {0, 100};
  emulate(run, kLimit);
}

TEST_P(GpuAttendExact, BeforeTheOwnRow) {
  AttendRun run = of(earlier);
  run.lengths = {7, 1, 6};
  run.packed = true;
  run.past = {0, 0, 64};
  emulate(run, kLimit);
}

// All of a group's keys are behind the last: nothing of the largest score.
TEST_P(GpuAttendExact, HugelyNegativeScores) {
  AttendRun run = of(attention);
  run.lengths = {2};
  run.past = {80};
  run.change = [](const std::string &name, int64_t, int64_t, int64_t, int64_t c,
                  double x) {
    if (name == "q")
      return c ? 0. : 1e15;
    if (name == "k" || name == "keys")
      return c ? x : -1e15;
    return x;
  };
  emulate(run, kLimit);
}

TEST_P(GpuAttendExact, BitsDoNotDependOnTheBatch) {
  AttendRun run = of(attention);
  run.heads = 2;
  run.lengths = {1, 1};
  run.past = {700, 700};
  std::vector<double> both = emulate(run, kLimit);
  run.lengths = {1};
  run.past = {700};
  std::vector<double> one = emulate(run, kLimit);
  ASSERT_EQ(2 * one.size(), both.size());
  both.resize(one.size());
  EXPECT_EQ(both, one);
}

// Queries of f16 are not rounded to bf16, and outputs are what they are.
TEST_P(GpuAttendExact, RowsOfF16) {
  Spec spec = attention;
  for (size_t at; (at = spec.text.find("bf16")) != std::string::npos;)
    spec.text.replace(at, 4, "f16");
  AttendRun run = of(spec);
  run.precision = Precision::Default;
  run.lengths = {2};
  run.past = {80};
  emulate(run, 4e-4); // Of f16: 2^-12, as a rule.
}

// Whatever queries and lists are not made of may be of any type: a gate, the
// answer. They have chunk kernels.
TEST(GpuAttendTypes, OthersAreOfAnyType) {
  Spec spec = around;
  auto replace = [&](const std::string &from, const std::string &to) {
    spec.text.replace(spec.text.find(from), from.size(), to);
  };
  replace("input  v, g : [V] bf16", "input  v : [V] bf16\n  input g : [V] f32");
  replace("output o : [V] bf16", "output o : [V] f32");
  for (int64_t chunk : {64, 0}) {
    AttendRun run{.spec = spec, .chunk = chunk};
    run.lengths = {20};
    run.past = {70};
    run.scale = 0.3;
    emulate(run);
  }
}

} // namespace
