//===- DeviceVerb.cpp - plum-run device: which GPU there is ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Device.h"
#include "runtime/tool/Common.h"

#include <fmt/format.h>

namespace plum::runtime::tool {

static int device(int ordinal) {
  Result<std::shared_ptr<const cuda::Device>> opened =
      cuda::Device::open(ordinal);
  if (!opened)
    return fail(opened.error(), fmt::format("GPU {}", ordinal));
  const cuda::Device &gpu = **opened;
  int version = gpu.driver().version;
  fmt::print("{}\n  {}, {} SMs, {:.1f} GiB, L2 {} MiB, {} B shared a block\n"
             "  driver for CUDA {}.{}\n",
             gpu.name, gpu.architecture(), gpu.processors,
             double(gpu.memoryBytes) / double(1 << 30), gpu.l2Bytes >> 20,
             gpu.sharedBytes, version / 1000, version % 1000 / 10);
  return 0;
}

void addDevice(CLI::App &app, int &exitCode) {
  CLI::App *verb =
      app.add_subcommand("device", "Print the GPU, or why there is none");
  auto ordinal = std::make_shared<int>(0);
  verb->add_option("--gpu", *ordinal,
                   "Its number among those that the driver "
                   "shows")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->callback([ordinal, &exitCode] { exitCode = device(*ordinal); });
}

} // namespace plum::runtime::tool
