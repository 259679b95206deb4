//===- AffineNormal.cpp - Expressions in normal form ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The half of FormBuilder that gives expressions, and its questions and
// messages. Results are remembered per node: nodes are shared, and a local's
// definition is met at each use.
//
//===----------------------------------------------------------------------===//

#include "AffineForm.h"

#include "plum/Frontend/Affine.h"

#include <bit>
#include <fmt/format.h>

namespace plum::frontend {

//===----------------------------------------------------------------------===//
// Questions
//===----------------------------------------------------------------------===//

uint64_t FormBuilder::statesOf(const Expr *expr) {
  auto found = states.find(expr);
  if (found != states.end())
    return found->second;
  uint64_t mask = 0;
  if (expr->kind == ExprKind::Ref) {
    if (expr->symbol->kind == SymbolKind::State)
      mask = uint64_t(1) << expr->symbol->index;
    else if (expr->symbol->kind == SymbolKind::Local)
      mask = statesOf(expr->symbol->definition);
  }
  for (const Expr *arg : expr->args)
    mask |= statesOf(arg);
  return states[expr] = mask;
}

bool FormBuilder::needsWhole(const Expr *expr) {
  if (expr->shape.kind != Shape::Row && expr->shape.kind != Shape::Column)
    return false;
  auto found = wholes.find(expr);
  if (found != wholes.end())
    return found->second;
  bool whole = false;
  if (expr->kind == ExprKind::Ref) {
    whole = expr->symbol->kind == SymbolKind::State ||
            (expr->symbol->kind == SymbolKind::Local &&
             needsWhole(expr->symbol->definition));
  }
  for (const Expr *arg : expr->args)
    whole |= needsWhole(arg);
  return wholes[expr] = whole;
}

const Symbol *FormBuilder::stateIn(uint64_t mask, const Symbol *preferred) {
  if (preferred && (mask >> preferred->index & 1))
    return preferred;
  return mask ? layer.states[size_t(std::countr_zero(mask))] : nullptr;
}

const Expr *FormBuilder::stateRef(const Symbol *state, unsigned version,
                                  Range range) {
  const Expr *&ref = stateRefs[{state, version}];
  if (!ref)
    ref = builder.make({.kind = ExprKind::Ref,
                        .range = range,
                        .shape = state->shape,
                        .symbol = state,
                        .version = version});
  return ref;
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

std::nullopt_t FormBuilder::fail(Range range, std::string message,
                                 const Symbol *state) {
  failure = {range, std::move(message), state};
  return std::nullopt;
}

std::nullopt_t FormBuilder::failWhole(Range range, const Symbol *state) {
  bool vector = state->shape.kind == Shape::Row;
  return fail(range,
              fmt::format("state '{0}' is used as a whole, not read as 'x @ "
                          "{0}{1}'",
                          state->name, vector ? "^T" : ""),
              state);
}

std::nullopt_t FormBuilder::failAlongV(Range range, const Symbol *state) {
  return fail(range,
              fmt::format("state '{}' is scaled or mixed along its last axis",
                          state->name),
              state);
}

std::nullopt_t FormBuilder::failInMatrix(Range range, const Symbol *state) {
  return fail(range,
              fmt::format("state '{0}' is made into a matrix, not read as 'x "
                          "@ {0}^T'",
                          state->name),
              state);
}

std::nullopt_t FormBuilder::failKey(Range range, const Symbol *state) {
  return fail(range,
              fmt::format("a key that depends on state '{0}' is not affine in "
                          "'{0}'",
                          state->name),
              state);
}

std::nullopt_t FormBuilder::failDecay(Range range, const Symbol *state) {
  return fail(range,
              fmt::format("a decay that depends on state '{0}' is not affine "
                          "in '{0}'",
                          state->name),
              state);
}

std::nullopt_t FormBuilder::failProduct(const Expr *expr,
                                        const Symbol *target) {
  uint64_t left = statesOf(expr->args[0]), right = statesOf(expr->args[1]);
  const Symbol *first = stateIn(left & right, target);
  if (first)
    return fail(expr->range,
                fmt::format("product of two values that depend on state '{0}' "
                            "is not affine in '{0}'",
                            first->name),
                first);
  first = stateIn(left, target);
  const Symbol *second = stateIn(right, target);
  return fail(expr->range,
              fmt::format("product of states '{}' and '{}' is not affine",
                          first ? first->name : "", second ? second->name : ""),
              first);
}

std::nullopt_t FormBuilder::failElementwise(const Expr *expr,
                                            const Symbol *target) {
  std::string_view op = expr->kind == ExprKind::Mul ? "*" : "/";
  const Symbol *state = stateIn(statesOf(expr), target);
  if (state)
    return fail(expr->range,
                fmt::format("elementwise '{}' of state '{}' with a matrix is "
                            "not 'diag(w) @ {}'",
                            op, state->name, state->name),
                state);
  return fail(
      expr->range,
      fmt::format("elementwise '{}' of two matrices is not low rank", op),
      nullptr);
}

std::nullopt_t FormBuilder::failFunction(const Expr *expr,
                                         const Symbol *target) {
  std::string_view callee = expr->kind == ExprKind::Pow    ? "^"
                            : expr->kind == ExprKind::Diag ? "diag"
                                                           : name(expr->func);
  const Symbol *state = stateIn(statesOf(expr), target);
  if (!state)
    return fail(expr->range,
                fmt::format("'{}' of a matrix is not low rank", callee),
                nullptr);
  bool whole = false;
  for (const Expr *arg : expr->args)
    whole |= needsWhole(arg) || arg->shape.kind == Shape::Matrix;
  return fail(expr->range,
              fmt::format("'{0}' of {1}state '{2}' is not affine in '{2}'",
                          callee, whole ? "" : "a read of ", state->name),
              state);
}

//===----------------------------------------------------------------------===//
// Scalars and rows
//===----------------------------------------------------------------------===//

const Expr *FormBuilder::normal(const Expr *expr) {
  if (expr->shape.kind == Shape::Column)
    expr = transposed(expr);
  auto found = normals.find(expr);
  if (found != normals.end())
    return found->second;
  const Expr *result = computeNormal(expr);
  if (result)
    normals[expr] = result;
  return result;
}

const Expr *FormBuilder::computeNormal(const Expr *expr) {
  auto multipliedOut = [&]() -> const Expr * {
    std::optional<Form> sum = takeApart(expr, nullptr);
    return sum ? materialise(*sum, expr->range) : nullptr;
  };
  switch (expr->kind) {
  case ExprKind::Number:
    return expr;
  case ExprKind::Ref:
    return needsWhole(expr) ? multipliedOut() : expr;
  case ExprKind::MatMul:
    return normalMatMul(expr);
  case ExprKind::Transpose: // Of a column or a scalar.
    return normal(expr->args[0]);
  case ExprKind::Diag:
    return nullptr; // Neither a scalar nor a row.
  case ExprKind::Call:
    if (expr->func == Func::Sum &&
        (expr->args[0]->shape.kind == Shape::Matrix ||
         needsWhole(expr->args[0])))
      return multipliedOut();
    break;
  default:
    break;
  }
  if (needsWhole(expr))
    return multipliedOut();
  std::vector<const Expr *> args;
  for (const Expr *arg : expr->args) {
    args.push_back(normal(arg));
    if (!args.back())
      return nullptr;
  }
  return builder.withArgs(expr, std::move(args));
}

const Expr *FormBuilder::normalMatMul(const Expr *expr) {
  const Expr *left = expr->args[0], *right = expr->args[1];
  bool dot = right->shape.kind == Shape::Column;
  if (dot) {
    const Expr *row = transposed(right);
    if (left->kind == ExprKind::Ref && left->symbol->kind == SymbolKind::State)
      std::swap(left, row);
    bool read = row->kind == ExprKind::Ref &&
                row->symbol->kind == SymbolKind::State && !needsWhole(left);
    if (!read && !needsWhole(left) && !needsWhole(row)) {
      const Expr *x = normal(left), *y = x ? normal(row) : nullptr;
      if (!y)
        return nullptr;
      if (x == expr->args[0] && right->kind == ExprKind::Transpose &&
          right->args[0] == y)
        return expr;
      return builder.dot(x, y);
    }
    if (read) {
      const Expr *x = normal(left);
      return x ? builder.dot(x, row) : nullptr;
    }
  }
  if (!dot && right->shape.kind == Shape::Diagonal && !needsWhole(left)) {
    const Expr *x = normal(left), *w = x ? diagonalRow(right) : nullptr;
    return w ? builder.mul(x, w) : nullptr;
  }
  bool plainRead =
      right->kind == ExprKind::Ref && right->symbol->kind == SymbolKind::State;
  if (!dot && plainRead && !needsWhole(left)) {
    const Expr *x = normal(left);
    return x ? builder.withArgs(expr, {x, right}) : nullptr;
  }
  std::optional<Form> sum = takeApart(expr, nullptr);
  return sum ? materialise(*sum, expr->range) : nullptr;
}

const Expr *FormBuilder::materialise(const Form &form, Range range) {
  const Expr *sum = nullptr;
  for (const Term &term : form.terms) {
    if (term.core == Term::Whole) {
      failWhole(term.range, term.state);
      return nullptr;
    }
    const Expr *core = term.core == Term::Plain ? term.row : nullptr;
    if (!sum) {
      sum = times(term.coeff, core, range, builder);
      if (!sum)
        sum = builder.number(1, range);
      continue;
    }
    Factors positive = term.coeff;
    bool negative = positive.number < 0;
    if (negative)
      positive.number = -positive.number;
    const Expr *value = times(positive, core, range, builder);
    if (!value)
      value = builder.number(1, range);
    sum = negative ? builder.sub(sum, value) : builder.add(sum, value);
  }
  return sum ? sum : builder.number(0, range, form.shape);
}

const Expr *FormBuilder::peel(Factors &factors, const Expr *row) {
  const Expr *x = row->args.empty() ? nullptr : row->args[0];
  const Expr *y = row->args.size() < 2 ? nullptr : row->args[1];
  switch (row->kind) {
  case ExprKind::Neg:
    factors.number = -factors.number;
    return peel(factors, x);
  case ExprKind::Mul:
    if (x->shape.kind != Shape::Scalar && y->shape.kind != Shape::Scalar)
      return row;
    if (y->shape.kind == Shape::Scalar)
      std::swap(x, y);
    pushScalar(factors, x, builder);
    return peel(factors, y);
  case ExprKind::Div: {
    if (y->shape.kind != Shape::Scalar || x->shape.kind == Shape::Scalar)
      return row;
    std::optional<double> divisor = constantValue(y);
    if (divisor && *divisor != 0)
      factors.number /= *divisor;
    else
      factors.scalars.push_back(builder.reciprocal(y));
    return peel(factors, x);
  }
  case ExprKind::Ref: {
    // A local that scales another name: the name is what a read may share.
    if (row->symbol->kind != SymbolKind::Local ||
        row->shape.kind != Shape::Row || needsWhole(row))
      return row;
    const Expr *definition = normal(row->symbol->definition);
    Factors inner;
    const Expr *core = definition ? peel(inner, definition) : row;
    if (core->kind != ExprKind::Ref)
      return row;
    factors.multiply(inner);
    return core;
  }
  default:
    return row;
  }
}

//===----------------------------------------------------------------------===//
// Diagonals and transposes
//===----------------------------------------------------------------------===//

const Expr *FormBuilder::diagonalRow(const Expr *expr) {
  auto found = diagonals.find(expr);
  if (found != diagonals.end())
    return found->second;
  const Expr *result = computeDiagonalRow(expr);
  if (result)
    diagonals[expr] = result;
  return result;
}

const Expr *FormBuilder::computeDiagonalRow(const Expr *expr) {
  std::vector<const Expr *> args;
  if (expr->kind == ExprKind::Ref)
    return diagonalRow(expr->symbol->definition);
  for (const Expr *arg : expr->args) {
    args.push_back(arg->shape.kind == Shape::Diagonal ? diagonalRow(arg)
                                                      : normal(arg));
    if (!args.back())
      return nullptr;
  }
  switch (expr->kind) {
  case ExprKind::Diag:
  case ExprKind::Transpose:
    return args[0];
  case ExprKind::Neg:
    return builder.neg(args[0]);
  case ExprKind::Add:
    return builder.add(args[0], args[1]);
  case ExprKind::Sub:
    return builder.sub(args[0], args[1]);
  case ExprKind::Mul:
  case ExprKind::MatMul:
    return builder.mul(args[0], args[1]);
  case ExprKind::Div:
    return builder.mul(args[0], builder.reciprocal(args[1]));
  default:
    return nullptr; // Sema makes no other diagonal.
  }
}

const Expr *FormBuilder::transposed(const Expr *expr) {
  auto found = transposes.find(expr);
  if (found != transposes.end())
    return found->second;
  return transposes[expr] = computeTransposed(expr);
}

const Expr *FormBuilder::computeTransposed(const Expr *expr) {
  if (expr->shape.kind == Shape::Scalar || expr->shape.kind == Shape::Diagonal)
    return expr;
  if (expr->kind == ExprKind::Transpose)
    return expr->args[0];
  if (expr->shape.kind == Shape::Row)
    return builder.transpose(expr);
  if (expr->kind == ExprKind::Ref)
    return expr->symbol->kind == SymbolKind::Local
               ? transposed(expr->symbol->definition)
               : builder.transpose(expr);
  Expr node = *expr;
  std::swap(node.shape.rows, node.shape.cols);
  if (node.shape.kind == Shape::Column)
    node.shape.kind = Shape::Row;
  node.args.clear();
  for (const Expr *arg : expr->args)
    node.args.push_back(transposed(arg));
  if (node.kind == ExprKind::MatMul)
    std::swap(node.args[0], node.args[1]);
  return builder.make(std::move(node));
}

} // namespace plum::frontend
