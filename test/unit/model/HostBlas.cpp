//===- HostBlas.cpp - A cuBLASLt of loops -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Named by PLUM_LIBCUBLASLT, beside a driver whose memory is the program's.
// Matrices are by columns, as the library has them; only what the runtime asks
// for is there: a transposed, b and c not, c is d. A product is a host function
// of its stream, so that it is recorded where launches are.
//
//===----------------------------------------------------------------------===//

#include "plum/Support/DType.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <mutex>

namespace {

enum : int { success = 0, invalidValue = 7, notSupported = 15 };
constexpr uint64_t algorithmMark = 0x706c756d;

struct Layout {
  int type;
  int64_t rows, cols, ld;
  double at(const void *data, int64_t row, int64_t col) const {
    int64_t i = col * ld + row;
    return type == 0 ? double(static_cast<const float *>(data)[i])
                     : double(plum::bf16ToFloat(
                           static_cast<const uint16_t *>(data)[i]));
  }
};
struct Desc {
  int compute = 0, transposeA = 0;
};

struct Product {
  Layout a, b, d;
  const void *aData, *bData;
  void *out;
  bool onto;
};

void run(void *data) {
  const Product &p = *static_cast<Product *>(data);
  for (int64_t m = 0; m < p.b.cols; ++m)
    for (int64_t n = 0; n < p.a.cols; ++n) {
      int64_t to = m * p.d.ld + n;
      double sum = p.onto ? p.d.at(p.out, n, m) : 0;
      for (int64_t k = 0; k < p.a.rows; ++k)
        sum += p.a.at(p.aData, k, n) * p.b.at(p.bData, k, m);
      if (p.d.type == 0)
        static_cast<float *>(p.out)[to] = float(sum);
      else
        static_cast<uint16_t *>(p.out)[to] = plum::floatToBf16(float(sum));
    }
}

} // namespace

extern "C" {

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int status;
  float waves;
  int reserved[4];
};

int cublasLtCreate(void **handle) {
  *handle = new int;
  return success;
}
int cublasLtDestroy(void *handle) {
  delete static_cast<int *>(handle);
  return success;
}
int cublasLtMatmulDescCreate(void **desc, int compute, int scale) {
  *desc = new Desc{compute, 0};
  return compute == 68 && scale == 0 ? success : notSupported;
}
int cublasLtMatmulDescDestroy(void *desc) {
  delete static_cast<Desc *>(desc);
  return success;
}
int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value,
                                   size_t size) {
  if (attribute != 3 || size != sizeof(int))
    return invalidValue;
  std::memcpy(&static_cast<Desc *>(desc)->transposeA, value, size);
  return success;
}
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows,
                               uint64_t cols, int64_t ld) {
  *layout = new Layout{type, int64_t(rows), int64_t(cols), ld};
  return ld >= int64_t(rows) ? success : invalidValue;
}
int cublasLtMatrixLayoutDestroy(void *layout) {
  delete static_cast<Layout *>(layout);
  return success;
}
int cublasLtMatmulPreferenceCreate(void **preference) {
  *preference = new int;
  return success;
}
int cublasLtMatmulPreferenceDestroy(void *preference) {
  delete static_cast<int *>(preference);
  return success;
}
int cublasLtMatmulPreferenceSetAttribute(void *, int attribute, const void *,
                                         size_t size) {
  bool good = (attribute == 1 && size == 8) || (attribute == 3 && size == 4);
  return good ? success : invalidValue;
}
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *,
                                   void *, void *, int wanted,
                                   Heuristic *results, int *found) {
  *found = wanted;
  results[0] = {};
  results[0].algorithm[0] = algorithmMark;
  return success;
}
int cublasLtMatmul(void *, void *desc, const void *alpha, const void *a,
                   void *aLayout, const void *b, void *bLayout,
                   const void *beta, const void *c, void *cLayout, void *d,
                   void *dLayout, const void *algorithm, void *, size_t,
                   void *stream) {
  const Layout &aShape = *static_cast<Layout *>(aLayout);
  const Layout &bShape = *static_cast<Layout *>(bLayout);
  const Layout &dShape = *static_cast<Layout *>(dLayout);
  const float onto = *static_cast<const float *>(beta);
  if (static_cast<Desc *>(desc)->transposeA != 1 || c != d ||
      cLayout != dLayout || *static_cast<const float *>(alpha) != 1 ||
      (onto != 0 && onto != 1) || aShape.rows != bShape.rows ||
      aShape.cols != dShape.rows || bShape.cols != dShape.cols ||
      aShape.type != bShape.type ||
      *static_cast<const uint64_t *>(algorithm) != algorithmMark)
    return invalidValue;
  using Enqueue = int (*)(void *, void (*)(void *), void *);
  static const auto enqueue = reinterpret_cast<Enqueue>(
      dlsym(dlopen(std::getenv("PLUM_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD),
            "cuLaunchHostFunc"));
  // A recorded product is done as often as its graph: it stays.
  static std::mutex lock;
  static std::deque<Product> products;
  std::lock_guard guard(lock);
  products.push_back({aShape, bShape, dShape, a, b, d, onto == 1});
  return enqueue(stream, run, &products.back());
}

} // extern "C"
