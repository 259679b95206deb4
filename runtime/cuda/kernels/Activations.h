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

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_ACTIVATIONS_H
