//===- Inputs.h - Portable random tensors -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A random number generator that is a function of (seed, tensor, index) in
// 32-bit arithmetic, so that any language gives the same tensors:
//
//   x = ((seed * 0x9E3779B1) ^ (tid * 0x85EBCA77)) + i * 0x9E3779B9
//   x ^= x >> 16; x *= 0x21F0AAAD; x ^= x >> 15; x *= 0xD35A2D97; x ^= x >> 15
//   U(i) = (x + 0.5) / 2^32
//   N(i) = sqrt(-2 ln U(2i)) cos(2 pi U(2i + 1))
//
// i is the row-major index in the tensor. Known values: seed 1, tid 2 gives
// N = -0.409698460, -0.422356537, ... and U = 0.564397614, 0.312562737, ...
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_INPUTS_H
#define PLUM_RUNTIME_INPUTS_H

#include "runtime/Problem.h"
#include "runtime/ThreadPool.h"

#include <cstdint>

namespace plum::runtime {

uint32_t portableHash(uint32_t seed, uint32_t tid, uint32_t i);
/// Uniform in (0, 1).
double portableUniform(uint32_t seed, uint32_t tid, uint32_t i);
/// Standard normal.
double portableNormal(uint32_t seed, uint32_t tid, uint32_t i);

/// Tensors of a random run, dense, in the manifest's order; `args` views them.
/// Outputs and fixed final states are allocated and start as 0.
struct RandomProblem {
  std::vector<AlignedBuffer> buffers;
  RunArgs args;
};

/// Rows of growing states before a run, where nothing says how many: any number
/// that is no multiple of a chunk.
inline constexpr int64_t checkedRows = 19;

/// N(0, 1) everywhere, rounded to the kernel's dtype, but for
///   - log decays: -softplus(N);
///   - inputs named q or k: rows of norm 1, as such layers expect;
///   - an input named beta: sigmoid(N), a write strength in (0, 1).
/// Tensors q, k, v, beta have tid 1, 2, 3, 5, log decays 4 (then 9, 10, ...),
/// other inputs 16 + position, params 48 + position. Work is spread over
/// `pool`.
///
/// States start as 0, but growing ones hold rows of N(0, 1), tid 32 + position
/// of the state and i the index in [N, H, past, d]: `past` in the first
/// sequence, one less in each that follows, down to 0. They are in place: the
/// final views are the initial ones. Rows yet to come are NaN. Lists that heads
/// can share, and the inputs that their rows are, have `listHeads` heads, a
/// divisor of `heads`; 0 stands for as many.
Result<RandomProblem> randomProblem(const Manifest &manifest, int64_t batch,
                                    int64_t tokens, int64_t heads,
                                    uint32_t seed, ThreadPool &pool,
                                    int64_t past = checkedRows,
                                    int64_t listHeads = 0);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_INPUTS_H
