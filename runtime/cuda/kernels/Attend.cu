//===- Attend.cu - Attention, in f32 and of any size ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has one query and one head. For 128 keys at a time each thread takes
// the score of one key, then each takes columns of the values. Exact and plain:
// it runs what the kernels on matrix units do not take, and checks them.
//
// Multi-head latent attention is the same with one group whose keys are whole
// cache rows and whose values are the first columns of them; plum_absorb turns
// queries into that space.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

namespace plum::kernels {
#pragma clang force_cuda_host_device begin
namespace {

/// The dot product of `width` values of a cache with `q`, in shared memory.
float score(const float *q, const void *cache, Type type, int64_t at,
            int width) {
  float sum = 0;
  if (width % 8 == 0 && at % 8 == 0) {
    for (int c = 0; c < width; c += 8) {
      float k[8];
      load<8>(cache, type, at + c, k);
      for (int i = 0; i < 8; ++i)
        sum += q[c + i] * k[i];
    }
    return sum;
  }
  for (int c = 0; c < width; ++c) {
    float k;
    load<1>(cache, type, at + c, &k);
    sum += q[c] * k;
  }
  return sum;
}

constexpr int kThreads = kAttendKeys;
constexpr int kColumns = kMaxValueDim / kThreads; ///< Of a thread.

} // namespace
#pragma clang force_cuda_host_device end

PLUM_KERNEL(plum_attend, AttendArgs, kAttendKeys, 4) {
  PLUM_SHARED float query[kMaxKeyDim], weight[kThreads];
  const int split = int(blockX() % args.splits);
  const int head = int(blockX() / args.splits % args.heads);
  const int64_t row = blockX() / args.splits / args.heads;
  const int thread = threadIndex(), group = head / (args.heads / args.groups);
  const int64_t keys = args.position[row] + 1;
  const void *cache =
      reinterpret_cast<const void *>(args.caches[args.sequence[row]]);

  // Which keys depends on how many there are, on nothing else.
  const int64_t share =
      ceilDiv(ceilDiv(keys, int64_t(args.splits)), int64_t(kThreads)) *
      kThreads;
  const int64_t begin = share * split, end = smaller(begin + share, keys);
  for (int c = thread; c < args.keyDim; c += kThreads)
    load<1>(args.q, row, int64_t(head) * args.keyDim + c, &query[c]);

  float largest = -__builtin_inff(), sum = 0, acc[kColumns] = {};
  for (int64_t first = begin; first < end; first += kThreads) {
    const int count = int(smaller(int64_t(kThreads), end - first));
    barrier();
    if (thread < count)
      weight[thread] = args.scale * score(query, cache, args.cacheType,
                                          (first + thread) * args.cacheStride +
                                              int64_t(group) * args.keyDim,
                                          args.keyDim);
    barrier();
    float now = largest;
    for (int j = 0; j < count; ++j)
      now = larger(now, weight[j]);
    barrier();
    if (thread < count)
      weight[thread] = expAccurate(weight[thread] - now);
    barrier();
    const float keep = expAccurate(largest - now);
    largest = now;
    sum *= keep;
    for (int j = 0; j < count; ++j)
      sum += weight[j];
    for (int i = 0; i < kColumns; ++i) {
      const int column = i * kThreads + thread;
      if (column >= args.valueDim)
        break;
      float part = 0;
      int64_t at = first * args.cacheStride + args.valueBegin +
                   int64_t(group) * args.valueDim + column;
      for (int j = 0; j < count; ++j, at += args.cacheStride) {
        float v;
        load<1>(cache, args.cacheType, at, &v);
        part += weight[j] * v;
      }
      acc[i] = acc[i] * keep + part;
    }
  }

  if (args.splits == 1) {
    for (int i = 0; i < kColumns; ++i)
      if (int column = i * kThreads + thread; column < args.valueDim) {
        float value = acc[i] / sum;
        store<1>(args.y, row, int64_t(head) * args.valueDim + column, &value);
      }
    return;
  }
  float *part = args.partial + blockX() * (args.valueDim + 2);
  for (int i = 0; i < kColumns; ++i)
    if (int column = i * kThreads + thread; column < args.valueDim)
      part[column] = acc[i];
  if (thread == 0) {
    part[args.valueDim] = largest;
    part[args.valueDim + 1] = sum;
  }
}

/// A share without keys has -inf for its largest score, and no sums.
PLUM_KERNEL(plum_attend_combine, AttendArgs, kAttendKeys, 4) {
  const int head = int(blockX() % args.heads);
  const int64_t row = blockX() / args.heads;
  const int64_t width = args.valueDim + 2;
  const float *part = args.partial + blockX() * args.splits * width;
  float largest = -__builtin_inff(), sum = 0;
  for (int s = 0; s < args.splits; ++s)
    largest = larger(largest, part[s * width + args.valueDim]);
  for (int s = 0; s < args.splits; ++s)
    sum += part[s * width + args.valueDim + 1] *
           expAccurate(part[s * width + args.valueDim] - largest);
  for (int c = threadIndex(); c < args.valueDim; c += kThreads) {
    float value = 0;
    for (int s = 0; s < args.splits; ++s)
      if (float most = part[s * width + args.valueDim]; most > -3e38f)
        value += part[s * width + c] * expAccurate(most - largest);
    value /= sum;
    store<1>(args.y, row, int64_t(head) * args.valueDim + c, &value);
  }
}

PLUM_KERNEL(plum_append, AppendArgs, 256, 1) {
  const int64_t row = blockX();
  void *cache = reinterpret_cast<void *>(args.caches[args.sequence[row]]);
  const int64_t at = args.position[row] * args.cacheStride + args.begin;
  for (int64_t c = threadIndex(); c < args.width; c += 256) {
    float value;
    load<1>(args.x, row, c, &value);
    store<1>(cache, args.cacheType, at + c, &value);
  }
}

PLUM_KERNEL(plum_absorb, AbsorbArgs, 128, 4) {
  PLUM_SHARED float query[kAbsorbRows][256];
  const int head = int(blockX() % args.heads), thread = threadIndex();
  const int64_t first = blockX() / args.heads * kAbsorbRows;
  const int count = int(smaller(int64_t(kAbsorbRows), args.rows - first));
  const int own = args.nope + args.pe, wide = args.latent + args.pe;
  const Type type = args.kind == WeightKind::F32 ? Type::F32 : Type::BF16;
  for (int r = 0; r < count; ++r) {
    for (int c = thread; c < own; c += 128) {
      float value;
      load<1>(args.q, first + r, int64_t(head) * own + c, &value);
      if (c < args.nope)
        query[r][c] = value;
      else
        store<1>(args.y, first + r,
                 int64_t(head) * wide + args.latent + c - args.nope, &value);
    }
  }
  barrier();
  const int64_t base = int64_t(head) * (args.nope + args.valueDim);
  for (int c = thread; c < args.latent; c += 128) {
    float acc[kAbsorbRows] = {};
    for (int n = 0; n < args.nope; ++n) {
      float w;
      load<1>(args.expand, type, (base + n) * args.latent + c, &w);
      for (int r = 0; r < kAbsorbRows; ++r)
        acc[r] += r < count ? query[r][n] * w : 0;
    }
    for (int r = 0; r < count; ++r)
      store<1>(args.y, first + r, int64_t(head) * wide + c, &acc[r]);
  }
}

} // namespace plum::kernels
