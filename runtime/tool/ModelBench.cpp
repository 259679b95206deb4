//===- ModelBench.cpp - plum-run bench of a model -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Beside tokens per second: the time that reading the weights of the pass takes
// at the rate at which these threads read as much as all weights take again and
// again, measured first. One token after the other cannot be faster than that;
// weights that fit in a cache stay there, here and there. On a GPU it is the
// rate of copies, and of a mixture of experts the bytes are those of as many
// experts as tokens that choose at random would hit.
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/ModelBench.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace plum::runtime::tool {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

/// Bytes per second when all threads read `bytes` between them, or as much of
/// it as no cache holds.
double readRate(int threads, int64_t bytes) {
  constexpr int64_t most = 64 << 20;
  size_t block = size_t(std::clamp<int64_t>(bytes / threads, 1 << 12, most));
  block = block / 64 * 64;
  auto times = int64_t(most / block);
  ThreadPool pool;
  std::vector<AlignedBuffer> buffers;
  buffers.resize(size_t(threads));
  for (AlignedBuffer &buffer : buffers) {
    if (!buffer.reserve(block))
      return 0;
    std::memset(buffer.data(), 1, block);
  }
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    Clock::time_point start = Clock::now();
    pool.run(threads, threads, [&](int, int64_t index) {
      auto words =
          reinterpret_cast<const uint64_t *>(buffers[size_t(index)].data());
      uint64_t sums[8] = {};
      for (int64_t time = 0; time < times; ++time)
        for (size_t w = 0; w < block / 8; w += 8)
          for (size_t lane = 0; lane < 8; ++lane)
            sums[lane] += words[w + lane] ^ uint64_t(time);
      for (uint64_t sum : sums)
        sink += sum;
    });
    best = std::max(best,
                    double(block) * double(times) * threads / seconds(start));
  }
  return best;
}

double mean(const std::vector<double> &values) {
  double sum = 0;
  for (double value : values)
    sum += value;
  return sum / double(values.size());
}

double deviation(const std::vector<double> &values) {
  double center = mean(values), squares = 0;
  for (double value : values)
    squares += (value - center) * (value - center);
  return values.size() > 1 ? std::sqrt(squares / double(values.size() - 1)) : 0;
}

} // namespace

void ModelBench::declare(CLI::App &verb) {
  verb.add_option("-p,--prompt-tokens", prompts,
                  "Of a model: lengths of prompts to time [512]")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  verb.add_option("-n,--gen-tokens", generated,
                  "Of a model: tokens to generate [128]")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  verb.add_option("-r,--reps", reps, "Of a model: runs of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb.add_option("--prefill-chunk", chunk,
                  "Of a model: prompt tokens of a forward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb.add_option("-b,--batch", batches,
                  "Of a model: sequences that generate at once [1]")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  verb.add_option("--context", context,
                  "Of a model: tokens of a sequence before those generated")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--model-dir", choice.directory,
                  "Of a model: its directory, when it is not where the bundle "
                  "says")
      ->type_name("DIR");
  choice.declareRandomWeights(verb);
  verb.add_flag("--operations", operations,
                "Of a model on a GPU: what each kind of operation takes, too");
}

Result<ModelBench::Line> ModelBench::time(const model::Model &model,
                                          int64_t tokens, bool oneByOne,
                                          int64_t sequences) {
  Line line{(oneByOne ? "tg" : "pp") + std::to_string(tokens),
            tokens * sequences,
            {},
            0,
            0};
  if (sequences > 1)
    line.test += "x" + std::to_string(sequences);
  Result<model::StatePool> pool = model.makePool(sequences);
  if (!pool)
    return pool.error();
  int64_t before = oneByOne ? context : 0;
  auto idsFor = [&](int64_t sequence) { // Any tokens; not all the same ones.
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < before + tokens; ++t)
      ids.push_back(
          int32_t((t * 7919 + sequence * 104729 + 17) % model.network().vocab));
    return ids;
  };
  std::vector<std::vector<int32_t>> ids;
  for (int64_t s = 0; s < sequences; ++s)
    ids.push_back(idsFor(s));
  int64_t step = oneByOne ? 1 : std::min(chunk, tokens);
  for (int64_t rep = 0; rep <= reps; ++rep) {
    line.bytes = line.steps = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      pool->reset(s);
      Result<model::Rows> done = model.prefill(
          *pool, s, std::span(ids[size_t(s)]).first(size_t(before)), chunk);
      if (!done)
        return done.error();
    }
    if (choice.gpu)
      choice.gpu->gpu().times.clear();
    Clock::time_point start = Clock::now();
    for (int64_t at = before; at < before + tokens; at += step) {
      int64_t count = std::min(step, before + tokens - at);
      std::vector<model::Piece> pieces;
      for (int64_t s = 0; s < sequences; ++s)
        pieces.push_back(
            {s, std::span(ids[size_t(s)]).subspan(size_t(at), size_t(count))});
      Result<model::Rows> logits =
          model.forward(*pool, pieces, {.weightBytes = &line.bytes});
      if (!logits)
        return logits.error();
      ++line.steps;
    }
    if (rep > 0) // The first is a warm-up.
      line.seconds.push_back(seconds(start));
  }
  return line;
}

