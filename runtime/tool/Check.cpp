//===- Check.cpp - plum-run check: kernels against the recurrence ---------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel of a bundle against the float64 recurrence of the bundle's own
// spec, on the same rounded inputs. Sequences are measured one by one and the
// worst counts, so that a short one cannot hide behind a long one.
//
//===----------------------------------------------------------------------===//

#include "runtime/Errors.h"
#include "runtime/Inputs.h"
#include "runtime/LayerIO.h"
#include "runtime/ReferenceRun.h"
#include "runtime/tool/Common.h"
#include "runtime/tool/ErrorTable.h"
#include "runtime/tool/Runner.h"

#include <fmt/format.h>

namespace plum::runtime::tool {

namespace {

constexpr const char *checkFooter =
    R"(Compares each kernel of the bundle (or those that --form and --chunk name) with
the float64 recurrence of the bundle's spec and prints, for each output,
  R = rms(x - ref) / rms(ref)
  W = the worst R of one head over 16 tokens (rms(ref) at least 5 % of the whole)
  M = max|x - ref| / max|ref|
and R for each final state; the worst sequence counts. Limits for 16-bit
tensors: R 5e-3, W 1e-2, M 2e-2, states 5e-3; where all is f32: 1e-5, 2e-5,
4e-5, 1e-5. Tensors used as a log decay as they stand must be <= 0.

With --in, tensors expected.NAME of the file are compared as well. Without it
the inputs are random: N(0, 1), rows of norm 1 for q and k, sigmoid(N) for
beta, -softplus(N) for log decays. Growing states start with P rows of N(0, 1)
in the first sequence (default 19), one less in each that follows.)";

class Check {
public:
  Check(const Bundle &bundle, Runner &runner, RunArgs &args,
        const Problem &problem, const SafetensorsFile *file,
        const std::string &where)
      : bundle(bundle), manifest(bundle.manifest()), args(args),
        problem(problem), file(file), where(where), runner(runner) {}

  /// The first value > 0 of each log decay; true when there is none.
  bool decaysHold() const {
    bool hold = true;
    auto look = [&](const ManifestTensor &tensor, const TensorView &view,
                    bool isParam) {
      for (const std::string &name : manifest.logDecays)
        if (name == tensor.name && !decayHolds(tensor, view, isParam))
          hold = false;
    };
    for (size_t i = 0; i < manifest.inputs.size(); ++i)
      look(manifest.inputs[i], args.inputs[i], false);
    for (size_t i = 0; i < manifest.params.size(); ++i)
      look(manifest.params[i], args.params[i], true);
    return hold;
  }

  Status run(const Choice &choice) {
    Result<Reference> reference = Reference::load(bundle);
    if (!reference)
      return reference.error();
    {
      Progress progress("reference",
                        int64_t(problem.sequences.size()) * problem.heads);
      truth = reference->run(args, problem, runner.threads(), &progress.done);
    }
    keepPool();
    for (const cuda::KernelSet &set : cuda::kernelSets(manifest)) {
      RunOptions options = choice.options();
      bool step = set.form == KernelForm::Step;
      if ((step && options.form == Form::Chunk) ||
          (!step && options.form == Form::Step) ||
          (options.chunk != 0 && set.chunk != options.chunk))
        continue;
      options.form = step ? Form::Step : Form::Chunk;
      options.chunk = step ? 0 : set.chunk;
      std::string name = step ? "step" : fmt::format("chunk {}", set.chunk);
      if (Status status = runKernels(name, options); !status)
        return status;
      // What splits a sequence is there for few heads; it counts at any size.
      if (options.segments == 0 && problem.tokens > set.chunk &&
          set.find(manifest, KernelRole::Summary)) {
        options.segments = 2;
        if (Status status = runKernels(name + " x2", options); !status)
          return status;
      }
    }
    return Status::ok();
  }

  /// Prints the table; true when all passes.
  bool report() const { return printErrors("kernel", rows); }

private:
  Status runKernels(const std::string &name, RunOptions options) {
    Progress progress(name, int64_t(problem.sequences.size()) * problem.heads);
    options.progress = &progress.done;
    poison();
    if (Status status = runner.run(args, options); !status)
      return status;
    compare(name);
    return Status::ok();
  }

