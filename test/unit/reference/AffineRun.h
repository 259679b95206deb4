//===- AffineRun.h - A layer run by its normal forms ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interprets what the spec says; this interprets what the affine
// analysis made of it (Stmt.expr and Stmt.affine), as literally. Where both
// agree the analysis kept the meaning.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_REFERENCE_AFFINERUN_H
#define PLUM_TEST_UNIT_REFERENCE_AFFINERUN_H

#include "plum/Reference/Recurrence.h"

namespace plum::test {

/// Precondition: layer.affine.
void runAffine(const frontend::Layer &layer, reference::Head &head);

/// The numbers of one head, with spans over them.
struct HeadData {
  /// Inputs, params and initial states drawn from `seed`.
  HeadData(const frontend::Layer &layer, int64_t tokens, uint32_t seed);

  reference::Head head();

  int64_t tokens;
  std::vector<std::vector<double>> params, inputs, states, outputs;
};

} // namespace plum::test

#endif // PLUM_TEST_UNIT_REFERENCE_AFFINERUN_H
