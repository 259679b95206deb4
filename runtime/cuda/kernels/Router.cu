//===- Router.cu - Which experts a token asks for ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A warp has a token, a lane every 32nd expert. The best is looked for as often
// as experts are chosen: scores become integers of the same order, which a warp
// compares in one instruction; among equals the lower expert wins, NaN loses.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/MoeArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kOwn = kMoeExperts / kWarp; ///< Experts of a lane.

/// Above 0, and larger for larger numbers.
inline uint32_t orderOf(float x) {
  if (x != x)
    x = -__builtin_inff();
  uint32_t bits = __builtin_bit_cast(uint32_t, x + 0.0f); // -0 is 0.
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

inline void scoresOf(const MoeRouteArgs &args, int64_t token, float *score) {
  const float *logits =
      static_cast<const float *>(args.logits.data) + token * args.logits.stride;
  float largest = -__builtin_inff();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    int e = i * kWarp + lane();
    score[i] = e < args.count ? logits[e] : -__builtin_inff();
    largest = larger(largest, score[i]);
  }
  if (!args.softmax) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      score[i] = sigmoid(score[i]);
    return;
  }
  largest = warpMax(largest);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    score[i] = expAccurate(score[i] - largest);
    sum += score[i];
  }
  sum = warpSum(sum);
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    score[i] = score[i] / sum;
}

inline void route(const MoeRouteArgs &args) {
  int64_t token = blockX() * 4 + warp();
  if (token >= args.tokens)
    return;
  float score[kOwn];
  uint32_t order[kOwn]; // 0: not to be chosen, or no longer.
  scoresOf(args, token, score);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    int e = i * kWarp + lane();
    order[i] = 0;
    if (e < args.count)
      order[i] = orderOf(args.bias ? score[i] + args.bias[e] : score[i]);
  }

  int mine = 0; // Of slot lane().
  float weight = 0, sum = 0;
  for (int slot = 0; slot < args.chosen; ++slot) {
    uint32_t best = 0;
    float ofBest = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (order[i] > best) {
        best = order[i];
        ofBest = score[i];
        at = i;
      }
    uint32_t first = warpMax(best);
    int expert = int(warpMin(best == first ? uint32_t(at * kWarp + lane())
                                           : uint32_t(kMoeExperts)));
    float chosen = __builtin_bit_cast(
        float, shuffle(__builtin_bit_cast(uint32_t, ofBest), expert % kWarp));
    if (expert % kWarp == lane()) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (i == expert / kWarp)
          order[i] = 0;
    }
    sum += chosen;
    if (slot == lane()) {
      mine = expert;
      weight = chosen;
    }
  }
  if (lane() >= args.chosen)
    return;
  if (args.renormalize)
    weight = weight / (args.softmax ? sum : sum + 1e-20f);
  args.experts[token * args.chosen + lane()] = mine;
  args.weights[token * args.chosen + lane()] = args.scale * weight;
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

/// Grid: 4 tokens a block.
PLUM_KERNEL(plum_moe_route, MoeRouteArgs, 128, 4) { route(args); }
