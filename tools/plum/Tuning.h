//===- Tuning.h - Databases on plum's command line --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TOOLS_PLUM_TUNING_H
#define PLUM_TOOLS_PLUM_TUNING_H

#include "Options.h"
#include "lib/Tuning/Lookup.h"

namespace plum::tool {

/// Everything that a key is made of but the shape.
struct TuningContext {
  Source source{"", ""};
  CompileOptions options;
  LayerFacts facts;
  tuning::DeviceModel device; ///< Without a name: a GPU that is not here.
  std::string compiler;
};
/// `threads` of a CPU; 0: as many as there are.
Result<TuningContext> tuningContext(const SpecArguments &spec, Source source,
                                    const CompileOptions &options, int threads);

/// --db, PLUM_TUNING, or tuning.json in the cache.
Result<std::string> databasePath(const std::string &given);

/// The shape, or what is wrong with --shape.
Result<runtime::TuningShape> shapeOf(const std::string &text);

/// Chooses chunk, slice and stages for a shape and puts them into `options`.
/// Nothing when the user chose, or there is nothing to choose.
Result<std::optional<tuning::Choice>>
chooseFor(const SpecArguments &spec, const Source &source,
          CompileOptions &options, const runtime::TuningShape &shape,
          int threads);
/// The same for the arguments of a verb of plum-run: the shape is that of
/// --shape, or of the tensors of --in.
Result<std::optional<tuning::Choice>>
chooseForRun(const std::string &verb, const SpecArguments &spec,
             const Source &source, CompileOptions &options,
             const std::vector<std::string> &rest);

/// Says what there was no measurement for.
void showChoice(const tuning::Choice &choice);

/// plum tune.
void addTune(CLI::App &app, int &exitCode);
/// plum tune explain, diff, merge, verify.
void addTuneVerbs(CLI::App &tune, int &exitCode);

/// Compiles the candidates of `plans` to `dir` and writes candidates.json.
Status exportPlans(const TuningContext &context,
                   std::vector<tuning::Plan> &plans, const std::string &dir,
                   tuning::Clock::time_point deadline);
/// Runs plum-run tune on `dir` and reads what it measured.
Result<runtime::TuningDatabase>
measurePlans(const std::string &dir, double seconds, int threads, int gpu);
/// A folder for candidates, gone with the object.
class ScratchFolder {
public:
  static Result<ScratchFolder> create();
  ScratchFolder(ScratchFolder &&other) noexcept;
  ~ScratchFolder();
  const std::string &path() const { return folder; }

private:
  ScratchFolder() = default;
  std::string folder;
};

} // namespace plum::tool

#endif // PLUM_TOOLS_PLUM_TUNING_H
