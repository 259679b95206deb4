//===- NormsTest.cpp - Norms against float64 ------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gpu.h"

using namespace plum;
using namespace plum::runtime::cuda;
using namespace plum::runtime::cuda::test;
using kernels::NormArgs;
using kernels::NormGate;

namespace {

struct Shape {
  int64_t rows;
  int32_t slices, width;
};
// One warp, one block, a block with several turns, nothing a multiple of 8.
constexpr Shape shapes[] = {{9, 3, 64}, {2, 1, 512},  {1, 1, 7168},
                            {3, 2, 37}, {2, 1, 1100}, {5, 2, 1056}};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  Type type;
  bool weight, plusOne, bias, residual, center, roundFirst;
  NormGate act;
};

void expectNorm(const Gpu &gpu, const Shape &shape, const Case &c) {
  std::mt19937 random(7);
  const int64_t wide = int64_t(shape.slices) * shape.width;
  Matrix x(gpu, shape.rows, wide, c.type, 8, random),
      r(gpu, shape.rows, wide, c.type, 0, random),
      g(gpu, shape.rows, wide, c.type, 16, random),
      w(gpu, 1, shape.width, Type::F32, 0, random),
      b(gpu, 1, shape.width, Type::BF16, 0, random),
      y(gpu, shape.rows, wide, c.type, 8);
  std::vector<double> before(size_t(shape.rows * wide));
  for (int64_t t = 0; t < shape.rows; ++t)
    for (int64_t i = 0; i < wide; ++i)
      before[size_t(t * wide + i)] = r.at(t, i);

  NormArgs args;
  args.x = x;
  args.y = y;
  args.rows = shape.rows;
  args.slices = shape.slices;
  args.width = shape.width;
  args.eps = 1e-5f;
  args.act = c.act;
  args.center = c.center;
  args.plusOne = c.plusOne;
  args.roundFirst = c.roundFirst;
  if (c.weight)
    args.weight = w.vector();
  if (c.bias)
    args.bias = b.vector();
  if (c.residual)
    args.residual = r;
  if (c.act != NormGate::None)
    args.gate = g;
  EXPECT_OK(normalize(*gpu.kernels, nullptr, args));

  for (int64_t t = 0; t < shape.rows; ++t)
    for (int64_t s = 0; s < shape.slices; ++s) {
      std::vector<double> v(size_t(shape.width));
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < shape.width; ++i) {
        int64_t at = s * shape.width + i;
        double &value = v[size_t(i)] = x.at(t, at);
        if (c.residual) {
          expectNear(r, t, at, before[size_t(t * wide + at)] + value);
          value = r.at(t, at); // As it is stored.
        }
        if (c.act == NormGate::SiLUBefore)
          value *= g.at(t, at) * sigmoid(g.at(t, at));
        mean += value / shape.width;
      }
      if (!c.center)
        mean = 0;
      for (double value : v)
        squares += (value - mean) * (value - mean) / shape.width;
      for (int64_t i = 0; i < shape.width; ++i) {
        int64_t at = s * shape.width + i;
        double value = (v[size_t(i)] - mean) / std::sqrt(squares + 1e-5);
        // The kernel's sum may round the other way.
        double slack = c.roundFirst ? std::abs(value) / 128 : 0;
        double weight = c.weight ? w.at(0, i) + c.plusOne : 1;
        value = value * weight + (c.bias ? b.at(0, i) : 0);
        if (c.act == NormGate::Sigmoid)
          value *= sigmoid(g.at(t, at));
        if (c.act == NormGate::SiLU)
          value *= g.at(t, at) * sigmoid(g.at(t, at));
        expectNear(y, t, at, value, 4e-6 + slack * 4);
      }
    }
}

TEST(Norms, AgreeWithFloat64) {
  Gpu gpu;
  for (const Shape &shape : shapes)
    for (Type type : {Type::F32, Type::BF16}) {
      SCOPED_TRACE(std::to_string(shape.width) +
                   (type == Type::F32 ? " f32" : " bf16"));
      const bool narrow = type == Type::BF16;
      expectNorm(
          gpu, shape,
          {type, true, false, false, false, false, narrow, NormGate::None});
      expectNorm(gpu, shape,
                 {type, true, true, false, true, false, false, NormGate::None});
      expectNorm(gpu, shape,
                 {type, true, false, true, false, true, false, NormGate::None});
      expectNorm(
          gpu, shape,
          {type, true, false, false, false, false, false, NormGate::Sigmoid});
      expectNorm(
          gpu, shape,
          {type, false, false, false, false, false, false, NormGate::SiLU});
      expectNorm(gpu, shape,
                 {type, true, false, false, false, false, narrow,
                  NormGate::SiLUBefore});
    }
}

TEST(Norms, RoundBeforeTheWeight) {
  // 1 + 2^-9 is no bf16: with the rounding the weight of 3 gives 3 exactly.
  Gpu gpu;
  Matrix x(gpu, 1, 8, Type::F32), y(gpu, 1, 8, Type::F32),
      w(gpu, 1, 8, Type::F32);
  for (int i = 0; i < 8; ++i) {
    x.set(0, i, 1);
    w.set(0, i, 3);
  }
  NormArgs args{.x = x, .y = y, .weight = w.vector(), .rows = 1, .width = 8};
  args.eps = 1.0f / ((1 + 0x1p-9f) * (1 + 0x1p-9f)) - 1.0f;
  EXPECT_OK(normalize(*gpu.kernels, nullptr, args));
  EXPECT_NEAR(y.at(0, 0), 3 + 3 * 0x1p-9, 1e-5);
  args.roundFirst = true;
  EXPECT_OK(normalize(*gpu.kernels, nullptr, args));
  EXPECT_EQ(y.at(0, 0), 3);
}

TEST(Norms, ARowAloneHasTheSameBits) {
  Gpu gpu;
  std::mt19937 random(3);
  Matrix x(gpu, 5, 7168, Type::F32, 0, random), all(gpu, 5, 7168, Type::F32),
      one(gpu, 1, 7168, Type::F32);
  NormArgs args{.x = x, .y = all, .rows = 5, .width = 7168, .eps = 1e-5f};
  EXPECT_OK(normalize(*gpu.kernels, nullptr, args));
  args.x.data = static_cast<float *>(args.x.data) + 3 * 7168;
  args.y = one;
  args.rows = 1;
  EXPECT_OK(normalize(*gpu.kernels, nullptr, args));
  for (int i = 0; i < 7168; ++i)
    ASSERT_EQ(one.at(0, i), all.at(3, i));
}

TEST(Norms, RefuseWhatIsMissing) {
  Gpu gpu;
  Matrix x(gpu, 1, 8, Type::F32);
  NormArgs args{.x = x, .y = x, .rows = 1, .width = 8};
  args.act = NormGate::SiLU;
  Status status = normalize(*gpu.kernels, nullptr, args);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().str(),
            "error: a norm needs x, y and the gate that it names");
}

} // namespace
