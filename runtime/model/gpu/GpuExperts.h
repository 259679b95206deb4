//===- GpuExperts.h - The experts of a layer on a GPU -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_GPU_GPUEXPERTS_H
#define PLUM_RUNTIME_MODEL_GPU_GPUEXPERTS_H

#include "runtime/model/Experts.h"
#include "runtime/model/gpu/GpuBackend.h"

namespace plum::model {

/// One matrix of every expert, one after the other; their addresses are in
/// device memory, too.
struct GpuBackend::ResidentExperts {
  struct Stack {
    const void *data = nullptr;
    const uint8_t *scales = nullptr;
    kernels::WeightKind kind = kernels::WeightKind::F32;
    const uint64_t *list = nullptr, *scaleList = nullptr;
    int64_t bytes = 0; ///< Of one expert's matrix, scales included.
  };
  Stack gate, up, down;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_GPU_GPUEXPERTS_H
