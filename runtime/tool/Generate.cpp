//===- Generate.cpp - plum-run generate -----------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text goes to stdout as it is made, whole characters at a time, and is flushed
// after every token: an interrupted run has printed all that it made. Timings
// go to stderr.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Config.h"
#include "runtime/text/Chat.h"
#include "runtime/text/Sampler.h"
#include "runtime/tool/ModelChoice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

namespace plum::runtime::tool {

namespace {

using Clock = std::chrono::steady_clock;

/// Prints text without what a stop string might begin with; says when one is
/// complete.
class StopText {
public:
  explicit StopText(std::vector<std::string> list) : stops(std::move(list)) {
    std::erase(stops, "");
  }

  /// True when a stop string has come; what is before it has been printed.
  bool add(const std::string &text) {
    held += text;
    size_t stop = std::string::npos;
    for (const std::string &one : stops)
      stop = std::min(stop, held.find(one));
    if (stop != std::string::npos) {
      print(stop);
      return true;
    }
    size_t keep = plum::text::incompleteTail(held);
    for (const std::string &one : stops)
      for (size_t n = std::min(one.size() - 1, held.size()); n > keep; --n)
        if (held.ends_with(std::string_view(one).substr(0, n)))
          keep = n;
    print(held.size() - keep);
    return false;
  }
  void finish() { print(held.size()); }

private:
  void print(size_t count) {
    std::fwrite(held.data(), 1, count, stdout);
    std::fflush(stdout);
    held.erase(0, count);
  }
  std::vector<std::string> stops;
  std::string held;
};

struct GenerateVerb {
  ModelChoice choice;
  std::string prompt, file, idsText, chat, system, stateIn, stateOut;
  std::vector<std::string> stops;
  int64_t count = 128, chunk = 512;
  text::SamplerOptions sampling;
  bool parseSpecials = false, ignoreEos = false, thinking = false;

  void declare(CLI::App &verb) {
    choice.declare(verb);
    auto *source = verb.add_option_group("prompt", "What to continue");
    source->add_option("-p,--prompt", prompt, "Text to continue");
    source->add_option("-f,--file", file, "The same, from a file");
    source->add_option("--ids", idsText,
                       "Tokens to continue, as 1,2,3; then tokens are printed");
    source->add_option("--chat", chat, "A message to answer");
    source->require_option(0, 1);
    verb.add_option("--system", system, "System message before --chat");
    verb.add_flag("--thinking", thinking,
                  "Let a model that can think before it answers --chat");
    verb.add_flag("--special", parseSpecials,
                  "Names of special tokens in --prompt are those tokens");
    verb.add_option("-n,--tokens", count, "How many tokens to make at most")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    declareSampling(verb);
    verb.add_option("--stop", stops, "Stop before this text; may be repeated")
        ->take_all();
    verb.add_flag("--ignore-eos", ignoreEos, "Go on after an end of text");
    verb.add_option("--state-in", stateIn,
                    "Continue the sequence that --state-out saved")
        ->type_name("FILE");
    verb.add_option("--state-out", stateOut, "Save the sequence at the end")
        ->type_name("FILE");
    verb.add_option("--prefill-chunk", chunk, "Prompt tokens at a time")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  }

  void declareSampling(CLI::App &verb) {
    verb.add_option("--temp", sampling.temperature,
                    "Temperature; 0 takes the likeliest token")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--top-k", sampling.topK, "Among so many; 0: all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--top-p", sampling.topP,
                    "Among the likeliest that have this much together")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    verb.add_option("--min-p", sampling.minP,
                    "Among those at least so likely as the likeliest")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    verb.add_option("--repeat-penalty", sampling.repeatPenalty,
                    "Divides the logits of tokens that came lately")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    verb.add_option("--repeat-last", sampling.repeatLast,
                    "How many tokens are lately")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--seed", sampling.seed, "Seed of the draws")
        ->capture_default_str();
  }

  Result<std::vector<int32_t>> promptIds(const model::Model &model,
                                         const text::Tokenizer *tokenizer) {
    if (!idsText.empty())
      return parseIds(idsText);
    std::vector<int32_t> ids;
    if (!tokenizer)
      return ids;
    if (!chat.empty()) {
      std::vector<text::Message> messages;
      if (!system.empty())
        messages.push_back({"system", system});
      messages.push_back({"user", chat});
      auto type = model.config().find("model_type");
      Result<std::vector<int32_t>> encoded = text::encodeChat(
          *tokenizer, type->get<std::string>(), messages, thinking);
      if (!encoded)
        encoded.error().where = "--chat";
      return encoded;
    }
    if (!file.empty()) {
      Result<std::string> contents = model::readFile(file, 64 << 20);
      if (!contents)
        return contents.error();
      prompt = *contents;
    }
    ids = tokenizer->encode(prompt, parseSpecials ? text::Tokenizer::Parse
                                                  : text::Tokenizer::AsText);
    if (tokenizer->bos && stateIn.empty())
      ids.insert(ids.begin(), *tokenizer->bos);
    return ids;
  }

