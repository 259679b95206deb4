//===- Lexer.h - Spec text to tokens ----------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens of the spec language. Newlines are tokens: the parser, which knows
// whether a bracket is open, decides if one ends a statement.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_LEXER_H
#define PLUM_LIB_FRONTEND_LEXER_H

#include "plum/Support/Diagnostics.h"

#include <string_view>
#include <vector>

namespace plum::frontend {

enum class TokenKind : uint8_t {
  Name,
  Number,
  Newline,
  Semicolon,
  Comma,
  Colon,
  LParen,
  RParen,
  LBracket,
  RBracket,
  LBrace,
  RBrace,
  Equal,
  PlusEqual,
  MinusEqual,
  Plus,
  Minus,
  Star,
  Slash,
  At,
  Caret,
  End
};

struct Token {
  TokenKind kind;
  Range range;
};

/// "'+='", "a name", "the end of the line": a token kind in a message.
std::string_view spelling(TokenKind kind);

/// The tokens of the whole source, closed by an End. Reports characters that
/// start no token and leaves them out.
std::vector<Token> lex(Diagnostics &diags);

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_LEXER_H
