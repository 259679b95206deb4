//===- GpuLayersTest.cpp - Attention on the GPU backend by itself ---------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The heads of real models, which the fixtures do not have, against the same
// layer on the CPU. With PLUM_GPU_BUNDLES=DIR, DIR/layers has a folder for each
// memory: `plum compile docs/layers/attention.plum --set K=64 --set V=64
// --target sm_90a -o DIR/layers/attention.K64.V64`.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"
#include "test/unit/model/HostGpu.h"
#include "test/unit/model/Interpreted.h"

#include <cmath>
#include <gtest/gtest.h>
#include <list>
#include <random>

namespace plum::model::test {

namespace {

class GpuLayers : public testing::Test {
protected:
  std::mt19937 random{1};
  runtime::ThreadPool threads;
  std::vector<runtime::AlignedBuffer> lanes =
      std::vector<runtime::AlignedBuffer>(2);
  StateLayout layout;
  std::shared_ptr<GpuBackend> gpu =
      someGpu({.compute = Compute::BF16, .record = false});

  Rows rows(int64_t count, int64_t width) {
    std::normal_distribution<float> normal;
    Rows x(count, width);
    for (int64_t i = 0; i < count * width; ++i)
      x.row(0)[i] = normal(random);
    return x;
  }

  /// The layer on this CPU and, with the same weights, on the GPU.
  template <typename T> struct Both {
    T here, there;
    const T &of(const Work &work) const { return work.backend ? there : here; }
  };
  template <typename T>
  Both<T> both(const T &attention, const std::vector<MemorySpec> &specs) {
    Both<T> result{attention, attention};
    StateLayout same;
    layout = {};
    loadInterpreted(result.here, specs, layout);
    loadInterpreted(result.there, specs, same, [&](const MemorySpec &spec) {
      return gpu->openMemory(bundleOf("layers"), spec);
    });
    return result;
  }

  /// Runs passes over pieces of two sequences, `lengths` of each, and compares.
  /// layer(work, begin, count) takes rows begin ... of the inputs; `bind` puts
  /// inputs where the pass runs.
  template <typename Fn>
  void compare(std::vector<std::pair<int64_t, int64_t>> lengths, Fn layer) {
    StatePool here = std::move(*StatePool::create(layout, 2, 0));
    StatePool there = std::move(*StatePool::create(layout, 2, 0, gpu.get()));
    int64_t past[2] = {0, 0}, at = 0;
    for (auto [first, second] : lengths) {
      Span spans[2] = {{0, 0, first, past[0]}, {1, first, second, past[1]}};
      int64_t count = first + second;
      std::vector<int32_t> ids(static_cast<size_t>(count), 0);
      Work work{threads, lanes};
      work.spans = spans;
      work.states = &here;
      Rows expected = layer(work, at, count);
      work.backend = gpu.get();
      work.states = &there;
      ASSERT_TRUE(gpu->begin(work, {work.spans, ids, Logits::None}));
      Rows got = gpu->download(layer(work, at, count));
      ASSERT_TRUE(gpu->status()) << gpu->status().error().str();
      for (int64_t r = 0; r < count; ++r)
        for (int64_t c = 0; c < got.width; ++c)
          ASSERT_NEAR(got.row(r)[c], expected.row(r)[c], 2e-2)
              << "row " << r << " of " << count << ", column " << c;
      past[0] += first;
      past[1] += second;
      at += count;
    }
  }
  /// Rows begin ... of x, where the pass runs.
  Rows part(const Work &work, const Rows &x, int64_t begin, int64_t count) {
    Rows copy = work.rows(count, x.width);
    size_t bytes = size_t(count * x.width) * sizeof(float);
    if (work.backend)
      work.backend->copyIn(copy.row(0), x.row(begin), bytes);
    else
      std::copy_n(x.row(begin), count * x.width, copy.row(0));
    return copy;
  }
};

TEST_F(GpuLayers, LatentAttention) {
  LatentAttention attention;
  attention.heads = 2;
  attention.latent = 64;
  attention.nope = 128;
  attention.pe = 64;
  attention.valueDim = 128;
  attention.scale = 1 / std::sqrt(192.0f);
  Rows expand = rows(2 * 256, 64);
  for (int64_t i = 0; i < expand.count * expand.width; ++i)
    expand.row(0)[i] /= 8;
  attention.expand = Matrix::of(expand);
  auto layers = both(attention, {LatentAttention::spec(64, 64),
                                 LatentAttention::promptSpec(128, 64, 128)});
  Rows q = rows(290, 2 * 192), cache = rows(290, 128);
  compare({{70, 3}, {65, 130}, {1, 1}, {18, 2}},
          [&](const Work &work, int64_t at, int64_t count) {
            return layers.of(work).run(work, part(work, q, at, count),
                                       part(work, cache, at, count));
          });
}

// Of Kimi K3, but for its number of heads: prompts, single tokens.
TEST_F(GpuLayers, LatentAttentionOfRealHeads) {
  LatentAttention attention;
  attention.heads = 3;
  attention.latent = 512;
  attention.nope = 128;
  attention.pe = 64;
  attention.valueDim = 128;
  attention.scale = 1 / std::sqrt(192.0f);
  Rows expand = rows(3 * 256, 512);
  for (int64_t i = 0; i < expand.count * expand.width; ++i)
    expand.row(0)[i] /= 23;
  attention.expand = Matrix::of(expand);
  auto layers = both(attention, {LatentAttention::spec(512, 64),
                                 LatentAttention::promptSpec(128, 64, 128)});
  Rows q = rows(90, 3 * 192), cache = rows(90, 576);
  compare({{70, 3}, {1, 1}, {1, 1}},
          [&](const Work &work, int64_t at, int64_t count) {
            return layers.of(work).run(work, part(work, q, at, count),
                                       part(work, cache, at, count));
          });
}

TEST_F(GpuLayers, AttentionOfGroups) {
  // A backend knows weights by their addresses: they stay as long as it does.
  std::list<Both<Attention>> kept;
  for (int64_t dim : {64, 128, 256}) {
    const auto &layers = kept.emplace_back(
        both(Attention{4, 2, dim, dim, 1 / std::sqrt(float(dim))},
             {Attention::spec(dim, dim)}));
    Rows q = rows(160, 4 * dim), k = rows(160, 2 * dim), v = rows(160, 2 * dim);
    compare({{70, 2}, {5, 70}, {1, 1}, {9, 2}},
            [&](const Work &work, int64_t at, int64_t count) {
              return layers.of(work).run(work, part(work, q, at, count),
                                         part(work, k, at, count),
                                         part(work, v, at, count));
            });
  }
}

} // namespace

} // namespace plum::model::test
