//===- Sgemm.h - What OpenBLAS needs for the same products ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A yardstick for a chunk kernel: the time OpenBLAS's sgemm takes for nothing
// but the matrix products that the manifest lists, in f32, on the same threads.
// OpenBLAS is loaded when it is there (runtime/model/Blas.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_SGEMM_H
#define PLUM_RUNTIME_TOOL_SGEMM_H

#include "runtime/Manifest.h"
#include "runtime/ThreadPool.h"

#include <optional>

namespace plum::model {
struct Blas;
}

namespace plum::runtime::tool {

class Sgemm {
public:
  /// Nothing when there is no OpenBLAS, or no products are listed.
  static std::optional<Sgemm> load(const ManifestKernel &kernel, int threads);

  /// The products of `chunks` chunks for each of `pairs` pairs.
  void run(ThreadPool &pool, int threads, int64_t pairs, int64_t chunks);

private:
  const model::Blas *blas = nullptr;
  const ManifestKernel *kernel = nullptr;
  /// One for each thread: a, b and c, each large enough for every product.
  std::vector<AlignedBuffer> buffers;
  size_t largest = 0; ///< Floats of each.
};

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_SGEMM_H
