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
// computed transposed, W x^T, in the same order of k whatever the number of
// tokens, by one of two families of kernels:
//
//   narrow     mma.sync, 16 rows of W by 8 tokens (Experts.cu)
//   wide       wgmma, 64 rows of W by up to 96 tokens (WideExperts.cu), on
//              Hopper; a step `gather` copies tokens to their experts first
//
// Within a family a token's bits do not depend on what else is in the batch.
//
// Nothing here allocates, waits or reads the device: all of it can be captured.
// Grids are upper bounds that follow from the number of tokens alone.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_MOE_H
#define PLUM_RUNTIME_CUDA_MOE_H

#include "runtime/cuda/Ops.h"

namespace plum::runtime::cuda {

enum class ExpertFormat : uint8_t { BF16, MXFP4 };

/// The family of kernels; ByTokens: wide for as many tokens as it is faster
/// for.
enum class MoeProducts : uint8_t { Narrow, Wide, ByTokens };

/// One projection of all experts: y = W x, W of [rows, columns], packed by
/// packExpert: the checkpoint's numbers in the order of their use.
struct ExpertMatrix {
  CUdeviceptr data = 0; ///< 128-byte aligned.
  ExpertFormat format = ExpertFormat::BF16;
  int64_t rows = 0, columns = 0;

  /// Of one expert; those of checkpoints, rounded up to blocks.
  int64_t expertBytes() const;
};

/// Packs one expert's matrix into its place in `to`. On the device, as
/// checkpoints have them: `weights` is bf16 [rows, columns], or nibbles [rows,
/// columns / 2], the low one first, with `scales` [rows, columns / 32], E8M0.
/// Scales above 2^49 become infinite, below 2^-77 they lose bits.
Status packExpert(const Kernels &kernels, CUstream stream,
                  const ExpertMatrix &to, int64_t expert, CUdeviceptr weights,
                  CUdeviceptr scales = 0);

struct MoeLayer {
  int64_t experts = 0, chosen = 0;
  bool softmax = false;    ///< Scores are a softmax, else sigmoids.
  bool renormalize = true; ///< Weights of the chosen sum to `scale`.
  float scale = 1;
  CUdeviceptr bias = 0;       ///< f32 [experts], for the choice only; or 0.
  ExpertMatrix gate, up;      ///< [wide, width].
  ExpertMatrix down;          ///< [width, wide].
  bool situ = false;          ///< Else silu(gate) * up.
  float beta = 0, lambda = 0; ///< Of SiTU; lambda 0: up as it is.

  /// Wide ones need hasWideProducts.
  MoeProducts products = MoeProducts::Narrow;
  /// The most tokens of one product: 8, 16, 32, 48, 96 or 128, of wide ones 16
  /// or 96; 0 leaves it to the number of tokens. It changes the time, not a
  /// bit of the result.
  int64_t tile = 0;
};

/// The family has products of such tiles; those of ByTokens are the narrow
/// ones, which the wide are among.
Status checkTile(MoeProducts products, int64_t tile);

/// The GPU has the wide family.
bool hasWideProducts(const Kernels &kernels);

/// Bytes of scratch memory for so many tokens; its address is a multiple of
/// 256.
Result<int64_t> moeWorkspace(const MoeLayer &layer, int64_t tokens);

/// y[t] = sum of weight_i expert_i(x[t]) over the experts that logits[t]
/// chooses. x is bf16 [tokens, width], its rows 16-byte aligned; logits f32
/// [tokens, experts]; y bf16 or f32, of aligned rows. Gate, up and down are
/// bf16 points.
Status moeForward(const Kernels &kernels, CUstream stream,
                  const MoeLayer &layer, int64_t tokens, kernels::Rows x,
                  kernels::Rows logits, kernels::Rows y, CUdeviceptr workspace);

/// The same by its steps, which come in this order. For those who time them.
class MoePass {
public:
  static Result<MoePass> make(const MoeLayer &layer, int64_t tokens,
                              kernels::Rows x, kernels::Rows logits,
                              kernels::Rows y, CUdeviceptr workspace);

  Status route(const Kernels &kernels, CUstream stream) const;
  Status plan(const Kernels &kernels, CUstream stream) const;
  Status gather(const Kernels &kernels, CUstream stream) const; ///< If wide.
  Status gateUp(const Kernels &kernels, CUstream stream) const;
  Status down(const Kernels &kernels, CUstream stream) const;
  Status sum(const Kernels &kernels, CUstream stream) const;

  bool wide = false; ///< Which family.
  int64_t tile = 0;  ///< The most tokens of a product.
  /// On the device, after `route`: int32 and f32 [tokens, chosen].
  CUdeviceptr experts = 0, weights = 0;

private:
  friend Result<int64_t> moeWorkspace(const MoeLayer &layer, int64_t tokens);
  static Result<MoePass> layOut(const MoeLayer &layer, int64_t tokens,
                                CUdeviceptr workspace);
  Status product(const Kernels &kernels, CUstream stream, bool gated) const;
  Status wideProduct(const Kernels &kernels, CUstream stream, bool gated) const;

  MoeLayer layer;
  kernels::Rows x, logits, y;
  int64_t tokens = 0, pairs = 0, chunks = 0, tiles = 0; ///< Tiles: at most.
  int64_t bytes = 0;                                    ///< Of the workspace.
  CUdeviceptr ranks = 0, histogram = 0, order = 0, tileList = 0, tileCount = 0;
  kernels::Rows hidden, results;            ///< Of pairs.
  CUdeviceptr panels = 0, hiddenPanels = 0; ///< Instead of `hidden`, if wide.
};

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_MOE_H
