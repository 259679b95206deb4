//===- AttendEmulation.h - Kernels of growing states, emulated --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A run of a layer whose states grow: planned by the runtime as it plans a
// launch, run in the emulator, compared with float64. Every run is hostile: NaN
// lies between rows, behind lists and in the rows of inputs that are nobody's,
// outputs start as 776, and what has to be left alone is checked bit for bit.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_INTEGRATION_ATTENDEMULATION_H
#define PLUM_TEST_INTEGRATION_ATTENDEMULATION_H

#include "test/integration/Harness.h"

namespace plum::test {

struct AttendRun {
  Spec spec;
  std::string target = "sm_90a";
  Precision precision = Precision::Default;
  int64_t chunk = 64;               ///< 0: step kernels.
  int64_t heads = 1, listHeads = 0; ///< 0: each head has lists of its own.
  std::map<std::string, int64_t> headsOf = {}; ///< Of lists with others.
  /// Of a batch of equal lengths or, with `packed`, side by side.
  std::vector<int64_t> lengths = {};
  bool packed = false;
  std::vector<int64_t> past = {};  ///< Of each; empty: 0.
  std::vector<int64_t> slots = {}; ///< Of each; -1: padding. Empty: no pool.
  /// Kernels find the lists by tables, of addresses or, with `wide`, offsets;
  /// `slots` then are nothing but where they are.
  bool tables = false;
  DType list = DType::BF16;
  bool apart = false; ///< Final lists are not where the initial ones are.
  bool wide = false;  ///< Indices are int64.
  double scale = 1;   ///< Of inputs and rows.
  uint64_t seed = 0;  ///< Of the warps' interleaving.
  uint32_t data = 1;  ///< Of the numbers.
  /// Changes a number: which input (or list, "keys") it is for, sequence, token
  /// (or row), head, column.
  std::function<double(const std::string &, int64_t, int64_t, int64_t, int64_t,
                       double)>
      change = nullptr;
};

/// Outputs of all sequences, tokens and heads that there are, one after the
/// other. Empty, with a test failure, where something is wrong.
std::vector<double> emulate(const AttendRun &run, double limit = 5e-3);

/// The error that refuses the layer.
std::string refusal(const AttendRun &run);

} // namespace plum::test

#endif // PLUM_TEST_INTEGRATION_ATTENDEMULATION_H
