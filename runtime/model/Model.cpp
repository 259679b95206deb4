//===- Model.cpp - A model directory, ready to run ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Model.h"

#include <algorithm>

namespace plum::model {

using runtime::Json;

/// Different for models of which one could not use the other's states.
static uint64_t identityOf(const Json &config) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : config.dump())
    hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

/// A sentence about the tensors that nobody asked for.
static void noteUnused(const std::vector<std::string> &names,
                       std::vector<std::string> &notes) {
  int64_t vision = 0;
  std::vector<std::string> others;
  for (const std::string &name : names)
    if (name.starts_with("vision_tower.") || name.starts_with("mm_projector."))
      ++vision;
    else
      others.push_back(name);
  auto tensors = [](int64_t count) {
    return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
  };
  if (vision > 0)
    notes.push_back(tensors(vision) + " of the vision part not used");
  if (!others.empty())
    notes.push_back(tensors(int64_t(others.size())) + " not used, '" +
                    others.front() + "' for one");
}

Result<std::vector<MemorySpec>> memoriesOf(const std::string &directory) {
  Result<Json> config = readConfig(directory);
  if (!config)
    return config.error();
  auto network = makeNetwork(*config, directory + "/config.json");
  if (!network)
    return network.error();
  return (*network)->memories();
}

std::string writeModelJson(const std::string &directory) {
  return Json{{"model", directory}}.dump(1) + "\n";
}

Result<std::string> modelOfBundle(const std::string &bundle) {
  std::string path = bundle + "/" + modelJson;
  Result<std::string> text = readFile(path, 1 << 20);
  if (!text)
    return text.error();
  Result<Json> json = runtime::parseJson(*text, path);
  if (!json)
    return json.error();
  runtime::JsonErrors errors(path);
  std::string directory =
      runtime::JsonValue(&*json, "", errors).field("model").string();
  if (errors.any())
    return errors.take();
  return directory;
}

Result<Model> Model::open(const ModelOptions &options) {
  Model model;
  Result<Json> config = readConfig(options.directory);
  if (!config)
    return config.error();
  auto network = makeNetwork(*config, options.directory + "/config.json");
  if (!network)
    return network.error();
  Result<WeightFiles> files = WeightFiles::open(options.directory);
  if (!files)
    return files.error();
  model.json = std::make_unique<Json>(std::move(*config));
  model.net = std::move(*network);
  model.files = std::make_unique<WeightFiles>(std::move(*files));
  model.identity = identityOf(*model.json);
  model.compute = options.compute;
  model.backend = options.backend;

  Build build{Loader(*model.files), *model.layout, {}, {}};
  for (const MemorySpec &spec : model.net->memories()) {
    if (!options.backend && spec.passing)
      continue;
    auto kernel =
        options.backend ? options.backend->openMemory(options.bundle, spec)
        : options.bundle.empty() ? MemoryKernel::reference(spec)
                                 : MemoryKernel::open(options.bundle, spec);
    if (!kernel)
      return kernel.error();
    build.kernels[spec.key()] = std::move(*kernel);
  }
  model.net->load(build);
  if (build.weights.failed())
    return build.weights.take();
  model.bytes = build.weights.bytes();
  model.heads = std::move(build.heads);
  noteUnused(build.weights.unused(), model.remarks);
  int threads =
      options.threads > 0 ? options.threads : runtime::ThreadPool::available();
  model.lanes = std::make_unique<std::vector<runtime::AlignedBuffer>>();
  model.lanes->resize(size_t(threads));
  return model;
}

static Status check(const Network &net, const StatePool &pool,
                    std::span<const Piece> pieces) {
  std::vector<int64_t> slots;
  for (const Piece &piece : pieces) {
    if (piece.slot < 0 || piece.slot >= pool.slots())
      return Error{"",
                   "slot " + std::to_string(piece.slot) + " is not one of " +
                       std::to_string(pool.slots()),
                   {}};
    slots.push_back(piece.slot);
    for (int32_t id : piece.ids)
      if (id < 0 || id >= net.vocab)
        return Error{"",
                     "token " + std::to_string(id) +
                         " is not in the vocabulary of " +
                         std::to_string(net.vocab),
                     {}};
    int64_t length = int64_t(pool.tokens(piece.slot).size() + piece.ids.size());
    if (net.positions > 0 && length > net.positions)
      return Error{"",
                   "a sequence of " + std::to_string(length) +
                       " tokens, this model has positions for " +
                       std::to_string(net.positions),
                   {}};
  }
  std::sort(slots.begin(), slots.end());
  auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice != slots.end())
    return Error{
        "", "slot " + std::to_string(*twice) + " appears twice in a batch", {}};
  return Status::ok();
}

