//===- Bench.cpp - plum-run bench: how fast, beside what ------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A time alone says little: beside it stand the time in which memory could be
// read and written, the time OpenBLAS takes for the same matrix products, taken
// alternately in the same run, and the error of the very kernel.
//
//===----------------------------------------------------------------------===//

#include "runtime/Errors.h"
#include "runtime/Inputs.h"
#include "runtime/ReferenceRun.h"
#include "runtime/tool/Common.h"
#include "runtime/tool/Sgemm.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>

namespace plum::runtime::tool {

namespace {

constexpr const char *footer =
    R"(Runs the layer on random inputs (as check) for --seconds, up to four times as
long to get 30 runs, at least 3 times, and prints
  ms            median; min_ms the fastest; spread (quartile 3 - quartile 1) / ms
  tokens_per_s  tokens of all sequences, all heads done
  bytes, flops  inputs, params and outputs once and the final states; the
                arithmetic as the compiler counts it, null when it does not
  floor_ms      time to copy that many bytes at the rate at which these threads
                copy large buffers, measured first
  sgemm_ms      OpenBLAS's time for the kernel's matrix products alone, in f32,
                on as many threads, measured in turns with the kernel; null
                without libopenblas.so.0 or a list of products
  error         R of the outputs against the float64 recurrence, on at most 256
                tokens and 2 heads of the same kind of inputs
--json prints one object on one line. --all does so for every kernel.)";

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since)
      .count();
}

/// Of a sorted list, linear between neighbours.
double quantile(const std::vector<double> &sorted, double q) {
  double place = q * double(sorted.size() - 1);
  size_t below = size_t(place);
  size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] +
         (place - double(below)) * (sorted[above] - sorted[below]);
}

/// Bytes read plus bytes written per millisecond when all threads copy.
double copyRate(ThreadPool &pool, int threads) {
  constexpr size_t block = 32 << 20;
  std::vector<AlignedBuffer> buffers;
  buffers.resize(size_t(threads));
  for (AlignedBuffer &buffer : buffers)
    if (!buffer.reserve(2 * block))
      return 0;
  double best = 0;
  for (int i = 0; i < 6; ++i) { // The first touches the pages.
    Clock::time_point start = Clock::now();
    pool.run(threads, threads, [&](int, int64_t index) {
      char *data = buffers[size_t(index)].data();
      std::memcpy(data, data + block, block);
    });
    best = std::max(best, 2.0 * double(block) * threads / milliseconds(start));
  }
  return best;
}

int64_t bytesOnce(const RunArgs &args) {
  int64_t bytes = 0;
  for (const auto *list :
       {&args.inputs, &args.params, &args.outputs, &args.finalStates})
    for (const TensorView &view : *list)
      bytes += view.elements() * int64_t(byteSize(view.dtype));
  return bytes;
}

struct Line {
  std::string form;
  std::optional<int64_t> chunk;
  double ms, minMs, spread, floorMs, error;
  std::optional<double> sgemmMs;
  int64_t bytes, flops, reps;
};

class Bench {
public:
  Bench(const Bundle &bundle, const ShapeOption &shape, int threads,
        double seconds)
      : bundle(bundle), shape(shape), threads(threads), seconds(seconds),
        executor(bundle) {}

  Status prepare() {
    if (Status status =
            generate(shape.batch, shape.tokens, shape.heads, random);
        !status)
      return status;
    rate = copyRate(executor.threads(), threads);
    return Status::ok();
  }

  Result<Line> run(RunOptions options) {
    options.threads = threads;
    Result<KernelChoice> choice = chooseKernels(bundle, options);
    if (!choice)
      return choice.error();
    // What does the bulk of the work.
    bool step =
        !choice->chunk || (choice->step && shape.tokens <= autoStepTokens);
    const ManifestKernel &kernel = *(step ? choice->step : choice->chunk)->info;
    Line line;
    line.form = name(kernel.form);
    if (!step)
      line.chunk = kernel.chunk;
    Result<double> error = measureError(options);
    if (!error)
      return error.error();
    line.error = *error;

    int64_t pairs = shape.batch * shape.heads;
    int64_t chunks = (shape.tokens + kernel.chunk - 1) / kernel.chunk;
    line.bytes = bytesOnce(random.args);
    line.flops = kernel.flopsPerChunk * chunks * pairs;
    line.floorMs = rate > 0 ? double(line.bytes) / rate : 0;
    std::optional<Sgemm> sgemm = Sgemm::load(kernel, threads);
    std::vector<double> times, sgemmTimes;
    Clock::time_point start = Clock::now();
    Progress progress("timing " + line.form, int64_t(seconds * 1000));
    do {
      Clock::time_point begin = Clock::now();
      if (Status status = executor.run(random.args, options); !status)
        return status.error();
      times.push_back(milliseconds(begin));
      if (sgemm) {
        begin = Clock::now();
        sgemm->run(executor.threads(), threads, pairs, chunks);
        sgemmTimes.push_back(milliseconds(begin));
      }
      progress.done =
          std::min(int64_t(milliseconds(start)), int64_t(seconds * 1000));
    } while (!enough(int64_t(times.size()) - 1, milliseconds(start)));
    summarize(times, sgemmTimes, line);
    return line;
  }

private:
  Status generate(int64_t batch, int64_t tokens, int64_t heads,
                  RandomProblem &into) {
    auto problem = randomProblem(bundle.manifest(), batch, tokens, heads, 1,
                                 executor.threads());
    if (!problem)
      return problem.error();
    into = std::move(*problem);
    return Status::ok();
  }

