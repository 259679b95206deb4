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

/// With PLUM_GPU_BUNDLES=DIR, a backend on the GPU that there is, and
/// DIR/`fixture`, which `plum compile FIXTURE --target` made; else `hostGpu`,
/// and "".
std::shared_ptr<GpuBackend> someGpu(GpuBackendOptions options = {});
std::string bundleOf(const std::string &fixture);

} // namespace plum::model::test

#endif // PLUM_TEST_UNIT_MODEL_HOSTGPU_H
