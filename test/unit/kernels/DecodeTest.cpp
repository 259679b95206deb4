//===- DecodeTest.cpp - Rows of caches, products of few rows --------------===//
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
    std::vector<int64_t> places;
    for (int64_t rows : {5, 9}) {
      caches.emplace_back(gpu, rows, 308, type, 0, random);
      places.push_back(int64_t(caches.back().buffer.address()));
    }
    const double before = caches[0].at(1, 7);
    Buffer<int64_t> list(gpu, places);
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

// Queries in the space of latents, and values out of it: a product for each
// head, of some of its columns, with rows of a weight that others lie between.
TEST(Latent, ProductsHeadByHead) {
  Gpu gpu;
  std::mt19937 random(3);
  constexpr int64_t heads = 3, cols = 40, pitch = 48, outs = 56, between = 24;
  for (int64_t rows : {5, 9, 40}) {
    const bool narrow = rows > 16; // As the kernels for so many take x.
    Matrix x(gpu, rows, heads * pitch, narrow ? Type::BF16 : Type::F32, 8,
             random),
        y(gpu, rows, heads * outs, Type::F32),
        w(gpu, heads * (outs + between), cols, Type::BF16, 0, random);
    kernels::Rows from = x;
    SkinnyArgs args;
    args.rows = rows;
    args.count = 1;
    SkinnyPart &part = args.parts[0];
    part.x = from.data;
    part.ldx = from.stride;
    part.w =
        reinterpret_cast<const uint16_t *>(w.buffer.address()) + between * cols;
    part.y = reinterpret_cast<float *>(y.buffer.address());
    part.ldy = heads * outs;
    part.outs = outs;
    part.cols = cols;
    part.xHead = pitch * (narrow ? 2 : 4);
    part.wHead = (outs + between) * cols;
    part.yHead = outs;
    const int64_t tile = rows <= 8 ? 8 : rows <= 16 ? 16 : 64;
    const int64_t each = tile <= 16 ? 16 : 32;
    EXPECT_OK(gpu.kernels->launch(
        nullptr, ("plum_skinny_heads_" + std::to_string(tile)).c_str(),
        {heads * ((outs + each - 1) / each)}, args));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t n = 0; n < outs; ++n) {
          double expected = 0;
          for (int64_t c = 0; c < cols; ++c)
            expected += bf16(x.at(r, h * pitch + c)) *
                        w.at(h * (outs + between) + between + n, c);
          ASSERT_NEAR(y.at(r, h * outs + n), expected, 1e-4)
              << rows << " rows: " << r << ", head " << h << ", " << n;
        }
    DotsArgs plain;
    plain.x = x;
    plain.y = y;
    plain.weight = reinterpret_cast<const void *>(w.buffer.address());
    plain.kind = WeightKind::BF16;
    plain.rows = rows;
    plain.cols = cols;
    plain.outs = heads * outs;
    plain.heads = heads;
    plain.headColumns = pitch;
    plain.headRows = outs + between;
    plain.firstRow = between;
    EXPECT_OK(gpu.kernels->launch(
        nullptr, "plum_dots", {(heads * outs + 7) / 8, (rows + 7) / 8}, plain));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < heads * outs; ++n) {
        const int64_t h = n / outs;
        double expected = 0;
        for (int64_t c = 0; c < cols; ++c)
          expected += x.at(r, h * pitch + c) *
                      w.at(h * (outs + between) + between + n % outs, c);
        ASSERT_NEAR(y.at(r, n), expected, 1e-4);
      }
  }
}

// Several products in a launch; blocks of 64 outputs have the bits of those of
// 32, and behind the last output and row nothing is written.
TEST(Skinny, BlocksOf64Outputs) {
  Gpu gpu;
  std::mt19937 random(5);
  constexpr int64_t rows = 50;
  const std::vector<std::pair<int64_t, int64_t>> sizes{{100, 328}, {64, 72}};
  std::vector<Matrix> x, w, y;
  for (auto [outs, cols] : sizes) {
    x.emplace_back(gpu, rows, cols, Type::BF16, 8, random);
    w.emplace_back(gpu, outs, cols, Type::BF16, 0, random);
  }
  for (int64_t outs : {32, 64}) {
    SkinnyArgs args;
    args.rows = rows;
    int64_t blocks = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Matrix &to = y.emplace_back(gpu, rows + 1, sizes[i].first, Type::F32, 4);
      kernels::Rows from = x[i], result = to;
      SkinnyPart &part = args.parts[args.count++];
      part.x = from.data;
      part.ldx = from.stride;
      part.w = reinterpret_cast<const void *>(w[i].buffer.address());
      part.y = static_cast<float *>(result.data);
      part.ldy = result.stride;
      part.outs = sizes[i].first;
      part.cols = sizes[i].second;
      part.firstBlock = blocks;
      blocks += (part.outs + outs - 1) / outs;
    }
    EXPECT_OK(gpu.kernels->launch(
        nullptr, outs == 64 ? "plum_skinny_tall_64" : "plum_skinny_64",
        {blocks}, args));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto [outs, cols] = sizes[i];
    for (int64_t n = 0; n < outs; ++n) {
      for (int64_t r = 0; r < rows; ++r) {
        double expected = 0;
        for (int64_t c = 0; c < cols; ++c)
          expected += x[i].at(r, c) * w[i].at(n, c);
        ASSERT_NEAR(y[i].at(r, n), expected, 1e-4);
        ASSERT_EQ(y[i].at(r, n), y[2 + i].at(r, n));
      }
      EXPECT_TRUE(std::isnan(y[2 + i].at(rows, n)));
    }
  }
}

} // namespace
