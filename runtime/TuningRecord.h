//===- TuningRecord.h - What was measured, and of what ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tuning database as plain structs with one reader and one writer. The
// compiler writes one that has candidates and no measurements (a plan),
// plum-run fills it, the compiler merges it. docs/tuning.md shows the file.
//
//   database   entries, sorted by key
//   entry      a key, and for each schedule what was measured; sorted by
//              schedule, one object a line, so that a diff shows what changed
//
// The key holds everything a time depends on but the schedule:
//   layer      name, for people; signature, a hash of the normal form (with
//              its dims and dtypes; comments and names of locals do not count)
//   bucket     B H and T rounded up to powers of two: never a raw length, or
//              every new prompt would be a new key
//   device     "x86-64-v4, 2 threads" or "NVIDIA H200, 132 SMs"
//   compiler   version and a hash of the program: a change of the compiler is
//              a change of the kernels
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TUNINGRECORD_H
#define PLUM_RUNTIME_TUNINGRECORD_H

#include "plum/Support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plum::runtime {

/// Sizes of a run. B counts sequences.
struct TuningShape {
  int64_t batch = 1, tokens = 1, heads = 1;

  int64_t rows() const { return batch * heads; }
  std::string text() const; ///< "B=1,T=4096,H=8".
  auto operator<=>(const TuningShape &) const = default;
};
/// "B=1,T=4096,H=8"; nothing when it is not of that form.
std::optional<TuningShape> parseTuningShape(std::string_view text);

/// Device names of keys: "x86-64-v4, 2 threads", "NVIDIA H200, 132 SMs".
std::string cpuDeviceName(const std::string &cpu, int64_t threads);
std::string gpuDeviceName(const std::string &model, int64_t processors);

/// "60s", "2m", "0.5": seconds, at most a day; nothing when it is none of
/// these.
std::optional<double> parseSeconds(const std::string &text);

/// The powers of two that a shape is rounded up to.
struct TuningBucket {
  int64_t rows = 1, tokens = 1; ///< B H and T.

  static TuningBucket of(const TuningShape &shape);
  std::string text() const; ///< "BH<=8 T<=4096".
  auto operator<=>(const TuningBucket &) const = default;
};

struct TuningKey {
  std::string layer, signature, target, precision;
  std::string device, compiler;
  TuningBucket bucket;

  std::string text() const; ///< One line, for messages.
  auto operator<=>(const TuningKey &) const = default;
};

/// What the tuner chooses.
struct TuningSchedule {
  std::string form = "chunk";    ///< Or "step", which has nothing to choose.
  int64_t chunk = 0;             ///< 0 in form step.
  int64_t slice = 0, stages = 0; ///< GPU; 0: as the compiler decides.
  int64_t segments = 0;          ///< GPU, at run time; 0: as many as pay.

  std::string text() const; ///< "chunk 64 slice 128 x4".
  auto operator<=>(const TuningSchedule &) const = default;
};

/// Against the float64 recurrence, see Errors.h, and what is allowed.
struct TuningErrors {
  double r = 0, w = 0, m = 0, state = 0;
  double rLimit = 0, wLimit = 0, mLimit = 0, stateLimit = 0;

  bool pass() const; ///< NaN passes nothing.
  bool operator==(const TuningErrors &) const = default;
};

struct TuningResult {
  TuningSchedule schedule;
  std::string bundle;    ///< Of a plan: the candidate's folder.
  TuningShape shape;     ///< What was measured, exactly.
  double estimateMs = 0; ///< The cost model's.
  int64_t registers = 0; ///< Most of any kernel, a thread; 0: not known.
  int64_t spilledBytes = 0, sharedBytes = 0;
  // After measuring.
  std::string date;          ///< "2026-11-29"; empty: not measured.
  std::string failure;       ///< Why there is no time.
  double ms = 0, spread = 0; ///< Median; (quartile 3 - quartile 1) / ms.
  int64_t reps = 0;
  TuningErrors errors;

  bool measured() const { return !date.empty() && failure.empty(); }
  /// Measured, finite, and within the limits.
  bool usable() const;
  bool operator==(const TuningResult &) const = default;
};

struct TuningEntry {
  TuningKey key;
  std::vector<TuningResult> results;

  /// The fastest that is usable; null when there is none.
  const TuningResult *best() const;
  const TuningResult *find(const TuningSchedule &schedule) const;
  bool operator==(const TuningEntry &) const = default;
};

struct TuningDatabase {
  std::vector<TuningEntry> entries;

  const TuningEntry *find(const TuningKey &key) const;
  /// Puts a result in its place; an older one of the same schedule goes.
  void add(const TuningKey &key, const TuningResult &result);
  bool operator==(const TuningDatabase &) const = default;
};

/// Reads and checks every field; `where` names the text in errors, which say
/// the line or the path to the field.
Result<TuningDatabase> parseTuning(std::string_view text,
                                   const std::string &where);
/// The file; "no such file" when there is none.
Result<TuningDatabase> readTuning(const std::string &path);
/// Sorted; parseTuning of it gives the same back.
std::string writeTuning(const TuningDatabase &database);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_TUNINGRECORD_H
