//===- CublasLt.h - cuBLASLt, when there is one -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of many rows. libcublasLt.so.13 or .12 is opened at run time, or the
// library that PLUM_LIBCUBLASLT names; what little of it is used is declared
// in CublasLt.cpp.
//
// The library has many kernels for one product and would take another one for
// another number of rows, with sums in another order. Here one is chosen for
// each weight shape, as for `rowsChosenFor` rows and without splits of the sum,
// and serves any number of rows: a row's bits do not depend on how many there
// are.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_GPU_CUBLASLT_H
#define PLUM_RUNTIME_MODEL_GPU_CUBLASLT_H

#include "plum/Support/DType.h"
#include "runtime/cuda/Device.h"

#include <map>
#include <tuple>

namespace plum::model {

/// y [m, n] = x [m, k] w [n, k]^T, or y + that; sums are f32.
struct Gemm {
  DType type = DType::BF16; ///< Of x and w: BF16, or F32 (then no TF32).
  int64_t m = 0, n = 0, k = 0;
  const void *x = nullptr, *w = nullptr;
  void *y = nullptr;
  DType result = DType::F32;         ///< Of y: F32 or BF16.
  int64_t ldx = 0, ldw = 0, ldy = 0; ///< Elements from a row to the next.
  bool onto = false;
};

class CublasLt {
public:
  static Result<std::unique_ptr<CublasLt>>
  open(std::shared_ptr<const runtime::cuda::Device> device);
  ~CublasLt();

  Status multiply(const Gemm &gemm, runtime::cuda::CUstream stream);

private:
  static constexpr int64_t rowsChosenFor = 4096;
  static constexpr size_t workspaceBytes = 64 << 20;

  struct Library;
  struct Algorithm {
    uint64_t data[8];
  };
  CublasLt() = default;

  std::shared_ptr<const Library> library;
  std::shared_ptr<const runtime::cuda::Device> device;
  void *handle = nullptr;
  runtime::cuda::Memory workspace;
  std::map<
      std::tuple<DType, DType, int64_t, int64_t, int64_t, int64_t, int64_t>,
      Algorithm>
      chosen;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_GPU_CUBLASLT_H
