//===- Elementwise.cu - Activations, gates, gather --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arithmetic is f32 with one rounding, at the store.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Activations.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

inline float combine(const ElementwiseArgs &args, float x, float u) {
  switch (args.op) {
  case Elementwise::Copy:
    return x;
  case Elementwise::Add:
    return x + u;
  case Elementwise::SiLUTimes:
    return silu(x) * u;
  case Elementwise::SiTU:
    return situ(x, u, args.beta, args.lambda);
  case Elementwise::Gelu:
    return 0.5f * x * (1.0f + erfAccurate(x * 0.707106781f));
  case Elementwise::GeluTanh:
    return 0.5f * x *
           (1.0f + tanhAccurate(0.797884561f * (x + 0.044715f * x * x * x)));
  case Elementwise::TimesSigmoid:
  case Elementwise::TimesSigmoidRow: {
    float gate = sigmoid(u);
    return x * (args.roundGate ? roundToBf16(gate) : gate);
  }
  }
  return x;
}

template <int N> void elementwise(const ElementwiseArgs &args) {
  int64_t row = blockX();
  int64_t c = (int64_t(blockY()) * 256 + threadIndex()) * N;
  if (c >= args.width)
    return;
  float x[N], u[N] = {};
  load<N>(args.x, row, c, x);
  if (args.op == Elementwise::TimesSigmoidRow) {
    load<1>(args.u, row, 0, u);
#pragma unroll
    for (int i = 1; i < N; ++i)
      u[i] = u[0];
  } else if (args.u.data) {
    load<N>(args.u, row, c, u);
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    x[i] = combine(args, x[i], u[i]);
  store<N>(args.y, row, c, x);
}

template <int N> void gather(const GatherArgs &args) {
  int64_t row = blockX();
  int64_t c = (int64_t(blockY()) * 256 + threadIndex()) * N;
  if (c >= args.width)
    return;
  int64_t id = args.ids[row];
  float x[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    x[i] = __builtin_nanf("");
  if (id >= 0 && id < args.tableRows)
    load<N>(args.table, id, c, x);
  store<N>(args.y, row, c, x);
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

/// Grid: rows, then 256 threads' columns.
PLUM_KERNEL(plum_elementwise, ElementwiseArgs, 256, 4) {
  if (args.vectorized)
    elementwise<8>(args);
  else
    elementwise<1>(args);
}

/// Grid: rows, then 256 threads' columns.
PLUM_KERNEL(plum_gather, GatherArgs, 256, 4) {
  if (args.vectorized)
    gather<8>(args);
  else
    gather<1>(args);
}