  /// The median of 30 is worth waiting for, but not for ever.
  bool enough(int64_t reps, double ms) const {
    if (reps < 3)
      return false;
    return ms >= seconds * (reps < 30 ? 4000 : 1000);
  }

  /// The first run of each is a warm-up.
  static void summarize(std::vector<double> &times, std::vector<double> &sgemm,
                        Line &line) {
    times.erase(times.begin());
    std::sort(times.begin(), times.end());
    line.reps = int64_t(times.size());
    line.ms = quantile(times, 0.5);
    line.minMs = times.front();
    line.spread = (quantile(times, 0.75) - quantile(times, 0.25)) / line.ms;
    if (sgemm.empty())
      return;
    sgemm.erase(sgemm.begin());
    std::sort(sgemm.begin(), sgemm.end());
    line.sgemmMs = quantile(sgemm, 0.5);
  }

  Result<double> measureError(const RunOptions &options) {
    Result<Reference> reference = Reference::load(bundle);
    if (!reference)
      return reference.error();
    RandomProblem small;
    if (Status status = generate(1, std::min<int64_t>(shape.tokens, 256),
                                 std::min<int64_t>(shape.heads, 2), small);
        !status)
      return status.error();
    Result<Problem> problem = planProblem(bundle.manifest(), small.args);
    if (!problem)
      return problem.error();
    if (Status status = executor.run(small.args, options); !status)
      return status.error();
    std::vector<ReferenceSequence> truth =
        reference->run(small.args, *problem, executor.threads());
    ErrorMeasures errors;
    for (size_t i = 0; i < small.args.outputs.size(); ++i)
      errors.merge(
          measure(sequenceRows(small.args.outputs[i], truth[0].sequence),
                  truth[0].outputs[i]));
    return errors.r;
  }

  const Bundle &bundle;
  const ShapeOption &shape;
  int threads;
  double seconds;
  Executor executor;
  RandomProblem random;
  double rate = 0;
};

using Json = nlohmann::ordered_json;

/// NaN has no JSON; null fails every comparison too.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

void printJson(const Manifest &manifest, const ShapeOption &shape, int threads,
               const Line &line) {
  double tokens = double(shape.batch * shape.tokens);
  Json json = {{"layer", manifest.layer},
               {"form", line.form},
               {"chunk", line.chunk ? Json(*line.chunk) : Json()},
               {"target", manifest.target},
               {"precision", manifest.precision},
               {"B", shape.batch},
               {"T", shape.tokens},
               {"H", shape.heads},
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
  fmt::print("{}\n", json.dump());
}

void printTable(const Manifest &manifest, const ShapeOption &shape, int threads,
                const std::vector<Line> &lines) {
  fmt::print("{} on {}, B={} T={} H={}, {} threads\n", manifest.layer,
             manifest.target, shape.batch, shape.tokens, shape.heads, threads);
  fmt::print("{:<10} {:>10} {:>10} {:>7} {:>12} {:>9} {:>9} {:>9} {:>9}\n",
             "kernel", "ms", "min ms", "spread", "tokens/s", "GFLOP/s",
             "floor ms", "sgemm ms", "error");
  for (const Line &line : lines)
    fmt::print(
        "{:<10} {:>10.3f} {:>10.3f} {:>5.1f} % {:>12.0f} {:>9} {:>9.3f} "
        "{:>9} {:>9.2e}\n",
        line.chunk ? fmt::format("{} {}", line.form, *line.chunk) : line.form,
        line.ms, line.minMs, 100 * line.spread,
        double(shape.batch * shape.tokens) / line.ms * 1000,
        line.flops > 0
            ? fmt::format("{:.1f}", double(line.flops) / line.ms / 1e6)
            : "-",
        line.floorMs, line.sgemmMs ? fmt::format("{:.3f}", *line.sgemmMs) : "-",
        line.error);
}

struct BenchVerb {
  Choice choice;
  ShapeOption shape{.batch = 1, .tokens = 8192, .heads = 32, .text = {}};
  bool json = false, all = false;
  double seconds = 2;

  void declare(CLI::App &verb) {
    choice.declare(verb);
    shape.declare(verb, "Sizes of the run");
    verb.add_flag("--json", json, "One JSON object a line");
    verb.add_flag("--all", all, "Every kernel of the bundle in turn")
        ->excludes("--form")
        ->excludes("--chunk");
    verb.add_option("--seconds", seconds, "Time for each kernel")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    verb.footer(footer);
  }

  int run() {
    Result<Bundle> bundle = choice.open();
    if (!bundle)
      return fail(bundle.error());
    if (Status status = shape.parse(); !status)
      return fail(status.error());
    int threads = choice.threads > 0 ? choice.threads : ThreadPool::available();
    Bench bench(*bundle, shape, threads, seconds);
    if (Status status = bench.prepare(); !status)
      return fail(status.error(), "--shape");
    std::vector<RunOptions> runs{choice.options()};
    if (all)
      runs.clear();
    for (const Kernel &kernel : bundle->kernels())
      if (all)
        runs.push_back(
            {kernel.info->form == KernelForm::Step ? Form::Step : Form::Chunk,
             kernel.info->chunk, threads});
    std::vector<Line> lines;
    for (const RunOptions &options : runs) {
      Result<Line> line = bench.run(options);
      if (!line)
        return fail(line.error(), choice.bundle);
      if (json)
        printJson(bundle->manifest(), shape, threads, *line);
      lines.push_back(std::move(*line));
    }
    if (!json)
      printTable(bundle->manifest(), shape, threads, lines);
    return 0;
  }
};

} // namespace

void addBench(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "bench", "Time a layer beside memory, OpenBLAS and the exact result");
  auto options = std::make_shared<BenchVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