  bool decayHolds(const ManifestTensor &tensor, const TensorView &view,
                  bool isParam) const {
    for (const Sequence &sequence : problem.sequences) {
      if (sequence.slot < 0)
        continue;
      int64_t begin = isParam ? 0 : sequence.begin;
      int64_t end = isParam ? 1 : sequence.begin + sequence.length;
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < view.shape[2]; ++h)
          for (int64_t c = 0; c < view.shape[3]; ++c) {
            int64_t b = isParam ? 0 : sequence.batch;
            double value =
                loadAsDouble(view.at(b, t, h), view.dtype, size_t(c));
            if (value <= 0) // Not so for NaN.
              continue;
            std::string place = isParam
                                    ? fmt::format("[{},{}]", h, c)
                                    : fmt::format("[{},{},{},{}]", b, t, h, c);
            fail({where,
                  fmt::format("'{}{}' is {}, expected at most 0", tensor.name,
                              place, value),
                  {"'" + tensor.name + "' is a log decay" +
                   (isParam ? ", [H,d]" : "; its axes are [B,T,H,d]")}});
            return false;
          }
    }
    return true;
  }

  /// Initial states stay as they were in the file, whatever runs.
  void keepPool() {
    for (size_t i = 0; i < args.finalStates.size(); ++i) {
      const TensorView &view = args.finalStates[i];
      size_t bytes = size_t(view.elements()) * byteSize(view.dtype);
      std::string &copy = pools.emplace_back();
      bool inPlace = !args.initialStates.empty() &&
                     args.initialStates[i].data == view.data;
      if (args.slots || inPlace)
        copy.assign(static_cast<const char *>(view.data), bytes);
      else
        copy.assign(bytes, '\xff'); // NaN, also in bf16.
    }
  }
  /// A value that a kernel fails to write shows as NaN.
  void poison() {
    for (const TensorView &view : args.outputs)
      std::memset(view.data, 0xff,
                  size_t(view.elements()) * byteSize(view.dtype));
    for (size_t i = 0; i < args.finalStates.size(); ++i)
      std::memcpy(args.finalStates[i].data, pools[i].data(), pools[i].size());
  }

  void compare(const std::string &kernel) {
    ErrorLimits limits = standardLimits(manifest);
    for (size_t i = 0; i < manifest.outputs.size(); ++i) {
      const ManifestTensor &output = manifest.outputs[i];
      ErrorMeasures exact, expected;
      std::optional<std::vector<double>> values =
          expectedValues(output.name, args.outputs[i].elements());
      for (const ReferenceSequence &sequence : truth) {
        std::vector<double> x =
            sequenceRows(args.outputs[i], sequence.sequence);
        exact.merge(measure(x, sequence.outputs[i], sequence.sequence.length,
                            problem.heads, output.elements()));
        if (!values)
          continue;
        size_t row = size_t(problem.heads * output.elements());
        size_t begin = size_t(sequence.sequence.batch * problem.tokens +
                              sequence.sequence.begin);
        expected.merge(measure(
            x, std::span(*values).subspan(begin * row, x.size()),
            sequence.sequence.length, problem.heads, output.elements()));
      }
      rows.push_back(
          {kernel, output.name, exact, false, passes(exact, limits)});
      if (values)
        rows.push_back({kernel, "expected." + output.name, expected, false,
                        passes(expected, limits)});
    }
    for (size_t i = 0; i < manifest.states.size(); ++i)
      compareState(kernel, i, limits);
  }

  void compareState(const std::string &kernel, size_t i,
                    const ErrorLimits &limits) {
    const ManifestTensor &state = manifest.states[i];
    const TensorView &view = args.finalStates[i];
    ErrorMeasures exact, expected;
    std::optional<std::vector<double>> values =
        expectedValues(state.name, view.elements());
    for (const ReferenceSequence &sequence : truth) {
      std::vector<double> x =
          finalState(manifest, args, problem, sequence.sequence, i);
      exact.merge(measure(x, sequence.states[i]));
      if (values)
        expected.merge(
            measure(x, stateIn(*values, view, sequence.sequence, state.grows)));
    }
    rows.push_back(
        {kernel, state.name, exact, true, passesState(exact, limits)});
    if (values)
      rows.push_back({kernel, "expected." + state.name, expected, true,
                      passesState(expected, limits)});
  }

