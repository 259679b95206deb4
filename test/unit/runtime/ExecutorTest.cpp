//===- ExecutorTest.cpp - Sequences, heads, strides, threads --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

struct ExecutorTest : ToyRun {
  void SetUp() override {
    writeToyBundle(dir / "toy");
    open();
  }
};

IndexView view(const std::vector<int32_t> &values) {
  return {values.data(), DType::I32, int64_t(values.size())};
}
IndexView view(const std::vector<int64_t> &values) {
  return {values.data(), DType::I64, int64_t(values.size())};
}

/// Compares rows begin .. end of one (batch, head) and the final states of
/// sequence n with the recurrence from zero states.
void expectSequence(const ToyTensors &x, int64_t batch, int64_t begin,
                    int64_t end, int64_t n) {
  std::vector<double> o(x.o.size()), norm(x.n.size());
  for (int64_t h = 0; h < x.heads; ++h) {
    std::vector<double> S(K * V), z(K);
    toyRecurrence(x, batch, begin, end, h, S, z, o, norm);
    for (int64_t t = begin; t < end; ++t) {
      auto row = size_t((batch * x.tokens + t) * x.heads + h);
      EXPECT_NEAR(x.n[row], norm[row], 1e-4);
      for (size_t v = 0; v < V; ++v)
        EXPECT_NEAR(x.o[row * V + v], o[row * V + v], 1e-4);
    }
    auto head = size_t(n * x.heads + h);
    for (size_t i = 0; i < K * V; ++i)
      EXPECT_NEAR(x.S[head * K * V + i], S[i], 1e-4);
    for (size_t c = 0; c < K; ++c)
      EXPECT_NEAR(x.z[head * K + c], z[c], 1e-4);
  }
}

} // namespace

TEST_F(ExecutorTest, BatchOfSequences) {
  ToyTensors x(3, 37, 2);
  run(x.args());
  for (int64_t b = 0; b < 3; ++b)
    expectSequence(x, b, 0, 37, b);
}

TEST_F(ExecutorTest, PackedSequencesWithEmptyOnesAndPadding) {
  ToyTensors x(1, 30, 3);
  std::vector<int32_t> cu{0, 0, 1, 1, 18, 22, 22};
  std::vector<int64_t> wide(cu.begin(), cu.end());
  RunArgs args = x.args(6);
  args.cuSeqlens = view(cu);
  run(args);
  for (size_t n = 0; n < 6; ++n)
    expectSequence(x, 0, cu[n], cu[n + 1], int64_t(n));
  // Rows of no sequence stay as they were.
  for (size_t i = 22 * 3; i < 30 * 3; ++i) {
    EXPECT_EQ(x.n[i], 777);
    EXPECT_EQ(x.o[i * V], 777);
  }
  ToyTensors y(1, 30, 3);
  RunArgs again = y.args(6);
  again.cuSeqlens = view(wide);
  run(again);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(x.S, y.S);
}

TEST_F(ExecutorTest, RowsPastTheLastSequenceMayHoldAnything) {
  ToyTensors x(1, 20, 2);
  for (size_t i = 12 * 2 * K; i < x.q.size(); ++i)
    x.q[i] = x.k[i] = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 12 * 2; i < x.g.size(); ++i)
    x.g[i] = std::numeric_limits<float>::quiet_NaN();
  std::vector<int32_t> cu{0, 12};
  RunArgs args = x.args(1);
  args.cuSeqlens = view(cu);
  run(args);
  expectSequence(x, 0, 0, 12, 0);
  for (size_t i = 12 * 2; i < 20 * 2; ++i)
    EXPECT_EQ(x.n[i], 777);
}

TEST_F(ExecutorTest, NoTokensAndNoSequences) {
  ToyTensors x(2, 0, 2);
  run(x.args());
  EXPECT_EQ(x.S, std::vector<float>(x.S.size(), 0));
  ToyTensors y(1, 5, 2);
  std::vector<int32_t> cu{0};
  RunArgs args = y.args(0);
  args.cuSeqlens = view(cu);
  run(args);
  EXPECT_EQ(y.n[0], 777);
  EXPECT_EQ(log.calls(), "");
}

