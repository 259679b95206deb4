//===- Measure.h - Time and error of one candidate --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each candidate runs in a process of its own: one that crashes, hangs or
// leaves a GPU context that no longer answers takes nothing with it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_MEASURE_H
#define PLUM_RUNTIME_TOOL_MEASURE_H

#include "runtime/Inputs.h"
#include "runtime/ReferenceRun.h"
#include "runtime/TuningRecord.h"

#include <map>

namespace plum::runtime::tool {

/// A problem small enough for the float64 recurrence, and its results.
struct SmallTruth {
  RandomProblem random;
  Problem problem;
  std::vector<ReferenceSequence> sequences;
};

/// The truths of one layer and shape, by tokens; made when first wanted. No
/// thread of theirs is left running, so that a process may fork.
class Truths {
public:
  /// Tokens on which a schedule's error is measured.
  static int64_t tokensFor(const TuningShape &shape,
                           const TuningSchedule &schedule);
  Result<const SmallTruth *> get(const std::string &bundle,
                                 const TuningShape &shape, int64_t tokens);

private:
  std::map<int64_t, SmallTruth> made;
};

struct MeasureOptions {
  double seconds = 1;    ///< For the clock, after at least 3 runs.
  double hopelessMs = 0; ///< Stop at 3 runs when they are slower; 0: never.
  int threads = 0, gpu = 0;
};

struct Measured {
  std::string device;  ///< For the key.
  TuningResult result; ///< With times and errors, or a failure.
};

/// `candidate` of the bundle directory `bundle`, in a child process.
Measured measureApart(const std::string &bundle, const TuningResult &candidate,
                      const SmallTruth &truth, const MeasureOptions &options);

/// "2026-11-29", UTC.
std::string today();

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_MEASURE_H
