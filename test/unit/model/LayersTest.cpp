//===- LayersTest.cpp - Layers by themselves ------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"
#include "runtime/model/Conv.h"
#include "runtime/model/Experts.h"
#include "test/unit/model/Interpreted.h"

#include <cmath>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

class Layers : public testing::Test {
protected:
  runtime::ThreadPool threads;
  std::vector<runtime::AlignedBuffer> lanes =
      std::vector<runtime::AlignedBuffer>(2);
  StateLayout layout;

  Work work() { return Work{threads, lanes}; }
  StatePool pool() {
    Result<StatePool> made = StatePool::create(layout, 2, 0);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  /// Values between -1 and 1 that are not all alike.
  static Rows rows(int64_t count, int64_t width, int seed = 1) {
    Rows x(count, width);
    for (int64_t i = 0; i < count * width; ++i)
      x.row(0)[i] = float((i * 37 + seed * 101) % 65) / 32 - 1;
    return x;
  }
  /// Runs `layer(work, first, count)` over pieces and returns all its rows.
  template <typename Fn>
  Rows inPieces(const std::vector<int64_t> &pieces, int64_t width, Fn layer) {
    StatePool states = pool();
    int64_t total = 0;
    for (int64_t piece : pieces)
      total += piece;
    Rows all(total, width);
    int64_t at = 0;
    for (int64_t piece : pieces) {
      Span span{1, 0, piece, at};
      Work w = work();
      w.states = &states;
      w.spans = {&span, 1};
      Rows part = layer(w, at, piece);
      std::copy_n(part.row(0), piece * width, all.row(at));
      at += piece;
    }
    return all;
  }
  static void expectNear(const Rows &a, const Rows &b, float tolerance) {
    ASSERT_EQ(a.count * a.width, b.count * b.width);
    for (int64_t i = 0; i < a.count * a.width; ++i)
      ASSERT_NEAR(a.row(0)[i], b.row(0)[i], tolerance) << i;
  }
};

TEST_F(Layers, SituAndItsBounds) {
  Activation act{Activation::SiTU, 4, 25};
  Rows g(1, 4), u(1, 4);
  const float gates[] = {0.5f, -3, 1000, -1000}, ups[] = {0.7f, 30, 1000, 1000};
  std::copy_n(gates, 4, g.row(0));
  std::copy_n(ups, 4, u.row(0));
  gated(work(), act, g, u);
  EXPECT_NEAR(g.row(0)[0], 0.21667649985, 1e-7);
  EXPECT_NEAR(g.row(0)[1], -2.51117556, 1e-6);
  EXPECT_EQ(g.row(0)[2], 100);
  EXPECT_EQ(g.row(0)[3], 0);
}

TEST_F(Layers, ConvolutionKeepsWhatItNeeds) {
  ShortConv conv;
  conv.width = 4;
  Vector weight(12);
  for (size_t i = 0; i < weight.size(); ++i)
    weight[i] = float(i) / 8 - 0.5f;
  conv.addChannels(weight, 3);
  conv.bias = {0.1f, -0.2f, 0.3f};
  conv.state = layout.addFixed("conv", {3, 3});
  Rows x = rows(11, 3);
  Rows expected(11, 3);
  for (int64_t t = 0; t < 11; ++t)
    for (int64_t c = 0; c < 3; ++c) {
      float sum = conv.bias[size_t(c)];
      for (int64_t j = 0; j < 4; ++j)
        if (t - 3 + j >= 0)
          sum += weight[size_t(c * 4 + j)] * x.row(t - 3 + j)[c];
      expected.row(t)[c] = sum / (1 + std::exp(-sum));
    }
  for (std::vector<int64_t> pieces :
       {std::vector<int64_t>{11}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 5, 4}})
    expectNear(inPieces(pieces, 3,
                        [&](const Work &w, int64_t at, int64_t count) {
                          return conv.run(w, x.rows(at, count));
                        }),
               expected, 1e-6f);
}

