//===- FoldMaths.cpp - Constants and numbers meet outside -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A token's maths, rewritten for a tile, multiplies each element with what is
// the same for many: constants, a head's number, a row or column. Here such
// factors move towards each other. A product with a constant becomes one with
// the factor before it, whose own product is made once, where that factor is
// made; a sum that a number multiplies is distributed, so that it becomes one
// fma. Two rounds, since a number should have all its constants before it is
// distributed.
//
// A gate a = c sigmoid(A (f + b)) needs then, of each element: an fma, exp2, a
// sum, a reciprocal and a product.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Tile.h"
#include "plum/Conversion/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <numbers>

#define DEBUG_TYPE "tile-fold-maths"

namespace plum {
#define GEN_PASS_DEF_FOLDMATHSPASS
#include "plum/Conversion/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;

namespace {

/// The number that every element of `value` is.
std::optional<double> constantOf(Value value) {
  Attribute attribute;
  if (!matchPattern(value, m_Constant(&attribute)))
    return std::nullopt;
  if (auto dense = dyn_cast<DenseElementsAttr>(attribute)) {
    if (!dense.isSplat())
      return std::nullopt;
    attribute = dense.getSplatValue<Attribute>();
  }
  auto number = dyn_cast<FloatAttr>(attribute);
  return number ? std::optional(number.getValueAsDouble()) : std::nullopt;
}

Value constant(OpBuilder &b, Location loc, double number, Type type) {
  TypedAttr attribute = b.getF32FloatAttr(static_cast<float>(number));
  if (auto shaped = dyn_cast<RankedTensorType>(type))
    attribute = DenseElementsAttr::get(shaped, Attribute(attribute));
  return arith::ConstantOp::create(b, loc, attribute);
}

/// Of a product, a factor for which `match` gives something, and the other.
template <typename Match>
auto factor(arith::MulFOp op, Match match)
    -> std::pair<decltype(match(Value())), Value> {
  if (auto found = match(op.getRhs()))
    return {found, op.getLhs()};
  return {match(op.getLhs()), op.getRhs()};
}

tile::BroadcastOp broadcastOf(Value value) {
  return value.getDefiningOp<tile::BroadcastOp>();
}

/// exp(x) = exp2(x log2 e).
struct Exponential : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Value c = constant(b, loc, std::numbers::log2e, op.getType());
    Value scaled = arith::MulFOp::create(b, loc, op.getOperand(), c);
    b.replaceOpWithNewOp<math::Exp2Op>(op, scaled);
    return success();
  }
};

/// -x before a product with a constant is part of that.
struct Constants : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &b) const override {
    auto [c, x] = factor(op, constantOf);
    if (!c)
      return failure();
    Location loc = op.getLoc();
    auto times = [&](Value y, double number) {
      b.replaceOpWithNewOp<arith::MulFOp>(
          op, y, constant(b, loc, number, op.getType()));
      return success();
    };
    if (auto minus = x.getDefiningOp<arith::NegFOp>())
      return times(minus.getOperand(), -*c);
    auto inner = x.getDefiningOp<arith::MulFOp>();
    if (!inner)
      return failure();
    if (auto [d, y] = factor(inner, constantOf); d)
      return times(y, *c * *d);
    auto [s, y] = factor(inner, broadcastOf);
    if (!s || !inner->hasOneUse())
      return failure();
    // Where s is made, so outside of strips if that is.
    b.setInsertionPointAfterValue(s.getValue());
    Value number = arith::MulFOp::create(
        b, loc, s.getValue(), constant(b, loc, *c, s.getValue().getType()));
    b.setInsertionPoint(op);
    Value all =
        tile::BroadcastOp::create(b, loc, s.getType(), number, s.getRows());
    b.replaceOpWithNewOp<arith::MulFOp>(op, y, all);
    return success();
  }
};

/// (x c) s, with c a constant and s a row, a column or a number.
struct ConstantFirst : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &b) const override {
    auto [s, x] = factor(op, broadcastOf);
    auto inner = s ? x.getDefiningOp<arith::MulFOp>() : nullptr;
    if (!inner || !inner->hasOneUse())
      return failure();
    auto [c, y] = factor(inner, constantOf);
    if (!c)
      return failure();
    Location loc = op.getLoc();
    Value product = arith::MulFOp::create(b, loc, y, s);
    b.replaceOpWithNewOp<arith::MulFOp>(op, product,
                                        constant(b, loc, *c, op.getType()));
    return success();
  }
};

/// s (x + r), s one number, r a row.
struct Distribute : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op,
                                PatternRewriter &b) const override {
    auto [s, x] = factor(op, broadcastOf);
    auto sum = s ? x.getDefiningOp<arith::AddFOp>() : nullptr;
    if (!sum || !sum->hasOneUse() || !s.getValue().getType().isF32())
      return failure();
    tile::BroadcastOp row = broadcastOf(sum.getRhs());
    Value rest = sum.getLhs();
    if (!row || !row.getRows())
      std::tie(row, rest) = std::pair(broadcastOf(sum.getLhs()), sum.getRhs());
    if (!row || !row.getRows())
      return failure();
    Location loc = op.getLoc();
    Value r = row.getValue();
    Value number =
        tile::BroadcastOp::create(b, loc, r.getType(), s.getValue(), false);
    Value product = arith::MulFOp::create(b, loc, r, number);
    Value rows =
        tile::BroadcastOp::create(b, loc, row.getType(), product, true);
    b.replaceOpWithNewOp<arith::AddFOp>(
        op, arith::MulFOp::create(b, loc, rest, s), rows);
    return success();
  }
};

struct FoldMathsPass : public plum::impl::FoldMathsPassBase<FoldMathsPass> {
  void runOnOperation() override {
    // Only these rewrites: kernels keep the order in which values are made.
    GreedyRewriteConfig config;
    config.enableFolding(false);
    config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
    RewritePatternSet constants(&getContext()), sums(&getContext());
    constants.add<Exponential, Constants, ConstantFirst>(&getContext());
    sums.add<Distribute>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(constants),
                                     config)) ||
        failed(applyPatternsGreedily(getOperation(), std::move(sums), config)))
      signalPassFailure();
  }
};

} // namespace
