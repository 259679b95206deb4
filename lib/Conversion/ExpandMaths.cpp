//===- ExpandMaths.cpp - Polynomials for exp and friends --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gates are made of exp, so it gets an expansion of its own: with n = round(x /
// ln 2) and r = x - n ln 2 in two steps (|r| <= 0.347), exp(x) = 2^n p(r), p
// the degree-7 Taylor polynomial of e^r (its error, r^8/8!, is below 1e-8
// there). 2^n is built from two halves so that n = 128 and n = -126 stay in
// range. The other functions are upstream's.
//
//===----------------------------------------------------------------------===//

#include "plum/Conversion/Passes.h"

#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#define DEBUG_TYPE "plum-expand-maths"

namespace plum {
#define GEN_PASS_DEF_EXPANDMATHSPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;

namespace {

struct ExpandExp : public OpRewritePattern<math::ExpOp> {
  ExpandExp(MLIRContext *context) : OpRewritePattern(context, /*benefit=*/10) {}

  LogicalResult matchAndRewrite(math::ExpOp op,
                                PatternRewriter &rewriter) const override {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return rewriter.notifyMatchFailure(op, "only f32 is expanded");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    Type intType = b.getI32Type();
    if (auto vector = dyn_cast<VectorType>(type))
      intType = vector.clone(intType);
    auto number = [&](double value) -> Value {
      TypedAttr attr = b.getF32FloatAttr(float(value));
      if (auto vector = dyn_cast<VectorType>(type))
        attr = DenseElementsAttr::get(vector, attr);
      return arith::ConstantOp::create(b, attr);
    };
    auto integer = [&](int32_t value) -> Value {
      TypedAttr attr = b.getI32IntegerAttr(value);
      if (auto vector = dyn_cast<VectorType>(intType))
        attr = DenseElementsAttr::get(vector, attr);
      return arith::ConstantOp::create(b, attr);
    };
    Value given = op.getOperand();
    // Clamped where the result is fixed anyway; comparisons below restore NaN.
    Value x = arith::MinNumFOp::create(b, given, number(88.8));
    x = arith::MaxNumFOp::create(b, x, number(-87.5));
    // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low
    // bits.
    Value magic = number(12582912.0);
    Value shifted =
        math::FmaOp::create(b, x, number(1.4426950408889634), magic);
    Value n = arith::SubFOp::create(b, shifted, magic);
    Value r = math::FmaOp::create(b, n, number(-0.693359375), x);
    r = math::FmaOp::create(b, n, number(2.12194440e-4), r);
    constexpr double kInverseFactorials[] = {
        1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    Value p = number(kInverseFactorials[0]);
    for (double c : llvm::ArrayRef(kInverseFactorials).drop_front())
      p = math::FmaOp::create(b, p, r, number(c));
    Value bits = arith::SubIOp::create(
        b, arith::BitcastOp::create(b, intType, shifted), integer(0x4B400000));
    Value half = arith::ShRSIOp::create(b, bits, integer(1));
    auto powerOfTwo = [&](Value exponent) {
      Value biased = arith::AddIOp::create(b, exponent, integer(127));
      return arith::BitcastOp::create(
          b, type, arith::ShLIOp::create(b, biased, integer(23)));
    };
    Value result = arith::MulFOp::create(b, p, powerOfTwo(half));
    result = arith::MulFOp::create(
        b, result, powerOfTwo(arith::SubIOp::create(b, bits, half)));
    auto where = [&](arith::CmpFPredicate predicate, double limit, Value then) {
      Value test = arith::CmpFOp::create(b, predicate, given, number(limit));
      result = arith::SelectOp::create(b, test, then, result);
    };
    where(arith::CmpFPredicate::OLT, -87.33654, number(0));
    where(arith::CmpFPredicate::OGT, 88.72283,
          number(std::numeric_limits<float>::infinity()));
    where(arith::CmpFPredicate::UNO, 0, given);
    rewriter.replaceOp(op, result);
    return success();
  }
};

struct ExpandMathsPass
    : public plum::impl::ExpandMathsPassBase<ExpandMathsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ExpandExp>(&getContext());
    MathPolynomialApproximationOptions options;
    populateMathPolynomialApproximationPatterns(patterns, options);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
