//===- Runner.cpp - A bundle, run where it was compiled for ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/Runner.h"

namespace plum::runtime::tool {

cuda::GpuOptions gpuOptions(const RunOptions &options) {
  return {options.form, options.chunk, options.segments};
}

Result<Runner> Runner::open(const Bundle &bundle, int gpu) {
  Runner runner;
  runner.executor = std::make_unique<Executor>(bundle);
  if (!bundle.manifest().onGpu())
    return runner;
  Result<std::shared_ptr<const cuda::Device>> device = cuda::Device::open(gpu);
  if (!device) {
    Error error = device.error();
    if (error.where.empty())
      error.where = bundle.directory();
    return error;
  }
  Result<cuda::HostRunner> host = cuda::HostRunner::open(bundle, *device);
  if (!host)
    return host.error();
  runner.onGpu.emplace(std::move(*host));
  return runner;
}

Status Runner::run(const RunArgs &args, const RunOptions &options) {
  return onGpu ? onGpu->run(args, gpuOptions(options))
               : executor->run(args, options);
}

} // namespace plum::runtime::tool
