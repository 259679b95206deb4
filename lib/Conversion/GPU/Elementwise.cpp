//===- Elementwise.cpp - arith and math, one element a thread ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Near the points where a function is small and its plain formula cancels, a
// polynomial takes over: least maximal error over the interval given, so the
// coefficients are not those of Taylor's series.
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numbers>

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using arith::CmpFPredicate;

static constexpr double kLn2 = std::numbers::ln2;
static constexpr double kLog2e = std::numbers::log2e;

/// c[0] + c[1] z + ...
static Value polynomial(Ptx &b, Value z, ArrayRef<double> c) {
  Value sum = b.f32(c.back());
  for (double next : llvm::reverse(c.drop_back()))
    sum = b.fma(sum, z, b.f32(next));
  return sum;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Value gpu::exp(Ptx &b, Value x, Exp accuracy) {
  if (accuracy == Exp::Fast)
    return b.ex2(b.fmul(x, b.f32(kLog2e)));
  // x log2(e) = t + r, t the rounded product: 2^(t + r) = 2^t (1 + r ln 2).
  // Beyond 128 the result is 0 or inf, and r would be inf - inf.
  x = b.fmin(b.fmax(x, b.f32(-128)), b.f32(128));
  const double high = static_cast<float>(kLog2e);
  Value t = b.fmul(x, b.f32(high));
  Value r = b.fma(x, b.f32(kLog2e - high), b.fma(x, b.f32(high), b.fneg(t)));
  return b.fmul(b.ex2(t), b.fma(r, b.f32(kLn2), b.f32(1)));
}

/// log((1 + s) / (1 - s)) = 2 atanh(s), s in [-1/3, 1/3].
static Value twiceAtanh(Ptx &b, Value s) {
  Value z = b.fmul(s, s), twice = b.fadd(s, s);
  Value rest = polynomial(b, z,
                          {0.3333332016834962, 0.2000378032245560,
                           0.1411830990265524, 0.1342574901341858});
  return b.fma(twice, b.fmul(z, rest), twice);
}

Value gpu::log1p(Ptx &b, Value u, bool unit) {
  // 1 + u = (1 + s) / (1 - s) for s = u / (2 + u); nothing is lost of a small
  // u.
  Value near = twiceAtanh(b, divide(b, u, b.fadd(u, b.f32(2))));
  if (unit)
    return near;
  Value far = b.fmul(b.lg2(b.fadd(u, b.f32(1))), b.f32(kLn2));
  Value isNear = b.both(b.fcmp(CmpFPredicate::OGE, u, b.f32(-0.5)),
                        b.fcmp(CmpFPredicate::OLE, u, b.f32(1)));
  return b.select(isNear, near, far);
}

Value gpu::log(Ptx &b, Value x) {
  // x - 1 is exact where log1p is used.
  Value near = log1p(b, b.fsub(x, b.f32(1)), /*unit=*/true);
  Value far = b.fmul(b.lg2(x), b.f32(kLn2));
  Value isNear = b.both(b.fcmp(CmpFPredicate::OGE, x, b.f32(0.5)),
                        b.fcmp(CmpFPredicate::OLE, x, b.f32(2)));
  return b.select(isNear, near, far);
}

Value gpu::expm1(Ptx &b, Value x, Exp accuracy) {
  Value rest = polynomial(b, x,
                          {0.5, 0.1666669729086, 0.0416666972098358,
                           0.00833088616885998, 0.00138864477408215,
                           0.000203290419094577, 2.52884348993962e-05});
  Value near = b.fma(b.fmul(x, x), rest, x);
  Value far = b.fsub(gpu::exp(b, x, accuracy), b.f32(1));
  Value isNear = b.fcmp(CmpFPredicate::OLE, b.fabs(x), b.f32(1));
  return b.select(isNear, near, far);
}

Value gpu::tanh(Ptx &b, Value x) {
  Value z = b.fmul(x, x);
  Value rest = polynomial(b, z,
                          {-0.3333331108470009, 0.1333047649126503,
                           -0.0533871106355024, 0.0179887444057132});
  Value near = b.fma(x, b.fmul(z, rest), x);
  Value isNear = b.fcmp(CmpFPredicate::OLE, b.fabs(x), b.f32(0.5));
  return b.select(isNear, near, b.tanh(x));
}

static bool isOne(Value v) {
  FloatAttr attr;
  return matchPattern(v, m_Constant(&attr)) &&
         attr.getValue().isExactlyValue(1);
}

Value gpu::divide(Ptx &b, Value x, Value y) {
  Value inverse = b.rcp(y);
  return isOne(x) ? inverse : b.fmul(x, inverse);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Of an exp(-|x|), as softplus has it.
static bool isAtMostOne(Value v) {
  auto exp = v.getDefiningOp<math::ExpOp>();
  auto minus = exp ? exp.getOperand().getDefiningOp<arith::NegFOp>() : nullptr;
  return minus && minus.getOperand().getDefiningOp<math::AbsFOp>();
}

static Value constant(Ptx &b, arith::ConstantOp op) {
  Attribute value = op.getValue();
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    if (!dense.isSplat())
      return {};
    value = dense.getSplatValue<Attribute>();
  }
  if (auto number = dyn_cast<FloatAttr>(value))
    return b.f32(number.getValueAsDouble());
  auto bit = dyn_cast<IntegerAttr>(value);
  return bit && bit.getType().isInteger(1) ? b.boolean(bit.getValue().isOne())
                                           : Value();
}

Value gpu::emitScalar(Ptx &b, Operation *op, ArrayRef<Value> operands,
                      Exp accuracy) {
  Value x = operands.empty() ? Value() : operands[0];
  Value y = operands.size() < 2 ? Value() : operands[1];
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](arith::ConstantOp op) { return constant(b, op); })
      .Case<arith::ExtFOp, arith::TruncFOp, vector::BroadcastOp>(
          [&](auto) { return x; })
      .Case([&](arith::AddFOp) { return b.fadd(x, y); })
      .Case([&](arith::SubFOp) { return b.fsub(x, y); })
      .Case([&](arith::MulFOp) { return b.fmul(x, y); })
      .Case([&](arith::DivFOp) { return divide(b, x, y); })
      .Case([&](arith::NegFOp) { return b.fneg(x); })
      .Case([&](arith::MaximumFOp) { return b.fmax(x, y); })
      .Case([&](arith::MinimumFOp) { return b.fmin(x, y); })
      .Case([&](arith::CmpFOp op) { return b.fcmp(op.getPredicate(), x, y); })
      .Case([&](arith::SelectOp) { return b.select(x, y, operands[2]); })
      .Case([&](math::AbsFOp) { return b.fabs(x); })
      .Case([&](math::ExpOp) { return gpu::exp(b, x, accuracy); })
      .Case([&](math::ExpM1Op) { return gpu::expm1(b, x, accuracy); })
      .Case([&](math::LogOp) { return gpu::log(b, x); })
      .Case([&](math::Log1pOp op) {
        return gpu::log1p(b, x, isAtMostOne(op.getOperand()));
      })
      .Case([&](math::SqrtOp) { return b.sqrt(x); })
      .Case([&](math::RsqrtOp) { return b.rsqrt(x); })
      .Case([&](math::TanhOp) { return gpu::tanh(b, x); })
      .Case([&](math::PowFOp) {
        return gpu::exp(b, b.fmul(y, gpu::log(b, x)), accuracy);
      })
      .Default([](Operation *) { return Value(); });
}
