//===- RecurrenceTest.cpp - The definition of truth, by hand --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AffineRun.h"
#include "test/unit/frontend/TestSpec.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;
using Values = std::vector<double>;

static const char declarations[] = "  input q, k, v : [2] f32\n"
                                   "  input a : f32\n"
                                   "  state S : [2, 2] f32\n";

/// Outputs of a layer with q, k, v : [2], a and S : [2, 2], which starts as 0.
static Values outputsOf(const std::string &body, Values q, Values k, Values v,
                        Values a, Values *state = nullptr) {
  Spec spec("layer t() {\n" + std::string(declarations) + body + "\n}\n",
            {.dims = {}, .layer = "", .stepOnly = true});
  EXPECT_TRUE(spec.layer) << spec.messages();
  HeadData data(*spec.layer, int64_t(a.size()), 0);
  data.inputs = {std::move(q), std::move(k), std::move(v), std::move(a)};
  data.states[0].assign(4, 0.0);
  reference::Head head = data.head();
  reference::run(*spec.layer, head);
  if (state)
    *state = data.states[0];
  return data.outputs[0];
}

/// One token's value of TEXT with q = (1, 2), k = (3, -4), v = (5, 6), a = 2.
static Values valueOf(const std::string &text,
                      const std::string &type = "[2]") {
  return outputsOf("S += k^T @ v\noutput o : " + type + " f32 = " + text,
                   {1, 2}, {3, -4}, {5, 6}, {2});
}

//===----------------------------------------------------------------------===//
// An associative memory
//===----------------------------------------------------------------------===//

// Two facts under overlapping keys: (1, 0) -> (1, 2) and (1, 1) -> (3, 5).

TEST(Memory, SumsFactsThatOverlapWithoutErase) {
  Values state;
  Values read =
      outputsOf("S += k^T @ v\noutput o : [2] f32 = q @ S", {1, 0, 1, 0},
                {1, 0, 1, 1}, {1, 2, 3, 5}, {0, 0}, &state);
  EXPECT_EQ(state, (Values{4, 7, 3, 5}));
  EXPECT_EQ(read, (Values{1, 2, 4, 7}));
}

TEST(Memory, ReadsTheLastFactBackExactlyByTheDeltaRule) {
  Values state;
  // |k|^2 = 2 for the second key: beta = 1 / |k|^2 writes the whole difference.
  Values read =
      outputsOf("S += a * k^T @ (v - k @ S)\n"
                "output o : [2] f32 = k @ S",
                {0, 0, 0, 0}, {1, 0, 1, 1}, {1, 2, 3, 5}, {1, 0.5}, &state);
  EXPECT_EQ(state, (Values{2, 3.5, 1, 1.5}));
  EXPECT_EQ(read, (Values{1, 2, 3, 5}));
}

TEST(Memory, ForgetsByDecayAndByChannel) {
  Values state;
  outputsOf("S = a * S + k^T @ v\noutput o : [2] f32 = q @ S", {0, 0, 0, 0},
            {1, 0, 0, 1}, {8, 4, 1, 1}, {1, 0.25}, &state);
  EXPECT_EQ(state, (Values{2, 1, 1, 1}));
  outputsOf("S = diag(q) @ S + k^T @ v\noutput o : [2] f32 = q @ S",
            {1, 1, 0.5, 0.25}, {1, 1, 0, 0}, {8, 4, 1, 1}, {1, 1}, &state);
  EXPECT_EQ(state, (Values{4, 2, 2, 1}));
}

TEST(Memory, IsReadBeforeOrAfterAnUpdate) {
  const char *inputs = "x = q @ S\nS += k^T @ v\n";
  EXPECT_EQ(outputsOf(std::string(inputs) + "output o : [2] f32 = x",
                      {1, 0, 1, 0}, {1, 0, 1, 0}, {1, 2, 3, 5}, {0, 0}),
            (Values{0, 0, 1, 2}));
  EXPECT_EQ(outputsOf(std::string(inputs) + "output o : [2] f32 = q @ S - x",
                      {1, 0, 1, 0}, {1, 0, 1, 0}, {1, 2, 3, 5}, {0, 0}),
            (Values{1, 2, 3, 5}));
}

TEST(Memory, GoesOnFromItsState) {
  Spec spec("layer t() {\n" + std::string(declarations) +
            "S = a * S + k^T @ (v - k @ S)\noutput o : [2] f32 = q @ S\n}");
  ASSERT_TRUE(spec.layer);
  HeadData whole(*spec.layer, 5, 3), parts(*spec.layer, 5, 3);
  reference::Head head = whole.head();
  reference::run(*spec.layer, head);
  for (auto [begin, count] : {std::pair(0, 2), {2, 0}, {2, 3}}) {
    reference::Head part = parts.head();
    part.tokens = count;
    for (size_t i = 0; i < part.inputs.size(); ++i) {
      size_t d = part.inputs[i].size() / 5;
      part.inputs[i] =
          part.inputs[i].subspan(size_t(begin) * d, size_t(count) * d);
    }
    part.outputs[0] =
        part.outputs[0].subspan(size_t(begin) * 2, size_t(count) * 2);
    reference::run(*spec.layer, part);
  }
  EXPECT_EQ(parts.outputs, whole.outputs);
  EXPECT_EQ(parts.states, whole.states);
}

