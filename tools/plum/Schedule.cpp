//===- Schedule.cpp - What a shape is compiled with -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// compile (with --shape), run and bench look their schedule up; check runs what
// it is told. --chunk wins over everything, so that whoever wants the same bits
// everywhere can have them.
//
//===----------------------------------------------------------------------===//

#include "Tuning.h"
#include "lib/Tuning/Database.h"
#include "runtime/Executor.h"
#include "runtime/Safetensors.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace plum;
using namespace plum::tool;
using namespace plum::tuning;
using namespace plum::runtime;

Result<std::string> plum::tool::databasePath(const std::string &given) {
  if (!given.empty())
    return given;
  if (const char *path = std::getenv("PLUM_TUNING"); path && *path)
    return std::string(path);
  Result<std::string> cache = cacheDirectory();
  if (!cache)
    return cache;
  return *cache + "/tuning.json";
}

Result<TuningShape> plum::tool::shapeOf(const std::string &text) {
  if (std::optional<TuningShape> shape = parseTuningShape(text))
    return *shape;
  return Error{
      "--shape", "'" + text + "' is not of the form B=n,T=n,H=n, n >= 1", {}};
}

Result<TuningContext> plum::tool::tuningContext(const SpecArguments &spec,
                                                Source source,
                                                const CompileOptions &options,
                                                int threads) {
  TuningContext context;
  context.source = std::move(source);
  context.options = options;
  CompileReport report;
  Result<LayerFacts> facts = layerFacts(context.source, options, report);
  if (!facts)
    return facts.error();
  context.facts = std::move(*facts);
  if (options.target == "cpu") {
    context.device = cpuDevice(context.facts.manifest.cpu,
                               threads > 0 ? threads : ThreadPool::available());
  } else {
    context.device = gpuDevice(options.target);
    if (std::optional<GpuHere> here = gpuHere();
        here && here->target == options.target)
      context.device.processors = here->processors,
      context.device.name = gpuDeviceName(here->name, here->processors);
  }
  context.compiler = compilerIdentity(options);
  return context;
}

/// The command that measures what is missing.
static std::string tuneCommand(const SpecArguments &spec,
                               const CompileOptions &options,
                               const TuningShape &shape) {
  std::string command = "plum tune " + spec.path;
  for (const std::string &set : spec.sets)
    command += " --set " + set;
  auto add = [&](const char *flag, const std::string &value,
                 const std::string &usual) {
    if (value != usual)
      command += std::string(" ") + flag + " " + value;
  };
  add("--layer", spec.layer, "");
  add("--precision", spec.precision, "default");
  add("--target", options.target, "cpu");
  add("--cpu", spec.cpu, "native");
  add("--db", spec.database, "");
  return command + " --shape " + shape.text();
}

Result<std::optional<Choice>> plum::tool::chooseFor(const SpecArguments &spec,
                                                    const Source &source,
                                                    CompileOptions &options,
                                                    const TuningShape &shape,
                                                    int threads) {
  std::optional<Choice> none;
  // What plum-run does token by token whatever it has.
  int64_t steps = options.target == "cpu" ? autoStepTokens : 1;
  bool decided = options.form != Form::Chunk && shape.tokens <= steps;
  if (!spec.chunk.empty() || options.form == Form::Step || decided)
    return none;
  Result<TuningContext> context = tuningContext(spec, source, options, threads);
  if (!context)
    return none; // The compiler will say it better.
  if (!context->facts.chunked)
    return none;
  Result<std::string> path = databasePath(spec.database);
  if (!path)
    return path.error();
  Result<TuningDatabase> database = openDatabase(*path);
  if (!database)
    return database.error();
  Result<Choice> choice = chooseSchedule(
      context->facts, options, shape, context->device, context->compiler,
      *database, tuneCommand(spec, options, shape));
  if (!choice)
    return choice.error();
  if (choice->schedule.form == "chunk") {
    options.chunks = {choice->schedule.chunk};
    options.slice = choice->schedule.slice;
    options.stages = choice->schedule.stages;
  }
  options.tuning = choice->record;
  return std::optional(std::move(*choice));
}

namespace {

/// The value of `--name VALUE` or `--name=VALUE`.
std::optional<std::string> valueOf(const std::vector<std::string> &arguments,
                                   const std::string &name) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == name && i + 1 < arguments.size())
      return arguments[i + 1];
    if (arguments[i].starts_with(name + "="))
      return arguments[i].substr(name.size() + 1);
  }
  return std::nullopt;
}

/// Of the first input that the file has: [T, H, ...] or [B, T, H, ...]; of
/// packed rows the mean length.
std::optional<TuningShape> shapeOfFile(const Manifest &manifest,
                                       const std::string &path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file)
    return std::nullopt; // plum-run says why.
  for (const ManifestTensor &input : manifest.inputs) {
    const FileTensor *tensor = file->find(input.name);
    if (!tensor)
      continue;
    const std::vector<int64_t> &axes = tensor->shape;
    size_t outer = axes.size() - input.shape.size();
    if (axes.size() < input.shape.size() || (outer != 2 && outer != 3))
      return std::nullopt;
    TuningShape shape{outer == 3 ? axes[0] : 1, axes[outer - 2],
                      axes[outer - 1]};
    const FileTensor *cuts = file->find("cu_seqlens");
    if (cuts && cuts->elements() > 1) {
      shape.batch = cuts->elements() - 1;
      shape.tokens = (shape.tokens + shape.batch - 1) / shape.batch;
    }
    if (shape.batch < 1 || shape.tokens < 1 || shape.heads < 1)
      return std::nullopt;
    return shape;
  }
  return std::nullopt;
}

} // namespace

Result<std::optional<Choice>>
plum::tool::chooseForRun(const std::string &verb, const SpecArguments &spec,
                         const Source &source, CompileOptions &options,
                         const std::vector<std::string> &rest) {
  std::optional<TuningShape> shape;
  std::optional<Choice> none;
  if (!spec.chunk.empty() || options.form == Form::Step)
    return none;
  if (verb == "bench") {
    bool all = std::find(rest.begin(), rest.end(), "--all") != rest.end();
    std::string text = valueOf(rest, "--shape").value_or("B=1,T=8192,H=32");
    if (!all)
      shape = parseTuningShape(text);
  } else if (verb == "run") {
    if (std::optional<std::string> in = valueOf(rest, "--in")) {
      CompileReport report;
      Result<Manifest> manifest = describeLayer(source, options, report);
      if (manifest)
        shape = shapeOfFile(*manifest, *in);
    }
  }
  if (!shape)
    return none;
  std::string threads = valueOf(rest, "--threads").value_or("");
  return chooseFor(spec, source, options, *shape, std::atoi(threads.c_str()));
}

void plum::tool::showChoice(const Choice &choice) {
  if (choice.message.empty())
    return;
  std::fprintf(stderr, "note: %s\n", choice.message.c_str());
  for (const std::string &note : choice.notes)
    std::fprintf(stderr, "note: %s\n", note.c_str());
}
