//===- Database.h - Tuning databases on disk --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A database is one file, see runtime/TuningRecord.h. A writer holds a lock on
// FILE.lock from before it reads until the new file has taken the place of the
// old one, so that nobody's results are lost and readers, who take no lock, see
// the one or the other.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TUNING_DATABASE_H
#define PLUM_LIB_TUNING_DATABASE_H

#include "runtime/TuningRecord.h"

namespace plum::tuning {

/// No file is an empty database.
Result<runtime::TuningDatabase> openDatabase(const std::string &path);

struct MergeCounts {
  int64_t added = 0, replaced = 0; ///< Results; replaced by a newer date.
  int64_t kept = 0;                ///< What was there is newer, or equal.
  int64_t unmeasured = 0;          ///< Of a plan; never merged.
};
/// Of two results of one key and schedule the newer counts; of one day, the
/// later in the order of merging.
MergeCounts merge(runtime::TuningDatabase &into,
                  const runtime::TuningDatabase &from);
/// Merges into the file, created when there is none.
Result<MergeCounts> mergeIntoFile(const std::string &path,
                                  const runtime::TuningDatabase &from);
/// "3 added, 1 replaced", and what else there was.
std::string describe(const MergeCounts &counts);

/// What is in `b` but not in `a`, or the other way round; other choices; times
/// and errors that differ by more than `tolerance` of their value. A line each,
/// none when nothing differs.
std::string diff(const runtime::TuningDatabase &a,
                 const runtime::TuningDatabase &b, double tolerance);

} // namespace plum::tuning

#endif // PLUM_LIB_TUNING_DATABASE_H
