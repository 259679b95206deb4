//===- cases_scalar.cpp - C07, C11, C13, C23: GDN, DeltaNet, Mamba-2 ------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/Cases.h"

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::portableUniform;

namespace {
using ScalarCases = Cases;
}
PLUM_CASES(ScalarCases);

TEST_P(ScalarCases, C07NoDecayIsDeltaNet) {
  const Sizes sizes = {.tokens = 500, .heads = 2};
  Layer &gdn = local("gdn_raw", 64, 64),
        &deltanet = local("deltanet_raw", 64, 64);
  Data gated = delta(gdn, 107, sizes), plain = delta(deltanet, 107, sizes);
  gated.fill("g", constant(0));
  Values truth = reference(deltanet, plain);
  published(truth, 0, 0.3026, 0, 2.563);

  for (How how : everyForm(gdn)) {
    Values a = run(gdn, gated, how), b = run(deltanet, plain, how);
    expectClose(gated, a, truth, standard(gdn), how.str() + ", GDN");
    expectClose(plain, b, truth, standard(deltanet), how.str() + ", DeltaNet");
    expectSame(a, b, how.str() + ", GDN as DeltaNet");
  }
}

TEST_P(ScalarCases, C07AdditiveLinearAttention) {
  Layer &linear = local("linear_raw", 64, 64);
  Data data(linear, {.tokens = 64, .heads = 2});
  data.fill("q", unitRows(107, 1, 64));
  data.fill("k", unitRows(107, 2, 64));
  data.fill("v", normal(107, 3));
  check(linear, data, reference(linear, data));
}

TEST_P(ScalarCases, C11PackedSequencesWithAnEmptyOne) {
  Layer &gdn = local("gdn_raw", 128, 128);
  Data data = delta(gdn, 111, {.tokens = 211, .heads = 4}, 2);
  data.pack({0, 1, 1, 64, 128, 129, 200, 211});
  data.fill("g", [](int64_t i) {
    return -0.3 * softplus(portableNormal(111, 4, uint32_t(i)));
  });
  data.fill("S", normal(111, 6, 0.25));
  Values truth = reference(gdn, data);
  const double published[] = {0.91166, 0,       0.48939, 0.35535,
                              1.0490,  0.38729, 0.34237};
  for (int64_t n = 0; n < 7 && bf16(); ++n)
    if (published[n] != 0)
      expectPublished(maxAbs(slice(slice(truth.at("S"), 0, n, n + 1), 1, 0, 1)),
                      published[n], "max|S| of sequence " + std::to_string(n));

  for (How how : everyForm(gdn)) {
    SCOPED_TRACE(how.str());
    Values packed = run(gdn, data, how);
    expectClose(data, packed, truth, standard(gdn), "packed");
    if (packed.empty())
      return;
    expectSame({{"S", slice(packed.at("S"), 0, 1, 2)}},
               {{"S", slice(data["S"], 0, 1, 2)}}, "empty sequence");

    // int32 offsets, 5 rows more than they cover.
    Launch again(gdn, data);
    std::vector<int32_t> offsets(data.cuSeqlens.begin(), data.cuSeqlens.end());
    again.args.cuSeqlens = {offsets.data(), DType::I32,
                            int64_t(offsets.size())};
    if (again.go(how))
      expectSame(again.values(), packed, "int32 offsets");

    for (int64_t n = 0; n < 7; ++n) {
      Data one = data.sequence(n);
      Values alone = run(gdn, one, how);
      expectSame(alone,
                 {{"o", slice(packed.at("o"), 1, data.cuSeqlens[size_t(n)],
                              data.cuSeqlens[size_t(n) + 1])},
                  {"S", slice(packed.at("S"), 0, n, n + 1)}},
                 "sequence " + std::to_string(n) + " alone");
    }
  }
}

/// The tensor with each head repeated `times` times.
static Tensor repeatHeads(const Tensor &x, int64_t times) {
  Tensor y(x.shape[0], x.shape[1], x.shape[2] * times, x.shape[3]);
  for (int64_t b = 0; b < y.shape[0]; ++b)
    for (int64_t t = 0; t < y.shape[1]; ++t)
      for (int64_t h = 0; h < y.shape[2]; ++h)
        for (int64_t c = 0; c < y.shape[3]; ++c)
          y.at(b, t, h, c) = x.at(b, t, h / times, c);
  return y;
}

/// Shared q, k heads against the same heads written out.
static void checkRepeated(Layer &layer, const Data &shared, const Values &truth,
                          int64_t times) {
  Data repeated = shared;
  for (const char *name : {"q", "k"})
    repeated[name] = repeatHeads(repeated[name], times);
  for (How how : everyForm(layer)) {
    Values a = run(layer, shared, how);
    expectClose(shared, a, truth, standard(layer), how.str());
    expectSame(a, run(layer, repeated, how), how.str() + ", heads repeated");
  }
}

TEST_P(ScalarCases, C13SharedHeadsGatedDeltaNet) {
  Layer &gdn = local("gdn_raw", 64, 128);
  Data data = delta(gdn, 113, {.tokens = 150, .heads = 8}, 2);
  data.fill("g", [](int64_t i) {
    return -sigmoid(portableNormal(113, 7, uint32_t(i % 8))) *
           softplus(portableNormal(113, 4, uint32_t(i)));
  });
  Values truth = reference(gdn, data);
  published(truth, 5, 0.1035, 0.01252, 0.4914);
  checkRepeated(gdn, data, truth, 4);
}

TEST_P(ScalarCases, C13SharedGroupsMamba2) {
  Layer &mamba = local("mamba2_raw", 128, 64);
  Data data(mamba, {.tokens = 300, .heads = 8});
  data.fill("q", normal(113, 1), 2);
  data.fill("k", normal(113, 2), 2);
  data.fill("v", normal(113, 3));
  data.fill("A", [](int64_t h) {
    return -(1 + 15 * portableUniform(113, 8, uint32_t(h)));
  });
  data.fill("dt", [](int64_t i) {
    return softplus(portableNormal(113, 4, uint32_t(i)) - 2);
  });
  Values truth = reference(mamba, data);
  published(truth, 5, 43.531, 2.9518, 0);
  checkRepeated(mamba, data, truth, 4);
}

TEST_P(ScalarCases, C23BetaUpToTwo) {
  Layer &deltanet = local("deltanet_raw", 64, 64);
  Data data = delta(deltanet, 123, {.tokens = 512, .heads = 2});
  data.fill("beta", [](int64_t i) {
    return i / 2 % 8 == 0
               ? 2.
               : 2 * sigmoid(2 * portableNormal(123, 5, uint32_t(i)));
  });
  Values truth = reference(deltanet, data);
  published(truth, 0, 0.8655, 0, 6.927);
  const Limits limits = bf16() ? Limits{8e-3, 1.5e-2, 2e-2, 8e-3}
                               : Limits{2e-6, 4e-6, 8e-6, 2e-6};
  for (How how : everyForm(deltanet))
    expectClose(data, run(deltanet, data, how), truth, limits, how.str());
}