TEST_F(ExecutorTest, FewerHeadsEqualRepeatedOnes) {
  ToyTensors x(1, 21, 6);
  // q and k of 2 heads, g of 1, repeated to 6.
  std::vector<float> q, k, g;
  for (int64_t t = 0; t < 21; ++t) {
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t c = 0; c < K; ++c) {
        q.push_back(float(h + c) - float(t) / 16);
        k.push_back(float(c) / 8 - float(h * t) / 32);
      }
    g.push_back(-float(t) / 64);
    for (int64_t h = 0; h < 6; ++h) {
      auto row = size_t(t * 6 + h);
      x.g[row] = g.back();
      for (size_t c = 0; c < K; ++c) {
        auto from = size_t(t * 2 + h / 3) * K + c;
        x.q[row * K + c] = q[from];
        x.k[row * K + c] = k[from];
      }
    }
  }
  run(x.args());
  ToyTensors y(1, 21, 6);
  RunArgs args = y.args();
  args.inputs[0] = TensorView::dense(q.data(), DType::F32, 1, 21, 2, K);
  args.inputs[1] = TensorView::dense(k.data(), DType::F32, 1, 21, 2, K);
  args.inputs[3] = TensorView::dense(g.data(), DType::F32, 1, 21, 1, 1);
  run(args);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(x.n, y.n);
  EXPECT_EQ(x.S, y.S);
}

TEST_F(ExecutorTest, ColumnSlicesOfAFusedBuffer) {
  ToyTensors x(2, 25, 3);
  run(x.args());
  // q, k and g as columns of one buffer [B, T, 3 K + 3 K + 3 + 5]; o likewise.
  ToyTensors y(2, 25, 3);
  RunArgs args = y.args();
  constexpr int64_t width = 6 * K + 3 + 5;
  std::vector<float> fused(2 * 25 * width, 777), out(2 * 25 * 64, 777);
  auto slice = [&](std::vector<float> &from, int64_t column, int64_t d) {
    for (int64_t row = 0; row < 2 * 25; ++row)
      std::copy_n(from.begin() + row * 3 * d, 3 * d,
                  fused.begin() + row * width + column);
    return TensorView{fused.data() + column,
                      DType::F32,
                      {2, 25, 3, d},
                      {25 * width, width, d, 1}};
  };
  args.inputs[0] = slice(y.q, 0, K);
  args.inputs[1] = slice(y.k, 3 * K, K);
  args.inputs[3] = slice(y.g, 6 * K + 2, 1);
  args.outputs[0] = {
      out.data() + 7, DType::F32, {2, 25, 3, V}, {25 * 64, 64, 5, 1}};
  run(args);
  EXPECT_EQ(x.n, y.n);
  for (size_t row = 0; row < 50; ++row)
    for (size_t column = 0; column < 64; ++column) {
      size_t h = (column - 7) / 5, v = (column - 7) % 5;
      bool written = column >= 7 && h < 3 && v < V;
      EXPECT_EQ(out[row * 64 + column],
                written ? x.o[(row * 3 + h) * V + v] : 777);
    }
}

TEST_F(ExecutorTest, BitsDoNotDependOnThreads) {
  ToyTensors x(1, 200, 5);
  std::vector<int32_t> cu{0, 3, 90, 91, 91, 160, 200};
  RunArgs args = x.args(6);
  args.cuSeqlens = view(cu);
  run(args, {.threads = 1});
  for (int threads : {2, 3, 8, 64}) {
    ToyTensors y(1, 200, 5);
    args = y.args(6);
    args.cuSeqlens = view(cu);
    run(args, {.threads = threads});
    EXPECT_EQ(x.o, y.o);
    EXPECT_EQ(x.n, y.n);
    EXPECT_EQ(x.S, y.S);
    EXPECT_EQ(x.z, y.z);
  }
}

