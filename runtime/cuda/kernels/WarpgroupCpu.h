//===- WarpgroupCpu.h - Hopper's words on a CPU -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tests only, like VocabularyCpu.h: test/unit/kernels/Warpgroup.cpp defines
// the words. Everything takes effect as late as it may: bulk copies when no
// thread can go on without them, products when they are waited for.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_WARPGROUPCPU_H
#define PLUM_RUNTIME_CUDA_KERNELS_WARPGROUPCPU_H

namespace plum::kernels {

using Signal = uint64_t;

void initSignal(Signal *signal, int arrivals);
inline void publishSignals() {}
void arrive(Signal *signal);
void arriveExpecting(Signal *signal, int bytes);
void waitFor(Signal *signal, int parity);
void copyBulk(void *to, const void *from, int bytes, Signal *signal);

void groupBarrier(int id);
template <int Registers> void takeRegisters() {}
template <int Registers> void giveRegisters() {}

void multiplyLater(float *c, int tokens, const uint32_t (&a)[4], const void *b);
template <int Tokens>
void multiplyWide(float (&c)[Tokens / 2], const uint32_t (&a)[4],
                  const void *b) {
  multiplyLater(c, Tokens, a, b);
}
inline void beginProducts() {}
void commitProducts();
void waitForProducts(int inFlight);
template <int InFlight> void waitForProducts() { waitForProducts(InFlight); }
template <int Count> void settle(float (&)[Count]) {}

} // namespace plum::kernels

#endif // PLUM_RUNTIME_CUDA_KERNELS_WARPGROUPCPU_H
