//===- Moe.h - A mixture of experts on a GPU --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From router logits to the weighted sum of each token's experts, as
// model::Experts::routed computes it:
//
//   route      scores of the logits, the best few with their weights
//   plan       (token, slot) pairs by expert; which expert has which tokens
//   stays
//              on the device
//   gate, up   one product with act(gate) * up behind it, for the pairs' rows
//   down       one product, a row for each pair
//   sum        of a token's rows, in the order of its choice
//
// What is around it is the caller's: the router's logits (f32, from bf16 inputs
// with f32 sums), shared experts, the latent's projections and its norm.
//
// Weights stay packed and are widened in registers. An expert's product is
// computed transposed, W x^T, by mma.sync with 16 rows of W as one operand and
// 8 tokens as the other, in the same order of k whatever the number of tokens:
// a token's bits do not depend on what else is in the batch.
//
// Nothing here allocates, waits or reads the device: all of it can be captured.
// Grids are upper bounds that follow from the number of tokens alone.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_MOE_H
#define PLUM_RUNTIME_CUDA_MOE_H

#include "runtime/cuda/Ops.h"

namespace plum::runtime::cuda {

/// How the weights of experts lie in memory.
enum class ExpertFormat : uint8_t {
  BF16,  ///< [experts, rows, columns], as in checkpoints.
  MXFP4, ///< Packed by packMxfp4: the same bytes in the order of their use.
};

/// One projection of all experts: y = W x, W of [rows, columns].
struct ExpertMatrix {
  CUdeviceptr data = 0;
  ExpertFormat format = ExpertFormat::BF16;
  int64_t rows = 0, columns = 0;
};

/// Bytes of a projection of `experts` experts.
int64_t expertBytes(ExpertFormat format, int64_t experts, int64_t rows,
                    int64_t columns);

/// Packs one expert's matrix into place `expert` of `to`: `nibbles` is [rows,
/// columns / 2], low nibble first, `scales` [rows, columns / 32], E8M0, both on
/// the device, as checkpoints have them. `columns` is a multiple of 32.
Status packMxfp4(const Kernels &kernels, CUstream stream,
                 const ExpertMatrix &to, int64_t expert, CUdeviceptr nibbles,
                 CUdeviceptr scales);

struct MoeLayer {
  int64_t experts = 0, chosen = 0;
  bool softmax = false;    ///< Scores are a softmax, else sigmoids.
  bool renormalize = true; ///< Weights of the chosen sum to `scale`.
  float scale = 1;
  CUdeviceptr bias = 0;  ///< f32 [experts], for the choice only; or 0.
  ExpertMatrix gate, up; ///< [wide, width].
  ExpertMatrix down;     ///< [width, wide].
  bool situ = false;     ///< Else silu(gate) * up.
  float beta = 0, lambda = 0;
};

/// Bytes of scratch memory for so many tokens, 256-byte aligned.
Result<int64_t> moeWorkspace(const MoeLayer &layer, int64_t tokens);

/// y[t] = sum of weight_i expert_i(x[t]) over the experts that logits[t]
/// chooses. x is bf16 [tokens, width], its rows 16-byte aligned; logits f32
/// [tokens, experts]; y bf16 or f32. Gate, up and down are bf16 points.
Status moeForward(const Kernels &kernels, CUstream stream,
                  const MoeLayer &layer, int64_t tokens, kernels::Rows x,
                  kernels::Rows logits, kernels::Rows y, CUdeviceptr workspace);

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_MOE_H