TEST_F(ExecutorTest, AutoTakesChunksAndStepsForTheRest) {
  ToyTensors x(1, 43, 1);
  run(x.args(), {.chunk = 16, .threads = 1}); // 32 + 11: no rest for steps.
  EXPECT_EQ(log.calls(), "16x43");
  log.reset();
  ToyTensors y(1, 37, 1);
  run(y.args(), {.chunk = 16, .threads = 1});
  EXPECT_EQ(log.calls(), "16x32 1x5");
  log.reset();
  ToyTensors z(1, 8, 1);
  run(z.args(), {.chunk = 16, .threads = 1});
  EXPECT_EQ(log.calls(), "1x8");
  log.reset();
  run(z.args(), {.threads = 1}); // The bundle's first.
  EXPECT_EQ(log.calls(), "4x8");
}

TEST_F(ExecutorTest, AutoDecidesForEachSequence) {
  ToyTensors x(1, 60, 1);
  std::vector<int32_t> cu{0, 1, 50};
  RunArgs args = x.args(2);
  args.cuSeqlens = view(cu);
  run(args, {.chunk = 16, .threads = 1}); // Long ones first.
  EXPECT_EQ(log.calls(), "16x48 1x1 1x1");
}

TEST_F(ExecutorTest, FormsAsAsked) {
  ToyTensors x(1, 37, 1);
  run(x.args(), {.form = Form::Step, .threads = 1});
  EXPECT_EQ(log.calls(), "1x37");
  log.reset();
  run(x.args(), {.form = Form::Chunk, .chunk = 16, .threads = 1});
  EXPECT_EQ(log.calls(), "16x37");
  EXPECT_EQ(error(x.args(), {.form = Form::Chunk, .chunk = 8}),
            dir / "toy: error: has no kernel for chunks of 8 tokens\nnote: it "
                  "has form step\nnote: it has form chunk, chunk 4\nnote: it "
                  "has form chunk, chunk 16");
}

TEST_F(ExecutorTest, BundlesWithOneKernel) {
  Manifest manifest = toyManifest();
  manifest.kernels = {manifest.kernels[2]};
  writeToyBundle(dir / "chunk", manifest);
  manifest.kernels = {toyManifest().kernels[0]};
  writeToyBundle(dir / "step", manifest);
  ToyTensors x(1, 20, 1);
  Result<Bundle> chunk = Bundle::open(dir / "chunk");
  Result<Bundle> step = Bundle::open(dir / "step");
  ASSERT_TRUE(chunk && step);
  Executor chunkExecutor(*chunk), stepExecutor(*step);
  ASSERT_TRUE(chunkExecutor.run(x.args(), {.threads = 1}));
  EXPECT_EQ(log.calls(), "16x20");
  log.reset();
  ASSERT_TRUE(stepExecutor.run(x.args(), {.threads = 1}));
  EXPECT_EQ(log.calls(), "1x20");
  EXPECT_FALSE(chunkExecutor.run(x.args(), {.form = Form::Step}));
  EXPECT_FALSE(stepExecutor.run(x.args(), {.form = Form::Chunk}));
}

TEST_F(ExecutorTest, AnErrorWritesNothing) {
  ToyTensors x(1, 10, 2);
  std::vector<int32_t> cu{0, 5, 4, 10};
  RunArgs args = x.args(3);
  args.cuSeqlens = view(cu);
  EXPECT_NE(error(args), "");
  EXPECT_EQ(x.n, std::vector<float>(x.n.size(), 777));
  EXPECT_EQ(x.S, std::vector<float>(x.S.size(), 777));
}

TEST_F(ExecutorTest, MoreThan65535Pairs) {
  ToyTensors x(2050, 2, 32);
  run(x.args());
  for (int64_t b : {0, 2047, 2049})
    expectSequence(x, b, 0, 2, b);
}
