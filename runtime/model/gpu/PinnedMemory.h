//===- PinnedMemory.h - Pages that the GPU copies to directly ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Logits of 64 sequences and 163,840 tokens are 42 MB a step. Into pages that
// are new each time the driver copies them through a buffer of its own, and
// every page faults: twice the time of the step itself. Pinned pages cost much
// to get and nothing to keep, so blocks that come back are taken again.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_GPU_PINNEDMEMORY_H
#define PLUM_RUNTIME_MODEL_GPU_PINNEDMEMORY_H

#include "runtime/cuda/Device.h"
#include "runtime/model/Tensor.h"

namespace plum::model {

/// Blocks of up to 64 MB; of all that are not in use, as much is kept.
std::shared_ptr<HostMemory>
pinnedMemory(std::shared_ptr<const runtime::cuda::Device> device);

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_GPU_PINNEDMEMORY_H
