//===- Candidates.h - Which schedules are worth a try -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three sieves, each dearer than the one before: what the cost model knows from
// the layer alone; what the compiler and ptxas say of the kernels; then the
// clock. Nothing drops out without a reason that is printed.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TUNING_CANDIDATES_H
#define PLUM_LIB_TUNING_CANDIDATES_H

#include "CostModel.h"

#include <chrono>

namespace plum::tuning {

struct Pruned {
  runtime::TuningSchedule schedule;
  std::string reason;
};

/// The candidates of one shape, best estimate first.
struct Plan {
  runtime::TuningKey key;
  runtime::TuningShape shape;
  DeviceModel device;
  bool fixed = false; ///< No segments are added to the candidates.
  std::vector<runtime::TuningResult> candidates;
  std::vector<Pruned> pruned;
};

/// Everything that can be asked of the passes; segments are added once it is
/// known that kernels can be split.
std::vector<runtime::TuningSchedule> schedulesOf(const LayerFacts &facts,
                                                 const CompileOptions &options);

/// A schedule that takes longer than this many times the best estimate is not
/// tried: twice the error that the model was seen to make.
inline constexpr double hopeless = 3;

/// The first sieve: padding, decay range, shared memory, waves and work.
Plan planShape(const LayerFacts &facts,
               const std::vector<runtime::TuningSchedule> &schedules,
               const runtime::TuningShape &shape, const DeviceModel &device);

/// Sorts by estimate and drops what takes more than `hopeless` times the best.
void dropHopeless(Plan &plan);

using Clock = std::chrono::steady_clock;

/// The second: compiles every schedule that is in any of the plans to a bundle
/// in `dir`, updates candidates with what their kernels take, and drops those
/// that cannot run, that spill where others do not, that are the same code as
/// another, or that come after `deadline`. An error is one of all candidates.
Status compilePlans(const Source &source, const CompileOptions &options,
                    const LayerFacts &facts, std::vector<Plan> &plans,
                    const std::string &dir, Clock::time_point deadline);

/// The schedule of the best estimate that passes the first sieve; on a GPU of
/// those that leave slice and stages to the compiler. Chunk sizes that `known`
/// (may be null) has a bad result of are left out; nothing when none is left.
std::optional<runtime::TuningSchedule>
modelChoice(const LayerFacts &facts, const CompileOptions &options,
            const runtime::TuningShape &shape, const DeviceModel &device,
            const runtime::TuningEntry *known);

/// "chunk 128, chunk 256: reason", a line for each reason, after a line with
/// the counts.
std::string describe(const Plan &plan);

} // namespace plum::tuning

#endif // PLUM_LIB_TUNING_CANDIDATES_H
