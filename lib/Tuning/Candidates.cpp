//===- Candidates.cpp - Which schedules are worth a try -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidates.h"

#include "plum/Target/GpuChip.h"
#include "runtime/Errors.h"

#include <algorithm>
#include <cstdio>
#include <map>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

std::vector<TuningSchedule>
plum::tuning::schedulesOf(const LayerFacts &facts,
                          const CompileOptions &options) {
  std::vector<TuningSchedule> list;
  bool gpu = options.target != "cpu";
  if (options.form != Form::Chunk)
    list.push_back({"step", 0, 0, 0, 0});
  if (options.form == Form::Step || !facts.chunked)
    return list;
  if (!gpu) {
    for (int64_t chunk : {8, 16, 32, 64, 128, 256})
      list.push_back({"chunk", chunk, 0, 0, 0});
    return list;
  }
  int64_t V = stateSize(facts.manifest).v;
  std::vector<int64_t> slices;
  for (int64_t slice : {64, 128})
    if (V % slice == 0)
      slices.push_back(slice);
  if (slices.empty())
    slices.push_back(0);
  for (int64_t chunk : {16, 32, 64, 128})
    for (int64_t slice : slices)
      for (int64_t stages : {0, 2, 3})
        list.push_back({"chunk", chunk, slice, stages, 0});
  return list;
}

namespace {

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

/// Why a schedule is not worth compiling, or an empty text.
std::string objection(const LayerFacts &facts, const TuningSchedule &schedule,
                      const TuningShape &shape, const DeviceModel &device) {
  if (schedule.form == "step")
    return "";
  int64_t half = schedule.chunk / 2;
  if (half >= shape.tokens && half >= (device.gpu ? 16 : 8))
    return "padding: half the chunk holds all " + std::to_string(shape.tokens) +
           " tokens";
  if (!device.gpu)
    return ""; // Products of decays lose nothing; memory is no limit.
  int64_t K = stateSize(facts.manifest).k, most = gpuChunkRows(K);
  if (schedule.chunk * facts.steps > most)
    return "rows: at most " + std::to_string(most) + " of key dim " +
           std::to_string(K) + ", one for each of " +
           std::to_string(facts.steps) + " updates a token";
  double limit = standardLimits(facts.manifest).r / 4;
  if (facts.lowestLogDecay) {
    double loss = decayLoss(schedule.chunk, *facts.lowestLogDecay);
    if (loss > limit)
      return "decay range: sums of log decays down to " +
             rounded(*facts.lowestLogDecay) + " lose " + rounded(loss) +
             ", more than a quarter of the error limit";
  }
  int64_t shared = leastShared(facts, schedule);
  if (shared > device.sharedBytes)
    return "shared memory: more than the " +
           std::to_string(device.sharedBytes) + " bytes of a CTA";
  return "";
}

} // namespace

static void sortByEstimate(Plan &plan) {
  std::sort(plan.candidates.begin(), plan.candidates.end(),
            [](const TuningResult &a, const TuningResult &b) {
              return std::pair(a.estimateMs, a.schedule) <
                     std::pair(b.estimateMs, b.schedule);
            });
}

void plum::tuning::dropHopeless(Plan &plan) {
  if (plan.candidates.empty())
    return;
  sortByEstimate(plan);
  double best = plan.candidates.front().estimateMs;
  auto hope = [&](const TuningResult &candidate) {
    return candidate.estimateMs <= hopeless * best;
  };
  for (const TuningResult &candidate : plan.candidates)
    if (!hope(candidate)) {
      // Step kernels have no chain to hide and no waves to fill.
      const char *what = plan.device.gpu ? "waves and work" : "work";
      plan.pruned.push_back(
          {candidate.schedule, std::string(what) + ": estimated at more than " +
                                   rounded(hopeless) +
                                   " times the best candidate"});
    }
  std::erase_if(plan.candidates,
                [&](const TuningResult &c) { return !hope(c); });
}

Plan plum::tuning::planShape(const LayerFacts &facts,
                             const std::vector<TuningSchedule> &schedules,
                             const TuningShape &shape,
                             const DeviceModel &device) {
  Plan plan;
  plan.shape = shape;
  plan.device = device;
  plan.key.layer = facts.manifest.layer;
  plan.key.signature = facts.signature;
  plan.key.target = facts.manifest.target;
  plan.key.precision = facts.manifest.precision;
  plan.key.device = device.name;
  plan.key.bucket = TuningBucket::of(shape);
  for (const TuningSchedule &schedule : schedules) {
    std::string reason = objection(facts, schedule, shape, device);
    if (!reason.empty()) {
      plan.pruned.push_back({schedule, reason});
      continue;
    }
    TuningResult candidate;
    candidate.schedule = schedule;
    candidate.shape = shape;
    candidate.estimateMs = estimateMs(facts, schedule, shape, device);
    plan.candidates.push_back(candidate);
  }
  dropHopeless(plan);
  return plan;
}

/// True when a result of the chunk size failed or is above a limit.
static bool knownBad(const TuningEntry *known, const TuningSchedule &schedule) {
  if (known)
    for (const TuningResult &result : known->results)
      if (result.schedule.chunk == schedule.chunk && !result.date.empty() &&
          !result.usable())
        return true;
  return false;
}

std::optional<TuningSchedule>
plum::tuning::modelChoice(const LayerFacts &facts,
                          const CompileOptions &options,
                          const TuningShape &shape, const DeviceModel &device,
                          const TuningEntry *known) {
  std::vector<TuningSchedule> schedules = schedulesOf(facts, options);
  for (TuningSchedule &schedule : schedules)
    schedule.slice = schedule.stages = 0;
  std::erase_if(schedules, [&](const TuningSchedule &schedule) {
    return knownBad(known, schedule);
  });
  Plan plan = planShape(facts, schedules, shape, device);
  if (plan.candidates.empty())
    return std::nullopt;
  return plan.candidates.front().schedule;
}

std::string plum::tuning::describe(const Plan &plan) {
  std::map<std::string, std::vector<std::string>> reasons;
  for (const Pruned &pruned : plan.pruned)
    reasons[pruned.reason].push_back(pruned.schedule.text());
  std::string text =
      plan.shape.text() + ": " +
      std::to_string(plan.candidates.size() + plan.pruned.size()) +
      " candidates, " + std::to_string(plan.pruned.size()) + " pruned, " +
      std::to_string(plan.candidates.size()) + " to be measured\n";
  for (const auto &[reason, names] : reasons) {
    text += "  pruned " + std::to_string(names.size()) + " (";
    for (size_t i = 0; i < names.size(); ++i)
      text += (i ? ", " : "") + names[i];
    text += "): " + reason + "\n";
  }
  return text;
}
