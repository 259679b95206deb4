//===- AST.h - A layer spec as checked equations ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the parser builds and Sema completes: one token of one head, as a list
// of statements over expressions. Vectors are rows; `x^T` is the column.
//
// The frontend, this file included, uses no LLVM: the runtime carries the same
// code, so that a bundle can be checked against the float64 recurrence of its
// own spec on a machine that has no compiler.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_FRONTEND_AST_H
#define PLUM_FRONTEND_AST_H

#include "plum/Support/DType.h"
#include "plum/Support/Diagnostics.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plum::frontend {

/// Shape of a value. A row [d] has rows = 1; a column (a transposed row) has
/// cols = 1; `diag(w)` of a row [d] is d x d and kept symbolic. A list [*, d]
/// is a growing state: one row for each token so far, so rows = 0 says nothing.
struct Shape {
  enum Kind : uint8_t { Scalar, Row, Column, Matrix, Diagonal, List };
  Kind kind = Scalar;
  int64_t rows = 1, cols = 1;

  static Shape scalar() { return {Scalar, 1, 1}; }
  static Shape row(int64_t d) { return {Row, 1, d}; }
  static Shape column(int64_t d) { return {Column, d, 1}; }
  static Shape matrix(int64_t r, int64_t c) { return {Matrix, r, c}; }
  static Shape diagonal(int64_t d) { return {Diagonal, d, d}; }
  static Shape list(int64_t d) { return {List, 0, d}; }
  bool operator==(const Shape &) const = default;
  /// "scalar", "[128]", "[128]^T", "[128, 64]", "diag [128]",
  /// "[*, 128]".
  std::string str() const;
};

enum class Func : uint8_t {
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Sigmoid,
  Tanh,
  Softplus,
  Silu,
  Relu,
  Elu,
  Abs,
  Min,
  Max,
  Sum,
  L2Norm,
  RmsNorm,
  Append, ///< append(list, row): the list with one more row.
  Attend  ///< attend(q, keys, ..., values): softmax(sum of q keys^T) values.
};
std::string_view name(Func func);
std::optional<Func> parseFunc(std::string_view name);
/// An elementwise function at one point, in float64: its definition. Not for
/// Min, Max, Sum, the norms, Append and Attend.
double apply(Func func, double x);

enum class SymbolKind : uint8_t { Dim, Param, Input, State, Local, Output };

struct Expr;

/// A declared or defined name.
struct Symbol {
  SymbolKind kind;
  std::string name;
  Range range; ///< Where it is declared.
  Shape shape; ///< Vector state [d]: Row(d). Growing state: List. Dim: Scalar.
  DType dtype = DType::F32; ///< Storage; for locals and dims unused.
  int64_t value = 0;        ///< Dim: its value.
  std::optional<double> constant =
      {};                           ///< Dim, Local: its value when a constant.
  unsigned index = 0;               ///< Position among the symbols of its kind.
  const Expr *definition = nullptr; ///< Local, Output: Stmt.expr, or
                                    ///< Stmt.written where that is null.
};

enum class ExprKind : uint8_t {
  Number, ///< number
  Ref,    ///< symbol (and version, when it is a state)
  Neg,    ///< - args[0]
  Add,
  Sub, ///< args[0] +- args[1]; scalars broadcast
  Mul,
  Div,       ///< elementwise; scalars broadcast
  MatMul,    ///< args[0] @ args[1]
  Pow,       ///< args[0] ^ number
  Transpose, ///< args[0] ^T
  Diag,      ///< diag(args[0])
  Call       ///< func(args...), eps where it has one
};

/// A node; lives in its Layer's arena, so plain pointers are fine. Shapes are
/// filled in by Sema. Dims appear as Ref in the tree and are constants. What
/// the affine analysis builds shares nodes: a DAG, so visit each pointer once.
/// Only there a Number may have a Row shape (every element is it).
struct Expr {
  ExprKind kind;
  Range range;
  Shape shape = {};
  double number = 0; ///< Number, Pow (the exponent).
  double eps = 0;    ///< Call of l2norm, rmsnorm.
  Func func = Func::Exp;
  const Symbol *symbol = nullptr;
  unsigned version = 0; ///< Ref of a state: how many updates came before.
  std::vector<const Expr *> args = {};
};

/// coeff * (key @ S_version); with `decayed`, key @ (D @ S_version), D the
/// decay of the update that makes S_{version+1} out of S_version.
struct Read {
  const Expr *coeff; ///< Scalar; null is 1.
  const Expr *key;   ///< Row [K].
  unsigned version;
  bool decayed;
};

/// S += key^T @ (coeff * (value + sum of reads)).
struct Write {
  const Expr *coeff;       ///< Scalar; null is 1.
  const Expr *key;         ///< Row [K].
  const Expr *value;       ///< Row [V] (scalar for a vector state); null is 0.
  std::vector<Read> reads; ///< Of this same state.
  Range range;
};

/// The affine form of an update: S_{v+1} = D @ S_v + sum of writes. All
/// expressions in it are free of this state, but for the explicit reads.
struct AffineUpdate {
  enum DecayKind : uint8_t { None, Scalar, Channel };
  DecayKind decayKind = None;
  const Expr *decay = nullptr; ///< Scalar or Row [K]: log D when logDomain.
  bool logDomain = false;      ///< The spec wrote exp(decay).
  std::vector<Write> writes;
};

/// What a chunkwise form can compute, in normal form: in `expr` of a Define or
/// an Output every value is a scalar or a row, and the only matrix products are
///
///   x @ S       S a plain Ref of a matrix state, at a version
///   x @ z^T     z a plain Ref of a vector state, at a version
///   x @ y^T     a dot product
///
/// A local that is a matrix, a column, a diagonal or a row with a whole vector
/// state in it has no such form: its `expr` is null and no `expr` refers to it.
/// When the layer is not affine, `expr` is `written` everywhere.
struct Stmt {
  enum Kind : uint8_t {
    Define, ///< symbol (Local) = expr
    Update, ///< symbol (State): S_{version+1} = expr
    Output  ///< symbol (Output) = expr
  };
  Kind kind;
  Range range;
  const Symbol *symbol;
  const Expr *written; ///< As the spec has it, `+=` spelled out as S + ...
  const Expr *expr;    ///< In normal form, see above; Update: `written`, or
                    ///< of a growing state append(state, row in normal form).
  unsigned version = 0;                    ///< Update: of the state before it.
  std::optional<AffineUpdate> affine = {}; ///< Update: absent when not affine,
                                           ///< and of a growing state.
};

/// A checked layer.
struct Layer {
  std::string name;
  Range range;
  std::vector<const Symbol *> dims, params, inputs, states, outputs, locals;
  std::vector<Stmt> stmts;
  /// Every update is affine and every other expression has its normal form;
  /// false only with SpecOptions::stepOnly.
  bool affine = true;

  std::deque<Symbol> symbols; ///< Arena.
  std::deque<Expr> exprs;     ///< Arena.

  /// The input that a growing state's rows are, as it stands; null where they
  /// are computed.
  const Symbol *rowsOf(const Symbol &list) const;
};

} // namespace plum::frontend

#endif // PLUM_FRONTEND_AST_H
