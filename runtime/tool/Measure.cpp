//===- Measure.cpp - Time and error of one candidate ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/Measure.h"

#include "runtime/Errors.h"
#include "runtime/tool/GpuBench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plum::runtime::tool {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

RunOptions runOptions(const TuningSchedule &schedule, int threads) {
  RunOptions options;
  options.form = schedule.form == "step" ? Form::Step : Form::Chunk;
  options.chunk = schedule.chunk;
  options.segments = schedule.segments;
  options.threads = threads;
  return options;
}

TuningErrors errorsOf(const Manifest &manifest, const SmallTruth &truth) {
  const RunArgs &args = truth.random.args;
  ErrorLimits limits = standardLimits(manifest);
  ErrorMeasures outputs, states;
  for (const ReferenceSequence &exact : truth.sequences) {
    for (size_t i = 0; i < manifest.outputs.size(); ++i)
      outputs.merge(measure(sequenceRows(args.outputs[i], exact.sequence),
                            exact.outputs[i], exact.sequence.length,
                            truth.problem.heads,
                            manifest.outputs[i].elements()));
    for (size_t i = 0; i < manifest.states.size(); ++i)
      states.merge(
          measure(finalState(manifest, args, truth.problem, exact.sequence, i),
                  exact.states[i]));
  }
  return {outputs.r, outputs.w, outputs.m, states.r,
          limits.r,  limits.w,  limits.m,  limits.stateR};
}

/// Medians of runs on the CPU, as `bench` takes them.
Result<BenchLine> timeOnCpu(const Bundle &bundle, Runner &runner,
                            const ShapeOption &shape, const RunOptions &run,
                            const MeasureOptions &options) {
  Result<RandomProblem> random =
      randomProblem(bundle.manifest(), shape.batch, shape.tokens, shape.heads,
                    1, runner.threads(), /*past=*/0);
  if (!random)
    return random.error();
  std::vector<double> times;
  double fastest = 0;
  Clock::time_point start = Clock::now();
  constexpr int least = 3, most = 1000;
  for (int i = -1; i < most; ++i) { // The first is a warm-up.
    Clock::time_point begin = Clock::now();
    if (Status status = runner.run(random->args, run); !status)
      return status.error();
    if (i < 0)
      continue;
    times.push_back(secondsSince(begin) * 1000);
    fastest = *std::min_element(times.begin(), times.end());
    bool hopeless = options.hopelessMs > 0 && fastest > options.hopelessMs;
    if (i + 1 >= least && (hopeless || secondsSince(start) > options.seconds))
      break;
  }
  BenchLine line;
  summarize(times, line);
  return line;
}

Result<Measured> measureHere(const std::string &directory,
                             const TuningResult &candidate,
                             const SmallTruth &truth,
                             const MeasureOptions &options) {
  Result<Bundle> bundle = Bundle::open(directory);
  if (!bundle)
    return bundle.error();
  Result<Runner> runner = Runner::open(*bundle, options.gpu);
  if (!runner)
    return runner.error();
  const Manifest &manifest = bundle->manifest();
  int threads = options.threads > 0 ? options.threads : ThreadPool::available();
  Measured measured{cpuDeviceName(manifest.cpu, threads), candidate};
  if (cuda::HostRunner *gpu = runner->gpu())
    measured.device =
        gpuDeviceName(gpu->device().name, gpu->device().processors);
  RunOptions run = runOptions(candidate.schedule, threads);
  // What a kernel fails to write is NaN. The memory is this process's own.
  // Growing states are in place and have NaN to come.
  auto spoil = [](const TensorView &view) {
    std::memset(view.data, 0xff,
                size_t(view.elements()) * byteSize(view.dtype));
  };
  for (const TensorView &view : truth.random.args.outputs)
    spoil(view);
  for (size_t i = 0; i < manifest.states.size(); ++i)
    if (!manifest.states[i].grows)
      spoil(truth.random.args.finalStates[i]);
  if (Status status = runner->run(truth.random.args, run); !status)
    return status.error();
  measured.result.errors = errorsOf(manifest, truth);

  const TuningShape &sizes = candidate.shape;
  ShapeOption shape{sizes.batch, sizes.tokens, sizes.heads, {}};
  Result<BenchLine> line = BenchLine();
  if (runner->gpu()) {
    GpuBench bench(*bundle, *runner, shape, options.seconds);
    if (Status status = bench.prepare(); !status)
      return status.error();
    line = bench.run(run);
  } else {
    line = timeOnCpu(*bundle, *runner, shape, run, options);
  }
  if (!line)
    return line.error();
  measured.result.ms = line->ms;
  measured.result.spread = line->spread;
  measured.result.reps = line->reps;
  return measured;
}

