//===- Parser.cpp - Tokens to syntax --------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recursive descent, one function for a rule. A rule that fails has reported
// its error and gives null (or false); the statement it was in is dropped and
// parsing goes on behind its line, so that one run shows several errors.
//
// Input may be hostile: recursion is counted (brackets, signs, exponents) and
// so is the depth of every tree, as a long sum is a deep tree too.
//
//===----------------------------------------------------------------------===//

#include "Parser.h"

#include "Lexer.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace plum::frontend {

namespace {
using syntax::Expr;
using syntax::ExprKind;

class Parser {
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
      return fmt::format("'{}'", textOf(token.range).substr(0, 40));
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
  void reportDepth(Range range) {
    error(range, fmt::format("expression is nested deeper than {} levels",
                             maxExprDepth));
  }

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

bool isKeyword(std::string_view word) {
  return word == "layer" || word == "param" || word == "input" ||
         word == "state" || word == "output";
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

std::nullptr_t Parser::expected(std::string_view what) {
  const Token &token = peek();
  // What is missing at the end of a line is missing there, even when an open
  // bracket makes the parser look at a later line.
  auto line = [&](uint32_t offset) {
    return diags.source().place(offset).line;
  };
  bool later =
      previous.end > 0 &&
      (token.kind == TokenKind::Newline || token.kind == TokenKind::End ||
       line(token.range.begin) != line(previous.end));
  Range range = later ? Range{previous.end, previous.end} : token.range;
  error(range, fmt::format("expected {}, got {}", what, describe(token)));
  return nullptr;
}

bool Parser::close(TokenKind kind, Range open) {
  if (accept(kind))
    return true;
  expected(spelling(kind));
  if (errors <= maxErrors)
    diags.note(open, fmt::format("to match this '{}'", textOf(open)));
  return false;
}

/// Goes to the end of the statement that began at token `start` and had an
/// error: the end of the line of the last token taken, whatever brackets are
/// open, but at least one token on.
void Parser::recoverToStatement(size_t start) {
  brackets = 0;
  while (cursor > start + 1 && tokens[cursor - 1].range.begin >= previous.end)
    --cursor;
  if (cursor == start && !at(TokenKind::End))
    ++cursor;
  while (!at(TokenKind::Newline) && !at(TokenKind::Semicolon) &&
         !at(TokenKind::RBrace) && !at(TokenKind::End))
    next();
}

void Parser::recoverToLayer() {
  brackets = 0;
  while (!atWord("layer") && !at(TokenKind::End))
    next();
}

//===----------------------------------------------------------------------===//
// Layers and statements
//===----------------------------------------------------------------------===//

syntax::File Parser::run() {
  while (!tooMany()) {
    skipNewlines();
    if (at(TokenKind::End))
      break;
    if (!atWord("layer")) {
      expected("'layer'");
      recoverToLayer();
      continue;
    }
    if (std::optional<syntax::Layer> layer = parseLayer())
      file.layers.push_back(std::move(*layer));
    else
      recoverToLayer();
  }
  if (tooMany())
    diags.error(previous, "too many errors, stopping here");
  return std::move(file);
}

std::optional<syntax::Layer> Parser::parseLayer() {
  syntax::Layer layer;
  layer.range = next().range; // 'layer'
  std::optional<syntax::Name> name = parseName("the layer's name");
  if (!name)
    return std::nullopt;
  layer.name = *name;
  if (!parseDims(layer))
    return std::nullopt;
  layer.range.end = previous.end;
  skipNewlines();
  Range open = peek().range;
  if (!expect(TokenKind::LBrace))
    return std::nullopt;
  parseBody(layer);
  if (tooMany())
    return std::nullopt;
  if (!close(TokenKind::RBrace, open))
    return std::nullopt;
  return layer;
}

bool Parser::parseDims(syntax::Layer &layer) {
  Range open = peek().range;
  if (!expect(TokenKind::LParen))
    return false;
  ++brackets;
  if (!at(TokenKind::RParen)) {
    do {
      syntax::Dim dim;
      std::optional<syntax::Name> name = parseName("a dim's name");
      if (!name)
        return false;
      dim.name = *name;
      if (accept(TokenKind::Equal)) {
        dim.value = parseInteger();
        if (!dim.value)
          return false;
      }
      layer.dims.push_back(dim);
    } while (accept(TokenKind::Comma));
  }
  if (!close(TokenKind::RParen, open))
    return false;
  --brackets;
  return true;
}

void Parser::parseBody(syntax::Layer &layer) {
  while (!tooMany()) {
    while (at(TokenKind::Newline) || at(TokenKind::Semicolon))
      next();
    if (at(TokenKind::RBrace) || at(TokenKind::End) || atWord("layer"))
      return;
    size_t start = cursor;
    std::optional<syntax::Stmt> stmt = parseStmt();
    if (stmt && !at(TokenKind::Newline) && !at(TokenKind::Semicolon) &&
        !at(TokenKind::RBrace) && !at(TokenKind::End)) {
      expected("the end of the statement");
      stmt.reset();
    }
    if (stmt)
      layer.stmts.push_back(std::move(*stmt));
    else
      recoverToStatement(start);
  }
}

std::optional<syntax::Stmt> Parser::parseStmt() {
  syntax::Stmt stmt;
  stmt.range = peek().range;
  bool good = false;
  if (atWord("param") || atWord("input") || atWord("state")) {
    stmt.kind = atWord("param")   ? syntax::Stmt::Param
                : atWord("input") ? syntax::Stmt::Input
                                  : syntax::Stmt::State;
    next();
    good = parseDeclaration(stmt);
  } else if (atWord("output")) {
    stmt.kind = syntax::Stmt::Output;
    next();
    good = parseOutput(stmt);
  } else if (at(TokenKind::Name)) {
    good = parseAssignment(stmt);
  } else {
    expected("a statement");
  }
  if (!good)
    return std::nullopt;
  stmt.range.end = previous.end;
  return stmt;
}

bool Parser::parseDeclaration(syntax::Stmt &stmt) {
  do {
    std::optional<syntax::Name> name = parseName("a name");
    if (!name)
      return false;
    stmt.names.push_back(*name);
  } while (accept(TokenKind::Comma));
  if (!expect(TokenKind::Colon))
    return false;
  std::optional<syntax::Type> type = parseType();
  if (!type)
    return false;
  stmt.type = std::move(*type);
  return true;
}

bool Parser::parseOutput(syntax::Stmt &stmt) {
  std::optional<syntax::Name> name = parseName("the output's name");
  if (!name || !expect(TokenKind::Colon))
    return false;
  stmt.names.push_back(*name);
  std::optional<syntax::Type> type = parseType();
  if (!type)
    return false;
  stmt.type = std::move(*type);
  stmt.op = peek().range;
  if (!expect(TokenKind::Equal))
    return false;
  stmt.expr = parseSum();
  return stmt.expr != nullptr;
}

bool Parser::parseAssignment(syntax::Stmt &stmt) {
  std::optional<syntax::Name> name = parseName("a name");
  if (!name)
    return false;
  stmt.names.push_back(*name);
  stmt.op = peek().range;
  if (accept(TokenKind::Equal)) {
    stmt.kind = syntax::Stmt::Assign;
  } else if (accept(TokenKind::PlusEqual)) {
    stmt.kind = syntax::Stmt::AddAssign;
  } else if (accept(TokenKind::MinusEqual)) {
    stmt.kind = syntax::Stmt::SubAssign;
  } else {
    expected("'=', '+=' or '-='");
    return false;
  }
  stmt.expr = parseSum();
  return stmt.expr != nullptr;
}

std::optional<syntax::Name> Parser::parseName(std::string_view what) {
  if (!at(TokenKind::Name)) {
    expected(what);
    return std::nullopt;
  }
  Range range = peek().range;
  std::string_view word = textOf(range);
  if (isKeyword(word)) {
    error(range, fmt::format("expected {}, got the keyword '{}'", what, word));
    return std::nullopt;
  }
  if (word == "T") {
    error(range, "'T' cannot be a name: '^T' is the transpose");
    return std::nullopt;
  }
  next();
  return syntax::Name{word, range};
}

std::optional<syntax::Type> Parser::parseType() {
  syntax::Type type;
  type.range = peek().range;
  if (at(TokenKind::LBracket)) {
    Range open = next().range;
    ++brackets;
    do {
      if (at(TokenKind::Name)) {
        std::optional<syntax::Name> name = parseName("an extent");
        if (!name)
          return std::nullopt;
        type.extents.push_back({name->range, name->text, 0});
      } else {
        std::optional<syntax::Extent> extent = parseInteger();
        if (!extent)
          return std::nullopt;
        type.extents.push_back(*extent);
      }
    } while (accept(TokenKind::Comma));
    if (!close(TokenKind::RBracket, open))
      return std::nullopt;
    --brackets;
  }
  std::optional<DType> dtype;
  if (at(TokenKind::Name))
    dtype = parseDType(textOf(peek().range));
  if (!dtype || *dtype == DType::I32 || *dtype == DType::I64) {
    expected("'f32', 'f16' or 'bf16'");
    return std::nullopt;
  }
  next();
  type.dtype = *dtype;
  type.range.end = previous.end;
  return type;
}

/// A sign is read only so that Sema can say what is wrong with the value.
std::optional<syntax::Extent> Parser::parseInteger() {
  syntax::Extent extent;
  extent.range = peek().range;
  bool negative = accept(TokenKind::Minus);
  if (!at(TokenKind::Number)) {
    expected("an integer");
    return std::nullopt;
  }
  extent.range.end = peek().range.end;
  std::string_view digits = textOf(peek().range);
  const char *end = digits.data() + digits.size();
  auto [stop, code] = std::from_chars(digits.data(), end, extent.value);
  if (code == std::errc::result_out_of_range) {
    error(extent.range,
          fmt::format("integer '{}' is too large", digits.substr(0, 40)));
    return std::nullopt;
  }
  if (code != std::errc() || stop != end) {
    expected("an integer");
    return std::nullopt;
  }
  next();
  if (negative)
    extent.value = -extent.value;
  return extent;
}

//===----------------------------------------------------------------------===//
// Expressions, loosest first
//===----------------------------------------------------------------------===//

const Expr *Parser::make(Expr node) {
  for (const Expr *arg : node.args)
    node.depth = std::max(node.depth, arg->depth + 1);
  for (const syntax::KeywordArgument &keyword : node.keywords)
    node.depth = std::max(node.depth, keyword.value->depth + 1);
  if (node.depth > maxExprDepth) {
    reportDepth(node.range);
    return nullptr;
  }
  return &file.exprs.emplace_back(std::move(node));
}

const Expr *Parser::parseSum() {
  Nested level(*this);
  if (tooDeep(peek().range))
    return nullptr;
  const Expr *left = parseProduct();
  while (left && (at(TokenKind::Plus) || at(TokenKind::Minus))) {
    const Token &op = next();
    const Expr *right = parseProduct();
    if (!right)
      return nullptr;
    left = make(
        {.kind = op.kind == TokenKind::Plus ? ExprKind::Add : ExprKind::Sub,
         .range = {left->range.begin, right->range.end},
         .op = op.range,
         .args = {left, right}});
  }
  return left;
}

const Expr *Parser::parseProduct() {
  const Expr *left = parseUnary();
  while (left &&
         (at(TokenKind::Star) || at(TokenKind::Slash) || at(TokenKind::At))) {
    const Token &op = next();
    const Expr *right = parseUnary();
    if (!right)
      return nullptr;
    ExprKind kind = op.kind == TokenKind::Star    ? ExprKind::Mul
                    : op.kind == TokenKind::Slash ? ExprKind::Div
                                                  : ExprKind::MatMul;
    left = make({.kind = kind,
                 .range = {left->range.begin, right->range.end},
                 .op = op.range,
                 .args = {left, right}});
  }
  return left;
}

const Expr *Parser::parseUnary() {
  if (!at(TokenKind::Minus))
    return parsePower();
  Nested level(*this);
  if (tooDeep(peek().range))
    return nullptr;
  Range op = next().range;
  const Expr *operand = parseUnary();
  if (!operand)
    return nullptr;
  return make({.kind = ExprKind::Neg,
               .range = {op.begin, operand->range.end},
               .op = op,
               .args = {operand}});
}

const Expr *Parser::parsePower() {
  const Expr *base = parsePrimary();
  while (base && at(TokenKind::Caret)) {
    Range op = next().range;
    if (atWord("T")) {
      next();
      base = make({.kind = ExprKind::Transpose,
                   .range = {base->range.begin, previous.end},
                   .op = {op.begin, previous.end},
                   .args = {base}});
      continue;
    }
    const Expr *exponent = parseExponent();
    if (!exponent)
      return nullptr;
    base = make({.kind = ExprKind::Pow,
                 .range = {base->range.begin, exponent->range.end},
                 .op = op,
                 .args = {base, exponent}});
  }
  return base;
}

/// Right associative; a '^T' behind it belongs to the whole power.
const Expr *Parser::parseExponent() {
  Nested level(*this);
  if (tooDeep(peek().range))
    return nullptr;
  if (at(TokenKind::Minus)) {
    Range op = next().range;
    const Expr *operand = parseExponent();
    if (!operand)
      return nullptr;
    return make({.kind = ExprKind::Neg,
                 .range = {op.begin, operand->range.end},
                 .op = op,
                 .args = {operand}});
  }
  const Expr *base = parsePrimary();
  if (!base || !at(TokenKind::Caret))
    return base;
  size_t after = cursor + 1;
  while (brackets > 0 && tokens[after].kind == TokenKind::Newline)
    ++after;
  if (tokens[after].kind == TokenKind::Name &&
      textOf(tokens[after].range) == "T")
    return base;
  Range op = next().range;
  const Expr *exponent = parseExponent();
  if (!exponent)
    return nullptr;
  return make({.kind = ExprKind::Pow,
               .range = {base->range.begin, exponent->range.end},
               .op = op,
               .args = {base, exponent}});
}

const Expr *Parser::parsePrimary() {
  if (at(TokenKind::Number))
    return parseNumber();
  if (at(TokenKind::LParen)) {
    Range open = next().range;
    ++brackets;
    const Expr *inner = parseSum();
    if (!inner || !close(TokenKind::RParen, open))
      return nullptr;
    --brackets;
    // The same node with the brackets in its range, for better carets.
    Expr node = *inner;
    node.range = {open.begin, previous.end};
    return &file.exprs.emplace_back(std::move(node));
  }
  if (at(TokenKind::Name)) {
    Range range = peek().range;
    std::string_view word = textOf(range);
    if (isKeyword(word) || word == "T")
      return expected("an expression");
    next();
    if (at(TokenKind::LParen))
      return parseCall({word, range});
    return make({.kind = ExprKind::Name,
                 .range = range,
                 .op = range,
                 .name = {word, range}});
  }
  bool continued = at(TokenKind::Newline);
  expected("an expression");
  if (continued && errors <= maxErrors)
    diags.note({previous.end, previous.end},
               "a statement ends at the end of its line unless a bracket is "
               "open");
  return nullptr;
}

const Expr *Parser::parseCall(syntax::Name name) {
  Expr call{.kind = ExprKind::Call, .range = name.range, .op = name.range};
  call.name = name;
  Range open = next().range;
  ++brackets;
  do {
    size_t after = cursor + 1;
    while (after < tokens.size() && tokens[after].kind == TokenKind::Newline)
      ++after;
    bool keyword = at(TokenKind::Name) && after < tokens.size() &&
                   tokens[after].kind == TokenKind::Equal;
    if (keyword) {
      Range range = next().range;
      next(); // '='
      const Expr *value = parseSum();
      if (!value)
        return nullptr;
      call.keywords.push_back({{textOf(range), range}, value});
      continue;
    }
    const Expr *arg = parseSum();
    if (!arg)
      return nullptr;
    if (!call.keywords.empty()) {
      error(arg->range, "an argument without a name cannot follow a named one");
      return nullptr;
    }
    call.args.push_back(arg);
  } while (accept(TokenKind::Comma));
  if (!close(TokenKind::RParen, open))
    return nullptr;
  --brackets;
  call.range.end = previous.end;
  return make(std::move(call));
}

const Expr *Parser::parseNumber() {
  Range range = peek().range;
  std::string_view digits = textOf(range);
  double value = 0;
  auto [stop, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  next();
  if (code != std::errc() || !std::isfinite(value)) {
    error(range, fmt::format("number '{}' is out of the range of float64",
                             digits.substr(0, 40)));
    return nullptr;
  }
  return make(
      {.kind = ExprKind::Number, .range = range, .op = range, .number = value});
}
} // namespace

syntax::File parse(Diagnostics &diags) { return Parser(diags).run(); }

} // namespace plum::frontend
