//===- Latent.cu - Latent attention of single queries -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decoding with multi-head latent attention: all heads of a token read the same
// cache rows, whole ones as keys and their first columns as values. So heads
// are the rows of matrix products, and a block has 32 of them, one query and a
// share of its keys: what plum_attend reads once for a head is read once
// for 32. Shares depend on the number of keys alone, and plum_attend_combine
// adds them up. For tiles of 64 keys, of which the next is copied meanwhile:
//
//   scores    [32, 64]     a warp has a quarter of the columns, of half of the
//                          keys: its part of the queries stays in registers,
//                          and each key is read once. The four parts of a score
//                          meet in shared memory
//   softmax                8 threads a head: largest score and sum so far
//   values    [32, latent] a warp has an eighth of the columns, of all keys
//
// A block has nearly all registers and shared memory of a multiprocessor: 64
// sums and 72 words of queries a thread, two tiles of 73 KiB. Rows are an odd
// multiple of 16 bytes apart, so that the 8 rows of a loadMatrices are in
// different banks.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kKeys = kLatentKeys, kHeads = kLatentHeads;
constexpr int kParts = kLatentParts; ///< Of the columns of a score.
constexpr float kLog2e = 1.44269504f;

struct alignas(8) Pair {
  float x, y;
};
struct alignas(8) Narrow4 {
  uint32_t low, high;
};

template <int L, int P> struct Latent {
  static constexpr int kColumns = L + P;
  static constexpr int kSteps = kColumns / 16 / kParts; ///< Of a part.
  static constexpr int kOwn = L / kWarps / 16; ///< Columns of a warp, by 16.
  static constexpr int kRow = latentRow(kColumns), kTile = kKeys * kRow;
  static_assert(kColumns % (16 * kParts) == 0 && L % (16 * kWarps) == 0);
  static_assert(kHeads * 8 == kThreads && kWarps == 2 * kParts);

  const AttendArgs &args;
  int64_t row;
  int split, firstHead, begin, end; ///< Keys of this share.
  const char *cache;
  char *tiles, *weights; ///< weights: bf16 [kHeads, kKeys].
  float *parts, *keeps;  ///< [kParts, kHeads, kKeys]; [kHeads].
  uint32_t query[kSteps][2][4];
  float sum[2][2 * kOwn][4], largest, total; ///< The latter of head tid / 8.

  PLUM_INLINE explicit Latent(const AttendArgs &args) : args(args) {
    const int groups = ceilDiv(args.heads, kHeads);
    split = int(blockX() % args.splits);
    firstHead = int(blockX() / args.splits % groups) * kHeads;
    row = blockX() / args.splits / groups;
    const int keys = args.position[row] + 1;
    const int share =
        ceilDiv(ceilDiv(keys, int(args.splits)), kAttendKeys) * kAttendKeys;
    begin = share * split;
    end = smaller(begin + share, keys);
    cache = reinterpret_cast<const char *>(args.caches[args.sequence[row]]);
    tiles = sharedMemory();
    parts = reinterpret_cast<float *>(tiles + 2 * kTile);
    weights = reinterpret_cast<char *>(parts + kParts * kHeads * kLatentPart);
    keeps = reinterpret_cast<float *>(weights + kHeads * kLatentWeights);
  }

  /// Where (acc, largest, sum) of a head of the block go; it may have none.
  PLUM_INLINE float *result(int head) const {
    return args.partial +
           ((row * args.heads + firstHead + head) * args.splits + split) *
               (L + 2);
  }
  PLUM_INLINE bool has(int head) const { return firstHead + head < args.heads; }

  /// 8 threads a key, each with every eighth 16 bytes of it.
  PLUM_INLINE void fetch(int first, char *tile) const {
    static_assert(kColumns % 64 == 0 && kKeys % (kThreads / 8) == 0);
#pragma unroll
    for (int more = 0; more < kKeys; more += kThreads / 8) {
      const int key = threadIndex() / 8 + more, unit = threadIndex() % 8 * 16;
      const bool there = first + key < end;
      const char *from =
          cache + (there ? first + key : 0) * args.cacheStride * 2 + unit;
      char *to = tile + key * kRow + unit;
      if (first < end)
#pragma unroll
        for (int line = 0; line < kColumns * 2; line += 128)
          copyAsync(to + line, from + line, there);
    }
    commitCopies();
  }

  /// Columns of this warp's part, as left operands.
  PLUM_INLINE void readQueries() {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int head =
            smaller(firstHead + m * 16 + half * 8 + g, int(args.heads) - 1);
        const float *from = static_cast<const float *>(args.q.data) +
                            row * args.q.stride + int64_t(head) * kColumns +
                            warp() % kParts * (16 * kSteps) + 2 * t;
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
#pragma unroll
          for (int later = 0; later < 2; ++later) {
            const Pair x =
                *reinterpret_cast<const Pair *>(from + 16 * k + 8 * later);
            query[k][m][2 * later + half] = narrowPair(x.x, x.y);
          }
      }
  }

  PLUM_INLINE void scores(const char *tile) const {
    const int part = warp() % kParts, half = warp() / kParts;
    // Matrices of 8 keys: columns 0, 8; then the next 8 keys.
    const char *from = tile +
                       (half * 32 + lane() % 8 + lane() / 16 * 8) * kRow +
                       (part * 16 * kSteps + lane() / 8 % 2 * 8) * 2;
    float score[2][4][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          score[m][n][i] = 0;
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        uint32_t b[4];
        loadMatrices(b, from + n * 16 * kRow + k * 32);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiplyAdd(score[m][2 * n], query[k][m], b[0], b[1]);
          multiplyAdd(score[m][2 * n + 1], query[k][m], b[2], b[3]);
        }
      }
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          *reinterpret_cast<Pair *>(
              parts + (part * kHeads + m * 16 + i * 8 + g) * kLatentPart +
              half * 32 + n * 8 +
              2 * t) = {score[m][n][2 * i], score[m][n][2 * i + 1]};
  }

  /// Of 64 keys, `count` are there.
  PLUM_INLINE void softmax(int count) {
    const int head = threadIndex() / 8, first = threadIndex() % 8 * 4;
    float x[2][4], now = largest;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[half][i] = 0;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const Bytes16 own = *reinterpret_cast<const Bytes16 *>(
            parts + (part * kHeads + head) * kLatentPart + half * 32 + first);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[half][i] += __builtin_bit_cast(float, own.word[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[half][i] = half * 32 + first + i < count ? x[half][i] * args.scale
                                                   : -__builtin_inff();
        now = larger(now, x[half][i]);
      }
    }
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2)
      now = larger(now, shuffleXor(now, mask));
    const float keep = exp2Fast((largest - now) * kLog2e);
    largest = now;
    total *= keep;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[half][i] = exp2Fast((x[half][i] - now) * kLog2e);
        total += x[half][i];
      }
      *reinterpret_cast<Narrow4 *>(weights + head * kLatentWeights +
                                   (half * 32 + first) * 2) = {
          narrowPair(x[half][0], x[half][1]),
          narrowPair(x[half][2], x[half][3])};
    }
    if (first == 0)
      keeps[head] = keep;
  }

  PLUM_INLINE void values(const char *tile) {
    const int g = lane() / 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float keep = keeps[m * 16 + half * 8 + g];
#pragma unroll
        for (int n = 0; n < 2 * kOwn; ++n) {
          sum[m][n][2 * half] *= keep;
          sum[m][n][2 * half + 1] *= keep;
        }
      }
    // Matrices of 8 rows: the next 8 rows; then columns 8 on.
    const int down = lane() % 16, across = lane() / 16 * 16;
    const char *weight = weights + down * kLatentWeights + across;
    const char *from = tile + down * kRow + warp() * (kOwn * 32) + across;
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)
        loadMatrices(a[m], weight + m * 16 * kLatentWeights + k * 32);
