//===- ParserExpr.cpp - Tokens to syntax: expressions ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loosest operator first. Input may be hostile: recursion is counted (brackets,
// signs, exponents) and so is the depth of every tree, as a long sum is a deep
// tree too.
//
//===----------------------------------------------------------------------===//

#include "ParserImpl.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace plum::frontend {

using syntax::Expr;
using syntax::ExprKind;

void Parser::reportDepth(Range range) {
  error(range, fmt::format("expression is nested deeper than {} levels",
                           maxExprDepth));
}

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

} // namespace plum::frontend
