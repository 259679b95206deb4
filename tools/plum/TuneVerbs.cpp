//===- TuneVerbs.cpp - plum tune explain, diff, merge, verify ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tuning.h"
#include "lib/Tuning/Database.h"
#include "lib/Tuning/HeatMap.h"

#include <cmath>
#include <cstdio>
#include <memory>

using namespace plum;
using namespace plum::tool;
using namespace plum::tuning;
using namespace plum::runtime;

namespace {

/// A spec, a shape, and the entry that a run of them would use.
struct EntryQuery {
  SpecArguments spec;
  std::string shapeText;
  int threads = 0, gpu = 0;

  void declare(CLI::App &verb) {
    spec.declare(verb);
    verb.add_option("--shape", shapeText, "sizes of the run")
        ->required()
        ->type_name("B=n,T=n,H=n");
    verb.add_option("--threads", threads, "of a CPU [all]")
        ->check(CLI::PositiveNumber);
  }
  Status resolve();

  std::optional<TuningContext> context;
  TuningShape shape;
  std::string path;
  TuningDatabase database;
  TuningKey key;
};

Status EntryQuery::resolve() {
  Result<TuningShape> sizes = shapeOf(shapeText);
  if (!sizes)
    return sizes.error();
  shape = *sizes;
  Result<CompileOptions> options = spec.options();
  if (!options)
    return options.error();
  Result<Source> source = spec.read();
  if (!source)
    return source.error();
  Result<TuningContext> made = tuningContext(spec, *source, *options, threads);
  if (!made)
    return made.error();
  context = std::move(*made);
  Result<std::string> file = databasePath(spec.database);
  if (!file)
    return file.error();
  path = *file;
  Result<TuningDatabase> read = openDatabase(path);
  if (!read)
    return read.error();
  database = std::move(*read);
  key = keyFor(context->facts, shape, context->device, context->compiler,
               database);
  return Status::ok();
}

std::string why(const TuningResult &result, const TuningResult *best) {
  if (!result.failure.empty())
    return "failed: " + result.failure;
  if (!result.errors.pass())
    return "above the error limits";
  if (&result == best)
    return "chosen";
  char text[48];
  std::snprintf(text, sizeof text, "%.2f times the best",
                best ? result.ms / best->ms : NAN);
  return text;
}

int explain(EntryQuery &query) {
  if (Status status = query.resolve(); !status)
    return fail(status.error());
  std::printf("database  %s\nkey       %s\n", query.path.c_str(),
              query.key.text().c_str());
  Result<Choice> choice = chooseSchedule(
      query.context->facts, query.context->options, query.shape,
      query.context->device, query.context->compiler, query.database,
      "plum tune " + query.spec.path + " --shape " + query.shape.text());
  if (choice)
    std::printf("choice    %s, by the %s\n", choice->schedule.text().c_str(),
                choice->record.from.c_str());
  else
    std::printf("choice    none: all that was measured is wrong\n");
  if (const TuningEntry *entry = query.database.find(query.key)) {
    const TuningResult *best = entry->best();
    std::printf("measured\n");
    for (const TuningResult &result : entry->results)
      std::printf("  %-28s %10.4f ms, spread %.1f %%, R %.2e, %lld registers, "
                  "%lld bytes spilled, %s, %s: %s\n",
                  result.schedule.text().c_str(), result.ms,
                  100 * result.spread, result.errors.r,
                  (long long)result.registers, (long long)result.spilledBytes,
                  result.shape.text().c_str(), result.date.c_str(),
                  why(result, best).c_str());
  }
  if (choice)
    for (const std::string &note : choice->notes)
      std::printf("note      %s\n", note.c_str());
  Plan plan =
      planShape(query.context->facts,
                schedulesOf(query.context->facts, query.context->options),
                query.shape, query.context->device);
  std::printf("model     %s", describe(plan).c_str());
  for (const TuningResult &candidate : plan.candidates)
    std::printf("  %-28s %10.4f ms estimated\n",
                candidate.schedule.text().c_str(), candidate.estimateMs);
  return 0;
}

struct VerifyVerb {
  EntryQuery query;
  double tolerance = 5;
  std::string budget = "10s";

