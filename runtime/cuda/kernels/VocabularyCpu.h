//===- VocabularyCpu.h - The kernels' words on a CPU ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tests only. What a thread must know of others is defined by
// test/unit/kernels/Cta.cpp, which runs a block's threads as fibers.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYCPU_H
#define PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYCPU_H

#include <cmath>

namespace plum::kernels {

/// A kernel as a test's driver finds it.
struct Entry {
  const char *symbol;
  void (*body)(const void *args);
  size_t argumentBytes;
  int threads;
};
/// Makes a kernel known; for the variables of PLUM_KERNEL.
bool enlist(const Entry &entry);

#define PLUM_KERNEL(NAME, ARGS, THREADS, BLOCKS)                               \
  static void NAME(const ARGS &args);                                          \
  [[maybe_unused]] static const bool NAME##_enlisted =                         \
      ::plum::kernels::enlist(                                                 \
          {#NAME,                                                              \
           [](const void *args) { NAME(*static_cast<const ARGS *>(args)); },   \
           sizeof(ARGS), THREADS});                                            \
  static void NAME(const ARGS &args)
// One block runs at a time, all of it in one thread.
#define PLUM_SHARED static

int threadIndex();
int64_t blockX();
int blockY();
int64_t gridX();
void barrier();

uint32_t shuffleXor(uint32_t x, int mask);
uint32_t shuffle(uint32_t x, int from);
uint32_t ballot(bool x);
uint32_t sameLanes(uint32_t x);
inline float shuffleXor(float x, int mask) {
  return __builtin_bit_cast(float,
                            shuffleXor(__builtin_bit_cast(uint32_t, x), mask));
}

uint32_t warpMax(uint32_t x);
uint32_t warpMin(uint32_t x);
void warpBarrier();

// Of a warp, on registers (VocabularyGpu.h says who has what).
void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                 uint32_t b1);
uint32_t transpose(uint32_t x);
void loadMatrices(uint32_t (&to)[4], const void *row);
void loadMatricesTransposed(uint32_t (&to)[4], const void *row);

/// Filled with NaN when a block starts.
char *sharedMemory();
// Copies are made when they are waited for; until then there is NaN.
void copyAsync(void *to, const void *from, bool there = true);
void commitCopies();
void waitForCopies(int inFlight);
template <int N> void waitForCopies() { waitForCopies(N); }

inline float exp2Fast(float x) { return std::exp2(x); }
inline float reciprocal(float x) { return 1.0f / x; }
inline float rsqrtFast(float x) { return 1.0f / std::sqrt(x); }

inline uint32_t narrowOne(float x) {
  uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if (x != x)
    return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t narrowPair(float low, float high) {
  return narrowOne(low) | narrowOne(high) << 16;
}

inline float widenHalf(uint32_t pair, int half) {
  return __builtin_bit_cast(float, pair >> 16 * half << 16);
}
inline uint32_t multiplyPairs(uint32_t a, uint32_t b) {
  return narrowPair(widenHalf(a, 0) * widenHalf(b, 0),
                    widenHalf(a, 1) * widenHalf(b, 1));
}

} // namespace plum::kernels

#endif // PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYCPU_H
