//===- Norms.cu - RMSNorm and LayerNorm -------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A team of threads has a slice of a row: a warp where slices are narrow
// (heads, of 64 to 512 columns), a block where they are whole rows. It passes
// over the slice two or three times; after the first it is in the L1 cache. The
// order of a sum depends on the width alone, so a row gets the same bits in any
// batch.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

/// One slice. Sum: adds up a float over the team. `member` of `Members`.
template <int N, int Members, typename Sum>
void normalize(const NormArgs &args, int64_t row, int64_t first, int member,
               Sum sum) {
  const int width = args.width;
  const bool added = args.residual.data != nullptr;
  const Rows &from = added ? args.residual : args.x;
  auto each = [&](auto body) {
    for (int c = member * N; c < width; c += Members * N) {
      float x[N];
      load<N>(from, row, first + c, x);
      if (args.act == NormGate::SiLUBefore) {
        float g[N];
        load<N>(args.gate, row, first + c, g);
#pragma unroll
        for (int i = 0; i < N; ++i)
          x[i] *= silu(g[i]);
      }
      body(c, x);
    }
  };

  if (added)
    for (int c = member * N; c < width; c += Members * N) {
      float x[N], r[N];
      load<N>(args.x, row, first + c, x);
      load<N>(args.residual, row, first + c, r);
#pragma unroll
      for (int i = 0; i < N; ++i)
        r[i] += x[i];
      store<N>(args.residual, row, first + c, r); // A thread reads its own.
    }
  float mean = 0;
  if (args.center) {
    float total = 0;
    each([&](int, const float *x) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        total += x[i];
    });
    mean = sum(total) / float(width);
  }
  float squares = 0;
  each([&](int, const float *x) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      squares = __builtin_fmaf(x[i] - mean, x[i] - mean, squares);
  });
  const float scale = rsqrtFast(sum(squares) / float(width) + args.eps);
  each([&](int c, float *x) {
    float w[N] = {}, b[N] = {}, g[N] = {};
    if (args.weight.data)
      load<N>(args.weight.data, args.weight.type, c, w);
    if (args.bias.data)
      load<N>(args.bias.data, args.bias.type, c, b);
    const bool gated =
        args.act == NormGate::Sigmoid || args.act == NormGate::SiLU;
    if (gated)
      load<N>(args.gate, row, first + c, g);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float y = (x[i] - mean) * scale;
      if (args.roundFirst)
        y = roundToBf16(y);
      if (args.weight.data)
        y *= args.plusOne ? w[i] + 1.0f : w[i];
      if (args.bias.data)
        y += b[i];
      if (gated)
        y *= args.act == NormGate::Sigmoid ? sigmoid(g[i]) : silu(g[i]);
      x[i] = y;
    }
    store<N>(args.y, row, first + c, x);
  });
}

template <int N> void normByWarps(const NormArgs &args) {
  int64_t slice = blockX() * 8 + warp();
  if (slice >= args.rows * args.slices)
    return;
  int64_t row = slice / args.slices;
  normalize<N, kWarp>(args, row, (slice - row * args.slices) * args.width,
                      lane(), [](float x) { return warpSum(x); });
}

template <int N> void normByBlocks(const NormArgs &args, float *scratch) {
  int64_t row = blockX() / args.slices;
  normalize<N, 256>(args, row, (blockX() - row * args.slices) * args.width,
                    threadIndex(),
                    [&](float x) { return blockSum<8>(x, scratch); });
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

/// Grid: 8 slices a block.
PLUM_KERNEL(plum_norm_warps, NormArgs, 256, 4) {
  if (args.vectorized)
    normByWarps<8>(args);
  else
    normByWarps<1>(args);
}

/// Grid: a slice a block.
PLUM_KERNEL(plum_norm_blocks, NormArgs, 256, 4) {
  PLUM_SHARED float scratch[8];
  if (args.vectorized)
    normByBlocks<8>(args, scratch);
  else
    normByBlocks<1>(args, scratch);
}
