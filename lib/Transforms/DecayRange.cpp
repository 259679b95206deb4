//===- DecayRange.cpp - Intervals of elementwise expressions ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DecayRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using plum::Interval;

static constexpr double kInf = std::numeric_limits<double>::infinity();
static constexpr Interval kEverything = {-kInf, kInf};

/// 0 * inf is 0 here: the bound of a product, not its value.
static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

static Interval product(Interval a, Interval b) {
  double ends[] = {times(a.low, b.low), times(a.low, b.high),
                   times(a.high, b.low), times(a.high, b.high)};
  return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
}

static Interval reciprocal(Interval a) {
  if (a.low <= 0 && a.high >= 0) {
    if (a.low == 0)
      return {1 / a.high, kInf};
    return kEverything;
  }
  return {1 / a.high, 1 / a.low};
}

static Interval constantInterval(Attribute attr) {
  if (auto scalar = dyn_cast<FloatAttr>(attr))
    return {scalar.getValueAsDouble(), scalar.getValueAsDouble()};
  auto dense = dyn_cast<DenseFPElementsAttr>(attr);
  if (!dense)
    return kEverything;
  Interval result = {kInf, -kInf};
  for (const APFloat &value : dense) {
    result.low = std::min(result.low, value.convertToDouble());
    result.high = std::max(result.high, value.convertToDouble());
  }
  return result;
}

/// `depth` bounds the walk; shared values are few in a gate's expression.
static Interval intervalAt(Value value, unsigned depth) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return kEverything;
  Attribute constant;
  if (matchPattern(op, m_Constant(&constant)))
    return constantInterval(constant);
  auto of = [&](unsigned i) {
    return intervalAt(op->getOperand(i), depth - 1);
  };
  auto monotone = [&](double (*f)(double)) -> Interval {
    Interval x = of(0);
    return {f(x.low), f(x.high)};
  };
  using namespace arith;
  return TypeSwitch<Operation *, Interval>(op)
      .Case<vector::BroadcastOp, ExtFOp, TruncFOp>([&](auto) { return of(0); })
      .Case<NegFOp>([&](auto) {
        Interval x = of(0);
        return Interval{-x.high, -x.low};
      })
      .Case<AddFOp>([&](auto) {
        Interval x = of(0), y = of(1);
        return Interval{x.low + y.low, x.high + y.high};
      })
      .Case<SubFOp>([&](auto) {
        Interval x = of(0), y = of(1);
        return Interval{x.low - y.high, x.high - y.low};
      })
      .Case<MulFOp>([&](auto) {
        Interval x = of(0);
        if (op->getOperand(0) == op->getOperand(1)) // a square
          return Interval{x.low > 0    ? x.low * x.low
                          : x.high < 0 ? x.high * x.high
                                       : 0.0,
                          std::max(x.low * x.low, x.high * x.high)};
        return product(x, of(1));
      })
      .Case<DivFOp>([&](auto) { return product(of(0), reciprocal(of(1))); })
      .Case<MaximumFOp>([&](auto) {
        Interval x = of(0), y = of(1);
        return Interval{std::max(x.low, y.low), std::max(x.high, y.high)};
      })
      .Case<MinimumFOp>([&](auto) {
        Interval x = of(0), y = of(1);
        return Interval{std::min(x.low, y.low), std::min(x.high, y.high)};
      })
      .Case<SelectOp>([&](auto) {
        Interval x = of(1), y = of(2);
        return Interval{std::min(x.low, y.low), std::max(x.high, y.high)};
      })
      .Case<math::ExpOp>([&](auto) { return monotone(std::exp); })
      .Case<math::ExpM1Op>([&](auto) { return monotone(std::expm1); })
      .Case<math::TanhOp>([&](auto) { return monotone(std::tanh); })
      .Case<math::Log1pOp>([&](auto) {
        Interval x = of(0);
        return Interval{x.low <= -1 ? -kInf : std::log1p(x.low),
                        std::log1p(std::max(x.high, -1.0))};
      })
      .Case<math::LogOp>([&](auto) {
        Interval x = of(0);
        return Interval{x.low <= 0 ? -kInf : std::log(x.low),
                        x.high <= 0 ? -kInf : std::log(x.high)};
      })
      .Case<math::SqrtOp>([&](auto) {
        Interval x = of(0);
        return Interval{std::sqrt(std::max(x.low, 0.0)),
                        std::sqrt(std::max(x.high, 0.0))};
      })
      .Case<math::RsqrtOp>([&](auto) {
        Interval x = of(0);
        return Interval{1 / std::sqrt(std::max(x.high, 0.0)),
                        x.low > 0 ? 1 / std::sqrt(x.low) : kInf};
      })
      .Case<math::AbsFOp>([&](auto) {
        Interval x = of(0);
        double low = x.low > 0 ? x.low : x.high < 0 ? -x.high : 0;
        return Interval{low, std::max(std::fabs(x.low), std::fabs(x.high))};
      })
      .Default([](Operation *) { return kEverything; });
}

Interval plum::intervalOf(Value value) {
  Interval result = intervalAt(value, /*depth=*/64);
  // inf - inf: nothing is known.
  if (std::isnan(result.low))
    result.low = -kInf;
  if (std::isnan(result.high))
    result.high = kInf;
  return result;
}