Status ModelBench::printOperations(const model::Model &model, int64_t tokens,
                                   bool oneByOne, int64_t sequences) {
  model::Machine &gpu = choice.gpu->gpu();
  int64_t repsBefore = std::exchange(reps, 1);
  choice.gpu->setRecording(false);
  gpu.timing = true;
  Result<Line> line = time(model, tokens, oneByOne, sequences);
  gpu.timing = false;
  choice.gpu->setRecording(true);
  reps = repsBefore;
  if (!line)
    return line.error();
  std::vector<std::pair<std::string, model::Machine::Time>> list(
      gpu.times.begin(), gpu.times.end());
  std::sort(list.begin(), list.end(), [](const auto &a, const auto &b) {
    return a.second.ms > b.second.ms;
  });
  double passes = double(line->steps); // Of the last run alone.
  for (const auto &[name, time] : list)
    fmt::print("  {:<32} {:>8.1f} a pass {:>12.4f} ms a pass\n", name,
               double(time.count) / passes, time.ms / passes);
  return Status::ok();
}

void ModelBench::print(const model::Model &model, const Line &line,
                       double rate) const {
  std::vector<double> rates;
  for (double time : line.seconds)
    rates.push_back(double(line.tokens) / time);
  double ms = mean(line.seconds) * 1000;
  double floor = rate > 0 ? double(line.bytes) / rate * 1000 : 0;
  if (json) {
    nlohmann::ordered_json object{
        {"model", choice.directory},
        {"target", choice.target},
        {"precision", choice.precision},
        {"threads", model.threads()},
        {"test", line.test},
        {"tokens", line.tokens},
        {"passes", line.steps},
        {"ms_per_pass", ms / double(line.steps)},
        {"reps", int64_t(line.seconds.size())},
        {"tokens_per_s", mean(rates)},
        {"tokens_per_s_sd", deviation(rates)},
        {"ms_per_token", ms / double(line.tokens)},
        {"weight_bytes", model.weightBytes()},
        {"bytes_read", line.bytes},
        {"read_bytes_per_s", rate},
        {"floor_ms_per_token", floor / double(line.tokens)}};
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{:<10} {:>10.2f} ± {:<8.2f} {:>12.4f} {:>12.2f} {:>14.4f}\n",
             line.test, mean(rates), deviation(rates), ms / double(line.tokens),
             double(line.bytes) / double(line.tokens) / 1e6,
             floor / double(line.tokens));
}

int ModelBench::run() {
  Result<model::Model> model = choice.open();
  if (!model)
    return fail(model.error());
  double rate = choice.gpu ? choice.gpu->gpu().copyRate()
                           : readRate(model->threads(), model->weightBytes());
  if (!json) {
    std::string where = choice.gpu
                            ? choice.gpu->gpu().device().name
                            : std::to_string(model->threads()) + " threads";
    fmt::print("{}, {}, {}, weights of {:.1f} MB, {} at {:.1f} GB/s\n",
               choice.directory, choice.precision, where,
               double(model->weightBytes()) / 1e6,
               choice.gpu ? "memory copied" : "that much read", rate / 1e9);
    fmt::print("{:<10} {:>10}   {:<8} {:>12} {:>12} {:>14}\n", "test",
               "tokens/s", "sd", "ms/token", "MB/token", "floor ms/token");
  }
  for (bool oneByOne : {false, true})
    for (int64_t tokens : oneByOne ? generated : prompts)
      for (int64_t sequences : oneByOne ? batches : std::vector<int64_t>{1}) {
        if (tokens == 0)
          continue;
        if (int64_t most = model->network().positions; most > 0)
          tokens = std::min(tokens, most - (oneByOne ? context : 0));
        Result<Line> line = time(*model, tokens, oneByOne, sequences);
        if (!line)
          return fail(line.error(), choice.path);
        print(*model, *line, rate);
        if (!operations || !choice.gpu)
          continue;
        Status status = printOperations(*model, tokens, oneByOne, sequences);
        if (!status)
          return fail(status.error(), choice.path);
      }
  return 0;
}

} // namespace plum::runtime::tool
