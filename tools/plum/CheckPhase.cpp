//===- CheckPhase.cpp - plum check ------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Without --after, `plum check` compares compiled kernels: that is plum-run's
// work. With it, no code is generated: the IR of a phase is interpreted in
// float64 on the inputs that the kernels would get, and compared with the
// recurrence as the spec has it. Both are float64, so the limit is near
// rounding and a wrong formula cannot hide behind a tolerance for fp32.
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "plum/Frontend/Frontend.h"
#include "plum/Interpreter/PhaseProgram.h"
#include "plum/Pipelines/Phases.h"
#include "runtime/Inputs.h"
#include "runtime/LayerIO.h"
#include "runtime/ReferenceRun.h"
#include "runtime/tool/Common.h"
#include "runtime/tool/ErrorTable.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>

using namespace plum;
using namespace plum::interpreter;
using namespace plum::runtime;
using plum::runtime::tool::ErrorRow;
using plum::runtime::tool::Progress;
using plum::tool::SpecArguments;

namespace {

/// R, W, M and the R of states: what float64 leaves of sums in another order.
constexpr ErrorLimits kLimits = {1e-10, 1e-10, 1e-10, 1e-10};

/// The tensors of one check and the truth about them.
struct Data {
  Manifest manifest;
  RunArgs args;
  Problem problem;
  std::vector<ReferenceSequence> truth;
  // What args view.
  std::optional<SafetensorsFile> file;
  std::optional<LayerRun> run;
  std::optional<RandomProblem> random;
};

struct CheckVerb {
  SpecArguments spec;
  std::string after, shape, in;
  uint32_t seed = 1;
  CLI::App *verb = nullptr;

  void declare(CLI::App &app);
  int run();

private:
  int runKernels() const;
  Result<bool> runPhases();
  Status makeData(const Source &source, const CompileOptions &options);
  Status makeTruth(const Source &source, const CompileOptions &options);
  Status runPhase(const Source &source, const CompileOptions &options,
                  const std::string &phase);
  void compare(const std::string &what,
               const std::vector<ReferenceSequence> &found);

  Data data;
  ThreadPool pool;
  std::vector<ErrorRow> rows;
};

constexpr const char *kFooter =
    R"(Without --after every kernel is compiled, run and compared with the float64
recurrence, within limits for its dtypes; SPEC may then be a bundle directory,
and further options are those of 'plum-run check'.

With --after PHASE nothing is compiled to code: the IR of that phase is
interpreted in float64 and compared with the recurrence; R, W, M at most 1e-10.
  assoc, normal   one token at a time
  chunk, plan     C tokens at a time, for each C of --chunk
  all             the four of them: the first that fails names the wrong step
  the others      code for the target: its kernels, as without --after
The columns are
  R = rms(x - ref) / rms(ref)
  W = the worst R of one head over 16 tokens (rms(ref) at least 5 % of the whole)
  M = max|x - ref| / max|ref|
and R for each final state. docs/checking.md says what each comparison proves.)";

void CheckVerb::declare(CLI::App &app) {
  verb = app.add_subcommand(
      "check",
      "compare kernels, or the IR of a phase, with the float64 recurrence");
  spec.declare(*verb);
  std::vector<std::string> names;
  for (const Phase &phase : phases())
    names.push_back(phase.name.str());
  names.push_back("all");
  verb->add_option("--after", after,
                   "interpret the IR of this phase instead of kernels")
      ->check(CLI::IsMember(names))
      ->type_name("PHASE");
  CLI::Option *file = verb->add_option("--in", in, "input tensors, as for run")
                          ->type_name("FILE.safetensors");
  verb->add_option("--shape", shape,
                   "sizes of random inputs [B=1,T=256,H=2; with --after T=130]")
      ->type_name("B=n,T=n,H=n")
      ->excludes(file);
  verb->add_option("--seed", seed, "of random inputs")
      ->excludes(file)
      ->capture_default_str();
  verb->allow_extras();
  verb->footer(kFooter);
}

