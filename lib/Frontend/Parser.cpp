//===- Parser.cpp - Tokens to syntax: layers and statements ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A statement with an error is dropped and parsing goes on behind its line, so
// that one run shows several errors.
//
//===----------------------------------------------------------------------===//

#include "ParserImpl.h"

#include <charconv>
#include <fmt/format.h>

namespace plum::frontend {

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
      } else if (at(TokenKind::Star)) {
        type.extents.push_back({next().range, {}, 0, /*grows=*/true});
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

syntax::File parse(Diagnostics &diags) { return Parser(diags).run(); }

} // namespace plum::frontend
