//===- AffineForm.h - Expressions multiplied out ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two mutually recursive views of a written expression:
//
//   normal(e)        a scalar or row as an expression in normal form (see Stmt)
//   form(e, target)  any value as a sum of terms (see AffineTerm.h)
//
// `normal` keeps the tree as it is and calls `form` only to multiply a product
// with a matrix out; `form` takes apart only what depends on the target, or
// must be taken apart as it is a matrix, and calls `normal` for the rest.
//
// Both give nothing when there is no such form, and leave the reason in
// `failure`.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_AFFINEFORM_H
#define PLUM_LIB_FRONTEND_AFFINEFORM_H

#include "AffineTerm.h"

#include <map>
#include <unordered_map>

namespace plum::frontend {

/// Why an expression has no form.
struct Failure {
  Range range;
  std::string message;
  const Symbol *state = nullptr; ///< The state it is about; may be null.
};

class FormBuilder {
public:
  explicit FormBuilder(Layer &layer) : builder(layer), layer(layer) {}

  const Expr *normal(const Expr *expr);
  std::optional<Form> form(const Expr *expr, const Symbol *target);

  /// States that a value depends on, locals included: bit i is state i.
  uint64_t statesOf(const Expr *expr);
  /// True for a row or column in which a vector state stands as a whole, so
  /// that it can only be used up by a dot product or a sum.
  bool needsWhole(const Expr *expr);

  ExprBuilder builder;
  Failure failure;

private:
  using MaybeForm = std::optional<Form>;

  bool active(const Expr *expr, const Symbol *target) {
    return dependsOn(expr, target) || needsWhole(expr);
  }
  bool dependsOn(const Expr *expr, const Symbol *target) {
    return target && (statesOf(expr) >> target->index & 1);
  }
  /// A state out of a mask, `preferred` if it is there; null for none.
  const Symbol *stateIn(uint64_t mask, const Symbol *preferred);
  const Expr *stateRef(const Symbol *state, unsigned version, Range range);
  std::nullopt_t failWhole(Range range, const Symbol *state);
  std::nullopt_t fail(Range range, std::string message, const Symbol *state);
  std::nullopt_t failAlongV(Range range, const Symbol *state);
  std::nullopt_t failInMatrix(Range range, const Symbol *state);
  std::nullopt_t failProduct(const Expr *expr, const Symbol *target);
  std::nullopt_t failElementwise(const Expr *expr, const Symbol *target);
  std::nullopt_t failKey(Range range, const Symbol *state);
  std::nullopt_t failDecay(Range range, const Symbol *state);
  std::nullopt_t failFunction(const Expr *expr, const Symbol *target);

  //===--- Normal forms ---------------------------------------------------===//
  const Expr *computeNormal(const Expr *expr);
  const Expr *normalMatMul(const Expr *expr);
  /// The row w of a diagonal diag(w), in normal form.
  const Expr *diagonalRow(const Expr *expr);
  const Expr *computeDiagonalRow(const Expr *expr);
  /// A scalar or row form without explicit reads as an expression.
  const Expr *materialise(const Form &form, Range range);
  /// x^T with the transposes pushed down to rows and states.
  const Expr *transposed(const Expr *expr);
  const Expr *computeTransposed(const Expr *expr);
  /// Takes scalar factors off a row.
  const Expr *peel(Factors &factors, const Expr *row);

  //===--- Sums of terms --------------------------------------------------===//
  MaybeForm computeForm(const Expr *expr, const Symbol *target);
  MaybeForm plainForm(const Expr *expr);
  MaybeForm takeApart(const Expr *expr, const Symbol *target);
  MaybeForm formRef(const Expr *expr, const Symbol *target);
  MaybeForm formSum(const Expr *expr, const Symbol *target);
  MaybeForm formMul(const Expr *expr, const Symbol *target);
  MaybeForm formDiv(const Expr *expr, const Symbol *target);
  MaybeForm formCall(const Expr *expr, const Symbol *target);
  MaybeForm formMatMul(const Expr *expr, const Symbol *target);
  MaybeForm formDot(const Expr *expr, const Symbol *target);
  MaybeForm formRowTimes(const Expr *expr, const Symbol *target);
  MaybeForm formOuter(const Expr *expr, const Symbol *target);
  MaybeForm formMatrices(const Expr *expr, const Symbol *target);
  MaybeForm broadcast(Form form, Shape shape, Range range);
  MaybeForm scaled(Form form, const Expr *scalar);
  /// Elementwise with a plain row, of a row form.
  MaybeForm timesRow(Form form, const Expr *row, Range range);
  /// diag(row) @ matrix form.
  Form scaledRows(Form form, const Expr *row);
  /// matrix form @ diag(row).
  MaybeForm scaledColumns(Form form, const Expr *row, Range range);
  /// The plain row x times a matrix term: a row term.
  Term rowTimes(const Expr *x, const Term &matrix, const Symbol *target);
  /// x . y for a row term y: a scalar term.
  std::optional<Term> dot(const Expr *x, const Term &y, const Symbol *target,
                          Range range);

  Layer &layer;
  std::unordered_map<const Expr *, uint64_t> states;
  std::unordered_map<const Expr *, bool> wholes;
  std::unordered_map<const Expr *, const Expr *> normals, transposes, diagonals;
  std::map<std::pair<const Symbol *, const Symbol *>, Form> locals;
  std::map<std::pair<const Symbol *, unsigned>, const Expr *> stateRefs;
};

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_AFFINEFORM_H
