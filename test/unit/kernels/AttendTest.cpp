//===- AttendTest.cpp - Attention of single queries against float64 -------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Latent attention at real sizes, by the kernel for anything and by the one
// that has 32 heads in a block.
//
//===----------------------------------------------------------------------===//

#include "Gpu.h"

#include "runtime/cuda/kernels/ModelArgs.h"

using namespace plum;
using namespace plum::runtime::cuda;
using namespace plum::runtime::cuda::test;
using namespace plum::kernels;
using test::Matrix;

namespace {

constexpr int64_t kLatent = 512, kKey = 576;

struct Queries {
  std::vector<int32_t> sequence, position; ///< Of each row.
  int32_t heads, splits;
};

/// Runs `kernel`, whose blocks have `headsOfBlock` heads; `narrowed`: on
/// queries in bf16. What lies behind a sequence's last key is NaN.
void expectLatent(const Queries &queries, const char *kernel, int headsOfBlock,
                  int sharedBytes, bool narrowed, double allowed) {
  SCOPED_TRACE(kernel);
  Gpu gpu;
  std::mt19937 random(3);
  const auto rows = int64_t(queries.position.size());
  const int64_t heads = queries.heads;
  std::vector<Matrix> caches;
  std::vector<uint64_t> places;
  for (int32_t s = 0; s <= queries.sequence.back(); ++s) {
    int64_t keys = 0;
    for (int64_t r = 0; r < rows; ++r)
      if (queries.sequence[size_t(r)] == s)
        keys = std::max<int64_t>(keys, queries.position[size_t(r)] + 1);
    caches.emplace_back(gpu, keys, kKey, Type::BF16, 8, random);
    places.push_back(caches.back().buffer.address());
  }
  Matrix q(gpu, rows, heads * kKey, Type::F32, 4, random),
      y(gpu, rows, heads * kLatent, Type::F32);
  Buffer<uint64_t> list(gpu, places);
  Buffer<int32_t> sequence(gpu, queries.sequence),
      position(gpu, queries.position);
  Buffer<float> partial(gpu,
                        size_t(rows * heads * queries.splits) * (kLatent + 2));
  AttendArgs args;
  args.q = q;
  args.y = y;
  args.caches = list.data();
  args.sequence = sequence.data();
  args.position = position.data();
  args.cacheType = Type::BF16;
  args.cacheStride = kKey + 8;
  args.rows = rows;
  args.heads = queries.heads;
  args.groups = 1;
  args.keyDim = kKey;
  args.valueDim = kLatent;
  args.scale = 0.1f; // Scores of about 2.4.
  args.splits = queries.splits;
  args.partial = partial.data();
  const int64_t blocks = (heads + headsOfBlock - 1) / headsOfBlock;
  EXPECT_OK(gpu.kernels->launch(
      nullptr, kernel, {rows * blocks * queries.splits}, args, sharedBytes));
  EXPECT_OK(gpu.kernels->launch(nullptr, "plum_attend_combine", {rows * heads},
                                args));

  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h) {
      const Matrix &cache = caches[size_t(queries.sequence[size_t(r)])];
      std::vector<double> weight;
      double sum = 0, largest = -1e30;
      for (int64_t k = 0; k <= queries.position[size_t(r)]; ++k) {
        double score = 0;
        for (int64_t c = 0; c < kKey; ++c) {
          double x = q.at(r, h * kKey + c);
          score += (narrowed ? bf16(x) : x) * cache.at(k, c);
        }
        weight.push_back(score * double(args.scale));
        largest = std::max(largest, weight.back());
      }
      for (double &w : weight)
        sum += w = std::exp(w - largest);
      for (int64_t c = 0; c < kLatent; ++c) {
        double expected = 0;
        for (size_t k = 0; k < weight.size(); ++k)
          expected += weight[k] / sum * cache.at(int64_t(k), c);
        ASSERT_NEAR(y.at(r, h * kLatent + c), expected, allowed)
            << "row " << r << ", head " << h << ", column " << c;
      }
    }
}

void expectBoth(const Queries &queries) {
  expectLatent(queries, "plum_attend", 1, 0, false, 2e-5);
  expectLatent(queries, "plum_latent_512_64", kLatentHeads, latentBytes(kKey),
               true, 8e-3); // Weights are bf16.
}

// One key; a full tile, and one more; shares without keys; more than 32 heads.
TEST(Attend, LatentOfFewKeys) {
  expectBoth({{0, 0, 1, 2}, {0, 2, 63, 64}, 3, 8});
  expectBoth({{0}, {5}, 34, 2});
}

TEST(Attend, LatentOfSeveralTilesAndShares) {
  expectBoth({{0, 0, 1}, {299, 256, 128}, 2, 2});
}

TEST(Attend, ARowHasTheSameBitsInEveryBatch) {
  // The second of three rows, then alone: of other heads' rows nothing is said.
  Gpu gpu;
  std::mt19937 random(4);
  Matrix cache(gpu, 150, kKey, Type::BF16, 0, random),
      other(gpu, 40, kKey, Type::BF16, 0, random),
      q(gpu, 3, 2 * kKey, Type::F32, 0, random);
  Buffer<uint64_t> list(gpu, {other.buffer.address(), cache.buffer.address()});
  std::vector<std::vector<double>> results;
  for (bool alone : {false, true}) {
    Matrix y(gpu, 3, 2 * kLatent, Type::F32);
    Buffer<int32_t> sequence(gpu, {alone ? 1 : 0, 1, 0}),
        position(gpu, {alone ? 149 : 39, 149, 12});
    Buffer<float> partial(gpu, size_t(3 * 2 * 4 * (kLatent + 2)));
    AttendArgs args;
    args.q = q;
    if (alone)
      args.q.data = static_cast<float *>(args.q.data) + q.stride;
    args.y = y;
    args.caches = list.data();
    args.sequence = sequence.data();
    args.position = position.data();
    args.cacheType = Type::BF16;
    args.cacheStride = kKey;
    args.rows = alone ? 1 : 3;
    args.heads = 2;
    args.groups = 1;
    args.keyDim = kKey;
    args.valueDim = kLatent;
    args.splits = 4;
    args.scale = 0.1f;
    args.partial = partial.data();
    EXPECT_OK(gpu.kernels->launch(nullptr, "plum_latent_512_64",
                                  {args.rows * 4}, args, latentBytes(kKey)));
    EXPECT_OK(gpu.kernels->launch(nullptr, "plum_attend_combine",
                                  {args.rows * 2}, args));
    std::vector<double> &row = results.emplace_back();
    for (int64_t c = 0; c < 2 * kLatent; ++c)
      row.push_back(y.at(alone ? 0 : 1, c));
  }
  EXPECT_EQ(results[0], results[1]);
}

} // namespace
