//===- Gpu.cpp - The GPU of this machine ------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "plum/Target/GpuChip.h"
#include "runtime/cuda/Driver.h"

using namespace plum;
using namespace plum::tool;
using namespace plum::runtime::cuda;

static Error noDevice(const std::string &why) {
  return Error{"--target",
               "no CUDA device: " + why,
               {"'plum compile' needs none: --target sm_80 or sm_90a names the "
                "GPU to compile for"}};
}

std::optional<GpuHere> plum::tool::gpuHere() {
  Result<std::shared_ptr<const Driver>> opened = Driver::open();
  Result<std::string> target = targetOfThisGpu();
  if (!opened || !target)
    return std::nullopt;
  const Driver &driver = **opened;
  CUdevice device = 0;
  char name[256] = "";
  int processors = 0;
  if (driver.cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      driver.cuDeviceGetName(name, sizeof name, device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&processors,
                                  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                  device) != CUDA_SUCCESS)
    return std::nullopt;
  return GpuHere{*target, name, processors};
}

Result<std::string> plum::tool::targetOfThisGpu() {
  Result<std::shared_ptr<const Driver>> opened = Driver::open();
  if (!opened)
    return noDevice(opened.error().message);
  const Driver &driver = **opened;
  int count = 0, major = 0, minor = 0;
  CUdevice device = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0 ||
      driver.cuDeviceGet(&device, 0) != CUDA_SUCCESS)
    return noDevice("the driver shows none");
  driver.cuDeviceGetAttribute(
      &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  driver.cuDeviceGetAttribute(
      &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (const GpuChip *chip = gpuChipFor(major, minor))
    return std::string(chip->name);
  return noDevice("GPU 0 has compute capability " + std::to_string(major) +
                  "." + std::to_string(minor) + ", kernels need 8.0");
}