#pragma unroll
      for (int n = 0; n < kOwn; ++n) {
        uint32_t b[4];
        loadMatricesTransposed(b, from + k * 16 * kRow + n * 32);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiplyAdd(sum[m][2 * n], a[m], b[0], b[1]);
          multiplyAdd(sum[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  PLUM_INLINE void finish() {
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2)
      total += shuffleXor(total, mask);
    if (threadIndex() % 8 == 0 && has(threadIndex() / 8)) {
      float *to = result(threadIndex() / 8);
      to[L] = largest;
      to[L + 1] = total;
    }
    if (begin >= end) // Nobody reads sums under no weight.
      return;
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int head = m * 16 + half * 8 + g;
        if (!has(head))
          continue;
        float *to = result(head) + warp() * (kOwn * 16) + 2 * t;
#pragma unroll
        for (int n = 0; n < 2 * kOwn; ++n)
          *reinterpret_cast<Pair *>(to + n * 8) = {sum[m][n][2 * half],
                                                   sum[m][n][2 * half + 1]};
      }
  }

  PLUM_INLINE void run() {
    largest = -__builtin_inff();
    total = 0;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 2 * kOwn; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum[m][n][i] = 0;
    if (begin < end) {
      fetch(begin, tiles);
      readQueries();
    }
    int turn = 0;
    for (int first = begin; first < end; first += kKeys, turn ^= 1) {
      const char *tile = tiles + turn * kTile;
      waitForCopies<0>();
      barrier(); // The tile is there, and the one before it done with.
      fetch(first + kKeys, tiles + (turn ^ 1) * kTile);
      scores(tile);
      barrier();
      softmax(smaller(kKeys, end - first));
      barrier();
      values(tile);
    }
    finish();
  }
};

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

/// Grid: rows, then 32 heads, then splits, the fastest. Queries are f32, caches
/// bf16 with rows of whole 16 bytes.
PLUM_KERNEL(plum_latent_512_64, AttendArgs, kThreads, 1) {
  Latent<512, 64>(args).run();
}
