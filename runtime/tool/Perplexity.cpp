//===- Perplexity.cpp - plum-run perplexity -------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How well a model predicts a text: the text is cut into windows, each starts
// from an empty state, and every token but a window's first is predicted.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Config.h"
#include "runtime/tool/ModelChoice.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

namespace plum::runtime::tool {

namespace {

struct PerplexityVerb {
  ModelChoice choice;
  std::string file;
  int64_t window = 2048, chunk = 512;
  bool json = false;

  void declare(CLI::App &verb) {
    choice.declare(verb);
    verb.add_option("file", file, "Text to predict")
        ->required()
        ->type_name("FILE");
    verb.add_option("--window", window, "Tokens that are read in one go")
        ->check(CLI::Range(int64_t(2), int64_t(1) << 40))
        ->capture_default_str();
    verb.add_option("--prefill-chunk", chunk, "Tokens of a forward pass")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    verb.add_flag("--json", json, "One JSON object");
    verb.footer("nll is the mean of -log p of a token, in nats; bits_per_byte "
                "counts the bytes of\nthe tokens that were predicted.");
  }

  int run() {
    Result<std::string> text = model::readFile(file, int64_t(1) << 32);
    if (!text)
      return fail(text.error());
    Result<model::Model> model = choice.open();
    if (!model)
      return fail(model.error());
    Result<text::Tokenizer> tokenizer = text::Tokenizer::open(choice.directory);
    if (!tokenizer)
      return fail(tokenizer.error());
    std::vector<int32_t> ids = tokenizer->encode(*text);
    if (ids.size() < 2)
      return fail(
          {file,
           "has " + std::to_string(ids.size()) + " tokens, expected at least 2",
           {}});
    Result<model::StatePool> pool = model->makePool(1);
    if (!pool)
      return fail(pool.error());
    if (model->network().positions > 0)
      window = std::min(window, model->network().positions);

    double nll = 0;
    int64_t predicted = 0, bytes = 0, vocab = model->network().vocab;
    Progress progress("reading", int64_t(ids.size()));
    for (size_t begin = 0; begin < ids.size(); begin += size_t(window)) {
      size_t end = std::min(begin + size_t(window), ids.size());
      pool->reset(0);
      for (size_t at = begin; at < end; at += size_t(chunk)) {
        size_t count = std::min(size_t(chunk), end - at);
        model::Piece piece{0, std::span(ids).subspan(at, count)};
        Result<model::Rows> logits =
            model->forward(*pool, {&piece, 1}, {.logits = model::Logits::All});
        if (!logits)
          return fail(logits.error(), file);
        for (size_t i = 0; i < count && at + i + 1 < end; ++i) {
          int32_t next = ids[at + i + 1];
          nll -= logProbability(logits->row(int64_t(i)), vocab, next);
          bytes += int64_t(tokenizer->decode(next).size());
          ++predicted;
        }
        progress.done += int64_t(count);
      }
    }
    print(nll, predicted, bytes);
    return 0;
  }

  static double logProbability(const float *row, int64_t vocab, int32_t id) {
    double largest = double(*std::max_element(row, row + vocab)), sum = 0;
    for (int64_t c = 0; c < vocab; ++c)
      sum += std::exp(double(row[c]) - largest);
    return double(row[id]) - largest - std::log(sum);
  }

  void print(double nll, int64_t predicted, int64_t bytes) const {
    double mean = nll / double(std::max<int64_t>(predicted, 1));
    double bits = nll / std::log(2.0) / double(std::max<int64_t>(bytes, 1));
    if (json)
      fmt::print("{}\n", nlohmann::ordered_json{{"file", file},
                                                {"tokens", predicted},
                                                {"bytes", bytes},
                                                {"window", window},
                                                {"nll", mean},
                                                {"perplexity", std::exp(mean)},
                                                {"bits_per_byte", bits}}
                             .dump());
    else
      fmt::print("{} tokens, {} bytes: nll {:.4f}, perplexity {:.4f}, {:.4f} "
                 "bits per byte\n",
                 predicted, bytes, mean, std::exp(mean), bits);
  }
};

} // namespace

void addPerplexity(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "perplexity", "Measure how well a model predicts a text");
  auto options = std::make_shared<PerplexityVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
