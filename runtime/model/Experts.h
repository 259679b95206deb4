//===- Experts.h - Feed-forward parts ---------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A gated MLP, and a mixture of them: a router gives each expert a score, the
// best few run, and their outputs are summed with the scores as weights. The
// latent mixture of Kimi K3 does that in a narrower space.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_EXPERTS_H
#define PLUM_RUNTIME_MODEL_EXPERTS_H

#include "runtime/model/Elementwise.h"

namespace plum::model {

/// down(act(gate x) * up x).
struct Mlp {
  Matrix gate, up, down;
  Rows run(const Work &work, const Activation &act, const View &x) const;
};

struct Experts {
  enum Score : uint8_t { Sigmoid, Softmax };

  Matrix router; ///< [experts, hidden].
  Vector bias;   ///< For the choice only; may be empty.
  Score score = Sigmoid;
  bool renormalize = true; ///< Weights of the chosen sum to `scale`.
  float scale = 1;
  int64_t chosen = 1; ///< Experts per token.
  std::vector<Mlp> experts;
  Activation act;

  Mlp shared;        ///< Always runs; may be absent.
  Matrix sharedGate; ///< [1, hidden]: its output times sigmoid of it.

  /// Latent: experts see `into` x, their sum goes through a norm and `back`.
  Matrix into, back;
  Vector norm;
  float eps = 0;

  Rows run(const Work &work, const View &x) const;

  /// What one token asks for: its experts, best first, and their weights.
  struct Choice {
    std::vector<int64_t> expert;
    std::vector<float> weight;
  };
  Choice choose(const float *logits) const;

private:
  Rows routed(const Work &work, const View &x, const View &z) const;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_EXPERTS_H
