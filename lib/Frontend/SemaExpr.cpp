//===- SemaExpr.cpp - Shapes of expressions -------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resolves names and infers shapes, bottom up. Scalars broadcast in
// elementwise operators; nothing else does, and no rule depends on a dim being
// 1, so that `--set K=1` changes sizes and never meaning.
//
//===----------------------------------------------------------------------===//

#include "Sema.h"

#include "plum/Frontend/Affine.h"

#include <cmath>
#include <fmt/format.h>

namespace plum::frontend {

const Expr *Sema::make(Expr node) {
  unsigned depth = 1;
  for (const Expr *arg : node.args)
    depth = std::max(depth, depths[arg] + 1);
  if (node.kind == ExprKind::Ref && node.symbol->definition)
    depth = depths[node.symbol->definition] + 1;
  if (depth > maxChainDepth) {
    diags.error(node.range, fmt::format("definitions are nested deeper than {} "
                                        "levels",
                                        maxChainDepth));
    return nullptr;
  }
  const Expr *added = &layer->exprs.emplace_back(std::move(node));
  depths[added] = depth;
  return added;
}

const Expr *Sema::check(const syntax::Expr &expr) {
  if (expr.kind == syntax::ExprKind::Number)
    return make(
        {.kind = ExprKind::Number, .range = expr.range, .number = expr.number});
  if (expr.kind == syntax::ExprKind::Name)
    return checkName(expr);
  if (expr.kind == syntax::ExprKind::Call)
    return checkCall(expr);

  std::vector<const Expr *> args;
  for (const syntax::Expr *arg : expr.args)
    args.push_back(check(*arg)); // All of them, to report all their errors.
  for (const Expr *arg : args)
    if (!arg)
      return nullptr;
  for (const Expr *arg : args)
    if (arg->shape.kind == Shape::List) {
      refuseList(arg, "a matrix");
      return nullptr;
    }

  switch (expr.kind) {
  case syntax::ExprKind::Neg:
    return make({.kind = ExprKind::Neg,
                 .range = expr.range,
                 .shape = args[0]->shape,
                 .args = args});
  case syntax::ExprKind::Add:
    return checkElementwise(expr, ExprKind::Add, args[0], args[1]);
  case syntax::ExprKind::Sub:
    return checkElementwise(expr, ExprKind::Sub, args[0], args[1]);
  case syntax::ExprKind::Mul:
    return checkElementwise(expr, ExprKind::Mul, args[0], args[1]);
  case syntax::ExprKind::Div:
    return checkElementwise(expr, ExprKind::Div, args[0], args[1]);
  case syntax::ExprKind::MatMul:
    return checkMatMul(expr, args[0], args[1]);
  case syntax::ExprKind::Pow:
    return checkPow(expr, args[0], args[1]);
  case syntax::ExprKind::Transpose:
    return checkTranspose(expr, args[0]);
  default:
    return nullptr;
  }
}

const Expr *Sema::checkName(const syntax::Expr &expr) {
  std::string_view name = expr.name.text;
  Range range = expr.name.range;
  auto found = table.find(name);
  if (found == table.end()) {
    if (poisoned.contains(name))
      return nullptr;
    diags.error(range, fmt::format("unknown name '{}'", name));
    for (const syntax::Stmt &stmt : source->stmts)
      for (const syntax::Name &later : stmt.names)
        if (later.text == name) {
          diags.note(
              later.range,
              fmt::format("'{}' is defined here, which is too late", name));
          poisoned.insert(name);
          return nullptr;
        }
    noteNearest(range, name, visibleNames(false));
    return nullptr;
  }
  const Symbol *symbol = found->second;
  if (symbol->kind == SymbolKind::Output) {
    diags.error(range, fmt::format("output '{}' cannot be read; define a local "
                                   "and use it in both places",
                                   name));
    diags.note(symbol->range, fmt::format("'{}' is declared here", name));
    return nullptr;
  }
  if (symbol != updating)
    used.insert(symbol);
  return make(
      {.kind = ExprKind::Ref,
       .range = expr.range,
       .shape = symbol->shape,
       .symbol = symbol,
       .version = symbol->kind == SymbolKind::State ? versions[symbol] : 0});
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

const Expr *Sema::checkElementwise(const syntax::Expr &expr, ExprKind kind,
                                   const Expr *left, const Expr *right) {
  std::string_view op = kind == ExprKind::Add   ? "+"
                        : kind == ExprKind::Sub ? "-"
                        : kind == ExprKind::Mul ? "*"
                                                : "/";
  bool sum = kind == ExprKind::Add || kind == ExprKind::Sub;
  Shape l = left->shape, r = right->shape;
  auto accept = [&](Shape shape) {
    return make({.kind = kind,
                 .range = expr.range,
                 .shape = shape,
                 .args = {left, right}});
  };

  // A diagonal is a matrix that is kept as its row: it can be scaled, and added
  // to a matrix, but has no elementwise meaning worth its zeros.
  if (l.kind == Shape::Diagonal || r.kind == Shape::Diagonal) {
    bool square = l.rows == r.rows && l.cols == r.cols;
    auto matrixLike = [](Shape shape) {
      return shape.kind == Shape::Diagonal || shape.kind == Shape::Matrix;
    };
    if (sum && square && matrixLike(l) && matrixLike(r))
      return accept(l.kind == Shape::Diagonal ? r : l);
    if (kind == ExprKind::Mul &&
        (l.kind == Shape::Scalar || r.kind == Shape::Scalar))
      return accept(l.kind == Shape::Scalar ? r : l);
    if (kind == ExprKind::Div && r.kind == Shape::Scalar)
      return accept(l);
    diags.error(expr.range, fmt::format("'{}' is not defined for {} and {}", op,
                                        l.str(), r.str()));
    diags.note(expr.op, "'diag(w) @ S' scales the rows of 'S'");
    return nullptr;
  }

  if (l == r || r.kind == Shape::Scalar)
    return accept(l);
  if (l.kind == Shape::Scalar)
    return accept(r);
  diags.error(right->range, fmt::format("'{}' expects equal shapes, got {} and "
                                        "{}",
                                        op, l.str(), r.str()));
  diags.note(left->range, fmt::format("the left side is {}", l.str()));
  if (kind == ExprKind::Mul && l.kind == Shape::Column && r.kind == Shape::Row)
    diags.note(expr.op, "the outer product is written '@'");
  return nullptr;
}

const Expr *Sema::checkMatMul(const syntax::Expr &expr, const Expr *left,
                              const Expr *right) {
  Shape l = left->shape, r = right->shape;
  for (const Expr *side : {left, right})
    if (side->shape.kind == Shape::Scalar) {
      diags.error(side->range, "'@' expects rows, columns or matrices, got "
                               "scalar");
      diags.note(expr.op, "a scalar factor is written '*'");
      return nullptr;
    }
  // By kind first: a row times a row is wrong even when a dim is 1.
  bool lRow = l.kind == Shape::Row, lColumn = l.kind == Shape::Column;
  bool rRow = r.kind == Shape::Row, rColumn = r.kind == Shape::Column;
  if (rRow && !lColumn) {
    diags.error(
        right->range,
        fmt::format(
            "'@' expects a column or a matrix to the right of a {}, got {}",
            lRow ? "row" : "matrix", r.str()));
    diags.note(left->range, fmt::format("the left side is {}", l.str()));
    if (lRow)
      diags.note(expr.op, "the dot product is written 'x @ y^T'");
    return nullptr;
  }
  if (lColumn && !rRow) {
    diags.error(right->range,
                fmt::format("'@' expects a row to the right of a column, got "
                            "{}",
                            r.str()));
    diags.note(left->range, fmt::format("the left side is {}", l.str()));
    return nullptr;
  }
  if (l.cols != r.rows) {
    diags.error(right->range,
                fmt::format("'@' expects equal inner extents, got {} and {}: "
                            "{} @ {}",
                            l.cols, r.rows, l.str(), r.str()));
    diags.note(left->range, fmt::format("the left side is {}", l.str()));
    return nullptr;
  }
  Shape shape = Shape::matrix(l.rows, r.cols);
  if (lRow && rColumn)
    shape = Shape::scalar();
  else if (lRow)
    shape = Shape::row(r.cols);
  else if (rColumn)
    shape = Shape::column(l.rows);
  else if (l.kind == Shape::Diagonal && r.kind == Shape::Diagonal)
    shape = l;
  return make({.kind = ExprKind::MatMul,
               .range = expr.range,
               .shape = shape,
               .args = {left, right}});
}

const Expr *Sema::checkPow(const syntax::Expr &expr, const Expr *base,
                           const Expr *exponent) {
  std::optional<double> number = constantValue(exponent);
  if (!number) {
    diags.error(exponent->range, "the exponent of '^' must be a constant");
    return nullptr;
  }
  if (!std::isfinite(*number)) {
    diags.error(exponent->range, fmt::format("the exponent of '^' must be "
                                             "finite, got {}",
                                             *number));
    return nullptr;
  }
  if (base->shape.kind == Shape::Diagonal) {
    diags.error(base->range, "'^' is not defined for a diagonal matrix; write "
                             "'diag(w ^ n)'");
    return nullptr;
  }
  return make({.kind = ExprKind::Pow,
               .range = expr.range,
               .shape = base->shape,
               .number = *number,
               .args = {base}});
}

const Expr *Sema::checkTranspose(const syntax::Expr &expr, const Expr *arg) {
  Shape shape = arg->shape;
  if (shape.kind == Shape::Row)
    shape = Shape::column(shape.cols);
  else if (shape.kind == Shape::Column)
    shape = Shape::row(shape.rows);
  else
    std::swap(shape.rows, shape.cols);
  return make({.kind = ExprKind::Transpose,
               .range = expr.range,
               .shape = shape,
               .args = {arg}});
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

const Expr *Sema::checkCall(const syntax::Expr &expr) {
  std::string_view callee = expr.name.text;
  std::optional<Func> func = parseFunc(callee);
  bool diag = callee == "diag";
  if (!func && !diag) {
    auto found = table.find(callee);
    if (found != table.end()) {
      diags.error(expr.name.range, fmt::format("'{}' is not a function; a "
                                               "product is written '*'",
                                               callee));
      diags.note(found->second->range,
                 fmt::format("'{}' is declared here", callee));
      return nullptr;
    }
    diags.error(expr.name.range, fmt::format("unknown function '{}'", callee));
    std::vector<std::string_view> names = {"diag"};
    for (unsigned i = 0; i <= unsigned(Func::Attend); ++i)
      names.push_back(name(Func(i)));
    noteNearest(expr.name.range, callee, names);
    return nullptr;
  }

  bool good = true;
  std::vector<const Expr *> args;
  for (const syntax::Expr *arg : expr.args) {
    args.push_back(check(*arg));
    good &= args.back() != nullptr;
  }
  if (!good)
    return nullptr;
  bool takesLists = func == Func::Append || func == Func::Attend;
  for (const Expr *arg : args)
    if (arg->shape.kind == Shape::List && !takesLists) {
      refuseList(arg, "a matrix");
      return nullptr;
    }
  if (diag)
    return checkDiag(expr, args);
  double eps = 0;
  if (!checkKeywords(expr, *func, eps))
    return nullptr;
  std::optional<Shape> shape = callShape(expr, *func, args);
  if (!shape)
    return nullptr;
  return make({.kind = ExprKind::Call,
               .range = expr.range,
               .shape = *shape,
               .eps = eps,
               .func = *func,
               .args = args});
}

const Expr *Sema::checkDiag(const syntax::Expr &expr,
                            const std::vector<const Expr *> &args) {
  if (args.size() != 1 || !expr.keywords.empty()) {
    diags.error(expr.range, fmt::format("'diag' expects 1 argument, got {}",
                                        args.size() + expr.keywords.size()));
    return nullptr;
  }
  if (args[0]->shape.kind != Shape::Row) {
    diags.error(args[0]->range, fmt::format("'diag' expects a row, got {}",
                                            args[0]->shape.str()));
    return nullptr;
  }
  return make({.kind = ExprKind::Diag,
               .range = expr.range,
               .shape = Shape::diagonal(args[0]->shape.cols),
               .args = args});
}

bool Sema::checkKeywords(const syntax::Expr &expr, Func func, double &eps) {
  bool norm = func == Func::L2Norm || func == Func::RmsNorm;
  eps = norm ? 1e-6 : 0;
  const syntax::KeywordArgument *first = nullptr;
  for (const syntax::KeywordArgument &keyword : expr.keywords) {
    if (!norm || keyword.name.text != "eps") {
      diags.error(keyword.name.range,
                  fmt::format("'{}' has no argument '{}'", name(func),
                              keyword.name.text));
      if (norm)
        noteNearest(keyword.name.range, keyword.name.text, {"eps"});
      return false;
    }
    if (first) {
      diags.error(keyword.name.range, "argument 'eps' is given twice");
      diags.note(first->name.range, "it is first given here");
      return false;
    }
    first = &keyword;
    const Expr *value = check(*keyword.value);
    if (!value)
      return false;
    std::optional<double> number = constantValue(value);
    if (!number || !std::isfinite(*number) || *number < 0) {
      diags.error(
          keyword.value->range,
          number ? fmt::format("'eps' expects a constant >= 0, got {}", *number)
                 : "'eps' expects a constant >= 0");
      return false;
    }
    eps = *number;
  }
  return true;
}

namespace {
bool isGrowing(const Expr *expr) {
  return expr->kind == ExprKind::Ref && expr->shape.kind == Shape::List;
}
} // namespace

std::optional<Shape> Sema::appendShape(const syntax::Expr &expr,
                                       const std::vector<const Expr *> &args) {
  if (args.size() != 2) {
    diags.error(expr.range,
                fmt::format("'append' expects a growing state and "
                            "a row, got {} argument{}",
                            args.size(), args.size() == 1 ? "" : "s"));
    return std::nullopt;
  }
  if (!isGrowing(args[0])) {
    diags.error(args[0]->range,
                fmt::format("'append' expects a growing state [*, d], got {}",
                            args[0]->shape.str()));
    return std::nullopt;
  }
  Shape row = Shape::row(args[0]->shape.cols);
  if (args[1]->shape != row) {
    diags.error(args[1]->range, fmt::format("'append' expects {}, got {}",
                                            row.str(), args[1]->shape.str()));
    diags.note(args[0]->symbol->range,
               fmt::format("'{}' is declared here", args[0]->symbol->name));
    return std::nullopt;
  }
  return args[0]->shape;
}

/// attend(q, keys, values), or with more pairs of a query and keys, whose
/// scores are added up.
std::optional<Shape> Sema::attendShape(const syntax::Expr &expr,
                                       const std::vector<const Expr *> &args) {
  if (args.size() < 3 || args.size() % 2 == 0) {
    diags.error(expr.range,
                fmt::format("'attend' expects pairs of a query and keys, then "
                            "values, got {} argument{}",
                            args.size(), args.size() == 1 ? "" : "s"));
    return std::nullopt;
  }
  const Expr *values = args.back();
  for (size_t i = 0; i < args.size(); ++i) {
    bool query = i % 2 == 0 && args[i] != values;
    if (!query && !isGrowing(args[i])) {
      diags.error(args[i]->range,
                  fmt::format("'attend' expects a growing state [*, d] as {}, "
                              "got {}",
                              args[i] == values ? "values" : "keys",
                              args[i]->shape.str()));
      return std::nullopt;
    }
  }
  for (size_t i = 1; i < args.size(); i += 2) {
    if ((args[i]->version > 0) != (values->version > 0)) {
      diags.error(args[i]->range,
                  fmt::format("'{}' {} this token's row here and '{}' {}",
                              args[i]->symbol->name,
                              args[i]->version ? "has" : "has not",
                              values->symbol->name,
                              values->version ? "has" : "has not"));
      return std::nullopt;
    }
  }
  for (size_t i = 0; i + 1 < args.size(); i += 2) {
    Shape row = Shape::row(args[i + 1]->shape.cols);
    if (args[i]->shape == row)
      continue;
    diags.error(args[i]->range, fmt::format("'attend' expects {}, got {}",
                                            row.str(), args[i]->shape.str()));
    diags.note(args[i + 1]->symbol->range,
               fmt::format("'{}' is declared here", args[i + 1]->symbol->name));
    return std::nullopt;
  }
  return Shape::row(values->shape.cols);
}

std::optional<Shape> Sema::callShape(const syntax::Expr &expr, Func func,
                                     const std::vector<const Expr *> &args) {
  if (func == Func::Append)
    return appendShape(expr, args);
  if (func == Func::Attend)
    return attendShape(expr, args);
  bool extremum = func == Func::Min || func == Func::Max;
  if (extremum ? args.size() < 2 : args.size() != 1) {
    diags.error(expr.range,
                fmt::format("'{}' expects {}, got {}", name(func),
                            extremum ? "at least 2 arguments" : "1 argument",
                            args.size()));
    return std::nullopt;
  }
  for (const Expr *arg : args)
    if (arg->shape.kind == Shape::Diagonal) {
      diags.error(arg->range, fmt::format("'{0}' is not defined for a diagonal "
                                          "matrix; write 'diag({0}(w))'",
                                          name(func)));
      return std::nullopt;
    }
  if (func == Func::Sum)
    return Shape::scalar();
  if (func == Func::L2Norm || func == Func::RmsNorm) {
    if (args[0]->shape.kind == Shape::Row ||
        args[0]->shape.kind == Shape::Column)
      return args[0]->shape;
    diags.error(args[0]->range, fmt::format("'{}' expects a row, got {}",
                                            name(func), args[0]->shape.str()));
    return std::nullopt;
  }
  const Expr *shaped = args[0];
  for (const Expr *arg : args) {
    if (arg->shape.kind == Shape::Scalar || arg->shape == shaped->shape)
      continue;
    if (shaped->shape.kind != Shape::Scalar) {
      diags.error(arg->range, fmt::format("'{}' expects equal shapes, got {} "
                                          "and {}",
                                          name(func), shaped->shape.str(),
                                          arg->shape.str()));
      diags.note(shaped->range,
                 fmt::format("this argument is {}", shaped->shape.str()));
      return std::nullopt;
    }
    shaped = arg;
  }
  return shaped->shape;
}

} // namespace plum::frontend
