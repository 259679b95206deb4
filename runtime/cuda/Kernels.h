//===- Kernels.h - The runtime's own device kernels -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bundles bring the kernels of memory layers. What a model has around them is
// compiled when Plum is built (runtime/cuda/kernels), and the library carries
// the PTX as text: one module for each source file. A module is loaded when the
// first of its kernels is launched, through the cache of Code.h; `load` does it
// for all, which has to happen before a stream is captured. Kernels that are
// for one architecture alone (sm_90a) are not there on another GPU.
//
// A launch is a kernel's name, a grid and one struct. The block's size and the
// struct's are in the PTX: a caller cannot get the one wrong, and a wrong
// struct is an error, not a kernel that reads beyond it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_KERNELS_H
#define PLUM_RUNTIME_CUDA_KERNELS_H

#include "runtime/cuda/Code.h"

#include <map>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

namespace plum::runtime::cuda {

/// The PTX of one source file.
struct KernelText {
  const char *name; ///< "Norms".
  const char *ptx;
};
std::span<const KernelText> kernelTexts();

struct Grid {
  int64_t x = 1, y = 1;
};

class Kernels {
public:
  explicit Kernels(std::shared_ptr<const Device> device);
  const Device &device() const { return *gpu; }

  /// Every module, onto the device.
  Status load() const;

  /// Enqueues blocks of the kernel's own size with `sharedBytes` of memory
  /// beyond what the kernel declares. An empty grid is no launch.
  template <typename Args>
  Status launch(CUstream stream, const std::string &kernel, Grid grid,
                const Args &args, int sharedBytes = 0) const {
    static_assert(std::is_trivially_copyable_v<Args>);
    return launch(stream, kernel, grid, sharedBytes, &args, sizeof(Args));
  }

  /// Its threads in a block; 0 for a name that no kernel has.
  int threads(const std::string &kernel) const;

private:
  struct Kernel {
    size_t text = 0;          ///< In kernelTexts().
    size_t argumentBytes = 0; ///< Of its one struct.
    int threads = 0;
    mutable CUfunction function = nullptr;
    mutable int granted = 48 << 10; ///< Shared bytes it may ask for.
  };

  Status launch(CUstream stream, const std::string &kernel, Grid grid,
                int sharedBytes, const void *args, size_t bytes) const;
  Status find(const std::string &name, const Kernel &kernel) const;

  std::shared_ptr<const Device> gpu;
  std::map<std::string, Kernel> kernels;
  mutable std::mutex mutex; ///< Of what is loaded as it is needed.
  mutable std::vector<Owned<CUmodule>> modules;
};

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_KERNELS_H
