//===- Lexer.cpp - Spec text to tokens ------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One pass over the bytes. A run of characters that start no token is one
// error, and only the first few runs are reported: a binary file given by
// mistake should not scroll the screen.
//
//===----------------------------------------------------------------------===//

#include "Lexer.h"

#include <fmt/format.h>

namespace plum::frontend {

std::string_view spelling(TokenKind kind) {
  switch (kind) {
  case TokenKind::Name:
    return "a name";
  case TokenKind::Number:
    return "a number";
  case TokenKind::Newline:
    return "the end of the line";
  case TokenKind::Semicolon:
    return "';'";
  case TokenKind::Comma:
    return "','";
  case TokenKind::Colon:
    return "':'";
  case TokenKind::LParen:
    return "'('";
  case TokenKind::RParen:
    return "')'";
  case TokenKind::LBracket:
    return "'['";
  case TokenKind::RBracket:
    return "']'";
  case TokenKind::LBrace:
    return "'{'";
  case TokenKind::RBrace:
    return "'}'";
  case TokenKind::Equal:
    return "'='";
  case TokenKind::PlusEqual:
    return "'+='";
  case TokenKind::MinusEqual:
    return "'-='";
  case TokenKind::Plus:
    return "'+'";
  case TokenKind::Minus:
    return "'-'";
  case TokenKind::Star:
    return "'*'";
  case TokenKind::Slash:
    return "'/'";
  case TokenKind::At:
    return "'@'";
  case TokenKind::Caret:
    return "'^'";
  case TokenKind::End:
    return "the end of the file";
  }
  return "";
}

namespace {
bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool isNameChar(char c) { return isNameStart(c) || isDigit(c); }

/// The punctuation token at the start of `text`; length 0 when there is none.
struct Punctuation {
  TokenKind kind;
  uint32_t length;
};
Punctuation punctuation(std::string_view text) {
  bool equal = text.size() > 1 && text[1] == '=';
  switch (text[0]) {
  case '\n':
    return {TokenKind::Newline, 1};
  case ';':
    return {TokenKind::Semicolon, 1};
  case ',':
    return {TokenKind::Comma, 1};
  case ':':
    return {TokenKind::Colon, 1};
  case '(':
    return {TokenKind::LParen, 1};
  case ')':
    return {TokenKind::RParen, 1};
  case '[':
    return {TokenKind::LBracket, 1};
  case ']':
    return {TokenKind::RBracket, 1};
  case '{':
    return {TokenKind::LBrace, 1};
  case '}':
    return {TokenKind::RBrace, 1};
  case '=':
    return {TokenKind::Equal, 1};
  case '+':
    return equal ? Punctuation{TokenKind::PlusEqual, 2}
                 : Punctuation{TokenKind::Plus, 1};
  case '-':
    return equal ? Punctuation{TokenKind::MinusEqual, 2}
                 : Punctuation{TokenKind::Minus, 1};
  case '*':
    return {TokenKind::Star, 1};
  case '/':
    return {TokenKind::Slash, 1};
  case '@':
    return {TokenKind::At, 1};
  case '^':
    return {TokenKind::Caret, 1};
  default:
    return {TokenKind::End, 0};
  }
}

/// Length of the number at the start of `text` (digits [. digits] [e digits],
/// or . digits); 0 when there is none.
uint32_t numberLength(std::string_view text) {
  auto at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  size_t i = 0;
  while (isDigit(at(i)))
    ++i;
  size_t digits = i;
  if (at(i) == '.') {
    ++i;
    while (isDigit(at(i)))
      ++i, ++digits;
  }
  if (digits == 0)
    return 0;
  if (at(i) == 'e' || at(i) == 'E') {
    size_t exponent = i + 1;
    if (at(exponent) == '+' || at(exponent) == '-')
      ++exponent;
    if (isDigit(at(exponent))) {
      i = exponent;
      while (isDigit(at(i)))
        ++i;
    }
  }
  return uint32_t(i);
}

std::string printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 8)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f ||
        static_cast<unsigned char>(c) >= 0x80)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return text.size() > 8 ? out + "..." : out;
}
} // namespace

std::vector<Token> lex(Diagnostics &diags) {
  constexpr unsigned maxReports = 5;
  std::string_view text = diags.source().text();
  std::vector<Token> tokens;
  unsigned reports = 0;
  uint32_t i = 0, size = uint32_t(text.size());
  auto report = [&](Range range, std::string message) {
    if (reports++ < maxReports)
      diags.error(range, std::move(message));
  };

  while (i < size) {
    char c = text[i];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
      continue;
    }
    if (c == '#') {
      while (i < size && text[i] != '\n')
        ++i;
      continue;
    }
    uint32_t begin = i;
    if (Punctuation found = punctuation(text.substr(i)); found.length) {
      i += found.length;
      tokens.push_back({found.kind, {begin, i}});
      continue;
    }
    if (isNameStart(c)) {
      while (i < size && isNameChar(text[i]))
        ++i;
      tokens.push_back({TokenKind::Name, {begin, i}});
      continue;
    }
    if (uint32_t length = numberLength(text.substr(i))) {
      i += length;
      uint32_t end = i;
      while (i < size && (isNameChar(text[i]) || text[i] == '.'))
        ++i;
      if (i != end)
        report({begin, i},
               fmt::format("malformed number '{}'",
                           printable(text.substr(begin, i - begin))));
      tokens.push_back({TokenKind::Number, {begin, end}});
      continue;
    }
    auto isStray = [&](char c) {
      return c != ' ' && c != '\t' && c != '\r' && c != '#' && !isNameChar(c) &&
             punctuation({&c, 1}).length == 0;
    };
    ++i;
    while (i < size && isStray(text[i]))
      ++i;
    report({begin, i}, fmt::format("unexpected '{}'",
                                   printable(text.substr(begin, i - begin))));
  }
  tokens.push_back({TokenKind::End, {size, size}});
  return tokens;
}

} // namespace plum::frontend
