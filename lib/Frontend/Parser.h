//===- Parser.h - Tokens to syntax ------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The grammar of docs/spec-language.md by recursive descent.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_FRONTEND_PARSER_H
#define PLUM_LIB_FRONTEND_PARSER_H

#include "Syntax.h"

namespace plum::frontend {

/// Depth at which an expression is refused, so that no later recursion over it
/// can overflow the stack.
constexpr unsigned maxExprDepth = 200;

/// Parses every layer of the file. After a syntax error parsing goes on at the
/// next statement; what could not be parsed is left out.
syntax::File parse(Diagnostics &diags);

} // namespace plum::frontend

#endif // PLUM_LIB_FRONTEND_PARSER_H
