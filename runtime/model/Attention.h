//===- Attention.h - Softmax attention with a cache -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention keeps every token: its state grows by a row each. `Attention` keeps
// keys and values of each head. `LatentAttention` (MLA) keeps one latent row
// and one key part that all heads share, and has two equal ways to use them:
//
//   expanded   k, v = W_kvb c for every token, then attention as usual;
//              for many queries
//   absorbed   q' = q W_UK, scores q' . c, o = W_UV (sum p c): the heads are
//              queries of one wide key, the latent itself; for few queries
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_ATTENTION_H
#define PLUM_RUNTIME_MODEL_ATTENTION_H

#include "runtime/model/Memory.h"

namespace plum::model {

struct Attention {
  int64_t heads = 0, groups = 0; ///< Of queries; of keys and values.
  int64_t keyDim = 0, valueDim = 0;
  float scale = 1;
  int64_t state = 0; ///< Growing, rows [groups * keyDim | groups * valueDim].
  /// docs/layers/attention.plum on this very state, where each head has keys of
  /// its own; without a kernel (on a GPU) and for shared keys, what is here.
  MemoryLayer memory = {};

  int64_t cacheWidth() const { return groups * (keyDim + valueDim); }
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
  Matrix expand;     ///< kv_b [heads * (nope + valueDim), latent].
  int64_t state = 0; ///< Growing, rows [c | k_pe].

  /// q [R, heads * (nope + pe)], cache rows [R, latent + pe] to
  /// [R, heads * valueDim]; appends to the state.
  Rows run(const Work &work, const View &q, const View &rows) const;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_ATTENTION_H
