//===- Flash.cu - Attention of many queries, on matrix units ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has 64 queries of a sequence and one head, a warp 16 of them; all
// warps share tiles of 64 keys and values in shared memory, of which the next
// is copied while one is worked on. Softmax goes along: a row's largest score
// and sum so far, and values summed under them.
//
// Keys may be in two parts, each of a buffer of its own: latent attention has
// its own columns expanded and the others in the cache.
//
// Both products take their left operand from registers. The right operand of
// the scores is rows of keys: 16 bytes a lane, columns 8 t .. 8 t + 7 of 32, in
// the order of Skinny.cu. That of the values has keys as its inner index, so
// 8 by 8 pieces are turned over; a lane then has 8 columns of the output that
// follow each other.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kWarps = kFlashQueries / 16;

/// K32 and V32: columns of keys and values in units of 32.
template <int K32, int V32> struct Flash {
  static constexpr int kKeys = kFlashKeys;
  /// Rows in shared memory, in bytes: an odd multiple of 64, so that two rows
  /// that a quarter of a warp reads are in different banks.
  static constexpr int kKeyRow = K32 * 64 + (K32 % 2 ? 0 : 64);
  static constexpr int kValueRow = V32 * 64 + (V32 % 2 ? 0 : 64);
  static constexpr int kSlot = kKeys * (kKeyRow + kValueRow);

  const FlashArgs &args;
  int head, group, sequence;
  int64_t firstRow, rows;      ///< Queries of the block.
  int64_t firstPosition, keys; ///< Of its first query; that its last sees.
  const char *own, *shared, *values;
  uint32_t query[K32][2][4];
  float sum[V32][4][4], largest[2], total[2];

  PLUM_INLINE explicit Flash(const FlashArgs &args) : args(args) {}

  PLUM_INLINE bool start() {
    const int tile = int(blockX() / args.heads);
    head = int(blockX() % args.heads);
    group = head / (args.heads / args.groups);
    sequence = args.tiles[2 * tile];
    firstRow = args.tiles[2 * tile + 1];
    rows =
        smaller(int64_t(kFlashQueries), args.begins[sequence + 1] - firstRow);
    firstPosition = args.position[firstRow];
    keys = firstPosition + rows;
    const char *cache = reinterpret_cast<const char *>(args.caches[sequence]);
    const char *wide =
        args.expanded ? static_cast<const char *>(args.expanded) +
                            args.expandedBegin[sequence] * args.ownStride * 2
                      : cache;
    own = wide + (args.ownBegin + int64_t(group) * args.ownGroup) * 2;
    values = wide + (args.valueBegin + int64_t(group) * args.valueGroup) * 2;
    shared = cache + args.sharedBegin * 2;
    return true;
  }

  /// Keys and values from `first` on, to shared memory.
  PLUM_INLINE void fetch(int64_t first, char *slot) const {
    constexpr int units = (K32 + V32) * 4; // Of 16 bytes, in a row of both.
    if (first < keys)
      for (int i = threadIndex(); i < kKeys * units; i += kWarps * kWarp) {
        const int row = i / units, unit = i % units;
        const bool there = first + row < keys;
        const int64_t key = there ? first + row : 0;
        const char *from;
        char *to = slot;
        if (unit < K32 * 4) {
          const bool mine = unit * 8 < args.ownDim;
          from = mine ? own + key * args.ownStride * 2 + unit * 16
                      : shared + key * args.sharedStride * 2 +
                            (unit * 8 - args.ownDim) * 2;
          to += row * kKeyRow + unit * 16;
        } else {
          from = values + key * args.ownStride * 2 + (unit - K32 * 4) * 16;
          to += kKeys * kKeyRow + row * kValueRow + (unit - K32 * 4) * 16;
        }
        copyAsync(to, from, there);
      }
    commitCopies();
  }

  PLUM_INLINE static Bytes16 read(const char *from) {
    return *reinterpret_cast<const Bytes16 *>(from);
  }

  PLUM_INLINE void readQueries() {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row =
          firstRow + smaller(int64_t(warp() * 16 + half * 8 + g), rows - 1);
#pragma unroll
      for (int k = 0; k < K32; ++k) {
        float x[8];
        load<8>(args.q, row, int64_t(head) * K32 * 32 + k * 32 + 8 * t, x);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          query[k][j][half] = narrowPair(x[4 * j], x[4 * j + 1]);
          query[k][j][half + 2] = narrowPair(x[4 * j + 2], x[4 * j + 3]);
        }
      }
    }
  }

  /// A tile of keys: scores, then values.
  PLUM_INLINE void step(int64_t first, const char *slot) {
    const int g = lane() / 4, t = lane() % 4;
    float score[kKeys / 8][4];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        score[n][i] = 0;
#pragma unroll
      for (int k = 0; k < K32; ++k) {
        const Bytes16 b = read(slot + (8 * n + g) * kKeyRow + k * 64 + t * 16);
        multiplyAdd(score[n], query[k][0], b.word[0], b.word[1]);
        multiplyAdd(score[n], query[k][1], b.word[2], b.word[3]);
      }
    }
    float keep[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t seen =
          firstPosition +
          smaller(int64_t(warp() * 16 + half * 8 + g), rows - 1);
      float now = largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float &x = score[n][2 * half + i];
          x = first + 8 * n + 2 * t + i <= seen ? x * args.scale
                                                : -__builtin_inff();
          now = larger(now, x);
        }
      now = larger(now, shuffleXor(now, 1));
      now = larger(now, shuffleXor(now, 2));
      keep[half] = exp2Fast((largest[half] - now) * 1.44269504f);
      largest[half] = now;
      total[half] *= keep[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float &x = score[n][2 * half + i];
          x = exp2Fast((x - now) * 1.44269504f);
          total[half] += x;
        }
    }
