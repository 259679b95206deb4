//===- AffineForm.cpp - Expressions multiplied out ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The half of FormBuilder that takes expressions apart into sums of terms, but
// for matrix products, which are in AffineProduct.cpp.
//
// Multiplying out can double a sum at each level, so the number of terms is
// bounded; a real update has a handful.
//
//===----------------------------------------------------------------------===//

#include "AffineForm.h"

#include "plum/Frontend/Affine.h"

#include <fmt/format.h>

namespace plum::frontend {

namespace {
constexpr size_t maxTerms = 256;
} // namespace

std::optional<Form> FormBuilder::form(const Expr *expr, const Symbol *target) {
  if (expr->shape.kind == Shape::Column)
    expr = transposed(expr);
  bool local =
      expr->kind == ExprKind::Ref && expr->symbol->kind == SymbolKind::Local;
  if (local) {
    auto found = locals.find({expr->symbol, target});
    if (found != locals.end())
      return found->second;
  }
  MaybeForm result = computeForm(expr, target);
  if (result && result->terms.size() > maxTerms)
    return fail(expr->range,
                fmt::format("multiplied out this has {} terms, expected at "
                            "most {}",
                            result->terms.size(), maxTerms),
                stateIn(statesOf(expr), target));
  if (result && local)
    locals[{expr->symbol, target}] = *result;
  return result;
}

std::optional<Form> FormBuilder::computeForm(const Expr *expr,
                                             const Symbol *target) {
  if (expr->shape.kind == Shape::Diagonal) {
    if (dependsOn(expr, target))
      return failDecay(expr->range, target);
    Term term{.core = Term::Diag, .range = expr->range};
    const Expr *row = diagonalRow(expr);
    if (!row)
      return std::nullopt;
    term.row = peel(term.coeff, row);
    return Form{expr->shape, {std::move(term)}};
  }
  if (expr->shape.kind != Shape::Matrix && !active(expr, target))
    return plainForm(expr);
  return takeApart(expr, target);
}

std::optional<Form> FormBuilder::takeApart(const Expr *expr,
                                           const Symbol *target) {
  switch (expr->kind) {
  case ExprKind::Ref:
    return formRef(expr, target);
  case ExprKind::Neg: {
    MaybeForm sum = form(expr->args[0], target);
    for (size_t i = 0; sum && i < sum->terms.size(); ++i)
      sum->terms[i].coeff.number = -sum->terms[i].coeff.number;
    return sum;
  }
  case ExprKind::Add:
  case ExprKind::Sub:
    return formSum(expr, target);
  case ExprKind::Mul:
    return formMul(expr, target);
  case ExprKind::Div:
    return formDiv(expr, target);
  case ExprKind::MatMul:
    return formMatMul(expr, target);
  case ExprKind::Transpose: {
    if (expr->shape.kind != Shape::Matrix)
      return form(expr->args[0], target); // Of a column or a scalar.
    const Expr *inner = transposed(expr->args[0]);
    if (inner->kind == ExprKind::Transpose)
      return failAlongV(expr->range, inner->args[0]->symbol);
    return form(inner, target);
  }
  case ExprKind::Pow:
  case ExprKind::Call:
    return formCall(expr, target);
  case ExprKind::Number:
  case ExprKind::Diag:
    break; // Never a matrix, never dependent.
  }
  return fail(expr->range, "this has no chunkwise form", target);
}

std::optional<Form> FormBuilder::plainForm(const Expr *expr) {
  const Expr *value = normal(expr);
  if (!value)
    return std::nullopt;
  Term term{.range = expr->range};
  if (expr->shape.kind == Shape::Scalar) {
    pushScalar(term.coeff, value, builder);
  } else {
    term.core = Term::Plain;
    term.row = peel(term.coeff, value);
  }
  return Form{value->shape, {std::move(term)}};
}

std::optional<Form> FormBuilder::formRef(const Expr *expr,
                                         const Symbol *target) {
  if (expr->symbol->kind == SymbolKind::Local)
    return form(expr->symbol->definition, target);
  Term term{.core = Term::Whole, .range = expr->range};
  term.state = expr->symbol;
  term.version = expr->version;
  return Form{expr->shape, {std::move(term)}};
}

//===----------------------------------------------------------------------===//
// Elementwise operators
//===----------------------------------------------------------------------===//

std::optional<Form> FormBuilder::broadcast(Form form, Shape shape,
                                           Range range) {
  if (form.shape.kind != Shape::Scalar || shape.kind == Shape::Scalar)
    return form;
  const Expr *ones = builder.number(1, range, Shape::row(shape.cols));
  for (Term &term : form.terms) {
    if (shape.kind == Shape::Matrix) {
      if (term.core == Term::Read)
        return failInMatrix(term.range, term.state);
      term.key = builder.number(1, range, Shape::row(shape.rows));
    } else if (term.core == Term::Read) {
      term.key = ones;
      continue;
    }
    term.core = Term::Plain;
    term.row = ones;
  }
  form.shape = shape;
  return form;
}

std::optional<Form> FormBuilder::formSum(const Expr *expr,
                                         const Symbol *target) {
  MaybeForm left = form(expr->args[0], target);
  MaybeForm right = left ? form(expr->args[1], target) : std::nullopt;
  if (!right)
    return std::nullopt;
  if (expr->kind == ExprKind::Sub)
    for (Term &term : right->terms)
      term.coeff.number = -term.coeff.number;
  Shape shape = expr->shape;
  left = broadcast(std::move(*left), shape, expr->range);
  right =
      left ? broadcast(std::move(*right), shape, expr->range) : std::nullopt;
  if (!right)
    return std::nullopt;
  left->shape = shape; // A diagonal in a sum with a matrix is one.
  left->terms.insert(left->terms.end(), right->terms.begin(),
                     right->terms.end());
  return left;
}

std::optional<Form> FormBuilder::scaled(Form form, const Expr *scalar) {
  for (Term &term : form.terms)
    pushScalar(term.coeff, scalar, builder);
  return form;
}

std::optional<Form> FormBuilder::timesRow(Form form, const Expr *row,
                                          Range range) {
  Factors factors;
  row = peel(factors, row);
  for (Term &term : form.terms) {
    term.coeff.multiply(factors);
    if (term.core == Term::Whole)
      term.coeff.rows.push_back(row);
    else if (term.core == Term::Plain)
      term.row = builder.mul(term.row, row);
    else if (term.key)
      term.key = builder.mul(term.key, row);
    else
      return failAlongV(range, term.state);
  }
  return form;
}

std::optional<Form> FormBuilder::formMul(const Expr *expr,
                                         const Symbol *target) {
  const Expr *x = expr->args[0], *y = expr->args[1];
  if (x->shape.kind == Shape::Matrix && y->shape.kind == Shape::Matrix)
    return statesOf(x) && statesOf(y) ? failProduct(expr, target)
                                      : failElementwise(expr, target);
  // x is the factor that the sum y is multiplied with: free of the target.
  if (active(x, target) ||
      (x->shape.kind != Shape::Scalar && !active(y, target)))
    std::swap(x, y);
  if (x->shape.kind == Shape::Matrix || active(x, target)) {
    if (dependsOn(x, target) || needsWhole(x))
      return failProduct(expr, target);
    // A matrix times a scalar in which the target is read.
    return form(y, target) ? failInMatrix(y->range, target) : std::nullopt;
  }
  const Expr *factor = normal(x);
  MaybeForm sum = factor ? form(y, target) : std::nullopt;
  if (!sum)
    return std::nullopt;
  if (factor->shape.kind == Shape::Scalar)
    return scaled(std::move(*sum), factor);
  sum = broadcast(std::move(*sum), expr->shape, expr->range);
  return sum ? timesRow(std::move(*sum), factor, expr->range) : std::nullopt;
}

std::optional<Form> FormBuilder::formDiv(const Expr *expr,
                                         const Symbol *target) {
  const Expr *x = expr->args[0], *y = expr->args[1];
  if (dependsOn(y, target) || needsWhole(y)) {
    const Symbol *state = stateIn(statesOf(y), target);
    return fail(expr->range,
                fmt::format("division by a value that depends on state '{0}' "
                            "is not affine in '{0}'",
                            state->name),
                state);
  }
  if (y->shape.kind == Shape::Matrix)
    return failElementwise(expr, target);
  const Expr *divisor = normal(y);
  MaybeForm sum = divisor ? form(x, target) : std::nullopt;
  if (!sum)
    return std::nullopt;
  if (divisor->shape.kind == Shape::Scalar) {
    for (Term &term : sum->terms) {
      std::optional<double> value = constantValue(divisor);
      if (value && *value != 0)
        term.coeff.number /= *value;
      else
        term.coeff.scalars.push_back(builder.reciprocal(divisor));
    }
    return sum;
  }
  sum = broadcast(std::move(*sum), expr->shape, expr->range);
  return sum ? timesRow(std::move(*sum), builder.reciprocal(divisor),
                        expr->range)
             : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Only the sum of a row is linear.
std::optional<Form> FormBuilder::formCall(const Expr *expr,
                                          const Symbol *target) {
  if (expr->kind != ExprKind::Call || expr->func != Func::Sum)
    return failFunction(expr, target);
  MaybeForm sum = form(expr->args[0], target);
  if (!sum || sum->shape.kind == Shape::Scalar)
    return sum;
  sum->shape = Shape::scalar();
  for (Term &term : sum->terms) {
    bool matrix = expr->args[0]->shape.kind == Shape::Matrix;
    if (term.core == Term::Whole && !matrix) {
      // sum(x * (D @ z)) reads z at x, the last factor that was applied.
      const Expr *x = builder.number(1, term.range, term.state->shape);
      if (!term.coeff.rows.empty()) {
        x = term.coeff.rows.back();
        term.coeff.rows.pop_back();
      }
      std::optional<Term> read = dot(x, term, target, expr->range);
      if (!read)
        return std::nullopt;
      term = std::move(*read);
      continue;
    }
    if (term.core == Term::Whole || (term.core == Term::Read && !term.key))
      return failAlongV(expr->range, term.state);
    if (term.key)
      pushScalar(term.coeff, builder.sum(term.key), builder);
    term.key = nullptr;
    if (term.core == Term::Read) {
      if (matrix)
        return failAlongV(expr->range, term.state);
      continue;
    }
    pushScalar(term.coeff, builder.sum(term.row), builder);
    term.core = Term::One;
    term.row = nullptr;
  }
  return sum;
}

} // namespace plum::frontend
