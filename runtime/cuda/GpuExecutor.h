//===- GpuExecutor.h - Runs a bundle on a GPU -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Once per shape, `plan` checks everything and works out the launches. A launch
// then fills in addresses and calls the driver: it allocates nothing, waits for
// nothing, reads no device memory, and may be captured into a graph. Memory,
// streams and the order of launches are the caller's.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_GPUEXECUTOR_H
#define PLUM_RUNTIME_CUDA_GPUEXECUTOR_H

#include "runtime/cuda/LaunchPlan.h"
#include "runtime/cuda/Module.h"

namespace plum::runtime::cuda {

/// Device addresses of one launch, each list in the manifest's order. A list of
/// states may be null: zeros, or not wanted. Of a plan with rowTables, final
/// growing states are the tables.
struct GpuPointers {
  const void *const *params = nullptr;
  const void *const *inputs = nullptr;
  const void *const *initialStates = nullptr;
  void *const *finalStates = nullptr;
  void *const *outputs = nullptr;
  void *const *snapshots = nullptr;
  const void *cuSeqlens = nullptr; ///< For a plan of packed sequences.
  const void *slots = nullptr;     ///< For a plan with a pool.
  const void *past = nullptr;      ///< For a plan with it.
};

/// Launches of one shape. Immutable, so threads may share it; the executor must
/// outlive it.
class GpuPlan {
public:
  GpuPlan(LaunchPlan plan, const Manifest &manifest, const Module &module)
      : contents(std::move(plan)), manifest(&manifest), module(&module) {}

  const LaunchPlan &plan() const { return contents; }
  uint64_t workspaceBytes() const { return contents.workspace.bytes; }

  /// Enqueues the run on `stream`. `workspace` is 256-byte aligned and of
  /// workspaceBytes() or more; launches that may overlap need one each.
  Status launch(const GpuPointers &pointers, void *workspace, uint64_t bytes,
                CUstream stream) const;

  /// The two halves of it: what kernels get, and one of plan().launches, for
  /// those who look at each kernel on its own.
  Status bind(const GpuPointers &pointers, void *workspace, uint64_t bytes,
              plum_gpu_args &args) const;
  Status enqueue(size_t launch, plum_gpu_args &args, CUstream stream) const;
  /// Whether a run with `args` takes this launch.
  bool takes(size_t launch, const plum_gpu_args &args) const;
  const ManifestKernel &kernel(size_t launch) const {
    return manifest->kernels[contents.launches[launch].kernel];
  }

private:
  LaunchPlan contents;
  const Manifest *manifest;
  const Module *module;
};

class GpuExecutor {
public:
  /// Loads the kernels; the bundle must outlive the executor.
  static Result<GpuExecutor> open(const Bundle &bundle,
                                  std::shared_ptr<const Device> device);

  const Device &device() const { return module->device(); }
  CodeSource codeSource() const { return module->source(); }

  /// `args` holds device addresses or nulls; of cuSeqlens and slots only
  /// whether they are given, dtype and count matter.
  Result<GpuPlan> plan(const RunArgs &args, const GpuOptions &options) const;

private:
  GpuExecutor() = default;
  const Bundle *bundle = nullptr;
  std::unique_ptr<const Module> module; ///< Plans point to it.
};

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_GPUEXECUTOR_H
