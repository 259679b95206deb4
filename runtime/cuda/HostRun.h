//===- HostRun.h - A GPU run on tensors in host memory ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tools: copies the tensors of a run to the GPU, runs, copies what was
// written back. Takes the views that the CPU's executor takes, so that files,
// checks and references need not know where a layer ran. Each kernel is waited
// for, so that an error names it; the workspace starts as NaN.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_HOSTRUN_H
#define PLUM_RUNTIME_CUDA_HOSTRUN_H

#include "runtime/cuda/GpuExecutor.h"

namespace plum::runtime::cuda {

/// The tensors of a run on the GPU.
class DeviceTensors {
public:
  /// Copies every tensor of `args`, outputs as well: what kernels leave alone
  /// stays as it is. Views that share memory share it on the GPU, too.
  static Result<DeviceTensors> upload(const Device &device,
                                      const RunArgs &args);
  /// Copies outputs, final states and snapshots back.
  Status download() const;

  /// The views with device addresses.
  const RunArgs &args() const { return views; }

  /// The addresses of `args`, in lists for a launch.
  struct Pointers {
    std::vector<void *> params, inputs, initial, final, outputs, snapshots;
    GpuPointers get() const;
    const void *cuSeqlens = nullptr, *slots = nullptr, *past = nullptr;
  };
  Pointers pointers() const;

private:
  struct Region {
    const char *begin, *end; ///< In host memory.
    bool written;
    Memory memory;
  };
  void add(const TensorView &view, bool written);
  void add(const IndexView &view);
  void merge();
  Status copyIn();
  void *translate(const void *host) const;

  const Device *device = nullptr;
  RunArgs views;
  std::vector<Region> regions; ///< By address; they do not overlap.
};

class HostRunner {
public:
  static Result<HostRunner> open(const Bundle &bundle,
                                 std::shared_ptr<const Device> device);

  /// Checks `args`, then runs. With an error nothing has been written.
  Status run(const RunArgs &args, const GpuOptions &options);

  const GpuExecutor &executor() const { return gpu; }
  const Device &device() const { return gpu.device(); }

private:
  HostRunner(const Bundle &bundle, GpuExecutor gpu, Stream stream)
      : bundle(&bundle), gpu(std::move(gpu)), stream(std::move(stream)) {}
  Status runWithLists(const RunArgs &args, const Problem &problem,
                      const GpuOptions &options);
  Status runOnce(const RunArgs &args, const GpuOptions &options);

  const Bundle *bundle;
  GpuExecutor gpu;
  Stream stream;
};

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_HOSTRUN_H
