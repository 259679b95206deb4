//===- Machine.h - A GPU as the backend uses it -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A device, one stream, its kernels, cuBLASLt, and the first error, after which
// nothing is done any more. Everything is enqueued on the stream; copyOut
// waits.
//
// The driver and cuBLASLt are opened at run time, so a test can have its own:
// its driver runs the same kernels thread by thread on the CPU, in memory of
// the program, and its products are loops. So all of a model's way through a
// GPU is run and compared with expected logits where there is none. Compiled
// memory layers are PTX that such a driver cannot run; `openMemory` says what
// stands for them.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_GPU_MACHINE_H
#define PLUM_RUNTIME_MODEL_GPU_MACHINE_H

#include "runtime/cuda/Ops.h"
#include "runtime/model/Memory.h"
#include "runtime/model/gpu/CublasLt.h"

#include <functional>

namespace plum::model {

class Machine {
public:
  static Result<std::unique_ptr<Machine>> open(int ordinal = 0);

  const runtime::cuda::Device &device() const { return *gpu; }
  const std::shared_ptr<const runtime::cuda::Device> &shared() const {
    return gpu;
  }
  const runtime::cuda::Driver &driver() const { return gpu->driver(); }
  const runtime::cuda::Kernels &kernels() const { return *library; }
  runtime::cuda::CUstream stream() const { return lane.get(); }

  Status status() const;
  bool good() const { return !failure; }
  /// Keeps the first error; false when there is one.
  bool then(const Status &status);
  bool then(const char *call, runtime::cuda::CUresult result);

  void *allocate(size_t bytes);
  void release(void *block);
  void copyIn(void *to, const void *from, size_t bytes);
  void copyOut(void *to, const void *from, size_t bytes);
  void copy(void *to, const void *from, size_t bytes);
  void clear(void *block, size_t bytes);
  void wait();
  /// Memory of this program that copies are fastest to.
  const std::shared_ptr<HostMemory> &pinned() const { return pages; }
  /// Bytes read and written in a second by a large copy; 0 with an error.
  double copyRate();

  template <typename Args>
  void launch(const char *kernel, int64_t gridX, const Args &args,
              int64_t gridY = 1, int sharedBytes = 0) {
    run(kernel, [&] {
      return library->launch(lane.get(), kernel, {gridX, gridY}, args,
                             sharedBytes);
    });
  }
  void multiply(const Gemm &gemm);
  /// Enqueues by `enqueue`, under a name for `times`.
  void run(const std::string &name, const std::function<Status()> &enqueue);

  /// With it on, every operation is timed and waited for; for no recording.
  bool timing = false;
  struct Time {
    int64_t count = 0;
    double ms = 0;
  };
  std::map<std::string, Time> times;

  /// What is enqueued from here to `finish` is recorded, not done.
  void record();
  std::shared_ptr<const runtime::cuda::Graph> finish();
  void replay(const runtime::cuda::Graph &graph);

private:
  Machine() = default;
  std::shared_ptr<const runtime::cuda::Device> gpu;
  std::unique_ptr<runtime::cuda::Kernels> library;
  std::unique_ptr<CublasLt> blas;
  std::shared_ptr<HostMemory> pages;
  runtime::cuda::Stream lane;
  runtime::cuda::Event start, end; ///< Of an operation that is timed.
  std::optional<Error> failure;
};

/// A layer of a bundle that `plum compile MODEL --target` made, as a memory
/// whose runs are enqueued.
Result<std::shared_ptr<MemoryKernel>> openGpuMemory(Machine &machine,
                                                    const std::string &bundle,
                                                    const MemorySpec &spec,
                                                    Compute compute);

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_GPU_MACHINE_H
