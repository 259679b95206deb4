//===- LatentTest.cpp - Rows and queries of latent caches -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

TEST(Latent, RowsGoToTheirPlacesInCaches) {
  Gpu gpu;
  std::mt19937 random(2);
  for (Type type : {Type::F32, Type::BF16}) {
    Matrix x(gpu, 4, 300, Type::F32, 4, random);
    std::vector<Matrix> caches;
    std::vector<uint64_t> places;
    for (int64_t rows : {5, 9}) {
      caches.emplace_back(gpu, rows, 308, type, 0, random);
      places.push_back(caches.back().buffer.address());
    }
    const double before = caches[0].at(1, 7);
    Buffer<uint64_t> list(gpu, places);
    const std::vector<int32_t> of{0, 0, 1, 1}, at{2, 3, 0, 8};
    Buffer<int32_t> sequence(gpu, of), position(gpu, at);
    AppendArgs args;
    args.x = x;
    args.caches = list.data();
    args.sequence = sequence.data();
    args.position = position.data();
    args.cacheType = type;
    args.cacheStride = 308;
    args.rows = 4;
    args.width = 300;
    EXPECT_OK(gpu.kernels->launch(nullptr, "plum_append", {4}, args));
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t c = 0; c < 300; ++c)
        ASSERT_EQ(caches[size_t(of[size_t(r)])].at(at[size_t(r)], c),
                  type == Type::BF16 ? bf16(x.at(r, c)) : x.at(r, c));
    EXPECT_EQ(caches[0].at(1, 7), before);
  }
}

// Rows and columns of a last block, and of a head that is no multiple of one.
TEST(Latent, QueriesInTheSpaceOfCaches) {
  Gpu gpu;
  std::mt19937 random(3);
  constexpr int64_t rows = 6, heads = 3, nope = 40, pe = 8, valueDim = 24,
                    latent = 200;
  for (WeightKind kind : {WeightKind::F32, WeightKind::BF16}) {
    Matrix q(gpu, rows, heads * (nope + pe), Type::F32, 4, random),
        y(gpu, rows, heads * latent, Type::F32),
        expand(gpu, heads * (nope + valueDim), latent,
               kind == WeightKind::F32 ? Type::F32 : Type::BF16, 0, random);
    AbsorbArgs args;
    args.q = q;
    args.y = y;
    args.expand = reinterpret_cast<const void *>(expand.buffer.address());
    args.kind = kind;
    args.rows = rows;
    args.heads = heads;
    args.nope = nope;
    args.valueDim = valueDim;
    args.latent = latent;
    args.pitch = nope + pe;
    EXPECT_OK(gpu.kernels->launch(
        nullptr, "plum_absorb",
        {heads * ((rows + kAbsorbRows - 1) / kAbsorbRows)}, args));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t c = 0; c < latent; ++c) {
          double expected = 0;
          for (int64_t n = 0; n < nope; ++n)
            expected += q.at(r, h * (nope + pe) + n) *
                        expand.at(h * (nope + valueDim) + n, c);
          ASSERT_NEAR(y.at(r, h * latent + c), expected, 1e-4);
        }
  }
}

} // namespace