int CheckVerb::run() {
  std::vector<std::string> interpreted = interpretedPhases();
  if (after != "all" && std::find(interpreted.begin(), interpreted.end(),
                                  after) == interpreted.end())
    return runKernels();
  if (!verb->remaining().empty())
    return plum::tool::fail(
        {"--after",
         "does not take '" + verb->remaining().front() + "'",
         {"'plum check --help' lists what there is"}});
  Result<bool> pass = runPhases();
  if (!pass)
    return plum::tool::fail(pass.error());
  return *pass ? 0 : 1;
}

int CheckVerb::runKernels() const {
  bool onCpu = spec.target.empty() || spec.target == "cpu";
  auto own = phasesFor(onCpu ? Machine::CPU : Machine::GPU);
  if (!after.empty() &&
      std::none_of(own.begin(), own.end(),
                   [&](const Phase &phase) { return phase.name == after; }))
    return plum::tool::fail({"--after",
                             "target '" + (onCpu ? "cpu" : spec.target) +
                                 "' has no phase '" + after + "'",
                             {"'plum --print-phases' lists them"}});
  if (!after.empty())
    std::fprintf(stderr,
                 "note: after '%s' a layer is code for its target: its kernels "
                 "are run, with the limits of their dtypes\n",
                 after.c_str());
  std::vector<std::string> rest = verb->remaining();
  if (!in.empty())
    rest.insert(rest.end(), {"--in", in});
  if (!shape.empty())
    rest.insert(rest.end(), {"--shape", shape});
  if (verb->count("--seed") > 0)
    rest.insert(rest.end(), {"--seed", std::to_string(seed)});
  return plum::tool::forward("check", spec, rest);
}

/// The inputs that plum-run check would make or read.
Status CheckVerb::makeData(const Source &source,
                           const CompileOptions &options) {
  CompileReport report;
  Result<Manifest> manifest = describeLayer(source, options, report);
  if (!manifest)
    return manifest.error();
  spec.show(report);
  data.manifest = std::move(*manifest);
  if (in.empty()) {
    runtime::tool::ShapeOption sizes{
        .batch = 1, .tokens = 130, .heads = 2, .text = shape};
    if (Status status =
            shape.empty() ? Status::ok() : sizes.parse(data.manifest);
        !status)
      return status;
    Result<RandomProblem> random = randomProblem(
        data.manifest, sizes.batch, sizes.tokens, sizes.heads, seed, pool,
        sizes.past.value_or(checkedRows), sizes.listHeads);
    if (!random)
      return random.error();
    data.random = std::move(*random);
    data.args = data.random->args;
    Result<Problem> problem = planProblem(data.manifest, data.args);
    if (!problem)
      return problem.error();
    data.problem = *problem;
    return Status::ok();
  }
  Result<SafetensorsFile> file = SafetensorsFile::open(in);
  if (!file)
    return file.error();
  data.file.emplace(std::move(*file));
  Result<LayerRun> run = openLayerRun(data.manifest, *data.file, {});
  if (!run) {
    Error error = run.error();
    if (error.where.empty())
      error.where = in;
    return error;
  }
  data.run = std::move(*run);
  for (const std::string &warning : data.run->warnings)
    runtime::tool::warn(in, warning);
  data.args = data.run->args;
  data.problem = data.run->problem;
  return Status::ok();
}

Status CheckVerb::makeTruth(const Source &source,
                            const CompileOptions &options) {
  Diagnostics diags(source);
  frontend::SpecOptions asWritten = options.spec;
  asWritten.stepOnly = true; // The recurrence needs no affine form.
  std::unique_ptr<frontend::Layer> layer =
      frontend::parseSpec(diags, asWritten);
  if (!layer)
    return Error{kRendered, diags.render(), {}};
  Progress progress("recurrence", int64_t(data.problem.sequences.size()) *
                                      data.problem.heads);
  data.truth = runHeads(
      data.manifest, data.args, data.problem, pool,
      [&](reference::Head &head) { reference::run(*layer, head); },
      &progress.done);
  return Status::ok();
}

