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

#include "runtime/Inputs.h"
#include "runtime/tool/BenchLine.h"
#include "runtime/tool/Common.h"
#include "runtime/tool/GpuBench.h"
#include "runtime/tool/ModelBench.h"
#include "runtime/tool/Sgemm.h"

#include <chrono>
#include <cstring>

namespace plum::runtime::tool {

namespace {

constexpr const char *benchFooter =
    R"(Runs the layer on random inputs (as check) for --seconds, up to four times as
long to get 30 runs, at least 3 times, and prints
  ms            median; min_ms the fastest; spread (quartile 3 - quartile 1) / ms
  tokens_per_s  tokens of all sequences, all heads done
  bytes, flops  inputs, params and outputs once and the final states; the
                arithmetic as the compiler counts it, null when it does not,
                as for growing states
  floor_ms      time to copy that many bytes at the rate at which these threads
                copy large buffers, measured first
  sgemm_ms      OpenBLAS's time for the kernel's matrix products alone, in f32,
                on as many threads, measured in turns with the kernel; null
                without libopenblas.so.0 or a list of products
  error         R of the outputs against the float64 recurrence, on at most 256
                tokens and 2 heads of the same kind of inputs
--json prints one object on one line. --all does so for every kernel.

On a GPU, ms is the median of at least 30 replays of a CUDA graph that holds the
run; inputs that fit in the L2 cache take turns with others (sets). floor_ms is
at the rate of a device copy; there is no sgemm_ms. T = 1 decodes: states are
read and written in place. 'kernels' lists the median of each kernel alone.

Growing states are in place and start with P rows each (default 0): --shape
T=1,P=4096 is the time to decode a token after 4096. Of their bytes, each row
counts once. With H=32,L=8, four heads share each list.)";

using Clock = std::chrono::steady_clock;

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
    best = std::max(best,
                    2.0 * double(block) * threads / millisecondsSince(start));
  }
  return best;
}

class Bench {
public:
  Bench(const Bundle &bundle, Runner &runner, const ShapeOption &shape,
        int threads, double seconds)
      : bundle(bundle), runner(runner), shape(shape), threads(threads),
        seconds(seconds) {}

  Status prepare() {
    auto problem = randomProblem(bundle.manifest(), shape.batch, shape.tokens,
                                 shape.heads, 1, runner.threads(),
                                 shape.past.value_or(0), shape.listHeads);
    if (!problem)
      return problem.error();
    random = std::move(*problem);
    rate = copyRate(runner.threads(), threads);
    return Status::ok();
  }

  Result<BenchLine> run(RunOptions options) {
    options.threads = threads;
    Result<KernelChoice> choice = chooseKernels(bundle, options);
    if (!choice)
      return choice.error();
    // What does the bulk of the work.
    bool step =
        !choice->chunk || (choice->step && shape.tokens <= autoStepTokens);
    const ManifestKernel &kernel = *(step ? choice->step : choice->chunk)->info;
    BenchLine line;
    line.form = name(kernel.form);
    if (!step)
      line.chunk = kernel.chunk;
    Result<double> error = smallError(bundle, runner, shape, options);
    if (!error)
      return error.error();
    line.error = *error;

    int64_t pairs = shape.batch * shape.heads;
    int64_t chunks = (shape.tokens + kernel.chunk - 1) / kernel.chunk;
    line.bytes = bytesOnce(bundle.manifest(), random.args);
    // A chunk's work on growing states depends on how long they are: what the
    // manifest counts would be a part of it.
    bool grow = bundle.manifest().growingState();
    line.flops = grow ? 0 : kernel.flopsPerChunk * chunks * pairs;
    line.floorMs = rate > 0 ? double(line.bytes) / rate : 0;
    std::optional<Sgemm> sgemm;
    if (!grow)
      sgemm = Sgemm::load(kernel, threads);
    std::vector<double> times, sgemmTimes;
    Clock::time_point start = Clock::now();
    Progress progress("timing " + line.form, int64_t(seconds * 1000));
    do {
      Clock::time_point begin = Clock::now();
      if (Status status = runner.run(random.args, options); !status)
        return status.error();
      times.push_back(millisecondsSince(begin));
      if (sgemm) {
        begin = Clock::now();
        sgemm->run(runner.threads(), threads, pairs, chunks);
        sgemmTimes.push_back(millisecondsSince(begin));
      }
      progress.done =
          std::min(int64_t(millisecondsSince(start)), int64_t(seconds * 1000));
    } while (!enough(int64_t(times.size()) - 1, millisecondsSince(start)));
    // The first run of each is a warm-up.
    summarize({times.begin() + 1, times.end()}, line);
    if (sgemm)
      line.sgemmMs = median({sgemmTimes.begin() + 1, sgemmTimes.end()});
    return line;
  }

private:
  /// The median of 30 is worth waiting for, but not for ever.
  bool enough(int64_t reps, double ms) const {
    if (reps < 3)
      return false;
    return ms >= seconds * (reps < 30 ? 4000 : 1000);
  }

  const Bundle &bundle;
  Runner &runner;
  const ShapeOption &shape;
  int threads;
  double seconds;
  RandomProblem random;
  double rate = 0;
};

struct BenchVerb {
  Choice choice;
  ShapeOption shape{.batch = 1, .tokens = 8192, .heads = 32, .text = {}};
  bool json = false, all = false;
  double seconds = 2;
  ModelBench model;

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
    model.declare(verb);
    verb.footer(benchFooter);
  }

  int run() {
    if (ModelChoice::isModel(choice.bundle)) {
      model.choice.path = choice.bundle;
      model.choice.threads = choice.threads;
      if (!choice.target.empty())
        model.choice.target = choice.target;
      model.json = json;
      return model.run();
    }
    Result<Bundle> bundle = choice.open();
    if (!bundle)
      return fail(bundle.error());
    if (Status status = shape.parse(bundle->manifest()); !status)
      return fail(status.error());
    Result<Runner> runner = Runner::open(*bundle, choice.gpu);
    if (!runner)
      return fail(runner.error());
    int threads = choice.threads > 0 ? choice.threads : ThreadPool::available();
    std::vector<RunOptions> runs{choice.options()};
    if (all)
      runs.clear();
    for (const cuda::KernelSet &set : cuda::kernelSets(bundle->manifest()))
      if (all) {
        RunOptions options = choice.options();
        options.form = set.form == KernelForm::Step ? Form::Step : Form::Chunk;
        options.chunk = set.chunk;
        runs.push_back(options);
      }
    if (runner->gpu())
      return time(GpuBench(*bundle, *runner, shape, seconds), *bundle, runs,
                  threads, runner->gpu()->device().name);
    return time(Bench(*bundle, *runner, shape, threads, seconds), *bundle, runs,
                threads, "");
  }

  template <typename AnyBench>
  int time(AnyBench bench, const Bundle &bundle,
           const std::vector<RunOptions> &runs, int threads,
           const std::string &gpu) {
    if (Status status = bench.prepare(); !status)
      return fail(status.error(), "--shape");
    std::vector<BenchLine> lines;
    for (const RunOptions &options : runs) {
      Result<BenchLine> line = bench.run(options);
      if (!line)
        return fail(line.error(), choice.bundle);
      if (json)
        printJson(bundle.manifest(), shape, threads, gpu, *line);
      lines.push_back(std::move(*line));
    }
    if (!json)
      printTable(bundle.manifest(), shape,
                 gpu.empty() ? std::to_string(threads) + " threads" : gpu,
                 lines);
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
