//===- AffineTerm.cpp - Sums that a chunkwise form can hold ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of factors.
//
//===----------------------------------------------------------------------===//

#include "AffineTerm.h"

#include "plum/Frontend/Affine.h"

#include <cmath>

namespace plum::frontend {

void Factors::multiply(const Factors &other) {
  number *= other.number;
  scalars.insert(scalars.end(), other.scalars.begin(), other.scalars.end());
  rows.insert(rows.end(), other.rows.begin(), other.rows.end());
}

namespace {
/// Equal as multisets, by value.
bool sameSet(const std::vector<const Expr *> &a, std::vector<const Expr *> b) {
  if (a.size() != b.size())
    return false;
  for (const Expr *x : a) {
    size_t i = 0;
    while (i < b.size() && !sameValue(x, b[i]))
      ++i;
    if (i == b.size())
      return false;
    b.erase(b.begin() + long(i));
  }
  return true;
}
} // namespace

bool sameFactors(const Factors &a, const Factors &b) {
  return a.number == b.number && sameSet(a.scalars, b.scalars) &&
         sameSet(a.rows, b.rows);
}

void pushScalar(Factors &factors, const Expr *scalar, ExprBuilder &builder) {
  std::optional<double> value = constantValue(scalar);
  if (value && std::isfinite(*value)) {
    factors.number *= *value;
  } else if (scalar->kind == ExprKind::Neg) {
    factors.number = -factors.number;
    pushScalar(factors, scalar->args[0], builder);
  } else if (scalar->kind == ExprKind::Mul) {
    pushScalar(factors, scalar->args[0], builder);
    pushScalar(factors, scalar->args[1], builder);
  } else {
    factors.scalars.push_back(scalar);
  }
}

const Expr *timesRows(const Expr *x, const std::vector<const Expr *> &rows,
                      ExprBuilder &builder) {
  for (const Expr *row : rows)
    x = builder.mul(x, row);
  return x;
}

const Expr *times(const Factors &factors, const Expr *x, Range range,
                  ExprBuilder &builder) {
  const Expr *scale = nullptr;
  double magnitude = std::fabs(factors.number);
  if (magnitude != 1)
    scale = builder.number(magnitude, range);
  for (const Expr *scalar : factors.scalars)
    scale = scale ? builder.mul(scale, scalar) : scalar;
  for (const Expr *row : factors.rows)
    x = x ? builder.mul(x, row) : row;
  if (scale)
    x = x ? builder.mul(scale, x) : scale;
  if (std::signbit(factors.number))
    x = x ? builder.neg(x) : builder.number(-1, range);
  return x;
}

const Expr *product(const Factors &factors, Range range, ExprBuilder &builder) {
  return times(factors, nullptr, range, builder);
}

} // namespace plum::frontend
