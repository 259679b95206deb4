//===- TestSpec.h - Specs in tests ------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses a spec given as text and shows what came of it as text, so that a test
// is a spec and what is expected, nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_FRONTEND_TESTSPEC_H
#define PLUM_TEST_UNIT_FRONTEND_TESTSPEC_H

#include "plum/Frontend/Frontend.h"

#include <memory>

namespace plum::test {

/// A parsed spec with everything that must outlive it.
struct Spec {
  explicit Spec(std::string text, const frontend::SpecOptions &options = {});

  /// "line:column: severity: message" of each message, one a line.
  std::string messages() const;
  /// Messages with their source lines.
  std::string rendered() const { return diags.render(); }

  Source source;
  Diagnostics diags;
  std::unique_ptr<frontend::Layer> layer;
};

/// A layer with q, k, r, w : [K], v, u : [V], a, b scalars, S, P : [K, V] and
/// z : [K], K = 4 and V = 3, around statements `body`, which begin on line 7.
/// `output` is the last line: by default "output o : [V] f32 = q @ S".
std::string layerOf(const std::string &body, const std::string &output = "");

/// Everything on one line, with brackets around every operator; a state is
/// followed by its version: "(k @ S.0)".
std::string print(const frontend::Expr *expr);
/// "channel log a; write beta * kn^T (v + -1 * kn S.1 decayed)".
std::string print(const frontend::AffineUpdate &update);
/// Every statement on a line; an update in its affine form.
std::string print(const frontend::Layer &layer);

/// Prints layerOf(body), or its errors.
std::string printLayerOf(const std::string &body,
                         const std::string &output = "");
/// Only the updates of layerOf(body), or its errors.
std::string updatesOf(const std::string &body);
/// The errors and notes, no warnings, of layerOf(body).
std::string errorsOf(const std::string &body, const std::string &output = "");

} // namespace plum::test

#endif // PLUM_TEST_UNIT_FRONTEND_TESTSPEC_H
