//===- ParserImpl.h - The state and the rules of the parser -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recursive descent, one function for a rule: statements are in Parser.cpp,
// expressions in ParserExpr.cpp. A rule that fails has reported its error and
// gives null (or false).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_PARSERIMPL_H
#define PLUM_LIB_FRONTEND_PARSERIMPL_H

#include "Lexer.h"
#include "Parser.h"

#include <string>

namespace plum::frontend {

class Parser {
  using Expr = syntax::Expr;
  using ExprKind = syntax::ExprKind;

public:
  explicit Parser(Diagnostics &diags)
      : diags(diags), text(diags.source().text()), tokens(lex(diags)) {}

  syntax::File run();

private:
  //===--- Tokens ---------------------------------------------------------===//
  const Token &peek() {
    if (brackets > 0)
      skipNewlines();
    return tokens[cursor];
  }
  const Token &next() {
    const Token &token = peek();
    previous = token.range;
    if (token.kind != TokenKind::End)
      ++cursor;
    return token;
  }
  bool at(TokenKind kind) { return peek().kind == kind; }
  bool atWord(std::string_view word) {
    return at(TokenKind::Name) && textOf(peek().range) == word;
  }
  bool accept(TokenKind kind) {
    if (!at(kind))
      return false;
    next();
    return true;
  }
  void skipNewlines() {
    while (tokens[cursor].kind == TokenKind::Newline)
      ++cursor;
  }
  std::string_view textOf(Range range) const {
    return text.substr(range.begin, range.end - range.begin);
  }
  std::string describe(const Token &token) const {
    if (token.kind == TokenKind::Name || token.kind == TokenKind::Number)
      return "'" + std::string(textOf(token.range).substr(0, 40)) + "'";
    return std::string(spelling(token.kind));
  }

  //===--- Errors ---------------------------------------------------------===//
  bool tooMany() const { return errors > maxErrors; }
  void error(Range range, std::string message) {
    if (++errors <= maxErrors)
      diags.error(range, std::move(message));
  }
  /// "expected X, got Y" at the next token. Null for convenience.
  std::nullptr_t expected(std::string_view what);
  bool expect(TokenKind kind) {
    if (accept(kind))
      return true;
    expected(spelling(kind));
    return false;
  }
  /// Closes a bracket opened at `open`.
  bool close(TokenKind kind, Range open);
  void recoverToStatement(size_t start);
  void recoverToLayer();

  //===--- Rules ----------------------------------------------------------===//
  std::optional<syntax::Layer> parseLayer();
  bool parseDims(syntax::Layer &layer);
  void parseBody(syntax::Layer &layer);
  std::optional<syntax::Stmt> parseStmt();
  bool parseDeclaration(syntax::Stmt &stmt);
  bool parseOutput(syntax::Stmt &stmt);
  bool parseAssignment(syntax::Stmt &stmt);
  std::optional<syntax::Name> parseName(std::string_view what);
  std::optional<syntax::Type> parseType();
  std::optional<syntax::Extent> parseInteger();
  const Expr *parseSum();
  const Expr *parseProduct();
  const Expr *parseUnary();
  const Expr *parsePower();
  const Expr *parseExponent();
  const Expr *parsePrimary();
  const Expr *parseCall(syntax::Name name);
  const Expr *parseNumber();
  const Expr *make(Expr node);

  /// Counts a level of recursion for the time of a rule.
  struct Nested {
    Parser &parser;
    explicit Nested(Parser &parser) : parser(parser) { ++parser.nesting; }
    ~Nested() { --parser.nesting; }
  };
  bool tooDeep(Range range) {
    if (nesting <= maxExprDepth)
      return false;
    reportDepth(range);
    return true;
  }
  void reportDepth(Range range);

  static constexpr unsigned maxErrors = 20;
  Diagnostics &diags;
  std::string_view text;
  std::vector<Token> tokens;
  size_t cursor = 0;
  Range previous;        ///< Of the last token taken.
  unsigned brackets = 0; ///< Open ( and [: newlines mean nothing inside.
  unsigned nesting = 0;
  unsigned errors = 0;
  syntax::File file;
};

inline bool isKeyword(std::string_view word) {
  return word == "layer" || word == "param" || word == "input" ||
         word == "state" || word == "output";
}

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_PARSERIMPL_H
