//===- Syntax.h - What the parser builds ------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The spec as written: names are text, nothing has a shape. Sema turns one
// layer of it into the checked AST. Names point into the source text.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_SYNTAX_H
#define PLUM_LIB_FRONTEND_SYNTAX_H

#include "plum/Support/DType.h"
#include "plum/Support/Diagnostics.h"

#include <deque>
#include <optional>
#include <string_view>
#include <vector>

namespace plum::frontend::syntax {

struct Name {
  std::string_view text;
  Range range;
};

enum class ExprKind : uint8_t {
  Number,
  Name,
  Neg,
  Add,
  Sub,
  Mul,
  Div,
  MatMul,
  Pow,
  Transpose,
  Call
};

struct Expr;
struct KeywordArgument {
  Name name;
  const Expr *value;
};

struct Expr {
  ExprKind kind;
  Range range;
  Range op = {};     ///< The operator's own place.
  double number = 0; ///< Number.
  Name name = {};    ///< Name, Call.
  std::vector<const Expr *> args = {};
  std::vector<KeywordArgument> keywords = {}; ///< Call.
  unsigned depth = 1; ///< Levels of the tree below, itself
                      ///< included.
};

/// A dimension: a name, an integer, or `*` for as many as there are tokens.
struct Extent {
  Range range;
  std::string_view name;
  int64_t value = 0; ///< When the name is empty.
  bool grows = false;
};

struct Type {
  Range range;
  std::vector<Extent> extents; ///< Empty for a scalar.
  DType dtype = DType::F32;
};

struct Dim {
  Name name;
  std::optional<Extent> value; ///< The default.
};

struct Stmt {
  enum Kind : uint8_t {
    Param,
    Input,
    State,
    Assign,
    AddAssign,
    SubAssign,
    Output
  };
  Kind kind;
  Range range;
  std::vector<Name> names; ///< One, or several of a declaration.
  Type type;               ///< Declarations and Output.
  const Expr *expr = nullptr;
  Range op; ///< Assignments: the place of '=', '+=' or '-='.
};

struct Layer {
  Name name;
  Range range;
  std::vector<Dim> dims;
  std::vector<Stmt> stmts;
};

struct File {
  std::vector<Layer> layers;
  std::deque<Expr> exprs; ///< Arena.
};

} // namespace plum::frontend::syntax

#endif // PLUM_LIB_FRONTEND_SYNTAX_H
