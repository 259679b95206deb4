//===- MatrixTest.cpp - Fragments, mma and wgmma --------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelRun.h"

using namespace plum;
using namespace plum::test;

/// Copies `bytes` of `in` to shared memory as they are, `threads` threads.
static void stage(KernelRun &k, int64_t threads, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 16 * threads)
    k->store(k->load(k->vec(k.i32, 4), k->at(k.mine(k.in, 16), at)),
             k->at(k.mine(k->shared(), 16), at));
}

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//

// A [16][16] and B [n = 8][k = 16], both rows of 32 bytes; C = A B^T + 1.
TEST(Matrix, MmaMultipliesWhatLdmatrixLoads) {
  KernelRun k(80);
  stage(k, 32, 512);
  Value b = k->at(k.in, 512);
  // Tiles: rows 0-7, rows 8-15, then both for columns 8-15.
  Value row = k->bitAnd(k->lane(), 15), half = k->shr(k->lane(), 4);
  Value address = k->at(k->shared(), k->add(k->mul(row, 32), k->mul(half, 16)));
  k->syncWarp();
  Values a = k->ldmatrix4(address, false);
  Value g = k->shr(k->lane(), 2), t = k->bitAnd(k->lane(), 3);
  Value mine = k->at(b, k->add(k->mul(g, 32), k->mul(t, 4)));
  Value one = k->f32(1);
  Values c = k->mma(a, k->load(k.i32, mine), k->load(k.i32, k->at(mine, 16)),
                    {one, one, one, one});
  Value to = k->at(k.out, k->add(k->mul(g, 32), k->mul(t, 8)));
  k->store(k->vector({c[0], c[1]}), to);
  k->store(k->vector({c[2], c[3]}), k->at(to, 256));

  auto values = randomHalves(256 + 128, 1);
  k.input(values);
  ASSERT_TRUE(succeeds(k.run(32, 512, 512)));
  auto out = k.output<float>();
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t l = 0; l < 16; ++l)
        sum += double(widened(values[16 * i + l])) *
               widened(values[256 + 16 * j + l]);
      EXPECT_NEAR(out[8 * i + j], sum, 1e-5);
    }
}

// ldmatrix.trans of rows [k][m] gives the fragment of the transpose, and
// stmatrix is its inverse.
TEST(Matrix, StmatrixUndoesLdmatrix) {
  for (bool transposed : {false, true}) {
    KernelRun k;
    stage(k, 32, 512);
    k->syncWarp();
    Value from = k.mine(k->shared(), 16);
    Values tiles = k->ldmatrix4(from, transposed);
    k->stmatrix4(k->at(from, 512), tiles, transposed);
    k->syncWarp();
    k->store(k->load(k->vec(k.i32, 4), k->at(from, 512)), k.mine(k.out, 16));
    k->store(k->vector({tiles[0], tiles[1], tiles[2], tiles[3]}),
             k->at(k.mine(k.out, 16), 512));
    auto values = randomHalves(256, 2);
    k.input(values);
    ASSERT_TRUE(succeeds(k.run(32, 1024, 1024)));
    auto out = k.output<uint16_t>();
    for (size_t i = 0; i < 256; ++i)
      EXPECT_EQ(out[i], values[i]);
    for (size_t lane = 0; lane < 32; ++lane)
      for (size_t tile = 0; tile < 4; ++tile)
        for (size_t h = 0; h < 2; ++h) {
          size_t row = lane / 4, column = 2 * (lane % 4) + h;
          if (transposed)
            std::swap(row, column);
          EXPECT_EQ(out[256 + 8 * lane + 2 * tile + h],
                    values[64 * tile + 8 * row + column]);
        }
  }
}

//===----------------------------------------------------------------------===//
// wgmma
//===----------------------------------------------------------------------===//

/// Offset of byte `column` of row `row` in a panel of rows of 128 bytes,
/// swizzled.
static size_t swizzled(size_t row, size_t column) {
  return row * 128 + (column ^ (row % 8) << 4);
}

/// The descriptor of a 128-byte swizzle at a shared pointer.
static Value descriptor(KernelRun &k, Value pointer, int64_t leading,
                        int64_t stride) {
  Value start = k->shr(k->address(pointer), 4);
  Value low = mlir::arith::ExtUIOp::create(*k, k->getI64Type(), start);
  return k->bitOr(
      low, k->i64(int64_t(uint64_t(1) << 62 | uint64_t(stride >> 4) << 32 |
                          uint64_t(leading >> 4) << 16)));
}

