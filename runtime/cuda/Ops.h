//===- Ops.h - Norms, activations, convolutions on a GPU --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What happens to a row by itself, and the short convolution, as launches.
// Their arithmetic is that of runtime/model (Elementwise.h, Conv.h): f32
// within, bf16 points where the arguments say so. Each checks its arguments,
// chooses the grid and enqueues one kernel or two; nothing allocates, waits or
// reads the device, so all of it can be captured. Addresses are device
// addresses.
//
// Storage may be f32 or bf16, mixed as one likes. Where widths, strides and
// addresses allow 16-byte accesses they are used.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_OPS_H
#define PLUM_RUNTIME_CUDA_OPS_H

#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/kernels/Args.h"

namespace plum::runtime::cuda {

inline kernels::Rows rowsAt(CUdeviceptr address, int64_t stride,
                            kernels::Type type = kernels::Type::BF16) {
  return {reinterpret_cast<void *>(address), stride, type};
}
inline kernels::Vector vectorAt(CUdeviceptr address,
                                kernels::Type type = kernels::Type::F32) {
  return {reinterpret_cast<const void *>(address), type};
}

/// RMSNorm, LayerNorm, gated and per-head norms.
Status normalize(const Kernels &kernels, CUstream stream,
                 kernels::NormArgs args);

/// Activations, gates, sums, changes of type.
Status elementwise(const Kernels &kernels, CUstream stream,
                   kernels::ElementwiseArgs args);

/// Rows of an embedding.
Status gather(const Kernels &kernels, CUstream stream,
              kernels::GatherArgs args);

/// The convolution, and the states moved on. `longest` is the most rows of one
/// sequence, which the host knows.
Status convolve(const Kernels &kernels, CUstream stream, kernels::ConvArgs args,
                int64_t longest);

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_OPS_H
