//===- Memory.h - The compiled layers inside of a model ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a token does to a memory is a layer spec (docs/layers), compiled by
// Plum. A network names the specs it needs; `plum compile MODEL` compiles each
// once. Where no compiled bundle is at hand the spec itself is run, token by
// token in float64: slow, and the same within rounding.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_MEMORY_H
#define PLUM_RUNTIME_MODEL_MEMORY_H

#include "plum/Support/Result.h"
#include "runtime/Executor.h"
#include "runtime/model/States.h"

#include <map>
#include <span>
#include <string>
#include <string_view>

namespace plum::model {

struct MemorySpec {
  std::string layer; ///< A file of docs/layers, and the layer in it.
  std::map<std::string, int64_t> dims;
  /// Its states last for a pass, of a backend alone, and are not in the pool.
  bool passing = false;

  std::string_view text() const; ///< The spec.
  std::string key() const;       ///< "kda.K128.V128": its folder in a bundle.
  bool operator==(const MemorySpec &) const = default;
};

class MemoryKernel {
public:
  virtual ~MemoryKernel() = default;
  /// `directory`/KEY, a bundle of this very spec.
  static Result<std::shared_ptr<MemoryKernel>>
  open(const std::string &directory, const MemorySpec &spec);
  /// The spec, interpreted.
  static Result<std::shared_ptr<MemoryKernel>>
  reference(const MemorySpec &spec);

  virtual const runtime::Manifest &manifest() const = 0;
  virtual Status run(const runtime::RunArgs &args,
                     const runtime::RunOptions &options) = 0;
};

/// A memory with its params, in one layer of a network.
struct MemoryLayer {
  std::shared_ptr<MemoryKernel> kernel;
  int64_t heads = 0;
  std::vector<Vector> params; ///< [heads * d] each, in the spec's order.
  int64_t state = 0;          ///< First index in the StateLayout.
  /// Index of the growing state that holds all of the layer's: a token's row is
  /// [listHeads * d] of each, one after the other. -1: there is none.
  int64_t growing = -1;
  int64_t listHeads = 0; ///< Heads of these, each shared by as many of `heads`.

  /// A per-token input [R, heads * d]; fewer heads are shared.
  struct Input {
    View rows;
    int64_t heads;
  };
  /// Inputs in the spec's order. Runs every span from its state on and leaves
  /// the new states in the pool. The output is [R, heads * d].
  Rows run(const Work &work, std::span<const Input> inputs) const;
  Rows run(const Work &work, std::initializer_list<Input> inputs) const {
    return run(work, std::span(inputs.begin(), inputs.size()));
  }

  // The parts of such a run, wherever it is.

  /// Rows of `type` with `stride` elements from one to the next, as heads.
  static runtime::TensorView heading(const void *data, DType type,
                                     int64_t count, int64_t stride,
                                     int64_t width, int64_t heads);
  int64_t outputWidth() const {
    return heads * kernel->manifest().outputs[0].elements();
  }
  /// The states of fixed size in `count` blocks of a pool, from `block` on; a
  /// growing one is an empty view, and all growing, there are none.
  std::vector<runtime::TensorView> statesIn(const StatePool &pool, float *block,
                                            int64_t count) const;
  std::vector<runtime::TensorView> statesOf(StatePool &pool) const {
    return statesIn(pool, pool.slotBlocks(), pool.slots());
  }
  /// Makes room for the spans' rows in the growing states and says where.
  void addRows(const Work &work, runtime::RunArgs &args) const;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_MEMORY_H
