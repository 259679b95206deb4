//===- Sampler.h - Choosing the next token ----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In this order: repeat penalty, top-k, top-p, min-p, temperature, draw. The
// same seed gives the same tokens on every machine that gives the same logits.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TEXT_SAMPLER_H
#define PLUM_RUNTIME_TEXT_SAMPLER_H

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace plum::text {

struct SamplerOptions {
  double temperature = 0; ///< 0: the likeliest token.
  int64_t topK = 0;       ///< 0: all.
  double topP = 1, minP = 0;
  double repeatPenalty = 1; ///< Divides positive logits of recent tokens.
  int64_t repeatLast = 64;  ///< How many tokens are recent.
  uint64_t seed = 0;
};

class Sampler {
public:
  explicit Sampler(const SamplerOptions &options)
      : options(options), random(options.seed) {}

  /// The next token after `history`.
  int32_t next(std::span<const float> logits, std::span<const int32_t> history);

private:
  SamplerOptions options;
  std::mt19937_64 random; ///< Its numbers are the same everywhere.
};

} // namespace plum::text

#endif // PLUM_RUNTIME_TEXT_SAMPLER_H
