//===- Tune.cpp - plum tune -------------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Candidates, pruned and compiled here, measured by plum-run: on this machine
// at once, or with --export on another. Only plum-run's process ever runs a
// kernel, and only this verb ever measures one.
//
//===----------------------------------------------------------------------===//

#include "Tuning.h"
#include "lib/Tuning/Database.h"
#include "lib/Tuning/HeatMap.h"
#include "runtime/Safetensors.h"

#include "llvm/Support/Program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <unistd.h>

using namespace plum;
using namespace plum::tool;
using namespace plum::tuning;
using namespace plum::runtime;
namespace fs = std::filesystem;

namespace {

constexpr const char *kFooter =
    R"(Lists the schedules that the compiler offers (chunk size; on a GPU also the V
slice of a team, stages and segments), drops those that the cost model or the
compiler rules out, with the reason, and measures the rest until --budget is
spent. Results go into the database (--db, else PLUM_TUNING, else tuning.json in
the cache), where compile --shape, run and bench find them.

--export DIR writes the candidates instead, for a machine without a compiler:
  plum-run tune DIR             there; writes DIR/results.json
  plum tune merge DB DIR/results.json

docs/tuning.md says what a key is and how the model counts.)";

struct TuneVerb {
  SpecArguments spec;
  std::vector<std::string> shapes;
  std::string budget = "60s", exportTo, svg;
  int threads = 0, gpu = 0;

  int run();

private:
  Result<std::vector<Plan>> plans(const TuningContext &context) const;
  Status tune(const TuningContext &context, std::vector<Plan> &plans,
              double seconds);
  Status writeSvg(const TuningDatabase &database, const TuningKey &key) const;
};

Status writeFile(const std::string &path, const std::string &text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.error();
  if (Status status = file->write(text.data(), text.size()); !status)
    return status;
  return file->commit();
}

} // namespace

Result<ScratchFolder> ScratchFolder::create() {
  Result<std::string> cache = cacheDirectory();
  if (!cache)
    return cache.error();
  std::error_code failure;
  fs::create_directories(*cache, failure);
  ScratchFolder made;
  made.folder = *cache + "/tune-XXXXXX";
  if (failure || !mkdtemp(made.folder.data())) {
    made.folder.clear();
    return Error{*cache, "cannot be written", {"PLUM_CACHE names another"}};
  }
  return made;
}

ScratchFolder::ScratchFolder(ScratchFolder &&other) noexcept
    : folder(std::exchange(other.folder, {})) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!folder.empty())
    fs::remove_all(folder, ignored);
}

Status plum::tool::exportPlans(const TuningContext &context,
                               std::vector<Plan> &plans, const std::string &dir,
                               Clock::time_point deadline) {
  std::error_code failure;
  bool ours = fs::exists(dir + "/candidates.json", failure);
  if (fs::exists(dir, failure) && !ours &&
      !(fs::is_directory(dir, failure) && fs::is_empty(dir, failure)))
    return Error{dir,
                 "holds files that are not candidates; nothing was written",
                 {"give a new or empty directory, or candidates to replace"}};
  // Written to a folder beside it, which takes its place when it is complete.
  std::string made = fs::path(dir + "/").parent_path().string();
  std::string temporary = made + ".tmp" + std::to_string(getpid());
  fs::create_directories(temporary, failure);
  if (failure)
    return Error{dir, "cannot be written: " + failure.message(), {}};
  auto write = [&]() -> Status {
    if (Status status = compilePlans(context.source, context.options,
                                     context.facts, plans, temporary, deadline);
        !status)
      return status;
    TuningDatabase database;
    for (Plan &plan : plans)
      for (const TuningResult &candidate : plan.candidates)
        database.add(plan.key, candidate);
    return writeFile(temporary + "/candidates.json", writeTuning(database));
  };
  Status status = write();
  if (status) {
    fs::remove_all(made, failure);
    fs::rename(temporary, made, failure);
    if (failure)
      status = Error{dir, "cannot be written: " + failure.message(), {}};
  }
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  return status;
}

Result<TuningDatabase> plum::tool::measurePlans(const std::string &dir,
                                                double seconds, int threads,
                                                int gpu) {
  std::string runner = runnerPath(), budget = std::to_string(seconds),
              threadText = std::to_string(threads),
              gpuText = std::to_string(gpu);
  std::vector<llvm::StringRef> arguments = {runner, "tune", dir, "--budget",
                                            budget};
  if (threads > 0)
    arguments.insert(arguments.end(), {"--threads", threadText});
  if (gpu > 0)
    arguments.insert(arguments.end(), {"--gpu", gpuText});
  std::fflush(stdout);
  std::string why;
  int code = llvm::sys::ExecuteAndWait(runner, arguments, std::nullopt, {}, 0,
                                       0, &why);
  std::string results = dir + "/results.json";
  std::error_code ignored;
  if (code < 0 || (code != 0 && !fs::exists(results, ignored)))
    return Error{runner,
                 why.empty() ? "measured nothing" : "cannot be started: " + why,
                 {}};
  return readTuning(results);
}

