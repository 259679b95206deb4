//===- Kimi.h - What Kimi Linear and Kimi K3 are made of --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kimi Delta Attention and multi-head latent attention without positions, as
// the two models share them. Kimi.cpp puts them together.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODELS_KIMI_H
#define PLUM_RUNTIME_MODELS_KIMI_H

#include "runtime/model/Attention.h"
#include "runtime/model/Conv.h"
#include "runtime/model/Elementwise.h"
#include "runtime/model/Network.h"

namespace plum::model::kimi {

/// The low-rank norms are built with this, whatever rms_norm_eps says.
inline constexpr float lowRankEps = 1e-6f;

struct KdaSizes {
  int64_t heads = 0, dim = 0, width = 0; ///< dim: of keys and values.
  bool bounded = false;                  ///< K3's gate: -5 sigmoid.
  bool fullGate = false;                 ///< Output gate of full rank.
  float eps = 0;

  explicit KdaSizes(const Config &config);
  KdaSizes() = default;
  MemorySpec spec() const {
    return {bounded ? "kda_k3" : "kda", {{"K", dim}, {"V", dim}}};
  }
};

struct Kda {
  KdaSizes sizes;
  Matrix q, k, v, fDown, fUp, b; ///< f: decay gate, b: write strength.
  Matrix gate;                   ///< Of full rank, or
  Matrix gateDown, gateUp;
  ShortConv conv; ///< Channels of q, k, v.
  MemoryLayer memory;
  Vector norm;
  Matrix out;

  void load(Build &build, const KdaSizes &sizes, const std::string &name,
            int64_t hidden);
  Rows run(const Work &work, const View &x) const;
};

struct MlaSizes {
  int64_t heads = 0, latent = 0, nope = 0, pe = 0, valueDim = 0;
  int64_t queryRank = 0; ///< 0: queries of full rank.
  bool gated = false;

  explicit MlaSizes(const Config &config);
  MlaSizes() = default;
  MemorySpec spec() const { return LatentAttention::spec(latent, pe); }
  MemorySpec promptSpec() const {
    return LatentAttention::promptSpec(nope, pe, valueDim);
  }
};

struct Mla {
  MlaSizes sizes;
  Matrix q, qDown, qUp; ///< Either q or the other two.
  Vector qNorm, latentNorm;
  Matrix latent; ///< [latent | pe, hidden].
  Matrix gate, out;
  LatentAttention attention;

  void load(Build &build, const MlaSizes &sizes, const std::string &name,
            int64_t hidden);
  Rows run(const Work &work, const View &x) const;
};

} // namespace plum::model::kimi

#endif // PLUM_RUNTIME_MODELS_KIMI_H
