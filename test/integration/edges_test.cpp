//===- edges_test.cpp - Legal layers that are easy to get wrong -----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each is a spec a user may write. Some may be refused in chunk form, with a
// reason and `--form step`; a wrong number is never right, and the step form
// always runs.
//
//===----------------------------------------------------------------------===//

#include "test/integration/Harness.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;

/// A layer over q, k : [K], v : [V] with more declarations and a body.
static Spec spec(const std::string &name, const std::string &declarations,
                 const std::string &body, int64_t K = 20, int64_t V = 12) {
  return {name,
          "layer " + name + "(K = " + std::to_string(K) +
              ", V = " + std::to_string(V) +
              ") {\n  input q, k : [K] bf16\n  input v : [V] bf16\n  " +
              declarations + "\n  state S : [K, V] f32\n  " + body +
              "\n  output o : [V] bf16 = q @ S\n}\n",
          {}};
}

static Data data(const Layer &layer, int64_t tokens,
                 const std::map<std::string, Fill> &more) {
  Data data(layer, {.batch = 1, .tokens = tokens, .heads = 2});
  int64_t K = layer.ast().inputs.front()->shape.cols;
  data.fill("q", unitRows(7, 1, K));
  data.fill("k", unitRows(7, 2, K));
  data.fill("v", normal(7, 3));
  for (const auto &[name, fill] : more)
    data.fill(name, fill);
  for (const frontend::Symbol *state : layer.ast().states)
    data.fill(state->name, normal(7, 6 + state->index, 0.25));
  return data;
}

static void check(const Spec &spec, const std::map<std::string, Fill> &more,
                  int64_t tokens = 75) {
  for (Precision precision : {Precision::Default, Precision::F32}) {
    Layer &layer = Layer::get(spec, precision, {16, 64});
    Data inputs = data(layer, tokens, more);
    Values truth = reference(layer, inputs);
    for (How how : everyForm(layer))
      expectClose(inputs, run(layer, inputs, how), truth, standard(layer),
                  how.str());
  }
}

/// Right in chunk form, or refused there with the way out and right in steps.
static void checkOrRefused(const Spec &spec,
                           const std::map<std::string, Fill> &more) {
  Source source(spec.name + ".plum", spec.text);
  CompileReport report;
  std::string dir =
      testing::TempDir() + "plum-edge-" + spec.name; // Only tried here.
  Status status = compileBundle(source, {}, dir, report);
  if (status)
    return check(spec, more);
  std::string message = status.error().str();
  EXPECT_NE(message.find(spec.name + ".plum:"), std::string::npos) << message;
  EXPECT_NE(message.find("--form step"), std::string::npos) << message;
  Layer &layer = Layer::get(spec, Precision::F32, {});
  Data inputs = data(layer, 40, more);
  expectClose(inputs, run(layer, inputs, {runtime::Form::Step, 0}),
              reference(layer, inputs), standard(layer), "step form");
}

TEST(Edges, LinearDecayOfExactlyZero) {
  check(spec("zero_decay", "input a : f32", "S = a * S + k^T @ v"),
        {{"a", [](int64_t i) { return i / 2 % 7 == 3 ? 0. : 0.9; }}});
  check(spec("zero_channels", "input a : [K] f32",
             "S = diag(a) @ S; S += k^T @ (v - k @ S)"),
        {{"a", [](int64_t i) { return i % 5 == 3 ? 0. : 0.9; }}});
}

TEST(Edges, LinearDecayOfEitherSign) {
  checkOrRefused(
      spec("signed_decay", "input a : bf16", "S = tanh(a) * S + k^T @ v"),
      {{"a", normal(7, 4)}});
  checkOrRefused(spec("signed_channels", "input a : [K] bf16",
                      "S = diag(tanh(a)) @ S; S += k^T @ (v - k @ S)"),
                 {{"a", normal(7, 4)}});
}

TEST(Edges, LogDecayOfMinusInfinity) {
  const double inf = -INFINITY;
  check(spec("gone", "input g : [K] f32",
             "S = diag(exp(g)) @ S; S += k^T @ (v - k @ S)"),
        {{"g", [=](int64_t i) { return i % 3 == 1 ? inf : -0.1; }}});
}

TEST(Edges, GrowthAboveOne) {
  checkOrRefused(spec("growth", "", "S = 1.01 * S; S += k^T @ (v - k @ S)"),
                 {});
}

TEST(Edges, ConstantDecayOnly) {
  check(spec("constant", "", "S = 0.5 * S + k^T @ v"), {});
}

