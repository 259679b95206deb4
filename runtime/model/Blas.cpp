//===- Blas.cpp - OpenBLAS, loaded when there is one ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Blas.h"

#include <cstdlib>
#include <dlfcn.h>

namespace plum::model {

namespace {

/// OpenBLAS takes a CPU newer than itself for the oldest one it knows, at a
/// third of the speed. Unless the user has chosen, name the kernels that the
/// CPU can run.
void chooseKernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    setenv("OPENBLAS_CORETYPE", "SKYLAKEX", /*overwrite=*/0);
  else if (__builtin_cpu_supports("avx2"))
    setenv("OPENBLAS_CORETYPE", "HASWELL", /*overwrite=*/0);
#endif
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
}

Blas load() {
  Blas blas;
  chooseKernels();
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return blas;
  auto setThreads = reinterpret_cast<void (*)(int)>(
      dlsym(library, "openblas_set_num_threads"));
  if (!setThreads)
    return blas;
  setThreads(1);
  blas.sgemm = reinterpret_cast<Blas::Sgemm>(dlsym(library, "cblas_sgemm"));
  return blas;
}

constexpr int rowMajor = 101, plain = 111, transposed = 112;

} // namespace

const Blas *Blas::get() {
  static const Blas blas = load();
  return blas.sgemm ? &blas : nullptr;
}

void Blas::timesTransposed(int64_t m, int64_t n, int64_t k, const float *a,
                           int64_t lda, const float *b, int64_t ldb, float *c,
                           int64_t ldc) const {
  sgemm(rowMajor, plain, transposed, int(m), int(n), int(k), 1, a, int(lda), b,
        int(ldb), 0, c, int(ldc));
}

void Blas::times(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                 const float *b, int64_t ldb, float *c, int64_t ldc) const {
  sgemm(rowMajor, plain, plain, int(m), int(n), int(k), 1, a, int(lda), b,
        int(ldb), 0, c, int(ldc));
}

} // namespace plum::model
