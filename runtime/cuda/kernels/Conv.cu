//===- Conv.cu - Short causal convolution with a state ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread has N channels and walks down some rows of a sequence with the last
// width - 1 inputs in registers. Where a sequence has one new row (decoding),
// it moves the state on as well; with more, blocks that share a sequence must
// all have read the state first, so a kernel of its own moves it. Another keeps
// the state after every row elsewhere, for a roll-back.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

/// N channels from `c`, with room for W taps; fewer sit at its end.
template <int N, int W> struct Channels {
  const ConvArgs &args;
  const int64_t c;
  const int past, spare; ///< Inputs that a state holds; W - width.
  float taps[W][N], bias[N], window[W - 1][N];

  Channels(const ConvArgs &args, int64_t c)
      : args(args), c(c), past(args.width - 1), spare(W - args.width) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      bias[i] = 0;
    if (args.bias)
      load<N>(args.bias, Type::F32, c, bias);
#pragma unroll
    for (int j = 0; j < W; ++j) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        taps[j][i] = 0;
      if (j >= spare)
        load<N>(args.taps, Type::F32, (j - spare) * args.channels + c, taps[j]);
    }
  }

  /// Input number `at` of sequence `s`, counted from its first new row.
  void input(int64_t s, int64_t at, float *to) const {
    if (at >= 0) {
      load<N>(args.x, args.begins[s] + at, c, to);
    } else if (at >= -past && args.slots[s] >= 0) {
      load<N>(args.states, at + past, args.slots[s] * args.slotStride + c, to);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i)
        to[i] = 0;
    }
  }

  /// Ready for row `at` of sequence `s`.
  void start(int64_t s, int64_t at) {
#pragma unroll
    for (int j = 0; j < W - 1; ++j) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        window[j][i] = 0;
      if (j >= spare)
        input(s, at - (W - 1) + j, window[j]);
    }
  }

  void row(int64_t row) {
    float x[N], y[N];
    load<N>(args.x, row, c, x);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      y[i] = bias[i];
#pragma unroll
      for (int j = 0; j < W - 1; ++j)
        y[i] = __builtin_fmaf(taps[j][i], window[j][i], y[i]);
      y[i] = __builtin_fmaf(taps[W - 1][i], x[i], y[i]);
      if (args.activate)
        y[i] = silu(y[i]);
#pragma unroll
      for (int j = 0; j + 1 < W - 1; ++j)
        window[j][i] = window[j + 1][i];
      window[W - 2][i] = x[i];
    }
    store<N>(args.y, row, c, y);
  }

  void keep(const Rows &states, int64_t slot) const {
#pragma unroll
    for (int j = 0; j < W - 1; ++j)
      if (j >= spare)
        store<N>(states, j - spare, slot * args.slotStride + c, window[j]);
  }
};

constexpr int kRows = 16; ///< Of a block in plum_conv.

/// The last sequence that begins at or before `row`.
inline int64_t sequenceOf(const ConvArgs &args, int64_t row) {
  int64_t low = 0, high = args.sequences; // begins[low] <= row < begins[high]
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    (args.begins[middle] <= row ? low : high) = middle;
  }
  return low;
}

template <int N> int64_t channel() {
  return (int64_t(blockY()) * 256 + threadIndex()) * N;
}

template <int N, int W> void convRows(const ConvArgs &args) {
  int64_t c = channel<N>(), row = blockX() * kRows;
  if (c >= args.channels)
    return;
  Channels<N, W> own(args, c);
  int64_t end = smaller(row + kRows, args.rows), s = sequenceOf(args, row);
  for (bool first = true; row < end; ++row, first = false) {
    bool next = row >= args.begins[s + 1];
    while (row >= args.begins[s + 1]) // Sequences may be empty.
      ++s;
    if (first || next)
      own.start(s, row - args.begins[s]);
    own.row(row);
  }
}

template <int N, int W> void convStates(const ConvArgs &args) {
  int64_t c = channel<N>(), s = blockX();
  int64_t length = args.begins[s + 1] - args.begins[s];
  if (c >= args.channels || args.slots[s] < 0 || length == 0)
    return;
  Channels<N, W> own(args, c);
  own.start(s, length);
  own.keep(args.states, args.slots[s]);
}

template <int N, int W> void convKept(const ConvArgs &args) {
  int64_t c = channel<N>(), row = blockX(), s = sequenceOf(args, row);
  if (c >= args.channels || args.places[row] < 0)
    return;
  Channels<N, W> own(args, c);
  own.start(s, row - args.begins[s] + 1);
  own.keep(args.kept, args.places[row]);
}

template <int N, int W> void convStep(const ConvArgs &args) {
  int64_t c = channel<N>(), s = blockX();
  if (c >= args.channels || args.begins[s + 1] == args.begins[s])
    return;
  Channels<N, W> own(args, c);
  own.start(s, 0);
  own.row(args.begins[s]);
  if (args.slots[s] >= 0)
    own.keep(args.states, args.slots[s]);
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

/// Grid: 16 rows a block, then 256 threads' channels. Leaves states alone.
PLUM_KERNEL(plum_conv, ConvArgs, 256, 1) {
  if (args.vectorized && args.width == 4)
    convRows<8, 4>(args);
  else
    convRows<1, kMaxConvWidth>(args);
}

/// Grid: sequences, then channels. After plum_conv.
PLUM_KERNEL(plum_conv_states, ConvArgs, 256, 1) {
  if (args.vectorized && args.width == 4)
    convStates<8, 4>(args);
  else
    convStates<1, kMaxConvWidth>(args);
}

/// Grid: rows, then channels. After plum_conv, in the place of
/// plum_conv_states.
PLUM_KERNEL(plum_conv_kept, ConvArgs, 256, 1) {
  if (args.vectorized && args.width == 4)
    convKept<8, 4>(args);
  else
    convKept<1, kMaxConvWidth>(args);
}

/// Grid: sequences, of one row each or none, then channels.
PLUM_KERNEL(plum_conv_step, ConvArgs, 256, 1) {
  if (args.vectorized && args.width == 4)
    convStep<8, 4>(args);
  else
    convStep<1, kMaxConvWidth>(args);
}
