//===- Network.cpp - What every architecture provides ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Network.h"

namespace plum::model {

MemoryLayer Build::memory(const MemorySpec &spec, const std::string &name,
                          int64_t heads, std::vector<Vector> params,
                          int64_t listHeads) {
  MemoryLayer layer;
  this->heads[spec.key()].push_back(heads);
  auto kernel = kernels.find(spec.key());
  if (weights.failed() || kernel == kernels.end())
    return layer;
  layer.kernel = kernel->second;
  layer.heads = heads;
  layer.listHeads = listHeads > 0 ? listHeads : heads;
  layer.params = std::move(params);
  if (spec.passing)
    return layer;
  layer.state = int64_t(states.fixed.size());
  int64_t width = 0;
  for (const runtime::ManifestTensor &state : layer.kernel->manifest().states) {
    if (state.grows) {
      width += layer.listHeads * state.elements();
      continue;
    }
    std::vector<int64_t> shape{heads};
    shape.insert(shape.end(), state.shape.begin(), state.shape.end());
    states.addFixed(name + "." + state.name, std::move(shape));
  }
  if (width > 0)
    layer.growing = states.addGrowing(name, width);
  return layer;
}

void Network::readSizes(const Config &config) {
  vocab = config.dim({"vocab_size"}, int64_t(1) << 24);
  hidden = config.dim({"hidden_size"});
  layers = config.dim({"num_hidden_layers"}, maxCount);
}

void Network::loadHead(Build &build, const std::string &name, bool tied) {
  if (tied && !build.weights.has(name))
    head = embedding;
  else
    head = build.weights.matrix(name, vocab, hidden);
}

namespace {

struct Architecture {
  std::string_view modelType;
  MakeNetwork make;
};
constexpr Architecture architectures[] = {{"gpt2", makeGpt2},
                                          {"mamba2", makeMamba2},
                                          {"qwen3_next", makeQwen3Next},
                                          {"kimi_linear", makeKimi},
                                          {"kimi_k3", makeKimi},
                                          {"plum_plain", makePlain}};

} // namespace

Result<std::unique_ptr<Network>> makeNetwork(const runtime::Json &json,
                                             const std::string &where) {
  Config config(json, where);
  std::string type = config.textOr({"model_type"}, "");
  if (config.any())
    return config.take();
  for (const Architecture &known : architectures)
    if (type == known.modelType) {
      std::unique_ptr<Network> network = known.make(config);
      if (config.any())
        return config.take();
      return network;
    }
  Error error{where,
              type.empty() ? "'model_type' is missing"
                           : "'model_type' is '" + type +
                                 "', which this runtime does not know",
              {}};
  std::string list;
  for (const Architecture &known : architectures)
    list += (list.empty() ? "" : ", ") + std::string(known.modelType);
  error.notes.push_back("it knows " + list);
  return error;
}

} // namespace plum::model
