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

/// What the expansion needs to know of a float format.
struct ExpFormat {
  unsigned bits, mantissa; ///< Of the format.
  int64_t bias;            ///< Of its exponent.
  double magic;            ///< 1.5 * 2^mantissa: adding it rounds to integers.
  double ln2High, ln2Low;  ///< ln 2 in two parts, the first with few bits.
  double low, high;        ///< Below: 0. Above: infinity.
  unsigned degree;         ///< Of the polynomial.
};

constexpr ExpFormat kF32 = {32,         23,          127,
                            12582912.0, 0.693359375, -2.12194440e-4,
                            -87.33654,  88.72283,    7};
constexpr ExpFormat kF64 = {64,
                            52,
                            1023,
                            6755399441055744.0,
                            6.93147180369123816490e-01,
                            1.90821492927058770002e-10,
                            -708.39,
                            709.78,
                            12};

struct ExpandExp : public OpRewritePattern<math::ExpOp> {
  ExpandExp(MLIRContext *context) : OpRewritePattern(context, /*benefit=*/10) {}

  LogicalResult matchAndRewrite(math::ExpOp op,
                                PatternRewriter &rewriter) const override {
    Type element = getElementTypeOrSelf(op.getType());
    if (!element.isF32() && !element.isF64())
      return rewriter.notifyMatchFailure(op, "only f32 and f64 are expanded");
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    rewriter.replaceOp(
        op, expand(b, op.getOperand(), element.isF32() ? kF32 : kF64));
    return success();
  }

private:
  static Value expand(ImplicitLocOpBuilder &b, Value given,
                      const ExpFormat &format);
};

Value ExpandExp::expand(ImplicitLocOpBuilder &b, Value given,
                        const ExpFormat &format) {
  Type type = given.getType();
  auto vector = dyn_cast<VectorType>(type);
  Type intType = b.getIntegerType(format.bits);
  if (vector)
    intType = vector.clone(intType);
  auto constant = [&](TypedAttr attr, Type of) -> Value {
    if (auto shaped = dyn_cast<VectorType>(of))
      attr = DenseElementsAttr::get(shaped, Attribute(attr));
    return arith::ConstantOp::create(b, attr);
  };
  auto number = [&](double value) {
    return constant(b.getFloatAttr(getElementTypeOrSelf(type), value), type);
  };
  auto integer = [&](int64_t value) {
    return constant(b.getIntegerAttr(b.getIntegerType(format.bits), value),
                    intType);
  };
  // Clamped where the result is fixed anyway; comparisons below restore NaN.
  Value x = arith::MinNumFOp::create(b, given, number(format.high + 0.1));
  x = arith::MaxNumFOp::create(b, x, number(format.low - 0.1));
  // Rounds x / ln 2 to the nearest integer and leaves it in the low bits.
  Value magic = number(format.magic);
  Value shifted = math::FmaOp::create(b, x, number(1.4426950408889634), magic);
  Value n = arith::SubFOp::create(b, shifted, magic);
  Value r = math::FmaOp::create(b, n, number(-format.ln2High), x);
  r = math::FmaOp::create(b, n, number(-format.ln2Low), r);
  // Horner's rule on 1 + r + r^2/2! + ... .
  SmallVector<double> coefficients = {1};
  for (unsigned k = 1; k <= format.degree; ++k)
    coefficients.push_back(coefficients.back() / k);
  Value p = number(coefficients.back());
  for (double c : llvm::reverse(ArrayRef(coefficients).drop_back()))
    p = math::FmaOp::create(b, p, r, number(c));
  Value exponent =
      arith::SubIOp::create(b, arith::BitcastOp::create(b, intType, shifted),
                            arith::BitcastOp::create(b, intType, magic));
  Value half = arith::ShRSIOp::create(b, exponent, integer(1));
  auto powerOfTwo = [&](Value n) -> Value {
    Value biased = arith::AddIOp::create(b, n, integer(format.bias));
    Value shift = integer(format.mantissa);
    return arith::BitcastOp::create(b, type,
                                    arith::ShLIOp::create(b, biased, shift));
  };
  Value result = arith::MulFOp::create(b, p, powerOfTwo(half));
  Value rest = arith::SubIOp::create(b, exponent, half);
  result = arith::MulFOp::create(b, result, powerOfTwo(rest));
  auto where = [&](arith::CmpFPredicate predicate, double limit, Value then) {
    Value test = arith::CmpFOp::create(b, predicate, given, number(limit));
    result = arith::SelectOp::create(b, test, then, result);
  };
  where(arith::CmpFPredicate::OLT, format.low, number(0));
  where(arith::CmpFPredicate::OGT, format.high,
        number(std::numeric_limits<double>::infinity()));
  where(arith::CmpFPredicate::UNO, 0, given);
  return result;
}

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