  int run() {
    Clock::time_point start = Clock::now();
    Result<model::Model> model = choice.open();
    if (!model)
      return fail(model.error());
    std::optional<text::Tokenizer> tokenizer;
    if (idsText.empty()) {
      Result<text::Tokenizer> opened = text::Tokenizer::open(choice.directory);
      if (!opened)
        return fail(opened.error());
      tokenizer = std::move(*opened);
    }
    Result<std::vector<int32_t>> ids =
        promptIds(*model, tokenizer ? &*tokenizer : nullptr);
    if (!ids)
      return fail(ids.error());
    if (ids->empty())
      return fail({"--prompt", "has no tokens", {"'--ids' is another way"}});
    Result<model::StatePool> pool = model->makePool(1);
    if (!pool)
      return fail(pool.error());
    if (!stateIn.empty())
      if (Status status = pool->restore(0, stateIn); !status)
        return fail(status.error());
    Clock::time_point loaded = Clock::now();
    Result<model::Rows> logits = model->prefill(*pool, 0, *ids, chunk);
    if (!logits)
      return fail(logits.error(), "--prompt");
    double loadMs =
        std::chrono::duration<double, std::milli>(loaded - start).count();
    double promptMs = millisecondsSince(loaded), firstMs = 0;
    Clock::time_point begin = Clock::now();
    int64_t made = 0;
    if (Status status =
            produce(*model, *pool, *logits, tokenizer ? &*tokenizer : nullptr,
                    start, firstMs, made);
        !status)
      return fail(status.error(), choice.path);
    report(loadMs, int64_t(ids->size()), promptMs, firstMs, made,
           millisecondsSince(begin));
    if (!stateOut.empty())
      if (Status status = pool->save(0, stateOut); !status)
        return fail(status.error());
    return 0;
  }

  /// Draws, prints and appends tokens, one after the other.
  Status produce(const model::Model &model, model::StatePool &pool,
                 model::Rows &logits, const text::Tokenizer *tokenizer,
                 Clock::time_point start, double &firstMs, int64_t &made) {
    std::vector<int32_t> ends;
    if (!ignoreEos)
      ends = text::stopTokens(choice.directory);
    text::Sampler sampler(sampling);
    StopText out(stops);
    int64_t vocab = model.network().vocab;
    while (made < count) {
      int32_t id = sampler.next({logits.row(0), size_t(vocab)}, pool.tokens(0));
      if (made++ == 0)
        firstMs = millisecondsSince(start);
      bool end = std::count(ends.begin(), ends.end(), id) > 0;
      if (!tokenizer) {
        fmt::print("{}{}", made > 1 ? " " : "", id);
        std::fflush(stdout);
      } else if (!end && out.add(tokenizer->decode(id))) {
        break;
      }
      // A sequence that is saved has all that was printed.
      if (end || (made == count && stateOut.empty()))
        break;
      model::Piece piece{0, {&id, 1}};
      Result<model::Rows> next = model.forward(pool, {&piece, 1});
      if (!next)
        return next.error();
      logits = std::move(*next);
    }
    out.finish();
    fmt::print("\n");
    return Status::ok();
  }

  static void report(double loadMs, int64_t prompt, double promptMs,
                     double firstMs, int64_t made, double ms) {
    auto rate = [](int64_t tokens, double time) {
      return time > 0 ? double(tokens) / time * 1000 : 0;
    };
    fmt::print(stderr,
               "load {:.1f} ms; prompt {} tokens in {:.1f} ms ({:.1f}/s); "
               "first token after {:.1f} ms; {} tokens in {:.1f} ms "
               "({:.1f}/s)\n",
               loadMs, prompt, promptMs, rate(prompt, promptMs), firstMs, made,
               ms, rate(made, ms));
  }
};

} // namespace

void addGenerate(CLI::App &app, int &exitCode) {
  CLI::App *verb =
      app.add_subcommand("generate", "Continue a text or a list of tokens");
  auto options = std::make_shared<GenerateVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