Result<std::vector<Plan>> TuneVerb::plans(const TuningContext &context) const {
  std::vector<Plan> plans;
  std::vector<TuningSchedule> schedules =
      schedulesOf(context.facts, context.options);
  if (!spec.chunk.empty())
    std::erase_if(schedules, [&](const TuningSchedule &schedule) {
      return schedule.form == "chunk" &&
             std::find(context.options.chunks.begin(),
                       context.options.chunks.end(),
                       schedule.chunk) == context.options.chunks.end();
    });
  for (const std::string &text : shapes) {
    Result<TuningShape> shape = shapeOf(text);
    if (!shape)
      return shape.error();
    Plan plan = planShape(context.facts, schedules, *shape, context.device);
    plan.key.compiler = context.compiler;
    if (plan.key.device.empty())
      plan.key.device = "any " + plan.key.target; // plum-run knows it.
    for (const Plan &other : plans)
      if (other.key == plan.key)
        return Error{"--shape",
                     "'" + text + "' and '" + other.shape.text() +
                         "' are one bucket, " + plan.key.bucket.text(),
                     {}};
    if (plan.candidates.empty())
      return Error{"plum tune",
                   "no schedule is left for " + text + "\n" + describe(plan),
                   {}};
    plans.push_back(std::move(plan));
  }
  return plans;
}

Status TuneVerb::writeSvg(const TuningDatabase &database,
                          const TuningKey &key) const {
  return svg.empty() ? Status::ok() : writeFile(svg, heatMap(database, key));
}

Status TuneVerb::tune(const TuningContext &context, std::vector<Plan> &plans,
                      double seconds) {
  Clock::time_point start = Clock::now();
  auto half = std::chrono::duration<double>(seconds / 2);
  auto deadline = start + std::chrono::duration_cast<Clock::duration>(half);
  Result<std::string> path = databasePath(spec.database);
  if (!path)
    return path.error();
  if (exportTo.empty())
    if (Result<TuningDatabase> readable = openDatabase(*path); !readable)
      return readable.error(); // Before the work is done.
  std::optional<ScratchFolder> scratch;
  std::string dir = exportTo;
  if (dir.empty()) {
    Result<ScratchFolder> made = ScratchFolder::create();
    if (!made)
      return made.error();
    scratch.emplace(std::move(*made));
    dir = scratch->path();
  }
  if (Status status = exportPlans(context, plans, dir, deadline); !status)
    return status;
  for (const Plan &plan : plans)
    std::fputs(describe(plan).c_str(), stdout);
  if (!exportTo.empty()) {
    std::printf("candidates are in %s: 'plum-run tune %s' measures them\n",
                dir.c_str(), dir.c_str());
    return Status::ok();
  }
  std::chrono::duration<double> spent = Clock::now() - start;
  Result<TuningDatabase> results =
      measurePlans(dir, std::max(seconds - spent.count(), 1.0), threads, gpu);
  if (!results)
    return results.error();
  Result<MergeCounts> counts = mergeIntoFile(*path, *results);
  if (!counts)
    return counts.error();
  Result<TuningDatabase> database = openDatabase(*path);
  if (!database)
    return database.error();
  if (results->entries.empty())
    return Error{*path, "nothing was measured", {}};
  const TuningKey &key = results->entries[0].key;
  std::fputs(table(*database, key).c_str(), stdout);
  for (const TuningEntry &entry : results->entries) {
    const TuningEntry *merged = database->find(entry.key);
    const TuningResult *best = merged ? merged->best() : nullptr;
    std::printf("%s: %s\n", entry.key.bucket.text().c_str(),
                best ? best->schedule.text().c_str()
                     : "nothing within the error limits");
  }
  std::printf("%s: %s\n", path->c_str(), describe(*counts).c_str());
  return writeSvg(*database, key);
}

int TuneVerb::run() {
  if (spec.path.empty())
    return fail(
        {"plum tune", "needs a spec", {"plum tune SPEC --shape SIZES"}});
  if (shapes.empty())
    return fail({"--shape",
                 "is missing: the best schedule depends on the sizes",
                 {"as --shape B=1,T=4096,H=8; several may be given"}});
  std::optional<double> seconds = parseSeconds(budget);
  if (!seconds)
    return fail(
        {"--budget", "'" + budget + "' is not a time such as 60s or 2m", {}});
  if (!svg.empty() && !exportTo.empty())
    return fail({"--svg", "needs measurements; --export makes none", {}});
  Result<CompileOptions> options = spec.options();
  if (!options)
    return fail(options.error());
  Result<Source> source = spec.read();
  if (!source)
    return fail(source.error());
  Result<TuningContext> context =
      tuningContext(spec, *source, *options, threads);
  if (!context)
    return fail(context.error());
  Result<std::vector<Plan>> list = plans(*context);
  if (!list)
    return fail(list.error());
  Status status = tune(*context, *list, *seconds);
  return status ? 0 : fail(status.error());
}

void plum::tool::addTune(CLI::App &app, int &exitCode) {
  auto state = std::make_shared<TuneVerb>();
  CLI::App *verb = app.add_subcommand(
      "tune",
      "measure schedules and remember the best: --shape B=1,T=4096,H=8");
  state->spec.declare(*verb);
  verb->get_option("SPEC")->required(false);
  verb->add_option("--shape", state->shapes,
                   "sizes to tune for; may be repeated")
      ->allow_extra_args(false)
      ->type_name("B=n,T=n,H=n");
  verb->add_option("--budget", state->budget,
                   "time for compiling and measuring, as 60s or 2m")
      ->capture_default_str();
  verb->add_option("--export", state->exportTo,
                   "write candidates for plum-run tune, measure nothing")
      ->type_name("DIR");
  verb->add_option("--svg", state->svg, "heat map of chunk size over T")
      ->type_name("FILE.svg");
  verb->add_option("--threads", state->threads, "of a CPU [all]")
      ->check(CLI::PositiveNumber);
  verb->add_option("--gpu", state->gpu, "number of the GPU")
      ->check(CLI::NonNegativeNumber);
  verb->footer(kFooter);
  addTuneVerbs(*verb, exitCode);
  verb->require_subcommand(0, 1);
  verb->callback([state, verb, &exitCode] {
    if (verb->get_subcommands().empty())
      exitCode = state->run();
  });
}