void CheckVerb::compare(const std::string &what,
                        const std::vector<ReferenceSequence> &found) {
  for (size_t i = 0; i < data.manifest.outputs.size(); ++i) {
    const ManifestTensor &output = data.manifest.outputs[i];
    ErrorMeasures errors;
    for (size_t n = 0; n < found.size(); ++n)
      errors.merge(measure(found[n].outputs[i], data.truth[n].outputs[i],
                           found[n].sequence.length, data.problem.heads,
                           output.elements()));
    rows.push_back({what, output.name, errors, false, passes(errors, kLimits)});
  }
  for (size_t i = 0; i < data.manifest.states.size(); ++i) {
    ErrorMeasures errors;
    for (size_t n = 0; n < found.size(); ++n)
      errors.merge(measure(found[n].states[i], data.truth[n].states[i]));
    rows.push_back({what, data.manifest.states[i].name, errors, true,
                    passesState(errors, kLimits)});
  }
}

Status CheckVerb::runPhase(const Source &source, const CompileOptions &options,
                           const std::string &phase) {
  CompileReport report;
  Result<PhaseProgram> program =
      PhaseProgram::compile(source, options, phase, report);
  if (!program)
    return program.error();
  bool perToken = phase == "assoc" || phase == "normal";
  bool any = false;
  for (const PhaseProgram::Entry &entry : program->entries()) {
    if (perToken != (entry.chunk == 0))
      continue;
    any = true;
    std::string what =
        perToken ? phase : phase + " " + std::to_string(entry.chunk);
    Status status;
    std::mutex mutex;
    Progress progress(what, int64_t(data.problem.sequences.size()) *
                                data.problem.heads);
    auto runHead = [&](reference::Head &head) {
      Status done = program->run(entry, head);
      std::lock_guard lock(mutex);
      if (status && !done)
        status = done;
    };
    std::vector<ReferenceSequence> found = runHeads(
        data.manifest, data.args, data.problem, pool, runHead, &progress.done);
    if (!status)
      return Error{what, status.error().message, status.error().notes};
    compare(what, found);
  }
  if (any)
    return Status::ok();
  std::string why = "layer '" + data.manifest.layer +
                    "' has no chunkwise form at phase '" + phase + "'";
  if (after != "all")
    return Error{"--after",
                 why,
                 {"it runs token by token: '--after normal' checks that"}};
  std::fprintf(stderr, "note: %s; it runs token by token\n", why.c_str());
  return Status::ok();
}

Result<bool> CheckVerb::runPhases() {
  Result<CompileOptions> options = spec.options();
  if (!options)
    return options.error();
  Result<Source> source = spec.read();
  if (!source)
    return source.error();
  if (Status status = makeData(*source, *options); !status)
    return status.error();
  if (Status status = makeTruth(*source, *options); !status)
    return status.error();
  std::vector<std::string> phases = {after};
  if (after == "all")
    phases = interpretedPhases();
  for (const std::string &phase : phases)
    if (Status status = runPhase(*source, *options, phase); !status)
      return status.error();
  bool pass = runtime::tool::printErrors("phase", rows);
  for (const ErrorRow &row : rows)
    if (!row.pass && after == "all") {
      std::fprintf(
          stderr,
          "note: '%s' is the first phase that differs from the recurrence\n",
          row.what.c_str());
      break;
    }
  return pass;
}

} // namespace

void plum::tool::addCheck(CLI::App &app, int &exitCode) {
  auto state = std::make_shared<CheckVerb>();
  state->declare(app);
  state->verb->callback([state, &exitCode] { exitCode = state->run(); });
}
