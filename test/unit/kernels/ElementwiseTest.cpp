//===- ElementwiseTest.cpp - Activations, gates, gather -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gpu.h"

#include <cmath>
#include <limits>

using namespace plum;
using namespace plum::runtime::cuda;
using namespace plum::runtime::cuda::test;
using kernels::Elementwise;
using kernels::ElementwiseArgs;
using kernels::GatherArgs;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double reference(Elementwise op, double x, double u) {
  switch (op) {
  case Elementwise::Copy:
    return x;
  case Elementwise::Add:
    return x + u;
  case Elementwise::SiLUTimes:
    return x * sigmoid(x) * u;
  case Elementwise::SiTU:
    return 4 * std::tanh(x / 4) * sigmoid(x) * 25 * std::tanh(u / 25);
  case Elementwise::Gelu:
    return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
  case Elementwise::GeluTanh:
    return x / 2 *
           (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) *
                          (x + 0.044715 * x * x * x)));
  case Elementwise::TimesSigmoid:
  case Elementwise::TimesSigmoidRow:
    return x * sigmoid(u);
  }
  return NAN;
}

constexpr Elementwise ops[] = {
    Elementwise::Copy,         Elementwise::Add,
    Elementwise::SiLUTimes,    Elementwise::SiTU,
    Elementwise::Gelu,         Elementwise::GeluTanh,
    Elementwise::TimesSigmoid, Elementwise::TimesSigmoidRow};

TEST(Elementwise, AgreesWithFloat64) {
  Gpu gpu;
  std::mt19937 random(5);
  // Vectors, single elements, more than a block has in a row.
  for (int64_t width : {64, 37, 2200, 300})
    for (Type type : {Type::F32, Type::BF16})
      for (Elementwise op : ops) {
        SCOPED_TRACE("op " + std::to_string(int(op)) + ", width " +
                     std::to_string(width));
        Matrix x(gpu, 3, width, type, 8, random, 3),
            u(gpu, 3, width, type, 0, random, 8), y(gpu, 3, width, Type::F32),
            z(gpu, 3, width, type, 8);
        ElementwiseArgs args;
        args.op = op;
        args.x = x;
        args.u = u;
        args.y = y;
        args.rows = 3;
        args.width = width;
        args.beta = 4;
        args.lambda = 25;
        EXPECT_OK(elementwise(*gpu.kernels, nullptr, args));
        args.y = z;
        EXPECT_OK(elementwise(*gpu.kernels, nullptr, args));
        for (int64_t t = 0; t < 3; ++t)
          for (int64_t c = 0; c < width; ++c) {
            double gate = u.at(t, op == Elementwise::TimesSigmoidRow ? 0 : c);
            double expected = reference(op, x.at(t, c), gate);
            expectNear(y, t, c, expected, 1e-6);
            expectNear(z, t, c, expected, 1e-6);
          }
      }
}

TEST(Elementwise, IsAccurateFarAndNear) {
  // Relative errors of SiTU near 0, where a poor tanh loses everything, and of
  // the GELUs where the tail of erf is all that is left.
  Gpu gpu;
  std::vector<float> values;
  for (float x = 1e-6f; x < 20; x *= 1.07f) {
    values.push_back(x);
    values.push_back(-x);
  }
  int64_t count = int64_t(values.size());
  Matrix x(gpu, 1, count, Type::F32), y(gpu, 1, count, Type::F32);
  for (int64_t i = 0; i < count; ++i)
    x.set(0, i, values[size_t(i)]);
  for (Elementwise op : {Elementwise::SiTU, Elementwise::Gelu,
                         Elementwise::GeluTanh, Elementwise::SiLUTimes}) {
    ElementwiseArgs args{.op = op, .x = x, .u = x, .y = y, .rows = 1};
    args.width = count;
    args.beta = 4;
    args.lambda = 25;
    EXPECT_OK(elementwise(*gpu.kernels, nullptr, args));
    const bool gelu = op == Elementwise::Gelu || op == Elementwise::GeluTanh;
    for (int64_t i = 0; i < count; ++i) {
      double in = double(values[size_t(i)]), expected = reference(op, in, in);
      // 1 + erf cancels, there as in the models' own code.
      double allowed = gelu && in < 0 ? 2e-7 * std::max(1e-9, std::abs(in))
                                      : 1e-6 * std::abs(expected);
      ASSERT_NEAR(y.at(0, i), expected, allowed)
          << "op " << int(op) << " of " << in;
    }
  }
}

TEST(Elementwise, KeepsInfinityAndNaN) {
  Gpu gpu;
  const float inf = std::numeric_limits<float>::infinity();
  const float in[] = {inf, -inf, NAN, 200, -200, 0};
  Matrix x(gpu, 1, 6, Type::F32), u(gpu, 1, 6, Type::F32),
      y(gpu, 1, 6, Type::F32);
  for (int i = 0; i < 6; ++i) {
    x.set(0, i, 1);
    u.set(0, i, in[i]);
  }
  ElementwiseArgs args{.op = Elementwise::TimesSigmoid, .x = x, .u = u, .y = y};
  args.rows = 1;
  args.width = 6;
  EXPECT_OK(elementwise(*gpu.kernels, nullptr, args));
  EXPECT_EQ(y.at(0, 0), 1);
  EXPECT_EQ(y.at(0, 1), 0);
  EXPECT_TRUE(std::isnan(y.at(0, 2)));
  EXPECT_EQ(y.at(0, 3), 1);
  EXPECT_LT(y.at(0, 4), 1e-38);
  EXPECT_EQ(y.at(0, 5), 0.5);
}

TEST(Elementwise, AddsOneRowToAll) {
  Gpu gpu;
  std::mt19937 random(1);
  Matrix x(gpu, 4, 24, Type::BF16, 0, random),
      bias(gpu, 1, 24, Type::F32, 0, random), y(gpu, 4, 24, Type::F32);
  ElementwiseArgs args{.op = Elementwise::Add, .x = x, .u = bias, .y = y};
  args.u.stride = 0;
  args.rows = 4;
  args.width = 24;
  EXPECT_OK(elementwise(*gpu.kernels, nullptr, args));
  for (int t = 0; t < 4; ++t)
    for (int c = 0; c < 24; ++c)
      expectNear(y, t, c, x.at(t, c) + bias.at(0, c));
}

TEST(Gather, TakesRowsAndMarksWhatIsNone) {
  Gpu gpu;
  std::mt19937 random(2);
  for (int64_t width : {40, 9}) {
    Matrix table(gpu, 6, width, Type::BF16, 8, random),
        y(gpu, 5, width, Type::F32);
    Buffer<int32_t> ids(gpu, {5, 0, -1, 6, 3});
    GatherArgs args{.table = table, .y = y, .ids = ids.data()};
    args.rows = 5;
    args.width = width;
    args.tableRows = 6;
    EXPECT_OK(gather(*gpu.kernels, nullptr, args));
    for (int64_t c = 0; c < width; ++c) {
      EXPECT_EQ(y.at(0, c), table.at(5, c));
      EXPECT_EQ(y.at(1, c), table.at(0, c));
      EXPECT_TRUE(std::isnan(y.at(2, c)));
      EXPECT_TRUE(std::isnan(y.at(3, c)));
      EXPECT_EQ(y.at(4, c), table.at(3, c));
    }
  }
}

} // namespace
