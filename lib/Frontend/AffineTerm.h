//===- AffineTerm.h - Sums that a chunkwise form can hold -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The value domain of the affine analysis. Every scalar, row or matrix that may
// take part in an update is a sum of terms, each a coefficient times one of
//
//   shape    term               written below as   core
//   scalar   1                                     One
//            y @ (D @ z)^T      a read of z        Read (z the target, a row)
//   row      x                                     Plain
//            y @ (D @ S)        a read of S        Read (S the target, a
//            matrix) D @ z              z as a whole       Whole key * read of
//            z                       Read with key
//   matrix   diag(w)                               Diag
//            D @ S              S as a whole       Whole
//            key^T @ x                             Plain with key
//            key^T @ read of S                     Read with key
//
// The target is the state whose update is analysed (none in other statements):
// only its reads stay explicit, reads of other states are plain values. D is a
// product of scalars and diagonals, kept as a list of factors so that it can be
// compared with the decay of an update. Columns are treated as their rows.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_AFFINETERM_H
#define PLUM_LIB_FRONTEND_AFFINETERM_H

#include "ExprBuilder.h"

namespace plum::frontend {

/// number * product of scalars * diag(product of rows).
struct Factors {
  double number = 1;
  std::vector<const Expr *> scalars, rows;

  bool isOne() const { return number == 1 && scalars.empty() && rows.empty(); }
  void multiply(const Factors &other);
};

/// The same product, in whatever order.
bool sameFactors(const Factors &a, const Factors &b);

struct Term {
  enum Core : uint8_t { One, Plain, Whole, Read, Diag };
  Core core = One;
  Range range = {};
  Factors coeff = {}; ///< Rows only for Whole, where it is D.
  const Expr *key = nullptr;
  const Expr *row = nullptr;     ///< Plain: x. Diag: w. Read: y.
  const Symbol *state = nullptr; ///< Whole, Read; with the version.
  unsigned version = 0;
  Factors decay = {}; ///< Read: D.
};

struct Form {
  Shape shape;
  std::vector<Term> terms;
};

/// Splits products and takes out signs and constants.
void pushScalar(Factors &factors, const Expr *scalar, ExprBuilder &builder);

/// The product as an expression; null when it is one.
const Expr *product(const Factors &factors, Range range, ExprBuilder &builder);
/// factors * x, x an expression or null for one.
const Expr *times(const Factors &factors, const Expr *x, Range range,
                  ExprBuilder &builder);
/// x times the diagonal rows.
const Expr *timesRows(const Expr *x, const std::vector<const Expr *> &rows,
                      ExprBuilder &builder);

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_AFFINETERM_H
