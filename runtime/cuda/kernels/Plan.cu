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
// Ranks are counted by warps: lanes find those of the same expert, the first
// of them notes how many there are, and a pair adds up what the warps before
// its own have noted.
//
// One block does it all where there is one chunk, as in decoding, and nothing
// between the steps leaves it. Else they are kernels; the histogram has a
// column for each expert, so that a thread per expert walks down it.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/MoeArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kWarps = kMoeChunk / kWarp;

/// Pairs of an expert in each warp of a chunk, in shared memory.
struct alignas(16) WarpCounts {
  uint8_t of[kWarps][kMoeExperts];
};

/// A thread's pair of a chunk, and the pairs of its expert.
struct Counted {
  int expert = -1, rank = 0; ///< Of its pair, if there is one.
  int pairs = 0;             ///< Of the expert that the thread stands for.
};

inline Counted count(const MoePlanArgs &args, int64_t chunk,
                     WarpCounts &counts) {
  Counted own;
  const int64_t pair = chunk * kMoeChunk + threadIndex();
  if (pair < args.pairs)
    own.expert = args.experts[pair];
  auto *all = reinterpret_cast<Bytes16 *>(&counts);
#pragma unroll
  for (int i = 0; i < int(sizeof(WarpCounts) / 16); i += kMoeChunk)
    all[i + threadIndex()] = {};
  barrier();
  const uint32_t same = sameLanes(uint32_t(own.expert));
  own.rank = __builtin_popcount(same & ((1u << lane()) - 1));
  if (own.expert >= 0 && own.rank == 0)
    counts.of[warp()][own.expert] = uint8_t(__builtin_popcount(same));
  barrier();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    own.pairs += counts.of[w][threadIndex()];
    if (w < warp() && own.expert >= 0)
      own.rank += counts.of[w][own.expert];
  }
  return own;
}

/// In place of each number the sum of those of all threads before this one.
/// `scratch` is shared, 32 numbers for each.
template <int N> void sumsBefore(int (&x)[N], int32_t *scratch) {
  int sum[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    sum[i] = x[i];
    for (int step = 1; step < kWarp; step *= 2) {
      int other = int(shuffle(uint32_t(sum[i]), larger(lane() - step, 0)));
      sum[i] += lane() >= step ? other : 0;
    }
    if (lane() == kWarp - 1)
      scratch[i * kWarp + warp()] = sum[i];
  }
  barrier();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    uint32_t before =
        lane() < warp() ? uint32_t(scratch[i * kWarp + lane()]) : 0;
    for (int mask = kWarp / 2; mask; mask /= 2)
      before += shuffleXor(before, mask);
    x[i] = sum[i] - x[i] + int(before);
  }
}

/// Writes the tiles of a thread's expert; where its pairs begin.
inline int layTiles(const MoePlanArgs &args, int pairs, int32_t *scratch) {
  int tiles = ceilDiv(pairs, args.tileTokens), most = args.tileTokens;
  if (args.even && tiles > 1) {
    most = panelRows(ceilDiv(pairs, tiles));
    tiles = ceilDiv(pairs, most);
  }
  const int rows = tiles ? (tiles - 1) * panelRows(most) +
                               panelRows(pairs - (tiles - 1) * most)
                         : 0;
  int before[3] = {pairs, tiles, rows};
  sumsBefore(before, scratch);
  if (threadIndex() == kMoeExperts - 1)
    *args.tileCount = before[1] + tiles;
  int tile = before[1], row = before[2];
  for (int done = 0; done < pairs; done += most, row += panelRows(most))
    args.tiles[tile++] = {threadIndex(), before[0] + done,
                          smaller(pairs - done, most), row};
  return before[0];
}

inline void offsets(const MoePlanArgs &args, int32_t *scratch) {
  constexpr int each = 16; // Reads at once.
  const bool there = threadIndex() < args.count;
  int32_t *column = args.histogram + threadIndex();
  auto read = [&](int64_t chunk, int (&number)[each]) {
#pragma unroll
    for (int i = 0; i < each; ++i)
      number[i] = there && chunk + i < args.chunks
                      ? column[(chunk + i) * args.count]
                      : 0;
  };
  int pairs = 0, number[each];
  for (int64_t chunk = 0; chunk < args.chunks; chunk += each) {
    read(chunk, number);
#pragma unroll
    for (int i = 0; i < each; ++i)
      pairs += number[i];
  }
  int position = layTiles(args, pairs, scratch);
  for (int64_t chunk = 0; chunk < args.chunks; chunk += each) {
    read(chunk, number);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (there && chunk + i < args.chunks)
        column[(chunk + i) * args.count] = position;
      position += number[i];
    }
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
  PLUM_SHARED WarpCounts counts;
  const Counted own = count(args, blockX(), counts);
  if (own.expert >= 0)
    args.ranks[blockX() * kMoeChunk + threadIndex()] = own.rank;
  if (threadIndex() < args.count)
    args.histogram[blockX() * args.count + threadIndex()] = own.pairs;
}

/// Grid: 1.
PLUM_KERNEL(plum_moe_offsets, MoePlanArgs, 1024, 1) {
  PLUM_SHARED int32_t scratch[3 * kWarp];
  offsets(args, scratch);
}

/// Grid: chunks.
PLUM_KERNEL(plum_moe_place, MoePlanArgs, 1024, 1) { place(args, blockX()); }

/// Grid: 1, for one chunk: all three.
PLUM_KERNEL(plum_moe_plan, MoePlanArgs, 1024, 1) {
  PLUM_SHARED WarpCounts counts;
  PLUM_SHARED int32_t scratch[3 * kWarp], begin[kMoeExperts];
  const Counted own = count(args, 0, counts);
  begin[threadIndex()] = layTiles(args, own.pairs, scratch);
  barrier();
  if (own.expert >= 0)
    args.order[begin[own.expert] + own.rank] = threadIndex();
}

/// Grid: tokens, then 256 threads' columns, 8 each.
PLUM_KERNEL(plum_moe_combine, MoeCombineArgs, 256, 4) { combine(args); }
