//===- Affine.h - Which updates have a chunkwise form -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A state update has a chunkwise form when it is
//
//   S_{v+1} = D @ S_v + sum of key^T @ (coeff * (value + reads of S))
//
// with D diagonal and nothing but the reads depending on S. `analyseAffine`
// multiplies every update out into that form or explains why it cannot, and
// brings all other expressions into the normal form that Stmt describes.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_FRONTEND_AFFINE_H
#define PLUM_FRONTEND_AFFINE_H

#include "plum/Frontend/AST.h"

namespace plum::frontend {

/// Fills `expr`, `affine` and the locals' definitions from `written`. With
/// `stepOnly` what has no chunkwise form clears layer.affine instead of being
/// an error. False when there were errors.
bool analyseAffine(Layer &layer, Diagnostics &diags, bool stepOnly);

/// True when two expressions surely have the same value: equal structure, a
/// local that merely names another value standing for it. May miss equal
/// values; never claims equality of different ones.
bool sameValue(const Expr *a, const Expr *b);

/// The value of a scalar expression of numbers and dims (and locals of such),
/// if it is one.
std::optional<double> constantValue(const Expr *expr);

} // namespace plum::frontend

#endif // PLUM_FRONTEND_AFFINE_H
