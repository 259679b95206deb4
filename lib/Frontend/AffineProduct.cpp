//===- AffineProduct.cpp - Matrix products multiplied out -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The matrix products of FormBuilder, by the shapes of their sides:
//
//   row @ column       a dot product, or a read of a vector state
//   row @ matrix       x @ (D @ S) is a read, x @ (k^T @ y) = (x @ k^T) * y
//   column @ row       a write
//   matrix @ matrix    diag(w) @ S, (k^T @ y) @ S = k^T @ (y @ S)
//
// A state may stand on the right only: S @ M mixes its last axis, for which a
// decay along K and low rank have no room.
//
//===----------------------------------------------------------------------===//

#include "AffineForm.h"

namespace plum::frontend {

std::optional<Form> FormBuilder::formMatMul(const Expr *expr,
                                            const Symbol *target) {
  const Expr *left = expr->args[0], *right = expr->args[1];
  if (right->shape.kind == Shape::Column)
    return formDot(expr, target);
  if (left->shape.kind == Shape::Row)
    return formRowTimes(expr, target);
  if (left->shape.kind == Shape::Column)
    return formOuter(expr, target);
  return formMatrices(expr, target);
}

//===----------------------------------------------------------------------===//
// One term at a time
//===----------------------------------------------------------------------===//

Term FormBuilder::rowTimes(const Expr *x, const Term &matrix,
                           const Symbol *target) {
  Term term = matrix;
  if (matrix.core == Term::Diag) {
    term.core = Term::Plain;
    term.row = builder.mul(x, matrix.row);
  } else if (matrix.key) {
    pushScalar(term.coeff, builder.dot(x, matrix.key), builder);
    term.key = nullptr;
  } else if (matrix.state == target) {
    term.core = Term::Read;
    term.decay = matrix.coeff;
    term.coeff = {};
    term.row = peel(term.coeff, x);
  } else {
    term.core = Term::Plain;
    const Expr *ref = stateRef(matrix.state, matrix.version, matrix.range);
    term.row = builder.matmul(timesRows(x, matrix.coeff.rows, builder), ref,
                              Shape::row(ref->shape.cols));
    term.coeff.rows.clear();
  }
  return term;
}

std::optional<Term> FormBuilder::dot(const Expr *x, const Term &y,
                                     const Symbol *target, Range range) {
  Term term = y;
  if (y.core == Term::Plain) {
    pushScalar(term.coeff, builder.dot(x, y.row), builder);
    term.core = Term::One;
    term.row = nullptr;
  } else if (y.core == Term::Whole && y.state == target) {
    term.core = Term::Read;
    term.decay = y.coeff;
    term.coeff = {};
    term.row = peel(term.coeff, x);
  } else if (y.core == Term::Whole) {
    const Expr *ref = stateRef(y.state, y.version, y.range);
    term.coeff.rows.clear();
    pushScalar(term.coeff,
               builder.dot(timesRows(x, y.coeff.rows, builder), ref), builder);
    term.core = Term::One;
  } else if (y.key) {
    pushScalar(term.coeff, builder.dot(x, y.key), builder);
    term.key = nullptr;
  } else {
    return failAlongV(range, y.state);
  }
  return term;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

std::optional<Form> FormBuilder::formDot(const Expr *expr,
                                         const Symbol *target) {
  const Expr *x = expr->args[0], *y = transposed(expr->args[1]);
  if (active(x, target))
    std::swap(x, y);
  if (active(x, target))
    return failProduct(expr, target);
  const Expr *row = normal(x);
  MaybeForm sum = row ? form(y, target) : std::nullopt;
  if (!sum)
    return std::nullopt;
  sum->shape = Shape::scalar();
  for (Term &term : sum->terms) {
    std::optional<Term> scalar = dot(row, term, target, expr->range);
    if (!scalar)
      return std::nullopt;
    term = std::move(*scalar);
  }
  return sum;
}

std::optional<Form> FormBuilder::formRowTimes(const Expr *expr,
                                              const Symbol *target) {
  const Expr *left = expr->args[0], *right = expr->args[1];
  bool isActive = active(left, target);
  if (isActive && dependsOn(right, target))
    return failProduct(expr, target);
  MaybeForm matrix = form(right, target);
  if (!matrix)
    return std::nullopt;
  Form result{expr->shape, {}};
  if (!isActive) {
    const Expr *x = normal(left);
    if (!x)
      return std::nullopt;
    for (const Term &term : matrix->terms)
      result.terms.push_back(rowTimes(x, term, target));
    return result;
  }

  // (x with reads or a vector state) @ (a matrix without).
  MaybeForm rows = form(left, target);
  if (!rows)
    return std::nullopt;
  for (const Term &m : matrix->terms) {
    if (m.core == Term::Whole)
      return failProduct(expr, target);
    if (m.core == Term::Diag) {
      MaybeForm part = timesRow(*rows, m.row, expr->range);
      if (!part)
        return std::nullopt;
      for (Term &term : part->terms) {
        term.coeff.multiply(m.coeff);
        result.terms.push_back(std::move(term));
      }
      continue;
    }
    for (const Term &row : rows->terms) {
      std::optional<Term> term = dot(m.key, row, target, expr->range);
      if (!term)
        return std::nullopt;
      term->coeff.multiply(m.coeff);
      if (term->core == Term::Read) {
        term->key = m.row;
      } else {
        term->core = Term::Plain;
        term->row = m.row;
      }
      result.terms.push_back(std::move(*term));
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

std::optional<Form> FormBuilder::formOuter(const Expr *expr,
                                           const Symbol *target) {
  const Expr *left = transposed(expr->args[0]), *right = expr->args[1];
  if (dependsOn(left, target) && dependsOn(right, target))
    return failProduct(expr, target);
  if (dependsOn(left, target)) // If not affine, what it is says more.
    return form(left, target) ? failKey(expr->args[0]->range, target)
                              : std::nullopt;
  const Expr *column = normal(left);
  MaybeForm rows = column ? form(right, target) : std::nullopt;
  if (!rows)
    return std::nullopt;
  Factors factors;
  const Expr *key = peel(factors, column);
  rows->shape = expr->shape;
  for (Term &term : rows->terms) {
    if (term.core == Term::Whole || term.key)
      return failInMatrix(term.range, term.state);
    term.key = key;
    term.coeff.multiply(factors);
    term.range = expr->range;
  }
  return rows;
}

Form FormBuilder::scaledRows(Form form, const Expr *row) {
  Factors factors;
  row = peel(factors, row);
  for (Term &term : form.terms) {
    term.coeff.multiply(factors);
    if (term.core == Term::Whole)
      term.coeff.rows.push_back(row);
    else if (term.core == Term::Diag)
      term.row = builder.mul(row, term.row);
    else
      term.key = builder.mul(row, term.key);
  }
  return form;
}

std::optional<Form> FormBuilder::scaledColumns(Form form, const Expr *row,
                                               Range range) {
  Factors factors;
  row = peel(factors, row);
  for (Term &term : form.terms) {
    term.coeff.multiply(factors);
    if (term.core != Term::Plain && term.core != Term::Diag)
      return failAlongV(range, term.state);
    term.row = builder.mul(term.row, row);
  }
  return form;
}

std::optional<Form> FormBuilder::formMatrices(const Expr *expr,
                                              const Symbol *target) {
  const Expr *left = expr->args[0], *right = expr->args[1];
  if (left->shape.kind == Shape::Diagonal && dependsOn(left, target))
    return failDecay(left->range, target);
  if (dependsOn(left, target) && dependsOn(right, target))
    return failProduct(expr, target);
  MaybeForm l = form(left, target);
  MaybeForm r = l ? form(right, target) : std::nullopt;
  if (!r)
    return std::nullopt;
  Form result{expr->shape, {}};
  for (const Term &m : l->terms) {
    if (m.core == Term::Diag) {
      Form part = scaledRows(*r, m.row);
      for (Term &term : part.terms) {
        term.coeff.multiply(m.coeff);
        result.terms.push_back(std::move(term));
      }
      continue;
    }
    for (const Term &n : r->terms) {
      if (n.core == Term::Diag) { // Anything but reads can be scaled by it.
        MaybeForm part = scaledColumns({left->shape, {m}}, n.row, expr->range);
        if (!part)
          return std::nullopt;
        part->terms[0].coeff.multiply(n.coeff);
        result.terms.push_back(std::move(part->terms[0]));
        continue;
      }
      if (m.core != Term::Plain)
        return failAlongV(expr->range, m.state);
      Term term = rowTimes(m.row, n, target);
      term.key = m.key;
      term.coeff.multiply(m.coeff);
      term.range = expr->range;
      result.terms.push_back(std::move(term));
    }
  }
  return result;
}

} // namespace plum::frontend