  /// A sequence's state out of all `values` that `view` has, and no rows behind
  /// its end.
  static std::vector<double> stateIn(const std::vector<double> &values,
                                     const TensorView &view,
                                     const Sequence &sequence, bool grows) {
    std::vector<double> state;
    int64_t d = view.shape[3], rows = grows ? sequence.rows() : view.shape[2];
    for (int64_t head = 0; head < view.shape[1]; ++head) {
      auto begin = values.begin() +
                   (sequence.slot * view.shape[1] + head) * view.shape[2] * d;
      state.insert(state.end(), begin, begin + rows * d);
    }
    return state;
  }

  /// Tensor expected.`name` of the file when it has as many values.
  std::optional<std::vector<double>> expectedValues(const std::string &name,
                                                    int64_t elements) const {
    const FileTensor *tensor = file ? file->find("expected." + name) : nullptr;
    if (!tensor || tensor->elements() != elements)
      return std::nullopt;
    return loadDoubles(*tensor);
  }

  const Bundle &bundle;
  const Manifest &manifest;
  RunArgs &args;
  const Problem &problem;
  const SafetensorsFile *file;
  const std::string &where;
  Runner &runner;
  std::vector<ReferenceSequence> truth;
  std::vector<std::string> pools;
  std::vector<ErrorRow> rows;
};

struct CheckVerb {
  Choice choice;
  ShapeOption shape{.batch = 1, .tokens = 256, .heads = 2, .text = {}};
  std::string in;
  uint32_t seed = 1;

  void declare(CLI::App &verb) {
    choice.declare(verb);
    CLI::Option *file = verb.add_option("--in", in, "Input tensors, as for run")
                            ->type_name("FILE.safetensors");
    shape.declare(verb, "Sizes of random inputs");
    verb.get_option("--shape")->excludes(file);
    verb.add_option("--seed", seed, "Of random inputs")
        ->excludes(file)
        ->capture_default_str();
    verb.footer(checkFooter);
  }

  int run() {
    Result<Bundle> bundle = choice.open();
    if (!bundle)
      return fail(bundle.error());
    Result<Runner> runner = Runner::open(*bundle, choice.gpu);
    if (!runner)
      return fail(runner.error());
    return in.empty() ? checkRandom(*bundle, *runner)
                      : checkFile(*bundle, *runner);
  }

  int checkRandom(const Bundle &bundle, Runner &runner) {
    if (Status status = shape.parse(bundle.manifest()); !status)
      return fail(status.error());
    Result<RandomProblem> random = randomProblem(
        bundle.manifest(), shape.batch, shape.tokens, shape.heads, seed,
        runner.threads(), shape.past.value_or(checkedRows), shape.listHeads);
    if (!random)
      return fail(random.error(), "--shape");
    Result<Problem> problem = planProblem(bundle.manifest(), random->args);
    if (!problem)
      return fail(problem.error(), "--shape");
    return finish(bundle, runner, random->args, *problem, nullptr,
                  "random inputs");
  }

  int checkFile(const Bundle &bundle, Runner &runner) {
    Result<SafetensorsFile> file = SafetensorsFile::open(in);
    if (!file)
      return fail(file.error());
    Result<LayerRun> layer = openLayerRun(bundle.manifest(), *file, {});
    if (!layer)
      return fail(layer.error());
    for (const std::string &warning : layer->warnings)
      warn(in, warning);
    return finish(bundle, runner, layer->args, layer->problem, &*file, in);
  }

  int finish(const Bundle &bundle, Runner &runner, RunArgs &args,
             const Problem &problem, const SafetensorsFile *file,
             const std::string &where) {
    Check check(bundle, runner, args, problem, file, where);
    bool hold = check.decaysHold();
    if (Status status = check.run(choice); !status)
      return fail(status.error(), where);
    return check.report() && hold ? 0 : 1;
  }
};

} // namespace

void addCheck(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "check", "Compare every kernel with the float64 recurrence");
  auto options = std::make_shared<CheckVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
