//===- Recurrence.h - The definition of truth -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A float64 interpreter of a checked layer: token by token, statement by
// statement, exactly as the spec reads. It knows nothing of decays, deltas or
// chunks; every other form of the layer is compared with it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_REFERENCE_RECURRENCE_H
#define PLUM_REFERENCE_RECURRENCE_H

#include "plum/Frontend/AST.h"

#include <span>

namespace plum::reference {

/// One head of one sequence, everything in float64, row-major. Spans are in
/// the order of layer.params, inputs, states, outputs; element counts are d,
/// T * d, K * V (or d; of a growing state (past + T) * d) and T * d.
struct Head {
  int64_t tokens = 0;
  std::vector<std::span<const double>> params, inputs;
  std::vector<std::span<double>> states;  ///< In: initial; out: final.
  std::vector<std::span<double>> outputs; ///< Unrounded.
  int64_t past = 0; ///< Rows in the growing states before the first token.
};

/// Runs the recurrence over `head.tokens` tokens.
void run(const frontend::Layer &layer, Head &head);

} // namespace plum::reference

#endif // PLUM_REFERENCE_RECURRENCE_H
