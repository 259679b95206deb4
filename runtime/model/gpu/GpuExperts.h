//===- GpuExperts.h - The experts of a layer on a GPU -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_GPU_GPUEXPERTS_H
#define PLUM_RUNTIME_MODEL_GPU_GPUEXPERTS_H

#include "runtime/cuda/Moe.h"
#include "runtime/model/Experts.h"
#include "runtime/model/gpu/GpuBackend.h"

namespace plum::model {

struct GpuBackend::Stack {
  kernels::WeightKind kind = kernels::WeightKind::F32;
  const uint64_t *list = nullptr, *scaleList = nullptr; ///< On the device.
};

/// In bf16 compute experts are packed for the kernels of Moe.h. In f32 they are
/// as they were read, and run one by one with a list of their addresses.
struct GpuBackend::ResidentExperts {
  Stack gate, up, down;
  runtime::cuda::MoeLayer packed;
  int64_t bytes = 0; ///< Of one expert.
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_GPU_GPUEXPERTS_H
