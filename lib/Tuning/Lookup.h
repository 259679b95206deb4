//===- Lookup.h - Which schedule a run gets ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Nothing is compiled or measured here. A key that is in the database gives the
// fastest schedule within the error limits; any other gives the cost model's,
// and a message that names the key and the command that fills it. Entries of
// other compilers, devices or buckets are never taken: they are mentioned.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TUNING_LOOKUP_H
#define PLUM_LIB_TUNING_LOOKUP_H

#include "Candidates.h"

namespace plum::tuning {

struct Choice {
  runtime::TuningSchedule schedule;
  runtime::ManifestTuning record; ///< For the manifest.
  std::string message;            ///< Empty: the database decided.
  std::vector<std::string> notes; ///< Of the message.
};

/// The key of a run. A device without a name, a GPU that is not here, takes the
/// name of the only one that the database has of this target.
runtime::TuningKey keyFor(const LayerFacts &facts,
                          const runtime::TuningShape &shape,
                          const DeviceModel &device,
                          const std::string &compiler,
                          const runtime::TuningDatabase &database);

/// `command` fills the key. An error when every schedule was found to be wrong.
Result<Choice> chooseSchedule(const LayerFacts &facts,
                              const CompileOptions &options,
                              const runtime::TuningShape &shape,
                              const DeviceModel &device,
                              const std::string &compiler,
                              const runtime::TuningDatabase &database,
                              const std::string &command);

/// The parts in which two keys differ, "compiler, bucket".
std::string differences(const runtime::TuningKey &a,
                        const runtime::TuningKey &b);

} // namespace plum::tuning

#endif // PLUM_LIB_TUNING_LOOKUP_H
