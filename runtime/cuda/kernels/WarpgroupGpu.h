//===- WarpgroupGpu.h - Hopper's words on a GPU -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_WARPGROUPGPU_H
#define PLUM_RUNTIME_CUDA_KERNELS_WARPGROUPGPU_H

#pragma clang force_cuda_host_device begin
namespace plum::kernels {

/// In shared memory.
using Signal = uint64_t;

inline void initSignal(Signal *signal, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(sharedAddress(signal)), "r"(arrivals)
               : "memory");
}
/// Behind the first words on signals and before the barrier after which other
/// threads and the copy engine use them.
inline void publishSignals() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}
inline void arrive(Signal *signal) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(sharedAddress(signal))
               : "memory");
}
/// An arrival, and so many bytes of copies that the phase has to see.
inline void arriveExpecting(Signal *signal, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(sharedAddress(signal)), "r"(bytes)
               : "memory");
}
inline void waitFor(Signal *signal, int parity) {
  uint32_t over;
  do
    asm volatile("{\n\t"
                 ".reg .pred over;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, over;\n\t"
                 "}"
                 : "=r"(over)
                 : "r"(sharedAddress(signal)), "r"(parity)
                 : "memory");
  while (!over);
}

/// By the copy engine, to shared memory; addresses and bytes are multiples of
/// 16. One thread says it.
inline void copyBulk(void *to, const void *from, int bytes, Signal *signal) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
               "bytes [%0], [%1], %2, [%3];"
               :
               : "r"(sharedAddress(to)), "l"(from), "r"(bytes),
                 "r"(sharedAddress(signal))
               : "memory");
}

/// All threads of a warpgroup, which has an id of its own from 1 on.
inline void groupBarrier(int id) {
  asm volatile("bar.sync %0, 128;" : : "r"(id) : "memory");
}

/// A warpgroup's registers for each thread, more or fewer than at the launch.
template <int Registers> void takeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(Registers));
}
template <int Registers> void giveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(Registers));
}

// Products of a warpgroup: c += a b^T, a [64, 16] in registers, b the 16
// columns from byte 32 k on of a panel of Tokens rows, c [64, Tokens]. Warp w
// has 16 rows of a and c, as multiplyAdd has them; column tile n in c[4 n] to
// c[4 n + 3].
//
//   beginProducts      registers of products are written
//   multiplyWide       products in order, which run while the warps go on
//   commitProducts     ends a group of them
//   waitForProducts    until at most the latest groups are under way; before
//                      it, none of their registers is read or written
//   settle             their sums, after it
inline void beginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}
inline void commitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}
template <int InFlight> void waitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;"
               :
               : "n"(InFlight)
               : "memory");
}
template <int Count> PLUM_INLINE void settle(float (&c)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i)
    asm volatile("" : "+f"(c[i]) : : "memory");
}

/// Rows of 128 bytes, swizzled; the next eight rows 1024 bytes on.
inline uint64_t panelDescriptor(const void *at) {
  constexpr uint64_t kind =
      uint64_t(1) << 62 | uint64_t(kAtomBytes / 16) << 32 | uint64_t(1) << 16;
  return kind | (sharedAddress(at) & 0x3ffff) >> 4;
}

// The registers of 16 tokens.
#define PLUM_D0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PLUM_D1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define PLUM_D2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define PLUM_D3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define PLUM_D4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define PLUM_D5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define PLUM_DH "%0, %1, %2, %3"
#define PLUM_C4(I) "+f"(c[I]), "+f"(c[I + 1]), "+f"(c[I + 2]), "+f"(c[I + 3])
#define PLUM_C8(I) PLUM_C4(I), PLUM_C4(I + 4)
#define PLUM_WIDE(TOKENS, NAMES, ...)                                          \
  template <>                                                                  \
  PLUM_INLINE void multiplyWide<TOKENS>(                                       \
      float (&c)[TOKENS / 2], const uint32_t (&a)[4], const void *b) {         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #TOKENS                   \
                 "k16.f32.bf16.bf16 {" NAMES "}, "                             \
                 "{%[a0], %[a1], %[a2], %[a3]}, %[b], 1, 1, 1, 0;"             \
                 : __VA_ARGS__                                                 \
                 : [a0] "r"(a[0]), [a1] "r"(a[1]), [a2] "r"(a[2]),             \
                   [a3] "r"(a[3]), [b] "l"(panelDescriptor(b)));               \
  }

template <int Tokens>
void multiplyWide(float (&c)[Tokens / 2], const uint32_t (&a)[4],
                  const void *b);
PLUM_WIDE(8, PLUM_DH, PLUM_C4(0))
PLUM_WIDE(16, PLUM_D0, PLUM_C8(0))
PLUM_WIDE(32, PLUM_D0 ", " PLUM_D1, PLUM_C8(0), PLUM_C8(8))
PLUM_WIDE(48, PLUM_D0 ", " PLUM_D1 ", " PLUM_D2, PLUM_C8(0), PLUM_C8(8),
          PLUM_C8(16))
PLUM_WIDE(64, PLUM_D0 ", " PLUM_D1 ", " PLUM_D2 ", " PLUM_D3, PLUM_C8(0),
          PLUM_C8(8), PLUM_C8(16), PLUM_C8(24))
PLUM_WIDE(80, PLUM_D0 ", " PLUM_D1 ", " PLUM_D2 ", " PLUM_D3 ", " PLUM_D4,
          PLUM_C8(0), PLUM_C8(8), PLUM_C8(16), PLUM_C8(24), PLUM_C8(32))
PLUM_WIDE(96,
          PLUM_D0 ", " PLUM_D1 ", " PLUM_D2 ", " PLUM_D3 ", " PLUM_D4
                  ", " PLUM_D5,
          PLUM_C8(0), PLUM_C8(8), PLUM_C8(16), PLUM_C8(24), PLUM_C8(32),
          PLUM_C8(40))

#undef PLUM_WIDE
#undef PLUM_D0
#undef PLUM_D1
#undef PLUM_D2
#undef PLUM_D3
#undef PLUM_D4
#undef PLUM_D5
#undef PLUM_DH
#undef PLUM_C4
#undef PLUM_C8

} // namespace plum::kernels
#pragma clang force_cuda_host_device end

#endif // PLUM_RUNTIME_CUDA_KERNELS_WARPGROUPGPU_H
