//===- Frontend.h - From spec text to a checked layer -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lexer, parser, shape inference and affine analysis behind one call. The
// grammar and the rules are in docs/spec-language.md.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_FRONTEND_FRONTEND_H
#define PLUM_FRONTEND_FRONTEND_H

#include "plum/Frontend/AST.h"

namespace plum::frontend {

struct SpecOptions {
  std::map<std::string, int64_t> dims; ///< --set NAME=VALUE.
  std::string layer; ///< --layer; needed when a file has several.
  /// --form step: updates that are not affine are accepted (stmt.affine stays
  /// empty, layer.affine is false) instead of being errors.
  bool stepOnly = false;
};

/// Parses and checks one layer of `diags.source()`. Null when there were
/// errors; warnings (an unused input) leave the layer usable.
std::unique_ptr<Layer> parseSpec(Diagnostics &diags,
                                 const SpecOptions &options);

} // namespace plum::frontend

#endif // PLUM_FRONTEND_FRONTEND_H
