//===- Logits.cpp - plum-run logits ---------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Safetensors.h"
#include "runtime/tool/ModelChoice.h"

#include <algorithm>
#include <memory>

namespace plum::runtime::tool {

namespace {

struct LogitsVerb {
  ModelChoice choice;
  std::string in, out;
  int64_t chunk = 512, batch = 1;

  void declare(CLI::App &verb) {
    choice.declare(verb);
    verb.add_option("--in", in, "Tensor input_ids [B, T], int32 or int64")
        ->required()
        ->type_name("FILE.safetensors");
    verb.add_option("--out", out, "Tensor logits [B, T, vocab], f32")
        ->required()
        ->type_name("FILE.safetensors");
    verb.add_option("--prefill-chunk", chunk,
                    "Tokens of a forward pass; results depend on it only by "
                    "rounding")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    verb.add_option("--batch", batch, "Rows of input_ids to run at once")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
  }

  /// The rows of input_ids.
  Result<std::vector<std::vector<int32_t>>> readIds() const {
    Result<SafetensorsFile> file = SafetensorsFile::open(in);
    if (!file)
      return file.error();
    const FileTensor *tensor = file->find("input_ids");
    if (!tensor)
      return Error{in, "has no tensor 'input_ids'", {}};
    bool whole = tensor->dtype == DType::I32 || tensor->dtype == DType::I64;
    if (!whole || tensor->shape.size() != 2)
      return Error{in,
                   "tensor 'input_ids' is " + tensor->dtypeName + " " +
                       shapeText(tensor->shape) + ", expected I32 or I64 [B,T]",
                   {}};
    std::vector<double> values = *loadDoubles(*tensor);
    std::vector<std::vector<int32_t>> rows(size_t(tensor->shape[0]));
    for (size_t b = 0; b < rows.size(); ++b)
      for (int64_t t = 0; t < tensor->shape[1]; ++t) {
        double value = values[b * size_t(tensor->shape[1]) + size_t(t)];
        rows[b].push_back(value >= 0 && value <= INT32_MAX ? int32_t(value)
                                                           : -1);
      }
    return rows;
  }

  int run() {
    Result<std::vector<std::vector<int32_t>>> ids = readIds();
    if (!ids)
      return fail(ids.error());
    Result<model::Model> model = choice.open();
    if (!model)
      return fail(model.error());
    Result<AtomicFile> target = AtomicFile::create(out);
    if (!target)
      return fail(target.error());
    Result<model::StatePool> pool = model->makePool(batch);
    if (!pool)
      return fail(pool.error());
    size_t vocab = size_t(model->network().vocab), many = ids->size();
    size_t tokens = many == 0 ? 0 : (*ids)[0].size();
    std::vector<float> logits(many * tokens * vocab);
    Progress progress("running", int64_t(many * tokens));
    for (size_t first = 0; first < many; first += size_t(batch)) {
      size_t rows = std::min(size_t(batch), many - first);
      for (size_t r = 0; r < rows; ++r)
        pool->reset(int64_t(r));
      for (size_t at = 0; at < tokens; at += size_t(chunk)) {
        size_t count = std::min(size_t(chunk), tokens - at);
        std::vector<model::Piece> pieces;
        for (size_t r = 0; r < rows; ++r)
          pieces.push_back(
              {int64_t(r), std::span((*ids)[first + r]).subspan(at, count)});
        Result<model::Rows> part =
            model->forward(*pool, pieces, {.logits = model::Logits::All});
        if (!part)
          return fail(part.error(), in);
        for (size_t r = 0; r < rows; ++r)
          std::copy_n(part->row(int64_t(r * count)), count * vocab,
                      logits.data() + ((first + r) * tokens + at) * vocab);
        progress.done += int64_t(rows * count);
      }
    }
    Status written = writeSafetensors(
        *target, {{"logits",
                   DType::F32,
                   {int64_t(many), int64_t(tokens), int64_t(vocab)},
                   logits.data()}});
    return written ? 0 : fail(written.error());
  }
};

} // namespace

void addLogits(CLI::App &app, int &exitCode) {
  CLI::App *verb = app.add_subcommand(
      "logits", "Run a model on tokens and write its logits");
  auto options = std::make_shared<LogitsVerb>();
  options->declare(*verb);
  verb->callback([options, &exitCode] { exitCode = options->run(); });
}

} // namespace plum::runtime::tool