/// This thread's fragment of A [64][64] (rows of 128 bytes in global memory)
/// for columns 16 step and on.
static Values fragment(KernelRun &k, Value a, int64_t step) {
  Value g = k->shr(k->lane(), 2), t = k->bitAnd(k->lane(), 3);
  Value row = k->add(k->mul(k->warp(), 16), g);
  Value at = k->at(a, k->add(k->mul(row, 128), k->mul(t, 4)));
  Values parts;
  for (int64_t part = 0; part < 4; ++part)
    parts.push_back(k->load(
        k.i32, k->at(at, 32 * step + (part & 1) * 1024 + (part >> 1) * 16)));
  return parts;
}

static void storeAccumulators(KernelRun &k, const Values &d) {
  int64_t n = 2 * int64_t(d.size());
  Value g = k->shr(k->lane(), 2), t = k->bitAnd(k->lane(), 3);
  Value row = k->add(k->mul(k->warp(), 16), g);
  Value at = k->at(k.out, k->add(k->mul(row, 4 * n), k->mul(t, 8)));
  for (int64_t j = 0; j < n / 8; ++j)
    for (int64_t half = 0; half < 2; ++half)
      k->store(k->vector({d[size_t(4 * j + 2 * half)],
                          d[size_t(4 * j + 2 * half + 1)]}),
               k->at(at, 32 * j + 8 * half * 4 * n));
}

/// A [64][64] B [64][n] in both orders of B, in a chain of four, twice around a
/// loop, so that the sum is twice the product. A from registers or, behind B,
/// from shared memory.
static void product(bool transposed, int64_t n, bool shared = false) {
  KernelRun k;
  const int64_t tile = 64 * n * 2, staged = tile + (shared ? 8192 : 0);
  stage(k, 128, staged);
  k->fenceAsync();
  k->barrier(0, 128);
  Value a = k->at(k.in, tile);
  Values zeros(size_t(n / 2), k->f32(0));
  Values d = k->loop(
      k->i32(0), k->i32(2), 1, zeros,
      [&](Value, mlir::ValueRange sums) -> Values {
        Values d(sums.begin(), sums.end());
        SmallVector<Values> parts;
        for (int64_t step = 0; step < 4; ++step)
          parts.push_back(
              shared
                  ? Values{descriptor(k, k->shared(tile + 32 * step), 16, 1024)}
                  : fragment(k, a, step));
        for (Values &part : parts)
          if (!shared)
            part = k->wgmmaFence(part);
        d = k->wgmmaFence(d);
        for (int64_t step = 0; step < 4; ++step)
          d = k->wgmma(n, d, parts[size_t(step)],
                       transposed
                           ? descriptor(k, k->shared(2048 * step), 8192, 1024)
                           : descriptor(k, k->shared(32 * step), 16, 1024),
                       /*zero=*/false, transposed);
        k->wgmmaCommit();
        return k->wgmmaWait(0, d);
      });
  storeAccumulators(k, d);

  auto A = randomHalves(64 * 64, 3), B = randomHalves(64 * size_t(n), 4);
  // B[k][n] into panels.
  std::vector<uint16_t> bytes(64 * size_t(n) + 64 * 64);
  for (size_t c = 0; c < 64; ++c)
    for (size_t j = 0; j < size_t(n); ++j) {
      size_t at = transposed ? j / 64 * 8192 + swizzled(c, j % 64 * 2)
                             : swizzled(j, c * 2);
      bytes[at / 2] = B[c * size_t(n) + j];
    }
  for (size_t i = 0; i < 64; ++i)
    for (size_t c = 0; c < 64; ++c)
      bytes[64 * size_t(n) + (shared ? swizzled(i, c * 2) / 2 : 64 * i + c)] =
          A[64 * i + c];
  k.input(bytes);
  for (uint64_t seed : {0, 1, 2, 3}) {
    k.options.seed = seed;
    ASSERT_TRUE(succeeds(k.run(128, staged, uint64_t(64 * n * 4))));
    auto out = k.output<float>();
    for (size_t i = 0; i < 64; ++i)
      for (size_t j = 0; j < size_t(n); ++j) {
        double sum = 0;
        for (size_t c = 0; c < 64; ++c)
          sum += 2.0 * widened(A[64 * i + c]) * widened(B[c * size_t(n) + j]);
        ASSERT_NEAR(out[i * size_t(n) + j], sum, 2e-4) << i << ", " << j;
      }
  }
}

TEST(Wgmma, KMajor) {
  product(false, 64);
  product(false, 128);
}
TEST(Wgmma, MnMajor) {
  product(true, 64);
  product(true, 128);
}
TEST(Wgmma, LeftOperandInSharedMemory) {
  product(false, 128, true);
  product(true, 64, true);
}
