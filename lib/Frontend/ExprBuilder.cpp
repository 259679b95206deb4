//===- ExprBuilder.cpp - New nodes in a layer's arena ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Construction, and the two questions about expressions that others ask too:
// is this a constant, are these two the same value.
//
//===----------------------------------------------------------------------===//

#include "ExprBuilder.h"

#include "plum/Frontend/Affine.h"

#include <algorithm>
#include <cmath>

namespace plum::frontend {

//===----------------------------------------------------------------------===//
// Construction
//===----------------------------------------------------------------------===//

const Expr *ExprBuilder::number(double value, Range range, Shape shape) {
  return make({.kind = ExprKind::Number,
               .range = range,
               .shape = shape,
               .number = value});
}

const Expr *ExprBuilder::binary(ExprKind kind, const Expr *a, const Expr *b) {
  Shape shape = a->shape.kind == Shape::Scalar ? b->shape : a->shape;
  Range range = {std::min(a->range.begin, b->range.begin),
                 std::max(a->range.end, b->range.end)};
  return make({.kind = kind, .range = range, .shape = shape, .args = {a, b}});
}

const Expr *ExprBuilder::neg(const Expr *x) {
  if (x->kind == ExprKind::Neg)
    return x->args[0];
  if (x->kind == ExprKind::Number)
    return number(-x->number, x->range, x->shape);
  return make({.kind = ExprKind::Neg,
               .range = x->range,
               .shape = x->shape,
               .args = {x}});
}

const Expr *ExprBuilder::add(const Expr *a, const Expr *b) {
  if (b->kind == ExprKind::Neg)
    return sub(a, b->args[0]);
  return binary(ExprKind::Add, a, b);
}

const Expr *ExprBuilder::sub(const Expr *a, const Expr *b) {
  return binary(ExprKind::Sub, a, b);
}

const Expr *ExprBuilder::mul(const Expr *a, const Expr *b) {
  // One as a row may carry the shape: then the other must have it too.
  if (isNumber(a, 1) &&
      (a->shape.kind == Shape::Scalar || a->shape == b->shape))
    return b;
  if (isNumber(b, 1) &&
      (b->shape.kind == Shape::Scalar || b->shape == a->shape))
    return a;
  if (isNumber(a, -1) && a->shape.kind == Shape::Scalar)
    return neg(b);
  return binary(ExprKind::Mul, a, b);
}

const Expr *ExprBuilder::reciprocal(const Expr *x) {
  return binary(ExprKind::Div, number(1, x->range), x);
}

const Expr *ExprBuilder::transpose(const Expr *x) {
  if (x->kind == ExprKind::Transpose)
    return x->args[0];
  Shape shape = x->shape;
  if (shape.kind == Shape::Row)
    shape = Shape::column(shape.cols);
  else if (shape.kind == Shape::Column)
    shape = Shape::row(shape.rows);
  else
    std::swap(shape.rows, shape.cols);
  return make({.kind = ExprKind::Transpose,
               .range = x->range,
               .shape = shape,
               .args = {x}});
}

const Expr *ExprBuilder::matmul(const Expr *a, const Expr *b, Shape shape) {
  Range range = {std::min(a->range.begin, b->range.begin),
                 std::max(a->range.end, b->range.end)};
  return make({.kind = ExprKind::MatMul,
               .range = range,
               .shape = shape,
               .args = {a, b}});
}

const Expr *ExprBuilder::dot(const Expr *x, const Expr *y) {
  return matmul(x, transpose(y), Shape::scalar());
}

const Expr *ExprBuilder::sum(const Expr *x) {
  return make({.kind = ExprKind::Call,
               .range = x->range,
               .func = Func::Sum,
               .args = {x}});
}

const Expr *ExprBuilder::withArgs(const Expr *expr,
                                  std::vector<const Expr *> args) {
  if (expr->args == args)
    return expr;
  Expr copy = *expr;
  copy.args = std::move(args);
  return make(std::move(copy));
}

//===----------------------------------------------------------------------===//
// Questions
//===----------------------------------------------------------------------===//

std::optional<double> constantValue(const Expr *expr) {
  if (expr->shape.kind != Shape::Scalar)
    return std::nullopt;
  if (expr->kind == ExprKind::Number)
    return expr->number;
  if (expr->kind == ExprKind::Ref)
    return expr->symbol->constant;
  std::vector<double> args;
  for (const Expr *arg : expr->args) {
    std::optional<double> value = constantValue(arg);
    if (!value)
      return std::nullopt;
    args.push_back(*value);
  }
  switch (expr->kind) {
  case ExprKind::Neg:
    return -args[0];
  case ExprKind::Add:
    return args[0] + args[1];
  case ExprKind::Sub:
    return args[0] - args[1];
  case ExprKind::Mul:
    return args[0] * args[1];
  case ExprKind::Div:
    return args[0] / args[1];
  case ExprKind::Pow:
    return std::pow(args[0], expr->number);
  case ExprKind::Transpose:
    return args[0];
  case ExprKind::Call:
    if (expr->func == Func::Min)
      return *std::min_element(args.begin(), args.end());
    if (expr->func == Func::Max)
      return *std::max_element(args.begin(), args.end());
    return apply(expr->func, args[0]); // The sum of a scalar is itself.
  default:
    return std::nullopt;
  }
}

namespace {
/// Through locals that merely name another value, and double transposes.
const Expr *strip(const Expr *expr) {
  for (;;) {
    if (expr->kind == ExprKind::Ref &&
        expr->symbol->kind == SymbolKind::Local &&
        expr->symbol->definition->kind == ExprKind::Ref)
      expr = expr->symbol->definition;
    else if (expr->kind == ExprKind::Transpose &&
             (expr->args[0]->kind == ExprKind::Transpose ||
              expr->shape.kind == Shape::Scalar))
      expr = expr->shape.kind == Shape::Scalar ? expr->args[0]
                                               : expr->args[0]->args[0];
    else
      return expr;
  }
}

/// Shared nodes make the number of paths exponential, so steps are counted;
/// giving up means "not the same".
bool same(const Expr *a, const Expr *b, unsigned &steps) {
  a = strip(a);
  b = strip(b);
  if (a == b)
    return true;
  if (steps == 0)
    return false;
  --steps;
  if (a->kind != b->kind || a->shape != b->shape || a->func != b->func ||
      a->number != b->number || a->eps != b->eps || a->symbol != b->symbol ||
      a->version != b->version || a->args.size() != b->args.size())
    return false;
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!same(a->args[i], b->args[i], steps))
      return false;
  return true;
}
} // namespace

bool sameValue(const Expr *a, const Expr *b) {
  unsigned steps = 2000;
  return same(a, b, steps);
}

} // namespace plum::frontend
