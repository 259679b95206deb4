//===- Sgemm.cpp - What OpenBLAS needs for the same products --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/Sgemm.h"

#include <cstdlib>
#include <dlfcn.h>

#include <algorithm>

namespace plum::runtime::tool {

/// OpenBLAS takes a CPU newer than itself for the oldest one it knows, at a
/// third of the speed. Unless the user has chosen, name the kernels that the
/// CPU can run, so that the comparison is a fair one.
static void chooseKernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    setenv("OPENBLAS_CORETYPE", "SKYLAKEX", /*overwrite=*/0);
  else if (__builtin_cpu_supports("avx2"))
    setenv("OPENBLAS_CORETYPE", "HASWELL", /*overwrite=*/0);
#endif
}

std::optional<Sgemm> Sgemm::load(const ManifestKernel &kernel, int threads) {
  if (kernel.matmuls.empty())
    return std::nullopt;
  chooseKernels();
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return std::nullopt;
  Sgemm sgemm;
  sgemm.kernel = &kernel;
  sgemm.function = reinterpret_cast<Function>(dlsym(library, "cblas_sgemm"));
  auto setThreads = reinterpret_cast<void (*)(int)>(
      dlsym(library, "openblas_set_num_threads"));
  if (!sgemm.function || !setThreads)
    return std::nullopt;
  setThreads(1); // Each of our threads calls it for itself.
  for (const ManifestMatmul &m : kernel.matmuls)
    sgemm.largest = std::max({sgemm.largest, size_t(m.m * m.k),
                              size_t(m.k * m.n), size_t(m.m * m.n)});
  sgemm.buffers.resize(size_t(threads));
  for (AlignedBuffer &buffer : sgemm.buffers) {
    if (!buffer.reserve(3 * sgemm.largest * sizeof(float)))
      return std::nullopt;
    std::fill_n(reinterpret_cast<float *>(buffer.data()), 3 * sgemm.largest,
                0.01f);
  }
  return sgemm;
}

void Sgemm::run(ThreadPool &pool, int threads, int64_t pairs, int64_t chunks) {
  pool.run(threads, pairs, [&](int thread, int64_t) {
    auto *a = reinterpret_cast<float *>(buffers[size_t(thread)].data());
    float *b = a + largest, *c = b + largest;
    constexpr int rowMajor = 101, noTranspose = 111;
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (const ManifestMatmul &product : kernel->matmuls)
        for (int64_t i = 0; i < product.count; ++i) {
          int m = int(product.m), n = int(product.n), k = int(product.k);
          function(rowMajor, noTranspose, noTranspose, m, n, k, 1, a, k, b, n,
                   0, c, n);
        }
  });
}

} // namespace plum::runtime::tool
