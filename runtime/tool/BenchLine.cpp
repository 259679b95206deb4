//===- BenchLine.cpp - What plum-run bench prints -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/BenchLine.h"

#include "runtime/Errors.h"
#include "runtime/Inputs.h"
#include "runtime/ReferenceRun.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace plum::runtime::tool {

/// Of a sorted list, linear between neighbours.
static double quantile(const std::vector<double> &sorted, double q) {
  double place = q * double(sorted.size() - 1);
  size_t below = size_t(place);
  size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] +
         (place - double(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

void summarize(std::vector<double> times, BenchLine &line) {
  std::sort(times.begin(), times.end());
  line.reps = int64_t(times.size());
  line.ms = quantile(times, 0.5);
  line.minMs = times.front();
  line.spread = (quantile(times, 0.75) - quantile(times, 0.25)) / line.ms;
}

int64_t bytesOnce(const Manifest &manifest, const RunArgs &args) {
  int64_t bytes = 0;
  auto add = [&](const TensorView &view, int64_t elements) {
    bytes += elements * int64_t(byteSize(view.dtype));
  };
  for (const auto *list : {&args.inputs, &args.params, &args.outputs})
    for (const TensorView &view : *list)
      add(view, view.elements());
  for (const auto *list : {&args.initialStates, &args.finalStates})
    for (size_t i = 0; i < list->size(); ++i)
      if (!manifest.states[i].grows)
        add((*list)[i], (*list)[i].elements());
  if (!manifest.growingState())
    return bytes;
  Result<Problem> problem = planProblem(manifest, args);
  for (size_t i = 0; problem && i < args.finalStates.size(); ++i)
    for (const Sequence &sequence : problem->sequences)
      if (manifest.states[i].grows && sequence.slot >= 0)
        add(args.finalStates[i], sequence.rows() * problem->stateHeads(i) *
                                     manifest.states[i].elements());
  return bytes;
}

Result<double> smallError(const Bundle &bundle, Runner &runner,
                          const ShapeOption &shape, const RunOptions &options) {
  Result<Reference> reference = Reference::load(bundle);
  if (!reference)
    return reference.error();
  int64_t tokens = 256 * std::max<int64_t>(options.segments, 1);
  int64_t heads = std::min<int64_t>(shape.heads, 2);
  Result<RandomProblem> small = randomProblem(
      bundle.manifest(), 1, std::min(shape.tokens, tokens), heads, 1,
      runner.threads(), std::min<int64_t>(shape.past.value_or(0), 256),
      shape.sharesLists() ? 1 : heads);
  if (!small)
    return small.error();
  Result<Problem> problem = planProblem(bundle.manifest(), small->args);
  if (!problem)
    return problem.error();
  if (Status status = runner.run(small->args, options); !status)
    return status.error();
  std::vector<ReferenceSequence> truth =
      reference->run(small->args, *problem, runner.threads());
  ErrorMeasures errors;
  for (size_t i = 0; i < small->args.outputs.size(); ++i)
    errors.merge(
        measure(sequenceRows(small->args.outputs[i], truth[0].sequence),
                truth[0].outputs[i]));
  return errors.r;
}

using Json = nlohmann::ordered_json;

/// NaN has no JSON; null fails every comparison too.
static Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

void printJson(const Manifest &manifest, const ShapeOption &shape, int threads,
               const std::string &gpu, const BenchLine &line) {
  double tokens = double(shape.batch * shape.tokens);
  Json json = {{"layer", manifest.layer},
               {"form", line.form},
               {"chunk", line.chunk ? Json(*line.chunk) : Json()},
               {"target", manifest.target},
               {"precision", manifest.precision},
               {"B", shape.batch},
               {"T", shape.tokens},
               {"H", shape.heads},
               {"P", shape.past.value_or(0)},
               {"L", shape.sharesLists() ? shape.listHeads : shape.heads},
               {"threads", threads},
               {"reps", line.reps},
               {"ms", line.ms},
               {"min_ms", line.minMs},
               {"spread", line.spread},
               {"tokens_per_s", tokens / line.ms * 1000},
               {"bytes", line.bytes},
               {"flops", line.flops > 0 ? Json(line.flops) : Json()},
               {"floor_ms", line.floorMs},
               {"sgemm_ms", line.sgemmMs ? Json(*line.sgemmMs) : Json()},
               {"error", number(line.error)}};
  if (!manifest.growingState()) {
    json.erase("P");
    json.erase("L");
  }
  if (manifest.onGpu()) {
    json.erase("threads");
    json.erase("sgemm_ms");
    json["device"] = gpu;
    json["segments"] = line.segments;
    json["sets"] = line.sets;
    json["code"] = line.code;
    json["kernels"] = Json::array();
    for (const BenchLine::Kernel &kernel : line.kernels)
      json["kernels"].push_back({{"symbol", kernel.symbol},
                                 {"grid", kernel.grid},
                                 {"ms", kernel.ms}});
  }
  fmt::print("{}\n", json.dump());
}

static std::string kernelName(const BenchLine &line) {
  std::string name =
      line.chunk ? fmt::format("{} {}", line.form, *line.chunk) : line.form;
  return line.segments > 1 ? fmt::format("{} x{}", name, line.segments) : name;
}

void printTable(const Manifest &manifest, const ShapeOption &shape,
                const std::string &place, const std::vector<BenchLine> &lines) {
  std::string past;
  if (manifest.growingState())
    past = fmt::format(" P={}", shape.past.value_or(0));
  if (shape.sharesLists())
    past += fmt::format(" L={}", shape.listHeads);
  fmt::print("{} on {}, B={} T={} H={}{}, {}\n", manifest.layer,
             manifest.target, shape.batch, shape.tokens, shape.heads, past,
             place);
  bool gpu = manifest.onGpu();
  fmt::print("{:<12} {:>10} {:>10} {:>7} {:>12} {:>9} {:>9} {:>9} {:>9}\n",
             "kernel", "ms", "min ms", "spread", "tokens/s",
             gpu ? "TFLOP/s" : "GFLOP/s", "floor ms", gpu ? "" : "sgemm ms",
             "error");
  for (const BenchLine &line : lines) {
    double rate = double(line.flops) / line.ms / (gpu ? 1e9 : 1e6);
    fmt::print("{:<12} {:>10.4f} {:>10.4f} {:>5.1f} % {:>12.0f} {:>9} {:>9.4f} "
               "{:>9} {:>9.2e}\n",
               kernelName(line), line.ms, line.minMs, 100 * line.spread,
               double(shape.batch * shape.tokens) / line.ms * 1000,
               line.flops > 0 ? fmt::format("{:.1f}", rate) : "-", line.floorMs,
               gpu            ? ""
               : line.sgemmMs ? fmt::format("{:.3f}", *line.sgemmMs)
                              : "-",
               line.error);
    for (const BenchLine::Kernel &kernel : line.kernels)
      fmt::print("  {:<32} {:>8.4f} ms alone, grid {}\n", kernel.symbol,
                 kernel.ms, kernel.grid);
  }
}

} // namespace plum::runtime::tool
