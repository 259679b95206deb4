//===- Warpgroup.h - Words for Hopper's tensor cores ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// More vocabulary, for kernels of sm_90a (KernelSources.cmake lists them
// apart): products of four warps whose right operand stays in shared memory,
// bulk copies by the copy engine, and the signals that such copies and threads
// give.
//
// A panel is how products want their right operand: rows of 64 bf16, 128 bytes,
// eight of them an atom of 1024 bytes at an address that is a multiple of that.
// The 16-byte piece c of row r lies at piece c ^ r % 8.
//
// A signal counts arrivals and the bytes of copies. When all that its phase
// expects have come, the next phase begins. Whoever waits names the parity of
// the phase that has to be over: 0 for the first, and 1 returns at once before
// it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_WARPGROUP_H
#define PLUM_RUNTIME_CUDA_KERNELS_WARPGROUP_H

#include "runtime/cuda/kernels/Vocabulary.h"

namespace plum::kernels {
constexpr int kPanelColumns = 64, kPanelRowBytes = 128, kAtomBytes = 1024;
} // namespace plum::kernels

#ifdef __CUDA__
#include "runtime/cuda/kernels/WarpgroupGpu.h"
#else
#include "runtime/cuda/kernels/WarpgroupCpu.h"
#endif

namespace plum::kernels {

/// Where in its panel the piece of 16 bytes of a row is.
#pragma clang force_cuda_host_device begin
constexpr int pieceAt(int row, int piece) {
  return row * kPanelRowBytes + (piece ^ (row & 7)) * 16;
}
#pragma clang force_cuda_host_device end

} // namespace plum::kernels

#endif // PLUM_RUNTIME_CUDA_KERNELS_WARPGROUP_H
