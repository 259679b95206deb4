//===- Activations.h - What gated products end in ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_ACTIVATIONS_H
#define PLUM_RUNTIME_CUDA_KERNELS_ACTIVATIONS_H

#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {

/// beta tanh(g / beta) sigmoid(g) * lambda tanh(u / lambda), or * u where
/// lambda is 0.
inline float situ(float g, float u, float beta, float lambda) {
  float gate = beta * tanhAccurate(g * reciprocal(beta)) * sigmoid(g);
  return gate *
         (lambda > 0 ? lambda * tanhAccurate(u * reciprocal(lambda)) : u);
}

/// What a gated product of experts ends in, for results that are rounded to
/// bf16 at once: some 1e-6 of their size off, in half the instructions. Of the
/// function, what is the same for all elements.
struct GatedBf16 {
  static constexpr float kLog2e = 1.44269504f;
  bool situ;
  float beta, lambda;
  float perBeta, perLambda; ///< To arguments of tanh.

  PLUM_INLINE GatedBf16(bool situ, float beta, float lambda)
      : situ(situ), beta(beta), lambda(lambda),
        perBeta(situ ? reciprocal(beta) : 0),
        perLambda(lambda > 0 ? reciprocal(lambda) : 0) {}

  PLUM_INLINE static float tanhOf(float x) {
    const float a = smaller(__builtin_fabsf(x), 30.0f), s = x * x;
    const float power = exp2Fast(a * (2 * kLog2e));
    const float large =
        __builtin_copysignf(__builtin_fmaf(-2.0f, reciprocal(power + 1), 1), x);
    float p = __builtin_fmaf(s, -17.0f / 315, 2.0f / 15);
    p = __builtin_fmaf(p, s, -1.0f / 3);
    p = __builtin_fmaf(p * s, x, x);
    return a < 0.25f ? p : x != x ? x : large;
  }
  PLUM_INLINE static float sigmoidOf(float x) {
    return reciprocal(1 + exp2Fast(smaller(-x * kLog2e, 126.0f)));
  }

  PLUM_INLINE float operator()(float gate, float up) const {
    if (!situ)
      return gate * sigmoidOf(gate) * up;
    // tanh is (e - 1) / (e + 1), sigmoid 1 / (1 + f): one reciprocal for both.
    const float a = smaller(__builtin_fabsf(gate * perBeta), 15.0f), s = a * a;
    const float e = exp2Fast(a * (2 * kLog2e));
    const float f = exp2Fast(smaller(60.0f, -gate * kLog2e)); // NaN stays.
    float p = __builtin_fmaf(s, 2.0f / 15, -1.0f / 3);
    p = __builtin_fmaf(p * s, a, a);
    const float above = a < 0.125f ? p * (e + 1) : e - 1;
    const float y = above * reciprocal((e + 1) * (1 + f));
    return __builtin_copysignf(y, gate) * beta *
           (lambda > 0 ? lambda * tanhOf(up * perLambda) : up);
  }
};

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_ACTIVATIONS_H
