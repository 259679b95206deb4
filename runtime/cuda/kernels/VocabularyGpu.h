//===- VocabularyGpu.h - The kernels' words on a GPU ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each word as a builtin of clang or as the instruction itself. Everything here
// exists on sm_80; PTX for it runs on all later GPUs.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYGPU_H
#define PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYGPU_H

#define PLUM_KERNEL(NAME, ARGS, THREADS, BLOCKS)                               \
  extern "C" __attribute__((global))                                           \
  __attribute__((launch_bounds(THREADS, BLOCKS))) void                         \
  NAME(const ARGS args)
/// Memory of a block, of a size that is known; only inside a kernel.
#define PLUM_SHARED static __attribute__((shared))

#pragma clang force_cuda_host_device begin
namespace plum::kernels {

inline int threadIndex() { return int(__nvvm_read_ptx_sreg_tid_x()); }
inline int64_t blockX() { return int64_t(__nvvm_read_ptx_sreg_ctaid_x()); }
inline int blockY() { return int(__nvvm_read_ptx_sreg_ctaid_y()); }
inline int64_t gridX() { return int64_t(__nvvm_read_ptx_sreg_nctaid_x()); }

/// All threads of the block.
inline void barrier() { __syncthreads(); }

constexpr uint32_t kAllLanes = 0xffffffff;
inline uint32_t shuffleXor(uint32_t x, int mask) {
  return uint32_t(
      __nvvm_shfl_sync_bfly_i32(kAllLanes, int(x), mask, /*clamp=*/31));
}
inline uint32_t shuffle(uint32_t x, int from) {
  return uint32_t(
      __nvvm_shfl_sync_idx_i32(kAllLanes, int(x), from, /*clamp=*/31));
}
inline float shuffleXor(float x, int mask) {
  return __builtin_bit_cast(float,
                            shuffleXor(__builtin_bit_cast(uint32_t, x), mask));
}
/// The lanes that bring the same number.
inline uint32_t sameLanes(uint32_t x) {
  return uint32_t(__nvvm_match_any_sync_i32(kAllLanes, int(x)));
}
inline uint32_t ballot(bool x) { return __nvvm_vote_ballot_sync(kAllLanes, x); }

/// The largest and the smallest of a warp.
inline uint32_t warpMax(uint32_t x) {
  return uint32_t(__nvvm_redux_sync_umax(x, int(kAllLanes)));
}
inline uint32_t warpMin(uint32_t x) {
  return uint32_t(__nvvm_redux_sync_umin(x, int(kAllLanes)));
}
/// The lanes of a warp see each other's writes to shared memory.
inline void warpBarrier() { __nvvm_bar_warp_sync(kAllLanes); }

/// Approximations of the hardware: 2^x to 2 ulp, 1 / x and x^-1/2 to 1 ulp.
inline float exp2Fast(float x) { return __nvvm_ex2_approx_ftz_f(x); }
inline float reciprocal(float x) { return __nvvm_rcp_approx_ftz_f(x); }
inline float rsqrtFast(float x) { return __nvvm_rsqrt_approx_ftz_f(x); }

/// Two numbers rounded to bf16, `low` in the low half.
inline uint32_t narrowPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Products of two bf16 by two, each with one rounding, subnormals included.
inline uint32_t multiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(product)
      : "r"(a), "r"(b), "r"(0x80008000u)); // - 0 keeps the sign of a zero.
  return product;
}

/// Of a warp: c += a b^T, a [16, 16] and b [8, 16] of bf16, c [16, 8] of f32.
/// Lane 4 g + t has, two adjacent columns in a register:
///   a   rows g, g + 8, g, g + 8, columns 2 t, 2 t, 2 t + 8, 2 t + 8
///   b   row g, columns 2 t, 2 t + 8
///   c   row g, columns 2 t, 2 t + 1, then row g + 8
inline void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Of a warp: an 8 by 8 matrix of 16-bit elements, lane 4 g + t with columns
/// 2 t, 2 t + 1 of row g, turned over.
inline uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

inline uint32_t sharedAddress(const void *pointer) {
  return uint32_t(reinterpret_cast<uintptr_t>(
      (const __attribute__((address_space(3))) void *)pointer));
}

/// Of a warp: four 8 by 8 matrices of 16-bit elements from shared memory, lane
/// 8 m + r with the address of row r of matrix m, 16-byte aligned. Lane 4 g + t
/// gets columns 2 t, 2 t + 1 of row g of each, or, transposed, of column g rows
/// 2 t, 2 t + 1.
inline void loadMatrices(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
               "{%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row))
               : "memory");
}
inline void loadMatricesTransposed(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
               "{%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row))
               : "memory");
}

/// What a launch has asked for beyond PLUM_SHARED, 16-byte aligned.
inline char *sharedMemory() {
  extern __attribute__((shared))
  __attribute__((aligned(16))) char plumDynamic[];
  return plumDynamic;
}

/// 16 bytes to shared memory, later; zeros where there is nothing to copy, when
/// `from` may be any valid address.
inline void copyAsync(void *to, const void *from, bool there = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(sharedAddress(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
/// Ends a group of copies of this thread.
inline void commitCopies() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
/// Waits until at most the latest N groups of this thread are in flight.
template <int N> void waitForCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYGPU_H