/// All that a child writes until it ends, or nothing after `limit` seconds.
std::optional<std::string> readAll(int descriptor, double limit) {
  std::string text;
  Clock::time_point start = Clock::now();
  while (true) {
    double left = limit - secondsSince(start);
    pollfd wanted{descriptor, POLLIN, 0};
    int ready = left <= 0 ? 0 : poll(&wanted, 1, int(left * 1000) + 1);
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready <= 0)
      return std::nullopt;
    char buffer[4096];
    ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return text;
    text.append(buffer, size_t(count));
  }
}

/// The child's work: a database of one result is what it says.
[[noreturn]] void report(int descriptor, const std::string &bundle,
                         const TuningResult &candidate, const SmallTruth &truth,
                         const MeasureOptions &options) {
  Result<Measured> measured = measureHere(bundle, candidate, truth, options);
  if (!measured) {
    Measured failed{"", candidate};
    failed.result.failure = measured.error().message;
    measured = failed;
  }
  measured->result.date = today();
  TuningKey key;
  key.device = measured->device;
  key.bucket = TuningBucket::of(candidate.shape);
  TuningDatabase database;
  database.add(key, measured->result);
  std::string text = writeTuning(database);
  for (size_t done = 0; done < text.size();) {
    ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR)
      _exit(1);
    done += size_t(std::max<ssize_t>(count, 0));
  }
  _exit(0);
}

} // namespace

std::string today() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

int64_t Truths::tokensFor(const TuningShape &shape,
                          const TuningSchedule &schedule) {
  constexpr int64_t most = 512;
  int64_t split = schedule.chunk * std::max<int64_t>(schedule.segments, 1);
  return std::min(shape.tokens, std::max(most, split));
}

Result<const SmallTruth *> Truths::get(const std::string &directory,
                                       const TuningShape &shape,
                                       int64_t tokens) {
  if (auto found = made.find(tokens); found != made.end())
    return &found->second;
  Result<Bundle> bundle = Bundle::open(directory);
  if (!bundle)
    return bundle.error();
  Result<Reference> reference = Reference::load(*bundle);
  if (!reference)
    return reference.error();
  ThreadPool pool; // Gone before this returns, with its threads.
  Result<RandomProblem> random =
      randomProblem(bundle->manifest(), 1, tokens,
                    std::min<int64_t>(shape.heads, 2), 1, pool);
  if (!random)
    return random.error();
  Result<Problem> problem = planProblem(bundle->manifest(), random->args);
  if (!problem)
    return problem.error();
  SmallTruth truth{std::move(*random), *problem, {}};
  truth.sequences = reference->run(truth.random.args, truth.problem, pool);
  return &made.emplace(tokens, std::move(truth)).first->second;
}

Measured measureApart(const std::string &bundle, const TuningResult &candidate,
                      const SmallTruth &truth, const MeasureOptions &options) {
  Measured failed{"", candidate};
  failed.result.date = today();
  int ends[2];
  if (pipe(ends) != 0) {
    failed.result.failure = fmt::format("no pipe: {}", std::strerror(errno));
    return failed;
  }
  std::fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    report(ends[1], bundle, candidate, truth, options);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    failed.result.failure = fmt::format("no process: {}", std::strerror(errno));
    return failed;
  }
  double limit = 60 + 4 * options.seconds;
  std::optional<std::string> text = readAll(ends[0], limit);
  close(ends[0]);
  if (!text)
    kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) {
    failed.result.failure = fmt::format("stopped after {:.0f} s", limit);
    return failed;
  }
  if (WIFSIGNALED(status)) {
    failed.result.failure =
        fmt::format("crashed: {}", strsignal(WTERMSIG(status)));
    return failed;
  }
  Result<TuningDatabase> said = parseTuning(*text, "candidate");
  if (!said || said->entries.empty()) {
    failed.result.failure = "ended without a result";
    return failed;
  }
  return {said->entries[0].key.device, said->entries[0].results[0]};
}

} // namespace plum::runtime::tool
