//===- Plan.cu - Pairs by expert, and their sum at the end ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sorts pairs (token, slot) by expert, in the order of tokens, without atomics:
//
//   count    a pair's rank among its expert's pairs of a chunk; their number
//   offsets  where a chunk's pairs of an expert begin; the tiles
//   place    pairs to their positions
//
// One block does it all where there is one chunk, as in decoding. The histogram
// has a column for each expert, so that a thread per expert walks down it.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/MoeArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

/// Experts of a chunk's pairs, in shared memory; -1 behind the last.
inline void readChunk(const MoePlanArgs &args, int64_t chunk, int32_t *ids) {
  int64_t pair = chunk * kMoeChunk + threadIndex();
  ids[threadIndex()] = pair < args.pairs ? args.experts[pair] : -1;
}

inline void count(const MoePlanArgs &args, int64_t chunk, const int32_t *ids) {
  int64_t pair = chunk * kMoeChunk + threadIndex();
  int32_t *histogram = args.histogram + chunk * args.count;
  if (threadIndex() < args.count)
    histogram[threadIndex()] = 0;
  barrier();
  if (pair >= args.pairs)
    return;
  const int own = ids[threadIndex()];
  const int end =
      int(smaller<int64_t>(args.pairs - chunk * kMoeChunk, kMoeChunk));
  int before = 0, all = 0;
  struct alignas(16) Four {
    int32_t id[4];
  };
  for (int i = 0; i < end; i += 4) {
    Four four = *reinterpret_cast<const Four *>(ids + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int same = four.id[j] == own;
      all += same;
      before += i + j < threadIndex() ? same : 0;
    }
  }
  args.ranks[pair] = before;
  if (before == all - 1) // The last of its expert speaks for all.
    histogram[own] = all;
}

/// The sum of the values of all threads before this one. `scratch` is shared,
/// 32 numbers.
inline int sumBefore(int x, int32_t *scratch) {
  int sum = x;
  for (int step = 1; step < kWarp; step *= 2) {
    int other = int(shuffle(uint32_t(sum), larger(lane() - step, 0)));
    sum += lane() >= step ? other : 0;
  }
  barrier(); // `scratch` may be in use.
  if (lane() == kWarp - 1)
    scratch[warp()] = sum;
  barrier();
  for (int w = 0; w < warp(); ++w)
    sum += scratch[w];
  return sum - x;
}

inline void offsets(const MoePlanArgs &args, int32_t *scratch) {
  const int e = threadIndex();
  const bool there = e < args.count;
  int pairs = 0;
  if (there) {
#pragma unroll 8
    for (int64_t chunk = 0; chunk < args.chunks; ++chunk)
      pairs += args.histogram[chunk * args.count + e];
  }
  int position = sumBefore(pairs, scratch);
  int tiles = ceilDiv(pairs, args.tileTokens), most = args.tileTokens;
  if (args.even && tiles > 1) {
    most = panelRows(ceilDiv(pairs, tiles));
    tiles = ceilDiv(pairs, most);
  }
  int tile = sumBefore(tiles, scratch);
  int rows = tiles ? (tiles - 1) * panelRows(most) +
                         panelRows(pairs - (tiles - 1) * most)
                   : 0;
  int row = sumBefore(rows, scratch);
  if (e == kMoeExperts - 1)
    *args.tileCount = tile + tiles;
  if (!there)
    return;
  for (int done = 0; done < pairs; done += most, row += panelRows(most))
    args.tiles[tile++] = {e, position + done, smaller(pairs - done, most), row};
#pragma unroll 8
  for (int64_t chunk = 0; chunk < args.chunks; ++chunk) {
    int32_t &here = args.histogram[chunk * args.count + e];
    int number = here;
    here = position;
    position += number;
  }
}

inline void place(const MoePlanArgs &args, int64_t chunk) {
  int64_t pair = chunk * kMoeChunk + threadIndex();
  if (pair < args.pairs)
    args.order[args.histogram[chunk * args.count + args.experts[pair]] +
               args.ranks[pair]] = int32_t(pair);
}

inline void combine(const MoeCombineArgs &args) {
  int64_t token = blockX();
  int64_t c = (int64_t(blockY()) * 256 + threadIndex()) * 8;
  if (c >= args.width)
    return;
  float sum[8] = {};
  for (int slot = 0; slot < args.chosen; ++slot) {
    float x[8];
    load<8>(args.x, token * args.chosen + slot, c, x);
    float weight = args.weights[token * args.chosen + slot];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sum[i] = __builtin_fmaf(weight, x[i], sum[i]);
  }
  store<8>(args.y, token, c, sum);
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

static_assert(kMoeChunk == 1024 && kMoeExperts == 1024, "a thread for each");

/// Grid: chunks.
PLUM_KERNEL(plum_moe_count, MoePlanArgs, 1024, 1) {
  alignas(16) PLUM_SHARED int32_t ids[kMoeChunk];
  readChunk(args, blockX(), ids);
  count(args, blockX(), ids);
}

/// Grid: 1.
PLUM_KERNEL(plum_moe_offsets, MoePlanArgs, 1024, 1) {
  PLUM_SHARED int32_t scratch[kWarp];
  offsets(args, scratch);
}

/// Grid: chunks.
PLUM_KERNEL(plum_moe_place, MoePlanArgs, 1024, 1) { place(args, blockX()); }

/// Grid: 1, for one chunk: all three.
PLUM_KERNEL(plum_moe_plan, MoePlanArgs, 1024, 1) {
  alignas(16) PLUM_SHARED int32_t ids[kMoeChunk];
  PLUM_SHARED int32_t scratch[kWarp];
  readChunk(args, 0, ids);
  count(args, 0, ids);
  barrier();
  offsets(args, scratch);
  barrier();
  place(args, 0);
}

/// Grid: tokens, then 256 threads' columns, 8 each.
PLUM_KERNEL(plum_moe_combine, MoeCombineArgs, 256, 4) { combine(args); }
