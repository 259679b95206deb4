//===- Model.h - A model directory, ready to run ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   Result<Model> model = Model::open({.directory = "k3", .bundle =
//   "k3.plum"}); Result<StatePool> pool = model->makePool(2);
//   model->prefill(*pool, /*slot=*/0, prompt);        // any number of tokens
//   Rows logits = *model->forward(*pool, batch);      // of several sequences
//
// One forward pass takes the next tokens of any number of sequences, each of
// any length, and appends them to their states.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_MODEL_H
#define PLUM_RUNTIME_MODEL_MODEL_H

#include "runtime/model/Backend.h"
#include "runtime/model/Network.h"

namespace plum::model {

struct ModelOptions {
  std::string directory = {}; ///< config.json, weights.
  std::string bundle = {};    ///< What `plum compile` made; empty: interpret.
  Compute compute = Compute::F32;
  int threads = 0; ///< 0: one per CPU.
  /// Where to run; null: on this CPU.
  std::shared_ptr<Backend> backend = {};
};

/// Tokens of one sequence in a forward pass.
struct Piece {
  int64_t slot = 0;
  std::span<const int32_t> ids;
};

struct ForwardOptions {
  Logits logits = Logits::Last; ///< Rows to return: of each piece's last token.
  bool checkpoints = false;     ///< For StatePool::rollBack.
  /// Called with the output of each layer.
  std::function<void(int64_t layer, const View &rows)> trace = {};
  int64_t *weightBytes = nullptr; ///< Added to: bytes of weights read.
};

class Model {
public:
  static Result<Model> open(const ModelOptions &options);

  const Network &network() const { return *net; }
  const runtime::Json &config() const { return *json; }
  /// What a sequence carries.
  const StateLayout &states() const { return *layout; }
  /// Heads of each layer with such a memory.
  std::vector<int64_t> memoryHeads(const MemorySpec &spec) const {
    auto found = heads.find(spec.key());
    return found == heads.end() ? std::vector<int64_t>() : found->second;
  }
  /// What was noticed while reading: tensors that are not used.
  const std::vector<std::string> &notes() const { return remarks; }
  /// Of all weights in memory.
  int64_t weightBytes() const { return bytes; }
  int threads() const { return int(lanes->size()); }

  Result<StatePool> makePool(int64_t slots) const {
    return StatePool::create(*layout, slots, identity, backend.get());
  }

  /// [rows, vocab], in the order of the pieces. With an error that names an
  /// argument nothing has been touched. A backend runs pieces of one token and
  /// longer ones in a pass each: so it can have kernels for either, and a
  /// token's result depends on its own piece alone, not on the others. With
  /// checkpoints it runs all tokens as single ones, with the same bits.
  Result<Rows> forward(StatePool &pool, std::span<const Piece> pieces,
                       const ForwardOptions &options = {}) const;
  /// Appends `ids` in forward passes of `chunk` tokens; the last logits row.
  Result<Rows> prefill(StatePool &pool, int64_t slot,
                       std::span<const int32_t> ids, int64_t chunk = 512) const;

private:
  Model() = default;
  Result<Rows> pass(StatePool &pool, std::span<const Piece> pieces,
                    const ForwardOptions &options) const;
  /// The network's and the backend's part of a pass: logits.
  Rows run(Work &work, std::span<const int32_t> ids, Logits which) const;
  std::shared_ptr<Backend> backend; ///< Outlives everything in its memory.
  std::unique_ptr<runtime::Json> json;
  std::unique_ptr<WeightFiles> files;
  std::unique_ptr<StateLayout> layout = std::make_unique<StateLayout>();
  std::unique_ptr<Network> net;
  std::unique_ptr<runtime::ThreadPool> pool =
      std::make_unique<runtime::ThreadPool>();
  std::unique_ptr<std::vector<runtime::AlignedBuffer>> lanes;
  std::map<std::string, std::vector<int64_t>> heads; ///< By key of a memory.
  std::vector<std::string> remarks;
  Compute compute = Compute::F32;
  uint64_t identity = 0;
  int64_t bytes = 0;
};

/// The memories that a model directory needs compiled.
Result<std::vector<MemorySpec>> memoriesOf(const std::string &directory);

/// BUNDLE/model.json, which names the model directory that it was made for.
Result<std::string> modelOfBundle(const std::string &bundle);
std::string writeModelJson(const std::string &directory);
inline constexpr const char *modelJson = "model.json";

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_MODEL_H
