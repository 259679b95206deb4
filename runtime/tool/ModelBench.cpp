//===- ModelBench.cpp - plum-run bench of a model -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Beside tokens per second: the time that reading the weights of the pass takes
// at the rate at which these threads read a large buffer, measured first. One
// token after the other cannot be faster than that, unless the weights stay in
// a cache.
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/ModelBench.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstring>

namespace plum::runtime::tool {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

/// Bytes per second when all threads read memory.
double readRate(int threads) {
  constexpr size_t block = 64 << 20;
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
      for (size_t w = 0; w < block / 8; w += 8)
        for (size_t lane = 0; lane < 8; ++lane)
          sums[lane] += words[w + lane];
      for (uint64_t sum : sums)
        sink += sum;
    });
    best = std::max(best, double(block) * threads / seconds(start));
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
}

Result<ModelBench::Line> ModelBench::time(const model::Model &model,
                                          int64_t tokens, bool oneByOne) {
  Line line{(oneByOne ? "tg" : "pp") + std::to_string(tokens), tokens, {}, 0};
  Result<model::StatePool> pool = model.makePool(1);
  if (!pool)
    return pool.error();
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) // Any tokens; not all the same ones.
    ids.push_back(int32_t((t * 7919 + 17) % model.network().vocab));
  int64_t step = oneByOne ? 1 : std::min(chunk, tokens);
  for (int64_t rep = 0; rep <= reps; ++rep) {
    pool->reset(0);
    line.bytes = 0;
    Clock::time_point start = Clock::now();
    for (int64_t at = 0; at < tokens; at += step) {
      int64_t count = std::min(step, tokens - at);
      model::Piece piece{0, std::span(ids).subspan(size_t(at), size_t(count))};
      Result<model::Rows> logits =
          model.forward(*pool, {&piece, 1}, {.weightBytes = &line.bytes});
      if (!logits)
        return logits.error();
    }
    if (rep > 0) // The first is a warm-up.
      line.seconds.push_back(seconds(start));
  }
  return line;
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
  double rate = readRate(model->threads());
  if (!json) {
    fmt::print("{}, {}, {} threads, weights of {:.1f} MB, memory read at "
               "{:.1f} GB/s\n",
               choice.directory, choice.precision, model->threads(),
               double(model->weightBytes()) / 1e6, rate / 1e9);
    fmt::print("{:<10} {:>10}   {:<8} {:>12} {:>12} {:>14}\n", "test",
               "tokens/s", "sd", "ms/token", "MB/token", "floor ms/token");
  }
  for (bool oneByOne : {false, true})
    for (int64_t tokens : oneByOne ? generated : prompts) {
      if (tokens == 0)
        continue;
      if (int64_t most = model->network().positions; most > 0)
        tokens = std::min(tokens, most);
      Result<Line> line = time(*model, tokens, oneByOne);
      if (!line)
        return fail(line.error(), choice.path);
      print(*model, *line, rate);
    }
  return 0;
}

} // namespace plum::runtime::tool