TEST(Memory, OfAVectorNormalises) {
  Spec spec("layer t() { input q, k : [2] f32; input v : [1] f32\n"
            "state S : [2, 1] f32; state z : [2] f32\n"
            "S += k^T @ v; z += k\noutput o : [1] f32 = q @ S / (q @ z^T) }");
  ASSERT_TRUE(spec.layer) << spec.messages();
  HeadData data(*spec.layer, 2, 0);
  data.inputs = {{1, 1, 1, 3}, {1, 0, 0, 1}, {4, 8}};
  data.states = {{0, 0}, {0, 0}};
  reference::Head head = data.head();
  reference::run(*spec.layer, head);
  EXPECT_EQ(data.outputs[0], (Values{4, 7}));
  EXPECT_EQ(data.states[1], (Values{1, 1}));
}

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

TEST(Expressions, OfScalarsAndRows) {
  EXPECT_EQ(valueOf("q + k * a - 1"), (Values{6, -7}));
  EXPECT_EQ(valueOf("-q / k"), (Values{-1.0 / 3, 0.5}));
  EXPECT_EQ(valueOf("a / q"), (Values{2, 1}));
  EXPECT_EQ(valueOf("q ^ 3 * 2"), (Values{2, 16}));
  EXPECT_EQ(valueOf("q ^ -1"), (Values{1, 0.5}));
  EXPECT_EQ(valueOf("-q ^ 2"), (Values{-1, -4}));
  EXPECT_EQ(valueOf("max(q, k, 2)"), (Values{3, 2}));
  EXPECT_EQ(valueOf("min(a, q)"), (Values{1, 2}));
  EXPECT_EQ(valueOf("sum(k)", ""), (Values{-1}));
  EXPECT_EQ(valueOf("sum(S)", ""), (Values{-11}));
  EXPECT_EQ(valueOf("abs(k)"), (Values{3, 4}));
  EXPECT_EQ(valueOf("relu(k)"), (Values{3, 0}));
  EXPECT_EQ(valueOf("sqrt(abs(k))"), (Values{std::sqrt(3), 2}));
  EXPECT_EQ(valueOf("rsqrt(abs(k))"), (Values{1 / std::sqrt(3), 0.5}));
  EXPECT_EQ(valueOf("l2norm(k, eps = 39)"), (Values{0.375, -0.5}));
  EXPECT_EQ(valueOf("rmsnorm(k, eps = 3.5)"), (Values{0.75, -1}));
}

TEST(Expressions, OfMatrices) {
  // S = k^T v = (15, 18; -20, -24).
  EXPECT_EQ(valueOf("q @ k^T", ""), (Values{-5}));
  EXPECT_EQ(valueOf("q @ S"), (Values{-25, -30}));
  EXPECT_EQ(valueOf("(S @ q^T)^T"), (Values{51, -68}));
  EXPECT_EQ(valueOf("q @ S^T"), (Values{51, -68}));
  EXPECT_EQ(valueOf("q @ (diag(q) @ S)"), (Values{-65, -78}));
  EXPECT_EQ(valueOf("q @ (S @ diag(q))"), (Values{-25, -60}));
  EXPECT_EQ(valueOf("q @ diag(k)"), (Values{3, -8}));
  EXPECT_EQ(valueOf("(diag(k) @ q^T)^T"), (Values{3, -8}));
  EXPECT_EQ(valueOf("q @ (diag(q) @ diag(k))"), (Values{3, -16}));
  EXPECT_EQ(valueOf("q @ (diag(q) + diag(k))"), (Values{4, -4}));
  EXPECT_EQ(valueOf("q @ (diag(q) - S)"), (Values{26, 34}));
  EXPECT_EQ(valueOf("q @ (S - diag(q))"), (Values{-26, -34}));
  EXPECT_EQ(valueOf("q @ (-a * diag(q) / 4)"), (Values{-0.5, -2}));
  EXPECT_EQ(valueOf("q @ (k^T @ v @ S)"), valueOf("(q @ (k^T @ v)) @ S"));
  EXPECT_EQ(valueOf("(k^T @ v @ q^T)^T"), (Values{51, -68}));
  EXPECT_EQ(valueOf("q @ (S @ S)"), valueOf("q @ S @ S"));
  EXPECT_EQ(valueOf("q @ exp(0 * S)"), (Values{3, 3}));
  EXPECT_EQ(valueOf("sum(S * S)", ""), (Values{225 + 324 + 400 + 576}));
}

