//===- Network.h - What every architecture provides -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One file of runtime/models per architecture. It reads its config, says which
// memories it needs compiled, takes its weights and states, and runs rows of
// tokens through its layers. Model.h does everything that is the same for all.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_NETWORK_H
#define PLUM_RUNTIME_MODEL_NETWORK_H

#include "runtime/model/Config.h"
#include "runtime/model/Memory.h"
#include "runtime/model/Weights.h"

namespace plum::model {

/// What a network is built from.
struct Build {
  Loader weights;
  StateLayout &states;
  std::map<std::string, std::shared_ptr<MemoryKernel>> kernels; ///< By key.
  /// Of each layer that has such a memory, by key.
  std::map<std::string, std::vector<int64_t>> heads = {};

  /// A memory of a layer: `name` is that of its state (one that passes has
  /// none), params in the spec's order. Heads share lists, so that there are
  /// `listHeads`; 0: they do not.
  MemoryLayer memory(const MemorySpec &spec, const std::string &name,
                     int64_t heads, std::vector<Vector> params,
                     int64_t listHeads = 0);
};

class Network {
public:
  virtual ~Network() = default;

  int64_t vocab = 0, hidden = 0, layers = 0;
  int64_t positions = 0; ///< Most tokens of a sequence; 0: any number.
  Matrix embedding;      ///< [vocab, hidden].
  Matrix head;           ///< [vocab, hidden].

  virtual std::vector<MemorySpec> memories() const { return {}; }
  /// Errors go to build.weights.
  virtual void load(Build &build) = 0;
  /// Embedded tokens [R, hidden] to rows that `head` takes.
  virtual Rows forward(const Work &work, Rows x) const = 0;

protected:
  /// vocab, hidden and layers, as most configs spell them.
  void readSizes(const Config &config);
  /// `head`, or the embedding again where they are tied.
  void loadHead(Build &build, const std::string &name, bool tied);
};

/// Reads a config of one architecture; errors stay in it.
using MakeNetwork = std::unique_ptr<Network> (*)(const Config &config);

std::unique_ptr<Network> makeGpt2(const Config &config);
std::unique_ptr<Network> makeMamba2(const Config &config);
std::unique_ptr<Network> makeQwen3Next(const Config &config);
std::unique_ptr<Network> makeKimi(const Config &config);
std::unique_ptr<Network> makePlain(const Config &config);

/// By model_type of config.json.
Result<std::unique_ptr<Network>> makeNetwork(const runtime::Json &config,
                                             const std::string &where);

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_NETWORK_H