/// The last row of each span.
static Rows lastRows(const Work &work, const View &x) {
  Rows last(int64_t(work.spans.size()), x.width);
  for (size_t s = 0; s < work.spans.size(); ++s) {
    const Span &span = work.spans[s];
    std::copy_n(x.row(span.begin + span.length - 1), x.width,
                last.row(int64_t(s)));
  }
  return last;
}

Rows Model::run(Work &work, std::span<const int32_t> ids, Logits which) const {
  if (backend) {
    Batch batch{work.spans, ids, which};
    Rows x;
    if (backend->begin(work, batch))
      x = net->forward(work, embed(work, net->embedding, ids));
    return backend->end(work, std::move(x), net->head);
  }
  Rows x = net->forward(work, embed(work, net->embedding, ids));
  if (work.failure || which == Logits::None)
    return Rows(0, net->vocab);
  return linear(work, which == Logits::Last ? lastRows(work, x) : std::move(x),
                net->head);
}

Result<Rows> Model::pass(StatePool &states, std::span<const Piece> pieces,
                         const ForwardOptions &options) const {
  std::vector<Span> spans;
  std::vector<int32_t> ids;
  for (const Piece &piece : pieces) {
    if (piece.ids.empty())
      continue;
    spans.push_back({piece.slot, int64_t(ids.size()), int64_t(piece.ids.size()),
                     int64_t(states.tokens(piece.slot).size())});
    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
  }
  if (spans.empty())
    return Rows(0, net->vocab);
  Work work{*pool, *lanes};
  work.compute = compute;
  work.backend = backend.get();
  work.states = &states;
  work.spans = spans;
  work.checkpoints = options.checkpoints;
  work.trace = options.trace;
  if (backend && options.trace)
    work.trace = [&](int64_t layer, const View &rows) {
      options.trace(layer, backend->download(rows));
    };
  if (Status status = states.begin(spans, options.checkpoints); !status)
    return status.error();
  Rows logits = run(work, ids, options.logits);
  states.end(spans, ids);
  if (work.failure)
    return *work.failure;
  if (options.weightBytes)
    *options.weightBytes += work.weightBytes;
  return logits;
}

Result<Rows> Model::forward(StatePool &states, std::span<const Piece> pieces,
                            const ForwardOptions &options) const {
  if (Status status = check(*net, states, pieces); !status)
    return status.error();
  if (!backend || options.checkpoints)
    return pass(states, pieces, options);
  std::vector<Piece> single, longer;
  for (const Piece &piece : pieces)
    (piece.ids.size() == 1 ? single : longer).push_back(piece);
  if (single.empty() || longer.empty())
    return pass(states, pieces, options);
  Result<Rows> ones = pass(states, single, options);
  Result<Rows> others = ones ? pass(states, longer, options) : ones.error();
  if (!others)
    return others;
  // Back into the order of the pieces.
  Rows logits(ones->count + others->count, net->vocab);
  int64_t one = 0, other = 0, to = 0;
  for (const Piece &piece : pieces) {
    bool alone = piece.ids.size() == 1;
    int64_t rows = options.logits == Logits::None  ? 0
                   : options.logits == Logits::All ? int64_t(piece.ids.size())
                                                   : !piece.ids.empty();
    int64_t &from = alone ? one : other;
    std::copy_n((alone ? *ones : *others).row(from), rows * net->vocab,
                logits.row(to));
    from += rows;
    to += rows;
  }
  return logits;
}

Result<Rows> Model::prefill(StatePool &states, int64_t slot,
                            std::span<const int32_t> ids, int64_t chunk) const {
  // The whole is checked first: nothing is half done.
  Piece whole{slot, ids};
  if (Status status = check(*net, states, {&whole, 1}); !status)
    return status.error();
  Result<Rows> logits = Rows(0, net->vocab);
  for (size_t begin = 0; begin < ids.size(); begin += size_t(chunk)) {
    size_t count = std::min(size_t(chunk), ids.size() - begin);
    Piece piece{slot, ids.subspan(begin, count)};
    logits = forward(
        states, {&piece, 1},
        {.logits = begin + count == ids.size() ? Logits::Last : Logits::None});
    if (!logits)
      return logits;
  }
  return logits;
}

} // namespace plum::model
