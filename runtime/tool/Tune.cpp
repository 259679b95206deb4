//===- Tune.cpp - plum-run tune: measure candidates -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `plum tune --export DIR` leaves candidates.json, a database without times,
// and the bundles it names. This fills in times and errors on a machine that
// has no compiler.
//
//===----------------------------------------------------------------------===//

#include "runtime/Safetensors.h"
#include "runtime/tool/Common.h"
#include "runtime/tool/Measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace plum::runtime::tool {

namespace {

constexpr const char *tuneFooter =
    R"(Measures the candidates of DIR, which 'plum tune --export DIR' wrote, those of
the best estimates first, until --budget is spent, and writes a results file for
'plum tune merge DATABASE RESULTS' after each of them. Each runs in a process of
its own, at least 3 times; one that cannot win stops there.
  ms      median; spread (quartile 3 - quartile 1) / ms
  R W M   against the float64 recurrence, on at most 512 tokens and 2 heads (more
          tokens where a sequence is split); S the R of the final states
A candidate above an error limit is written down and never chosen.)";

using Clock = std::chrono::steady_clock;

struct TuneVerb {
  std::string directory, output, budget = "60s";
  MeasureOptions options;

  void declare(CLI::App &verb);
  int run();

private:
  Status measure(const TuningEntry &entry, double seconds);
  std::string deviceOf(const std::string &bundle) const;
  Status write() const;
  void print(const TuningResult &result) const;

  TuningDatabase results;
  int64_t measured = 0;
};

void TuneVerb::declare(CLI::App &verb) {
  verb.add_option("directory", directory, "What 'plum tune --export' wrote")
      ->required()
      ->type_name("DIR");
  verb.add_option("--budget", budget, "Time for all of them, as 60s or 2m")
      ->capture_default_str();
  verb.add_option("-o", output, "The results file [DIR/results.json]")
      ->type_name("FILE");
  verb.add_option("--threads", options.threads,
                  "Threads of a CPU (default: one per CPU)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--gpu", options.gpu, "Number of the GPU")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.footer(tuneFooter);
}

Status TuneVerb::write() const {
  Result<AtomicFile> file = AtomicFile::create(output);
  if (!file)
    return file.error();
  std::string text = writeTuning(results);
  if (Status status = file->write(text.data(), text.size()); !status)
    return status;
  return file->commit();
}

void TuneVerb::print(const TuningResult &result) const {
  std::string name = result.schedule.text();
  if (!result.failure.empty()) {
    fmt::print("  {:<28} failed: {}\n", name, result.failure);
    return;
  }
  const TuningErrors &errors = result.errors;
  fmt::print("  {:<28} {:>10.4f} {:>5.1f} % {:>5} {:>9.2e} {:>9.2e} {:>9.2e} "
             "{:>9.2e}{}\n",
             name, result.ms, 100 * result.spread, result.reps, errors.r,
             errors.w, errors.m, errors.state,
             errors.pass() ? "" : "  above the limits: never chosen");
}

/// The name of a CPU; empty for a GPU.
std::string TuneVerb::deviceOf(const std::string &bundle) const {
  Result<Manifest> manifest = readManifest(directory + "/" + bundle);
  if (!manifest || manifest->onGpu())
    return "";
  return cpuDeviceName(manifest->cpu, options.threads > 0
                                          ? options.threads
                                          : ThreadPool::available());
}

/// The candidates of one shape, in the order of their estimates.
Status TuneVerb::measure(const TuningEntry &entry, double seconds) {
  std::vector<TuningResult> candidates = entry.results;
  std::sort(candidates.begin(), candidates.end(),
            [](const TuningResult &a, const TuningResult &b) {
              return std::pair(a.estimateMs, a.schedule) <
                     std::pair(b.estimateMs, b.schedule);
            });
  Truths truths;
  double best = 0;
  // A CPU is known; which GPU it is, the first candidate that runs says.
  std::string device = deviceOf(candidates[0].bundle);
  std::vector<TuningResult> waiting;
  Clock::time_point start = Clock::now();
  fmt::print("{} on {}, {}\n  {:<28} {:>10} {:>7} {:>5} {:>9} {:>9} {:>9} "
             "{:>9}\n",
             entry.key.layer, entry.key.target, candidates[0].shape.text(),
             "candidate", "ms", "spread", "reps", "R", "W", "M", "S");
  for (size_t i = 0; i < candidates.size(); ++i) {
    const TuningResult &candidate = candidates[i];
    double left =
        seconds - std::chrono::duration<double>(Clock::now() - start).count();
    if (left <= 0 && i > 0) {
      fmt::print("  {} not measured: the budget is spent\n",
                 candidates.size() - i);
      break;
    }
    std::string bundle = directory + "/" + candidate.bundle;
    Result<const SmallTruth *> truth =
        truths.get(bundle, candidate.shape,
                   Truths::tokensFor(candidate.shape, candidate.schedule));
    if (!truth)
      return truth.error();
    MeasureOptions one = options;
    one.seconds = std::max(left / double(candidates.size() - i) / 2, 0.01);
    one.hopelessMs = 1.5 * best;
    Measured found = measureApart(bundle, candidate, **truth, one);
    if (found.result.usable() && (best == 0 || found.result.ms < best))
      best = found.result.ms;
    if (found.result.measured())
      ++measured;
    if (device.empty())
      device = found.device;
    waiting.push_back(found.result);
    if (!device.empty()) {
      TuningKey key = entry.key;
      key.device = device;
      for (const TuningResult &result : waiting)
        results.add(key, result);
      waiting.clear(); // Without a device it is about the machine.
    }
    print(found.result);
    std::fflush(stdout);
    if (Status status = write(); !status)
      return status;
  }
  return Status::ok();
}

int TuneVerb::run() {
  std::optional<double> seconds = parseSeconds(budget);
  if (!seconds)
    return fail(
        {"--budget", "'" + budget + "' is not a time such as 60s or 2m", {}});
  if (output.empty())
    output = directory + "/results.json";
  Result<TuningDatabase> plan = readTuning(directory + "/candidates.json");
  if (!plan)
    return fail(plan.error());
  for (const TuningEntry &entry : plan->entries)
    for (const TuningResult &candidate : entry.results)
      if (candidate.bundle.empty())
        return fail(
            {directory + "/candidates.json",
             "candidate '" + candidate.schedule.text() + "' names no bundle",
             {}});
  Clock::time_point start = Clock::now();
  size_t entriesLeft = plan->entries.size();
  for (const TuningEntry &entry : plan->entries) {
    double left =
        *seconds - std::chrono::duration<double>(Clock::now() - start).count();
    if (entry.results.empty())
      continue;
    if (Status status = measure(entry, left / double(entriesLeft--)); !status)
      return fail(status.error(), directory);
  }
  if (measured > 0)
    return 0;
  return fail({directory, "none of the candidates could be measured", {}});
}

} // namespace

void addTune(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "tune", "Measure the candidates of 'plum tune --export'");
  auto options = std::make_shared<TuneVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