TEST(Edges, StateThatNothingWrites) {
  check(spec("fading", "", "S = 0.99 * S - k^T @ (k @ S)"), {});
}

TEST(Edges, DecayAfterTheWrite) {
  check(spec("late", "input g : [K] f32",
             "S += k^T @ (v - k @ S); S = diag(exp(g)) @ S"),
        {{"g", [](int64_t i) {
            return -softplus(portableNormal(7, 4, uint32_t(i)));
          }}});
}

TEST(Edges, TwoDecaysInOneToken) {
  check(
      spec("twice", "input g : [K] f32; input h : f32",
           "S = diag(exp(g)) @ S; S += k^T @ (v - k @ S); S = exp(h) * S"),
      {{"g",
        [](int64_t i) { return -softplus(portableNormal(7, 4, uint32_t(i))); }},
       {"h", [](int64_t i) {
          return -softplus(portableNormal(7, 5, uint32_t(i)));
        }}});
}

TEST(Edges, GateFromAnotherStatesRead) {
  checkOrRefused(spec("gated_by_state", "state z : [K] f32",
                      "z = 0.9 * z + k; S = sigmoid(q @ z^T) * S + k^T @ v"),
                 {});
}

TEST(Edges, OldReadAfterTheUpdate) {
  check(spec("old", "", "y = k @ S; S += k^T @ v; S -= 0.5 * k^T @ y"), {});
}

TEST(Edges, FreshReadMixedWithTheOld) {
  check(spec("mixed", "",
             "y = k @ S; S = 0.9 * S; S += 0.5 * k^T @ (v - y - k @ S)"),
        {});
}

TEST(Edges, DimsOfOneAndBeyondAVector) {
  for (auto [K, V] : {std::pair(1, 1), {1, 64}, {64, 1}, {3, 257}, {257, 3}}) {
    SCOPED_TRACE(std::to_string(K) + " x " + std::to_string(V));
    Spec kda = localSpec("kda_raw", {{"K", K}, {"V", V}});
    check(kda, {{"g",
                 [](int64_t i) {
                   return -softplus(portableNormal(7, 4, uint32_t(i)));
                 }},
                {"beta", gate01(7, 5)}});
  }
}

TEST(Edges, UnnormalisedKeysOverAShortRun) {
  check(spec("wild", "input b : bf16",
             "S += 0.03 * sigmoid(b) * (8 * k)^T @ (v - (8 * k) @ S)", 64, 64),
        {{"b", normal(7, 5)}}, 32);
}

// The paper's decays, whose memory is up to 2048 tokens: every chunk rounds the
// same way, so errors of the decay add up.
TEST(Edges, SlowConstantDecayOverManyTokens) {
  Layer &retnet = Layer::get(shippedSpec("retnet", {{"K", 16}, {"V", 16}}),
                             Precision::F32, {16, 64});
  Data inputs(retnet, {.batch = 1, .tokens = 8192, .heads = 7});
  inputs.fill("q", normal(7, 1));
  inputs.fill("k", normal(7, 2));
  inputs.fill("v", normal(7, 3));
  inputs.fill("log_gamma", [](int64_t h) {
    return std::log1p(-std::exp2(-5. - double(h)));
  });
  Values truth = reference(retnet, inputs);
  for (How how : everyForm(retnet))
    expectClose(inputs, run(retnet, inputs, how), truth, standard(retnet),
                how.str());
}

// 2^16 + 1 tokens: no count, mask or offset is 16 bits wide.
TEST(Edges, MoreThan65536Tokens) {
  Layer &kda = Layer::get(localSpec("kda_raw", {{"K", 8}, {"V", 8}}),
                          Precision::Default, {64, 256});
  Data inputs = data(
      kda, 65537,
      {{"g",
        [](int64_t i) { return -softplus(portableNormal(7, 4, uint32_t(i))); }},
       {"beta", gate01(7, 5)}});
  Values truth = reference(kda, inputs);
  for (How how : everyForm(kda))
    expectClose(inputs, run(kda, inputs, how), truth, standard(kda), how.str());
}

TEST(Edges, ZeroInputs) {
  Layer &kda = Layer::get(shippedSpec("kda"), Precision::Default, {16, 64});
  Data zeros(kda, {.batch = 1, .tokens = 70, .heads = 1});
  for (const auto *list : {&kda.ast().inputs, &kda.ast().params})
    for (const frontend::Symbol *symbol : *list)
      zeros.fill(symbol->name, constant(0));
  Values truth = reference(kda, zeros);
  for (How how : everyForm(kda))
    expectClose(zeros, run(kda, zeros, how), truth, standard(kda), how.str());
}
