//===- CompilePlans.cpp - Candidates as bundles ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On a CPU one bundle has the kernels of all chunk sizes. On a GPU slice and
// stages hold for a whole bundle, and a chunk that does not fit must not take
// the others with it: a bundle for each.
//
//===----------------------------------------------------------------------===//

#include "Candidates.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

namespace {

/// What became of one schedule without its segments.
struct Compiled {
  std::string bundle, failure;
  KernelNeeds needs;
};

TuningSchedule withoutSegments(TuningSchedule schedule) {
  schedule.segments = 0;
  return schedule;
}

std::string folderOf(const TuningSchedule &schedule) {
  std::string name = schedule.text();
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

/// The message of an error, without places and the lines after the first.
std::string reasonOf(const Error &error) {
  std::string text = error.message.substr(0, error.message.find('\n'));
  if (size_t at = text.find("error: "); at != std::string::npos)
    text = text.substr(at + 7);
  return text;
}

KernelNeeds needsOf(const Manifest &manifest, const CompileReport &report) {
  KernelNeeds needs;
  needs.splits = false;
  for (const ManifestKernel &kernel : manifest.kernels) {
    needs.splits |= kernel.role == KernelRole::Summary;
    needs.sharedBytes = std::max(needs.sharedBytes, kernel.sharedBytes);
    if (kernel.role != KernelRole::Scan && kernel.role != KernelRole::Step)
      continue;
    needs.scanShared = kernel.sharedBytes;
    needs.scanThreads = kernel.threads;
    needs.slices = kernel.slices;
    for (const KernelUse &use : report.kernels)
      if (use.symbol == kernel.symbol)
        needs.scanRegisters = use.registers;
  }
  for (const KernelUse &use : report.kernels) {
    needs.registers = std::max(needs.registers, use.registers);
    needs.spilledBytes = std::max(needs.spilledBytes, use.spilledBytes);
  }
  return needs;
}

std::string contents(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Compilations {
public:
  Compilations(const Source &source, const CompileOptions &options,
               const std::string &dir, Clock::time_point deadline)
      : source(source), options(options), dir(dir), deadline(deadline) {}

  /// All of `schedules` in one bundle.
  Status together(const std::set<TuningSchedule> &schedules);
  void apart(const TuningSchedule &schedule);
  const Compiled &of(const TuningSchedule &schedule) const {
    return done.at(withoutSegments(schedule));
  }
  bool has(const TuningSchedule &schedule) const {
    return done.count(withoutSegments(schedule)) != 0;
  }
  /// Bytes that the candidate that spills least spills.
  int64_t leastSpills() const;
  Status failure() const;

private:
  const Source &source;
  const CompileOptions &options;
  const std::string &dir;
  Clock::time_point deadline;
  std::map<TuningSchedule, Compiled> done;
  std::map<std::string, std::string> codes; ///< PTX to the first that has it.
};

} // namespace

Status Compilations::together(const std::set<TuningSchedule> &schedules) {
  CompileOptions all = options;
  all.chunks.clear();
  for (const TuningSchedule &schedule : schedules)
    if (schedule.form == "chunk")
      all.chunks.push_back(schedule.chunk);
  if (all.chunks.empty())
    all.form = Form::Step;
  CompileReport report;
  if (Status status = compileBundle(source, all, dir + "/kernels", report);
      !status)
    return status;
  for (const TuningSchedule &schedule : schedules)
    done[schedule].bundle = "kernels";
  return Status::ok();
}

void Compilations::apart(const TuningSchedule &schedule) {
  Compiled &made = done[withoutSegments(schedule)];
  if (done.size() > 1 && Clock::now() > deadline) {
    made.failure = "time: half of the budget went into compiling others";
    return;
  }
  CompileOptions one = options;
  one.form = schedule.form == "step" ? Form::Step : Form::Chunk;
  if (schedule.form == "chunk")
    one.chunks = {schedule.chunk};
  one.slice = schedule.slice;
  one.stages = schedule.stages;
  std::string folder = folderOf(schedule), path = dir + "/" + folder;
  CompileReport report;
  if (Status status = compileBundle(source, one, path, report); !status) {
    made.failure = "compiler: " + reasonOf(status.error());
    return;
  }
  Result<Manifest> manifest = readManifest(path);
  if (!manifest) {
    made.failure = reasonOf(manifest.error());
    return;
  }
  made.bundle = folder;
  made.needs = needsOf(*manifest, report);
  auto [first, isNew] =
      codes.insert({contents(path + "/" + manifest->object), schedule.text()});
  if (!isNew)
    made.failure = "same code as '" + first->second + "'";
}

int64_t Compilations::leastSpills() const {
  int64_t least = INT64_MAX;
  for (const auto &[schedule, made] : done)
    if (made.failure.empty() && schedule.form == "chunk")
      least = std::min(least, made.needs.spilledBytes);
  return least;
}

Status Compilations::failure() const {
  Error error{"", "none of the candidates can be compiled", {}};
  for (const auto &[schedule, made] : done) {
    if (made.failure.empty())
      return Status::ok();
    error.notes.push_back(schedule.text() + ": " + made.failure);
  }
  return error;
}

/// Ways to split a sequence, besides as many parts as pay.
static void addSegments(Plan &plan, const Compilations &made) {
  std::vector<TuningResult> more;
  for (const TuningResult &candidate : plan.candidates) {
    const TuningSchedule &schedule = candidate.schedule;
    const KernelNeeds &needs = made.of(schedule).needs;
    if (schedule.form != "chunk" || !needs.splits)
      continue;
    int64_t usual = segmentsOf(schedule, plan.shape, plan.device, needs);
    int64_t chunks = (plan.shape.tokens + schedule.chunk - 1) / schedule.chunk;
    int64_t blocks = plan.shape.rows() * needs.slices;
    for (int64_t parts = 1; 4 * parts <= chunks || parts == 1; parts *= 2) {
      if (parts == usual)
        continue; // The candidate is that.
      TuningResult split = candidate;
      split.schedule.segments = parts;
      if (parts > 1 && blocks * parts > 2 * plan.device.processors) {
        plan.pruned.push_back(
            {split.schedule, "waves: more than two CTAs for each of the " +
                                 std::to_string(plan.device.processors) +
                                 " SMs"});
        break;
      }
      more.push_back(split);
    }
  }
  plan.candidates.insert(plan.candidates.end(), more.begin(), more.end());
}

static void applyNeeds(const LayerFacts &facts, Plan &plan,
                       const Compilations &made, int64_t leastSpills) {
  auto objection = [&](const TuningResult &candidate) -> std::string {
    const Compiled &own = made.of(candidate.schedule);
    if (!own.failure.empty())
      return own.failure;
    const KernelNeeds &needs = own.needs;
    if (needs.sharedBytes > plan.device.sharedBytes && plan.device.gpu)
      return "shared memory: more than the device has";
    if (needs.scanRegisters * needs.scanThreads > plan.device.registers)
      return "registers: more than the device has";
    if (candidate.schedule.form == "chunk" && leastSpills == 0 &&
        needs.spilledBytes > 0)
      return "registers: spills, and other candidates do not";
    return "";
  };
  std::erase_if(plan.candidates, [&](const TuningResult &candidate) {
    std::string reason = objection(candidate);
    if (!reason.empty())
      plan.pruned.push_back({candidate.schedule, reason});
    return !reason.empty();
  });
  if (plan.device.gpu && !plan.fixed)
    addSegments(plan, made);
  for (TuningResult &candidate : plan.candidates) {
    const Compiled &own = made.of(candidate.schedule);
    candidate.bundle = own.bundle;
    candidate.registers = own.needs.registers;
    candidate.spilledBytes = own.needs.spilledBytes;
    candidate.sharedBytes = own.needs.sharedBytes;
    if (plan.device.gpu)
      candidate.estimateMs = estimateMs(facts, candidate.schedule, plan.shape,
                                        plan.device, &own.needs);
  }
}

Status
plum::tuning::compilePlans(const Source &source, const CompileOptions &options,
                           const LayerFacts &facts, std::vector<Plan> &plans,
                           const std::string &dir, Clock::time_point deadline) {
  Compilations made(source, options, dir, deadline);
  std::set<TuningSchedule> all;
  for (const Plan &plan : plans)
    for (const TuningResult &candidate : plan.candidates)
      all.insert(candidate.schedule);
  if (options.target == "cpu") {
    if (Status status = made.together(all); !status)
      return status;
  } else {
    // Best estimates first: the deadline cuts the others.
    for (const Plan &plan : plans)
      for (const TuningResult &candidate : plan.candidates)
        if (!made.has(candidate.schedule))
          made.apart(candidate.schedule);
  }
  if (Status status = made.failure(); !status)
    return status;
  for (Plan &plan : plans)
    applyNeeds(facts, plan, made, made.leastSpills());
  for (Plan &plan : plans)
    dropHopeless(plan);
  return Status::ok();
}