TEST_F(Layers, AttentionIsTheSameInPiecesOfAnySize) {
  Attention attention{4, 2, 8, 8, 0.35f};
  loadInterpreted(attention, {Attention::spec(8, 8)}, layout);
  Rows q = rows(80, 32, 2), k = rows(80, 16, 3), v = rows(80, 16, 4);
  auto run = [&](const Work &w, int64_t at, int64_t count) {
    return attention.run(w, q.rows(at, count), k.rows(at, count),
                         v.rows(at, count));
  };
  Rows whole = inPieces({80}, 32, run);
  // The first token sees only itself: its value, shared by two heads.
  for (int64_t c = 0; c < 16; ++c)
    EXPECT_NEAR(whole.row(0)[c], v.row(0)[c % 8], 1e-6);
  expectNear(inPieces(std::vector<int64_t>(80, 1), 32, run), whole, 1e-5f);
  expectNear(inPieces({70, 3, 7}, 32, run), whole, 1e-5f);
}

TEST_F(Layers, AbsorbedLatentAttentionIsTheExpandedOne) {
  LatentAttention attention;
  attention.heads = 3;
  attention.latent = 16;
  attention.nope = 8;
  attention.pe = 4;
  attention.valueDim = 8;
  attention.scale = 0.3f;
  Rows expand = rows(48, 16, 9);
  attention.expand = Matrix::of(expand);
  loadInterpreted(attention, {LatentAttention::spec(16, 4)}, layout);
  Rows q = rows(40, 36, 5), cache = rows(40, 20, 6);
  auto run = [&](const Work &w, int64_t at, int64_t count) {
    return attention.run(w, q.rows(at, count), cache.rows(at, count));
  };
  // Keys and values of every token first, then attention as usual.
  Rows expanded(40, 24);
  for (int64_t h = 0; h < 3; ++h)
    for (int64_t t = 0; t < 40; ++t) {
      float *out = expanded.row(t) + h * 8;
      std::fill_n(out, 8, 0.0f);
      double sum = 0;
      for (int64_t s = 0; s <= t; ++s) {
        const float *query = q.row(t) + h * 12, *c = cache.row(s);
        double score = 0, value[8] = {};
        for (int64_t i = 0; i < 12; ++i) {
          double key = i < 8 ? 0 : c[16 + i - 8];
          for (int64_t j = 0; i < 8 && j < 16; ++j)
            key += expand.row(h * 16 + i)[j] * c[j];
          score += query[i] * key;
        }
        double weight = std::exp(0.3 * score);
        sum += weight;
        for (int64_t i = 0; i < 8; ++i) {
          for (int64_t j = 0; j < 16; ++j)
            value[i] += expand.row(h * 16 + 8 + i)[j] * c[j];
          out[i] += float(weight * value[i]);
        }
      }
      for (int64_t i = 0; i < 8; ++i)
        out[i] = float(out[i] / sum);
    }
  Rows whole = inPieces({40}, 24, run);
  expectNear(whole, expanded, 1e-4f);
  expectNear(inPieces(std::vector<int64_t>(40, 1), 24, run), whole, 1e-5f);
  expectNear(inPieces({10, 11, 19}, 24, run), whole, 1e-5f);
}

TEST_F(Layers, TheBiasOfARouterChoosesAndDoesNotWeigh) {
  Experts experts;
  Rows router = rows(4, 2);
  experts.router = Matrix::of(router);
  experts.bias = {0, 0, 0, 10};
  experts.chosen = 2;
  experts.scale = 2;
  const float logits[] = {-1, 2, 0, -3};
  Experts::Choice choice = experts.choose(logits);
  EXPECT_EQ(choice.expert, (std::vector<int64_t>{3, 1}));
  float a = sigmoid(-3), b = sigmoid(2);
  EXPECT_NEAR(choice.weight[0], 2 * a / (a + b), 1e-6);
  EXPECT_NEAR(choice.weight[1], 2 * b / (a + b), 1e-6);
  experts.score = Experts::Softmax;
  experts.bias.clear();
  experts.renormalize = false;
  experts.scale = 1;
  choice = experts.choose(logits);
  EXPECT_EQ(choice.expert, (std::vector<int64_t>{1, 2}));
  double sum = std::exp(-1) + std::exp(2) + 1 + std::exp(-3);
  EXPECT_NEAR(choice.weight[0], std::exp(2) / sum, 1e-6);
  const float broken[] = {NAN, NAN, 1, NAN};
  EXPECT_EQ(experts.choose(broken).expert.size(), 2u);
}

} // namespace

} // namespace plum::model::test
