//===- Mixture.cu - Rotations, parts of heads, mixtures ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is left of a model's way with rows, one block a row.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

namespace plum::kernels {

constexpr int kThreads = 256;

PLUM_KERNEL(plum_rotate, RotateArgs, kThreads, 1) {
  const int64_t row = blockX();
  const int half = args.dims / 2;
  const float *table = args.table + int64_t(args.position[row]) * half * 2;
  for (int i = threadIndex(); i < args.heads * half; i += kThreads) {
    const int head = i / half, c = i % half;
    const int64_t at = int64_t(head) * args.width + c;
    const float cosine = table[2 * c], sine = table[2 * c + 1];
    float a, b;
    load<1>(args.x, row, at, &a);
    load<1>(args.x, row, at + half, &b);
    const float turned = a * cosine - b * sine;
    const float other = b * cosine + a * sine;
    store<1>(args.x, row, at, &turned);
    store<1>(args.x, row, at + half, &other);
  }
}

PLUM_KERNEL(plum_pick, PickArgs, kThreads, 1) {
  const int64_t row = blockX();
  const int64_t width = int64_t(args.heads) * args.width;
  for (int64_t c = threadIndex(); c < width; c += kThreads) {
    float value;
    load<1>(args.x, row,
            c / args.width * args.stride + args.begin + c % args.width, &value);
    store<1>(args.y, row, c, &value);
  }
}

/// A warp scores a source; then every thread mixes its columns.
PLUM_KERNEL(plum_mixture, MixtureArgs, kThreads, 1) {
  PLUM_SHARED float scores[kMaxSources];
  const int64_t row = blockX();
  for (int s = warp(); s < args.count; s += kThreads / kWarp) {
    float squares = 0, dot = 0;
    for (int c = lane(); c < args.width; c += kWarp) {
      float x;
      load<1>(args.sources[s], row, c, &x);
      squares += x * x;
      dot += x * args.mixer[c];
    }
    squares = warpSum(squares);
    dot = warpSum(dot);
    if (lane() == 0)
      scores[s] = dot * rsqrtFast(squares / float(args.width) + 1e-5f);
  }
  barrier();
  float largest = scores[0], sum = 0;
  for (int s = 1; s < args.count; ++s)
    largest = larger(largest, scores[s]);
  for (int s = 0; s < args.count; ++s)
    sum += expAccurate(scores[s] - largest);
  for (int c = threadIndex(); c < args.width; c += kThreads) {
    float mixed = 0;
    for (int s = 0; s < args.count; ++s) {
      float x;
      load<1>(args.sources[s], row, c, &x);
      mixed += expAccurate(scores[s] - largest) / sum * x;
    }
    store<1>(args.y, row, c, &mixed);
  }
}

#pragma clang force_cuda_host_device begin
/// A number that looks random, from where it is.
static uint32_t scramble(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return uint32_t(x >> 32);
}
#pragma clang force_cuda_host_device end

PLUM_KERNEL(plum_fill, FillArgs, kThreads, 1) {
  const int64_t step = gridX() * kThreads;
  for (int64_t i = blockX() * kThreads + threadIndex(); i < args.count;
       i += step) {
    const uint32_t bits = scramble(uint64_t(i) + (uint64_t(args.seed) << 40));
    if (args.kind == WeightKind::MXFP4) {
      static_cast<uint8_t *>(args.data)[i] =
          args.scales ? uint8_t(119 + bits % 3) : uint8_t(bits);
      continue;
    }
    // Flat in [-sqrt 3, sqrt 3] has a spread of 1.
    const float value = (float(bits) * 0x1p-31f - 1) * 1.7320508f * args.spread;
    store<1>(args.data, args.kind == WeightKind::F32 ? Type::F32 : Type::BF16,
             i, &value);
  }
}

} // namespace plum::kernels
