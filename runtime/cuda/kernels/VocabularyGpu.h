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
inline uint32_t ballot(bool x) { return __nvvm_vote_ballot_sync(kAllLanes, x); }

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

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_VOCABULARYGPU_H