#pragma unroll
    for (int v = 0; v < V32; ++v)
#pragma unroll
      for (int w = 0; w < 4; ++w)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum[v][w][i] *= keep[i / 2];
    const char *from = slot + kKeys * kKeyRow;
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      const uint32_t weights[4] = {
          narrowPair(score[2 * n][0], score[2 * n][1]),
          narrowPair(score[2 * n][2], score[2 * n][3]),
          narrowPair(score[2 * n + 1][0], score[2 * n + 1][1]),
          narrowPair(score[2 * n + 1][2], score[2 * n + 1][3])};
#pragma unroll
      for (int v = 0; v < V32; ++v) {
        const Bytes16 low =
            read(from + (16 * n + g) * kValueRow + v * 64 + t * 16);
        const Bytes16 high =
            read(from + (16 * n + 8 + g) * kValueRow + v * 64 + t * 16);
#pragma unroll
        for (int w = 0; w < 4; ++w)
          multiplyAdd(sum[v][w], weights, transpose(low.word[w]),
                      transpose(high.word[w]));
      }
    }
  }

  PLUM_INLINE void finish() const {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = total[half];
      all += shuffleXor(all, 1);
      all += shuffleXor(all, 2);
      const int64_t row = warp() * 16 + half * 8 + g;
#pragma unroll
      for (int v = 0; v < V32; ++v) {
        float y[8];
#pragma unroll
        for (int w = 0; w < 4; ++w)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            y[2 * w + i] = sum[v][w][2 * half + i] / all;
        if (row < rows)
          store<8>(args.y, firstRow + row,
                   int64_t(head) * V32 * 32 + v * 32 + 8 * t, y);
      }
    }
  }

  PLUM_INLINE void run() {
    start();
    readQueries();
#pragma unroll
    for (int v = 0; v < V32; ++v)
#pragma unroll
      for (int w = 0; w < 4; ++w)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum[v][w][i] = 0;
    for (int half = 0; half < 2; ++half) {
      largest[half] = -3e38f; // A difference of two of them is a number.
      total[half] = 0;
    }
    char *slots = sharedMemory();
    fetch(0, slots);
    for (int64_t first = 0, tile = 0; first < keys; first += kKeys, ++tile) {
      fetch(first + kKeys, slots + (tile + 1) % 2 * kSlot);
      waitForCopies<1>();
      barrier();
      step(first, slots + tile % 2 * kSlot);
      barrier(); // The next copies replace this tile.
    }
    finish();
  }
};

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

// Grid: tiles of queries, heads the faster.
#define PLUM_FLASH(KEYS, VALUES, BLOCKS)                                       \
  PLUM_KERNEL(plum_flash_##KEYS##_##VALUES, FlashArgs, kWarps * 32, BLOCKS) {  \
    Flash<KEYS / 32, VALUES / 32>(args).run();                                 \
  }

PLUM_FLASH(32, 32, 2)
PLUM_FLASH(64, 64, 2)
PLUM_FLASH(128, 128, 2)
PLUM_FLASH(192, 128, 2) // Of 256 and 256 it would spill.