TEST(Expressions, OfFunctions) {
  auto f = [](const std::string &name, double x) {
    return outputsOf("output o : f32 = " + name + "(a)", {0, 0}, {0, 0}, {0, 0},
                     {x})[0];
  };
  for (double x : {-800.0, -30.0, -1.0, -1e-9, 0.0, 0.5, 3.0, 40.0, 700.0}) {
    double sigmoid = 1 / (1 + std::exp(-x));
    EXPECT_DOUBLE_EQ(f("exp", x), std::exp(x));
    EXPECT_DOUBLE_EQ(f("tanh", x), std::tanh(x));
    EXPECT_NEAR(f("sigmoid", x), sigmoid, 1e-15 * sigmoid);
    EXPECT_NEAR(f("silu", x), x * sigmoid, 1e-15 * std::abs(x * sigmoid));
    EXPECT_DOUBLE_EQ(f("elu", x), x > 0 ? x : std::expm1(x));
    EXPECT_DOUBLE_EQ(f("softplus", x), x > 30 ? x : std::log1p(std::exp(x)));
  }
  EXPECT_DOUBLE_EQ(f("log", 5), std::log(5.0));
  EXPECT_TRUE(std::isnan(f("log", -1)));
  EXPECT_TRUE(std::isnan(f("relu", NAN)));
  EXPECT_TRUE(std::isnan(f("softplus", NAN)));
}

TEST(Expressions, InterpretWhatHasNoChunkwiseForm) {
  Values state;
  outputsOf("S = tanh(S + k^T @ v)\noutput o : [2] f32 = q @ S", {1, 0, 1, 0},
            {1, 0, 0, 2}, {0.5, 0, 0, 1}, {0, 0}, &state);
  EXPECT_EQ(state, (Values{std::tanh(std::tanh(0.5)), 0, 0, std::tanh(2)}));
}

TEST(Expressions, SeeLocalsOfEveryShape) {
  EXPECT_EQ(outputsOf("Old = S\nc = k^T\nD = diag(q)\nm = 2 * a\n"
                      "S += c @ v\nz2 = q\n"
                      "output o : [2] f32 = m * z2 @ D @ (S - Old)",
                      {1, 2, 1, 2}, {3, -4, 3, -4}, {5, 6, 5, 6}, {1, 0.5}),
            (Values{-130, -156, -65, -78}));
}

//===----------------------------------------------------------------------===//
// Growing states
//===----------------------------------------------------------------------===//

TEST(Growing, AttendsToEveryRowSoFar) {
  auto run = [](const std::string &body, Values past, Values q, Values k,
                Values v, Values *list) {
    Spec spec("layer t() {\n  input q, k, v : [2] f32\n"
              "  state A, B : [*, 2] f32\n" +
              body + "\n}\n");
    EXPECT_TRUE(spec.layer) << spec.messages();
    std::vector<Values> inputs = {std::move(q), std::move(k), std::move(v)};
    int64_t tokens = int64_t(inputs[0].size() / 2);
    Values A = past, B = past, out(size_t(2 * tokens), NAN);
    A.resize(past.size() + size_t(2 * tokens), NAN);
    B.resize(A.size(), NAN);
    reference::Head head;
    head.tokens = tokens;
    head.past = int64_t(past.size() / 2);
    for (const Values &input : inputs)
      head.inputs.push_back(input);
    head.states = {A, B};
    head.outputs = {out};
    reference::run(*spec.layer, head);
    if (list)
      *list = B;
    return out;
  };
  const std::string grow = "A = append(A, k)\nB = append(B, v)\n";
  const std::string attend = "output o : [2] f32 = attend(q, A, B)\n";
  double e = std::exp(1.0);
  Values list;
  // Keys (1, 0), (0, 1); the second query is the second key.
  Values after =
      run(grow + attend, {}, {1, 0, 0, 1}, {1, 0, 0, 1}, {3, 5, 7, 9}, &list);
  EXPECT_EQ(list, (Values{3, 5, 7, 9}));
  EXPECT_EQ(after[0], 3);
  EXPECT_EQ(after[1], 5);
  EXPECT_DOUBLE_EQ(after[2], (3 + e * 7) / (1 + e));
  EXPECT_DOUBLE_EQ(after[3], (5 + e * 9) / (1 + e));
  // Before the token's own row: of nothing it is 0.
  EXPECT_EQ(
      run(attend + grow, {}, {1, 0, 0, 1}, {1, 0, 0, 1}, {3, 5, 7, 9}, nullptr),
      (Values{0, 0, 3, 5}));
  // Rows that were there before.
  Values more = run(grow + attend, {1, 0}, {0, 1}, {0, 1}, {7, 9}, &list);
  EXPECT_EQ(list, (Values{1, 0, 7, 9}));
  EXPECT_DOUBLE_EQ(more[0], (1 + e * 7) / (1 + e));
  // Large scores: the largest is taken off before the exponential.
  EXPECT_EQ(run(grow + attend, {}, {800, 0, 0, 800}, {1, 0, 0, 1}, {3, 5, 7, 9},
                nullptr),
            (Values{3, 5, 7, 9}));
  // Two pairs of a query and keys.
  Values two = run(grow + "output o : [2] f32 = attend(q, A, 2 * q, A, B)\n",
                   {}, {1, 0, 0, 1}, {1, 0, 0, 1}, {3, 5, 7, 9}, nullptr);
  EXPECT_DOUBLE_EQ(two[2], (3 + e * e * e * 7) / (1 + e * e * e));
}