  int run();
};

/// Measures the chosen schedule again.
int VerifyVerb::run() {
  std::optional<double> seconds = parseSeconds(budget);
  if (!seconds)
    return fail(
        {"--budget", "'" + budget + "' is not a time such as 60s or 2m", {}});
  if (Status status = query.resolve(); !status)
    return fail(status.error());
  const TuningEntry *entry = query.database.find(query.key);
  const TuningResult *best = entry ? entry->best() : nullptr;
  if (!best)
    return fail({query.path,
                 "has nothing usable for " + query.key.text(),
                 {"'plum tune' measures it"}});
  // At the very shape that was measured, not at another of its bucket.
  Plan plan;
  plan.key = query.key;
  plan.shape = best->shape;
  plan.fixed = true;
  plan.device = query.context->device;
  TuningResult candidate;
  candidate.schedule = best->schedule;
  candidate.shape = best->shape;
  plan.candidates = {candidate};
  std::vector<Plan> plans = {plan};
  Result<ScratchFolder> scratch = ScratchFolder::create();
  if (!scratch)
    return fail(scratch.error());
  if (Status status = exportPlans(*query.context, plans, scratch->path(),
                                  Clock::time_point::max());
      !status)
    return fail(status.error());
  Result<TuningDatabase> found =
      measurePlans(scratch->path(), *seconds, query.threads, query.gpu);
  if (!found)
    return fail(found.error());
  const TuningEntry *again = found->find(query.key);
  const TuningResult *now = again ? again->find(best->schedule) : nullptr;
  if (!now)
    return fail({query.path,
                 "was measured on '" + query.key.device +
                     "', which this machine is not",
                 {}});
  double drift = now->measured() ? 100 * (now->ms / best->ms - 1) : NAN;
  bool good = now->usable() && std::abs(drift) <= tolerance;
  std::printf("%s: %s %.4f ms on %s, %.4f ms now (%+.1f %%, tolerance %g %%), "
              "R %.2e then, %.2e now: %s\n",
              query.key.bucket.text().c_str(), best->schedule.text().c_str(),
              best->ms, best->date.c_str(), now->ms, drift, tolerance,
              best->errors.r, now->errors.r,
              good            ? "holds"
              : now->usable() ? "DRIFTED"
                              : "FAILS");
  return good ? 0 : 1;
}

int mergeFiles(const std::string &into, const std::vector<std::string> &files) {
  TuningDatabase all; // All are read before anything is written.
  for (const std::string &file : files) {
    Result<TuningDatabase> one = readTuning(file);
    if (!one)
      return fail(one.error());
    merge(all, *one);
  }
  Result<MergeCounts> counts = mergeIntoFile(into, all);
  if (!counts)
    return fail(counts.error());
  std::printf("%s: %s\n", into.c_str(), describe(*counts).c_str());
  return 0;
}

int diffFiles(const std::string &a, const std::string &b, double tolerance) {
  Result<TuningDatabase> first = readTuning(a), second = readTuning(b);
  if (!first || !second)
    return fail((first ? second : first).error());
  std::fputs(diff(*first, *second, tolerance / 100).c_str(), stdout);
  return 0;
}

} // namespace

static void addVerify(CLI::App &tune, int &exitCode) {
  auto state = std::make_shared<VerifyVerb>();
  CLI::App *verb = tune.add_subcommand(
      "verify", "measure the chosen schedule again; exit 1 when it drifted");
  state->query.declare(*verb);
  verb->add_option("--gpu", state->query.gpu, "number of the GPU")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--tolerance", state->tolerance, "in percent")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--budget", state->budget, "time, as 10s or 1m")
      ->capture_default_str();
  verb->callback([state, &exitCode] { exitCode = state->run(); });
}

void plum::tool::addTuneVerbs(CLI::App &tune, int &exitCode) {
  auto query = std::make_shared<EntryQuery>();
  CLI::App *explainVerb = tune.add_subcommand(
      "explain", "say what a run would use and why; measures nothing");
  query->declare(*explainVerb);
  explainVerb->callback([query, &exitCode] { exitCode = explain(*query); });

  struct Files {
    std::string a, b;
    std::vector<std::string> more;
    double tolerance = 5;
  };
  auto files = std::make_shared<Files>();
  CLI::App *diffVerb =
      tune.add_subcommand("diff", "what differs between two databases");
  diffVerb->add_option("A", files->a)->required()->type_name("FILE");
  diffVerb->add_option("B", files->b)->required()->type_name("FILE");
  diffVerb
      ->add_option("--tolerance", files->tolerance,
                   "times and errors closer than this are equal, in percent")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  diffVerb->callback([files, &exitCode] {
    exitCode = diffFiles(files->a, files->b, files->tolerance);
  });
  CLI::App *mergeVerb = tune.add_subcommand(
      "merge", "add results to a database; of two the newer counts");
  mergeVerb->add_option("DATABASE", files->a)->required()->type_name("FILE");
  mergeVerb->add_option("RESULTS", files->more)->required()->type_name("FILE");
  mergeVerb->callback(
      [files, &exitCode] { exitCode = mergeFiles(files->a, files->more); });
  addVerify(tune, exitCode);
}
