//===- ExprBuilder.h - New nodes in a layer's arena -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The affine analysis makes its results of the nodes that the spec has and a
// few new ones; these are they. Shapes come out of the operands; multiplying by
// one and the like is left out, so that what was simple stays simple.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_EXPRBUILDER_H
#define PLUM_LIB_FRONTEND_EXPRBUILDER_H

#include "plum/Frontend/AST.h"

namespace plum::frontend {

class ExprBuilder {
public:
  explicit ExprBuilder(Layer &layer) : layer(layer) {}

  const Expr *make(Expr node) {
    return &layer.exprs.emplace_back(std::move(node));
  }
  /// `shape` is a scalar, or a row of which every element is `value`.
  const Expr *number(double value, Range range, Shape shape = Shape::scalar());
  const Expr *neg(const Expr *x);
  const Expr *add(const Expr *a, const Expr *b);
  const Expr *sub(const Expr *a, const Expr *b);
  const Expr *mul(const Expr *a, const Expr *b);
  const Expr *reciprocal(const Expr *x);
  const Expr *transpose(const Expr *x);
  const Expr *matmul(const Expr *a, const Expr *b, Shape shape);
  /// x @ y^T of two rows, a scalar.
  const Expr *dot(const Expr *x, const Expr *y);
  const Expr *sum(const Expr *x);
  /// `expr` with other operands; `expr` itself when they are its own.
  const Expr *withArgs(const Expr *expr, std::vector<const Expr *> args);

private:
  const Expr *binary(ExprKind kind, const Expr *a, const Expr *b);

  Layer &layer;
};

inline bool isNumber(const Expr *expr, double value) {
  return expr->kind == ExprKind::Number && expr->number == value;
}

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_EXPRBUILDER_H
