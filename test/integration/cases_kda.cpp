//===- cases_kda.cpp - C01, C03, C05, C09: gates, keys, lengths -----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/Cases.h"

#include <cmath>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;

namespace {
using KdaCases = Cases;
}
PLUM_CASES(KdaCases);

TEST(Generator, GivesTheCheckValues) {
  const double N[] = {-0.409698460, -0.422356537, -0.111808134, -0.094535613};
  const double U[] = {0.564397614, 0.312562737, 0.842492206, 0.378248326};
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(portableNormal(1, 2, i), N[i], 1e-9);
    EXPECT_NEAR(runtime::portableUniform(1, 2, i), U[i], 1e-9);
  }
}

TEST_P(KdaCases, C01StrongDecayUnboundedGate) {
  Layer &kda = local("kda_raw", 128, 128);
  Data data = delta(kda, 101, {.tokens = 200, .heads = 2});
  data.fill("g", [](int64_t i) {
    return -16 * softplus(portableNormal(101, 4, uint32_t(i)) + 1);
  });
  Values truth = reference(kda, data);
  published(truth, 0, 0.03431, 0.003899, 0.6383);
  check(kda, data, truth);
}

// A neighbour of C01: nearly no decay, but every 23rd token forgets everything.
// Differences of cumulative sums that run over the reset lose their digits.
TEST_P(KdaCases, C01ResetsBetweenWeakDecay) {
  Layer &kda = local("kda_raw", 64, 64);
  Data data = delta(kda, 201, {.tokens = 200, .heads = 1});
  data.fill("g", [](int64_t i) {
    return i / 64 % 23 == 7
               ? -1000.
               : -0.01 * softplus(portableNormal(201, 4, uint32_t(i)));
  });
  check(kda, data, reference(kda, data));
}

// The other end: half the channels never decay, the others at once.
TEST_P(KdaCases, C01ZeroBesideExtreme) {
  Layer &kda = local("kda_raw", 64, 64);
  Data data = delta(kda, 203, {.tokens = 130, .heads = 1});
  data.fill("g", [](int64_t i) { return i % 2 ? -1e30 : 0.; });
  check(kda, data, reference(kda, data));
}

TEST_P(KdaCases, C03BoundedGateAtItsBound) {
  const Sizes sizes = {.tokens = 128, .heads = 2};
  auto raw = [](int64_t i) { return i % 2 == 0 ? 12. : -12.; };

  Layer &activated = local("kda_raw", 128, 128);
  Data plain = delta(activated, 103, sizes);
  plain.fill("g", [&](int64_t i) { return -5 * sigmoid(raw(i)); });
  Values truth = reference(activated, plain);
  published(truth, 0, 0.1019, 0.02188, 0);

  Layer &computed = local("kda_gate", 128, 128);
  Data gated = delta(computed, 103, sizes);
  gated.fill("f", raw);
  gated.fill("A_log", constant(0));
  gated.fill("dt_bias", constant(0));
  Values gatedTruth = reference(computed, gated);

  for (How how : everyForm(activated)) {
    Values a = run(activated, plain, how), b = run(computed, gated, how);
    expectClose(plain, a, truth, standard(activated), how.str());
    expectClose(gated, b, gatedTruth, standard(computed),
                how.str() + ", gate in the kernel");
    if (a.empty() || b.empty())
      return;
    EXPECT_LE(distance(b.at("o"), a.at("o")), 2e-3) << how.str();
  }
}

TEST_P(KdaCases, C03BoundedGateOfTheShippedLayer) {
  Layer &k3 = shipped("kda_k3", 128, 128);
  Data data(k3, {.tokens = 128, .heads = 2});
  data.fill("q", normal(103, 1));
  data.fill("k", normal(103, 2));
  data.fill("v", normal(103, 3));
  data.fill("f", [](int64_t i) { return i % 2 == 0 ? 12. : -12.; });
  data.fill("b", normal(103, 5));
  data.fill("A_log", constant(0));
  data.fill("dt_bias", constant(0));
  check(k3, data, reference(k3, data));
}

static Data identicalKeys(Layer &kda, int64_t tokens) {
  Data data(kda, {.tokens = tokens, .heads = 1});
  data.fill("q", unitRows(105, 1, 128));
  Fill key = unitRows(105, 2, 128);
  data.fill("k", [=](int64_t i) { return key(i % 128); });
  data.fill("v", [](int64_t i) {
    return portableNormal(105, 3, uint32_t(i / 128 % 16 * 128 + i % 128));
  });
  data.fill("g", constant(-5 * sigmoid(-12)));
  data.fill("beta", constant(sigmoid(8)));
  return data;
}

TEST_P(KdaCases, C05IdenticalKeys) {
  Layer &kda = local("kda_raw", 128, 128);
  for (int64_t tokens : {64, 1024}) {
    SCOPED_TRACE(tokens);
    Data data = identicalKeys(kda, tokens);
    Values truth = reference(kda, data);
    if (tokens == 1024)
      published(truth, 0, 0.07352, 0, 0.4754);
    // What is required of bf16 operands; F32 keeps to its own limits.
    const Limits loose = {6e-2, 2e-1, 2e-1, 1e-1};
    for (How how : everyForm(kda))
      expectClose(data, run(kda, data, how), truth,
                  bf16() && how.form == runtime::Form::Chunk ? loose
                                                             : standard(kda),
                  how.str());
  }
}

TEST(KdaRobust, C05IdenticalKeys) {
  Layer &kda = Layer::get(localSpec("kda_raw"), Precision::Robust);
  for (int64_t tokens : {64, 1024}) {
    SCOPED_TRACE(tokens);
    Data data = identicalKeys(kda, tokens);
    Values truth = reference(kda, data);
    for (How how : everyForm(kda))
      expectClose(data, run(kda, data, how), truth, standard(kda), how.str());
  }
}

TEST_P(KdaCases, C09TailsAndOneToken) {
  Layer &kda = local("kda_raw", 128, 128);
  struct Row {
    int64_t tokens;
    double maxO, rmsO;
  };
  for (auto [tokens, maxO, rmsO] :
       {Row{1, 0.003832, 0.001470}, Row{15, 0.03620, 0.007627},
        Row{17, 0.03620, 0.007448}, Row{63, 0.07920, 0.009377},
        Row{65, 0.07920, 0.009297}, Row{129, 0.07920, 0.008980}}) {
    SCOPED_TRACE("T = " + std::to_string(tokens));
    Data data = delta(kda, 109, {.tokens = tokens, .heads = 2});
    data.fill("g", [](int64_t i) {
      return -5 * sigmoid(portableNormal(109, 4, uint32_t(i)) - 4);
    });
    Values truth = reference(kda, data);
    published(truth, 0, maxO, rmsO, 0);
    check(kda, data, truth); // NaN rows behind, 777 after: every run has them.
  }
}
