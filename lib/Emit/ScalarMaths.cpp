//===- ScalarMaths.cpp - Functions of specs in arith and math ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScalarMaths.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using plum::frontend::Func;

Value plum::constantLike(ImplicitLocOpBuilder &b, Value like, double value) {
  FloatAttr scalar = b.getF32FloatAttr(float(value));
  if (auto type = dyn_cast<VectorType>(like.getType()))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, scalar));
  return arith::ConstantOp::create(b, scalar);
}

void plum::unifyShapes(ImplicitLocOpBuilder &b, Value &lhs, Value &rhs) {
  if (lhs.getType() == rhs.getType())
    return;
  if (isa<VectorType>(lhs.getType()))
    rhs = vector::BroadcastOp::create(b, lhs.getType(), rhs);
  else
    lhs = vector::BroadcastOp::create(b, rhs.getType(), lhs);
}

Value plum::sumOf(ImplicitLocOpBuilder &b, Value row) {
  return vector::ReductionOp::create(b, vector::CombiningKind::ADD, row);
}

Value plum::powerOf(ImplicitLocOpBuilder &b, Value x, double exponent) {
  if (exponent < 0 && exponent != -0.5)
    return arith::DivFOp::create(b, constantLike(b, x, 1),
                                 powerOf(b, x, -exponent));
  if (exponent == 0)
    return constantLike(b, x, 1);
  if (exponent == 0.5)
    return math::SqrtOp::create(b, x);
  if (exponent == -0.5)
    return math::RsqrtOp::create(b, x);
  if (exponent == std::floor(exponent) && exponent <= 16) {
    // Powers by squaring: x^13 = x^8 x^4 x.
    Value result, power = x;
    for (unsigned n = unsigned(exponent); n; n >>= 1) {
      if (n & 1)
        result = result ? arith::MulFOp::create(b, result, power) : power;
      if (n > 1)
        power = arith::MulFOp::create(b, power, power);
    }
    return result;
  }
  Value log = math::LogOp::create(b, x);
  return math::ExpOp::create(
      b, arith::MulFOp::create(b, log, constantLike(b, x, exponent)));
}

static Value sigmoidOf(ImplicitLocOpBuilder &b, Value x) {
  Value one = plum::constantLike(b, x, 1);
  Value e = math::ExpOp::create(b, arith::NegFOp::create(b, x));
  return arith::DivFOp::create(b, one, arith::AddFOp::create(b, one, e));
}

/// x scaled to unit length: divisor 1 gives l2norm, divisor d rmsnorm.
static Value normOf(ImplicitLocOpBuilder &b, Value x, double divisor,
                    double eps) {
  Value sum = plum::sumOf(b, arith::MulFOp::create(b, x, x));
  if (divisor != 1)
    sum =
        arith::MulFOp::create(b, sum, plum::constantLike(b, sum, 1 / divisor));
  sum = arith::AddFOp::create(b, sum, plum::constantLike(b, sum, eps));
  Value scale = math::RsqrtOp::create(b, sum);
  plum::unifyShapes(b, x, scale);
  return arith::MulFOp::create(b, x, scale);
}

Value plum::callOf(ImplicitLocOpBuilder &b, Func func, ValueRange args,
                   double eps) {
  Value x = args.front();
  auto zero = [&] { return constantLike(b, x, 0); };
  switch (func) {
  case Func::Exp:
    return math::ExpOp::create(b, x);
  case Func::Log:
    return math::LogOp::create(b, x);
  case Func::Sqrt:
    return math::SqrtOp::create(b, x);
  case Func::Rsqrt:
    return math::RsqrtOp::create(b, x);
  case Func::Sigmoid:
    return sigmoidOf(b, x);
  case Func::Tanh:
    return math::TanhOp::create(b, x);
  case Func::Softplus: {
    // max(x, 0) + log1p(exp(-|x|)) never overflows.
    Value negative = arith::NegFOp::create(b, math::AbsFOp::create(b, x));
    Value tail = math::Log1pOp::create(b, math::ExpOp::create(b, negative));
    return arith::AddFOp::create(b, arith::MaximumFOp::create(b, x, zero()),
                                 tail);
  }
  case Func::Silu:
    return arith::MulFOp::create(b, x, sigmoidOf(b, x));
  case Func::Relu:
    return arith::MaximumFOp::create(b, x, zero());
  case Func::Elu: {
    // The exponential sees no positive number, so neither branch overflows.
    Value low = arith::MinimumFOp::create(b, x, zero());
    Value positive =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, x, zero());
    return arith::SelectOp::create(b, positive, x,
                                   math::ExpM1Op::create(b, low));
  }
  case Func::Abs:
    return math::AbsFOp::create(b, x);
  case Func::Min:
  case Func::Max: {
    for (Value next : args.drop_front())
      x = func == Func::Min ? Value(arith::MinimumFOp::create(b, x, next))
                            : Value(arith::MaximumFOp::create(b, x, next));
    return x;
  }
  case Func::Sum:
    return isa<VectorType>(x.getType()) ? sumOf(b, x) : x;
  case Func::L2Norm:
    return normOf(b, x, 1, eps);
  case Func::RmsNorm:
    return normOf(b, x, cast<VectorType>(x.getType()).getDimSize(0), eps);
  case Func::Append:
  case Func::Attend:
    break; // Of states, not of rows.
  }
  llvm_unreachable("covered switch");
}
