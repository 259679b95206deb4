//===- Sema.h - Syntax to a checked layer -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names, shapes and the rules of declarations. What comes out is the AST with
// `written` expressions only; the affine analysis completes it.
//
// A name whose declaration had an error is remembered as such, and a null
// expression stands for one that had an error, so that one mistake is one
// message.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_SEMA_H
#define PLUM_LIB_FRONTEND_SEMA_H

#include "Syntax.h"

#include "plum/Frontend/Frontend.h"

#include <set>
#include <unordered_map>
#include <unordered_set>

namespace plum::frontend {

constexpr int64_t maxExtent = 4096;
constexpr size_t maxStates = 64; ///< Sets of states are 64-bit masks.
/// Levels of an expression with its locals' definitions put in.
constexpr unsigned maxChainDepth = 1000;

class Sema {
public:
  Sema(Diagnostics &diags, const SpecOptions &options)
      : diags(diags), options(options) {}

  /// Null when there were errors.
  std::unique_ptr<Layer> check(const syntax::Layer &source);

private:
  //===--- Declarations and statements (Sema.cpp) -------------------------===//
  void checkDims(const syntax::Layer &source);
  void checkStmt(const syntax::Stmt &stmt);
  void checkDeclaration(const syntax::Stmt &stmt);
  void checkAssignment(const syntax::Stmt &stmt);
  void checkUpdate(const syntax::Stmt &stmt, Symbol &state);
  void checkOutput(const syntax::Stmt &stmt);
  void checkWhole(const syntax::Layer &source);
  std::optional<Shape> checkType(const syntax::Type &type);
  /// An update of a growing state is append(state, row) and nothing else.
  bool checkAppend(const syntax::Stmt &stmt, const Symbol &state,
                   const Expr *expr);
  /// Says that a growing state does not go where `use` is.
  void refuseList(const Expr *list, std::string_view use);
  std::optional<int64_t> checkExtent(const syntax::Extent &extent);
  Symbol *declare(SymbolKind kind, syntax::Name name, Shape shape, DType dtype);
  bool isNew(syntax::Name name);
  void noteNearest(Range range, std::string_view wrong,
                   const std::vector<std::string_view> &names);
  std::vector<std::string_view> visibleNames(bool dimsOnly) const;

  //===--- Expressions (SemaExpr.cpp) -------------------------------------===//
  const Expr *check(const syntax::Expr &expr);
  const Expr *checkName(const syntax::Expr &expr);
  const Expr *checkElementwise(const syntax::Expr &expr, ExprKind kind,
                               const Expr *left, const Expr *right);
  const Expr *checkMatMul(const syntax::Expr &expr, const Expr *left,
                          const Expr *right);
  const Expr *checkPow(const syntax::Expr &expr, const Expr *base,
                       const Expr *exponent);
  const Expr *checkTranspose(const syntax::Expr &expr, const Expr *arg);
  const Expr *checkCall(const syntax::Expr &expr);
  const Expr *checkDiag(const syntax::Expr &expr,
                        const std::vector<const Expr *> &args);
  std::optional<Shape> appendShape(const syntax::Expr &expr,
                                   const std::vector<const Expr *> &args);
  std::optional<Shape> attendShape(const syntax::Expr &expr,
                                   const std::vector<const Expr *> &args);
  std::optional<Shape> callShape(const syntax::Expr &expr, Func func,
                                 const std::vector<const Expr *> &args);
  bool checkKeywords(const syntax::Expr &expr, Func func, double &eps);
  /// Adds the node; null when it lies too deep under its locals.
  const Expr *make(Expr node);

  Diagnostics &diags;
  const SpecOptions &options;
  const syntax::Layer *source = nullptr;
  std::unique_ptr<Layer> layer;
  std::unordered_map<std::string_view, Symbol *> table;
  std::unordered_set<std::string_view> poisoned;
  std::unordered_map<const Symbol *, unsigned> versions; ///< Updates so far.
  std::unordered_set<const Symbol *> used; ///< A state: outside its updates.
  std::unordered_map<const Expr *, unsigned> depths; ///< With locals put in.
  const Symbol *updating = nullptr; ///< The state of the current statement.
};

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_SEMA_H
