//===- Sgemm.cpp - What OpenBLAS needs for the same products --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/Sgemm.h"

#include "runtime/model/Blas.h"

#include <algorithm>

namespace plum::runtime::tool {

std::optional<Sgemm> Sgemm::load(const ManifestKernel &kernel, int threads) {
  if (kernel.matmuls.empty())
    return std::nullopt;
  const model::Blas *blas = model::Blas::get();
  if (!blas)
    return std::nullopt;
  Sgemm sgemm;
  sgemm.kernel = &kernel;
  sgemm.blas = blas;
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
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (const ManifestMatmul &product : kernel->matmuls)
        for (int64_t i = 0; i < product.count; ++i)
          blas->times(product.m, product.n, product.k, a, product.k, b,
                      product.n, c, product.n);
  });
}

} // namespace plum::runtime::tool
