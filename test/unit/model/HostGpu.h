//===- HostGpu.h - The GPU backend on the CPU -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_MODEL_HOSTGPU_H
#define PLUM_TEST_UNIT_MODEL_HOSTGPU_H

#include "runtime/model/gpu/GpuBackend.h"

namespace plum::model::test {

/// A backend whose GPU is the driver of test/unit/kernels and whose memories
/// are those of the CPU, of `bundle` or interpreted.
std::shared_ptr<GpuBackend> hostGpu(GpuBackendOptions options = {});

} // namespace plum::model::test

#endif // PLUM_TEST_UNIT_MODEL_HOSTGPU_H
