//===- Attention.h - Softmax attention with a cache -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention keeps every token: its state grows by a row each. `Attention` keeps
// keys and values, which heads may share; `LatentAttention` (MLA) keeps one
// latent row and one key part that all heads share. Either is a layer spec with
// growing states, run like any other memory.
//
// Keys and values of MLA are products of the latent, and there are two equal
// ways to use that:
//
//   expanded   k, v = W_kvb c for every token, then attention as usual
//   absorbed   q' = q W_UK, scores q' . c, o = W_UV (sum p c): the heads are
//              queries of one wide key, the latent itself
//
// On this CPU it is absorbed always: a query costs its two products, 2 latent
// (nope + valueDim), whatever the length of the cache, while expanding costs as
// much for each of its rows, of which a pass has more than queries but for the
// first one. It attends with rows of latent + pe instead of nope + pe, which
// heads do together (docs/layers/mla.plum). A prompt of some 64 tokens at the
// very beginning is all that would be faster expanded, by a sixth or so. A GPU
// expands prompts: its tensor cores are the bound there, not the memory, and
// the spec of that is another one (docs/layers/mla_prefill.plum).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_ATTENTION_H
#define PLUM_RUNTIME_MODEL_ATTENTION_H

#include "runtime/model/Memory.h"

namespace plum::model {

struct Build;

struct Attention {
  int64_t heads = 0, groups = 0; ///< Of queries; of keys and values.
  int64_t keyDim = 0, valueDim = 0;
  float scale = 1;
  /// Its growing state has rows [groups * keyDim | groups * valueDim].
  MemoryLayer memory = {};

  static MemorySpec spec(int64_t keyDim, int64_t valueDim) {
    return {"attention", {{"K", keyDim}, {"V", valueDim}}};
  }
  void load(Build &build, const std::string &name);
  /// q [R, heads * keyDim], k [R, groups * keyDim], v [R, groups * valueDim]
  /// to [R, heads * valueDim]; appends k and v to the state.
  Rows run(const Work &work, const View &q, const View &k, const View &v) const;
};

struct LatentAttention {
  int64_t heads = 0;
  int64_t latent = 0;       ///< Width of c.
  int64_t nope = 0, pe = 0; ///< Parts of a query: own, shared key.
  int64_t valueDim = 0;
  float scale = 1;
  Matrix expand;           ///< kv_b [heads * (nope + valueDim), latent].
  MemoryLayer memory = {}; ///< Its growing state has rows [c | k_pe].
  /// Prompts on a backend; its lists are made for a pass.
  MemoryLayer prompts = {};

  static MemorySpec spec(int64_t latent, int64_t pe) {
    return {"mla", {{"C", latent}, {"R", pe}}};
  }
  static MemorySpec promptSpec(int64_t nope, int64_t pe, int64_t valueDim) {
    return {"mla_prefill", {{"N", nope}, {"R", pe}, {"V", valueDim}}, true};
  }
  void load(Build &build, const std::string &name);
  /// q [R, heads * (nope + pe)], cache rows [R, latent + pe] to
  /// [R, heads * valueDim]; appends to the state.
  Rows run(const Work &work, const View &q, const View &rows) const;
  /// Of it what the memory does: queries [R, heads * latent] beside the last
  /// parts of q to [R, heads * latent].
  Rows attend(const Work &work, const View &absorbed, const View &q,
              const View &rows) const;

private:
  /// q' of every head, [R, heads * latent].
  Rows absorb(const Work &work, const View &q) const;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_ATTENTION_H
