//===- Runner.h - A bundle, run where it was compiled for -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verbs of plum-run hand over views of host memory and need not know
// whether a CPU or a GPU computes.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_RUNNER_H
#define PLUM_RUNTIME_TOOL_RUNNER_H

#include "runtime/cuda/HostRun.h"

namespace plum::runtime::tool {

class Runner {
public:
  /// For a GPU bundle, loads its kernels onto GPU number `gpu`. The bundle must
  /// outlive the runner.
  static Result<Runner> open(const Bundle &bundle, int gpu);

  Status run(const RunArgs &args, const RunOptions &options);

  /// The pool for host work; runs of a CPU bundle use it, too.
  ThreadPool &threads() { return executor->threads(); }
  /// Null when a CPU computes.
  cuda::HostRunner *gpu() { return onGpu ? &*onGpu : nullptr; }
  Executor &cpu() { return *executor; }

private:
  Runner() = default;
  std::unique_ptr<Executor> executor;
  std::optional<cuda::HostRunner> onGpu;
};

/// What the options mean to a GPU.
cuda::GpuOptions gpuOptions(const RunOptions &options);

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_RUNNER_H
