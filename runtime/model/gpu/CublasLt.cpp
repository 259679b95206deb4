//===- CublasLt.cpp - cuBLASLt, when there is one -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/CublasLt.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace plum::model {

using runtime::cuda::CUstream;

namespace {

// Handles are pointers; these are the enumerators that we pass.
using Handle = void *;
enum : int {
  CUDA_R_32F = 0,
  CUDA_R_16BF = 14,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_OP_T = 1,
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
};

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int status;
  float waves;
  int reserved[4];
};

#define PLUM_CUBLASLT_FUNCTIONS(F)                                             \
  F(cublasLtCreate, (Handle * handle))                                         \
  F(cublasLtDestroy, (Handle handle))                                          \
  F(cublasLtMatmulDescCreate, (Handle * desc, int compute, int scale))         \
  F(cublasLtMatmulDescDestroy, (Handle desc))                                  \
  F(cublasLtMatmulDescSetAttribute,                                            \
    (Handle desc, int attribute, const void *value, size_t size))              \
  F(cublasLtMatrixLayoutCreate,                                                \
    (Handle * layout, int type, uint64_t rows, uint64_t cols, int64_t ld))     \
  F(cublasLtMatrixLayoutDestroy, (Handle layout))                              \
  F(cublasLtMatmulPreferenceCreate, (Handle * preference))                     \
  F(cublasLtMatmulPreferenceDestroy, (Handle preference))                      \
  F(cublasLtMatmulPreferenceSetAttribute,                                      \
    (Handle preference, int attribute, const void *value, size_t size))        \
  F(cublasLtMatmulAlgoGetHeuristic,                                            \
    (Handle handle, Handle desc, Handle a, Handle b, Handle c, Handle d,       \
     Handle preference, int wanted, Heuristic *results, int *found))           \
  F(cublasLtMatmul,                                                            \
    (Handle handle, Handle desc, const void *alpha, const void *a,             \
     Handle aLayout, const void *b, Handle bLayout, const void *beta,          \
     const void *c, Handle cLayout, void *d, Handle dLayout,                   \
     const void *algorithm, void *workspace, size_t workspaceBytes,            \
     CUstream stream))

} // namespace

struct CublasLt::Library {
#define PLUM_FUNCTION(NAME, PARAMETERS) int(*NAME) PARAMETERS = nullptr;
  PLUM_CUBLASLT_FUNCTIONS(PLUM_FUNCTION)
#undef PLUM_FUNCTION
};

static Status check(const char *call, int status) {
  if (status == 0)
    return Status::ok();
  return Error{
      "", std::string(call) + ": cuBLAS status " + std::to_string(status), {}};
}

Result<std::unique_ptr<CublasLt>>
CublasLt::open(std::shared_ptr<const runtime::cuda::Device> device) {
  const char *given = std::getenv("PLUM_LIBCUBLASLT");
  void *file = nullptr;
  if (given && *given) {
    file = dlopen(given, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  } else {
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
      if (!file)
        file = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (!file)
    return Error{"",
                 std::string("there is no cuBLASLt: ") + dlerror(),
                 {"models on a GPU need libcublasLt.so.12 or .13, of CUDA's "
                  "toolkit or of Python's nvidia-cublas package; "
                  "PLUM_LIBCUBLASLT or LD_LIBRARY_PATH says where it is"}};
  auto library = std::make_shared<Library>();
  const char *missing = nullptr;
#define PLUM_FUNCTION(NAME, PARAMETERS)                                        \
  library->NAME = reinterpret_cast<int(*) PARAMETERS>(dlsym(file, #NAME));     \
  if (!library->NAME && !missing)                                              \
    missing = #NAME;
  PLUM_CUBLASLT_FUNCTIONS(PLUM_FUNCTION)
#undef PLUM_FUNCTION
  if (missing)
    return Error{"", std::string("cuBLASLt has no function ") + missing, {}};
  std::unique_ptr<CublasLt> lt(new CublasLt);
  lt->library = library;
  lt->device = device;
  runtime::cuda::Current current(*device);
  if (Status status = current.status(); !status)
    return status.error();
  if (Status status =
          check("cublasLtCreate", library->cublasLtCreate(&lt->handle));
      !status)
    return status.error();
  auto memory = runtime::cuda::allocate(*device, workspaceBytes);
  if (!memory)
    return memory.error();
  lt->workspace = std::move(*memory);
  return lt;
}

CublasLt::~CublasLt() {
  if (handle) {
    runtime::cuda::Current current(*device);
    library->cublasLtDestroy(handle);
  }
}

namespace {

/// Handles of one call, and the first thing that went wrong.
class Call {
public:
  ~Call() {
    for (auto [handle, destroy] : owned)
      destroy(handle);
  }
  bool make(const char *name, int status, Handle handle,
            int (*destroy)(Handle)) {
    if (!then(name, status))
      return false;
    owned.push_back({handle, destroy});
    return true;
  }
  bool then(const char *name, int code) {
    if (status)
      status = check(name, code);
    return bool(status);
  }
  Status status;

private:
  std::vector<std::pair<Handle, int (*)(Handle)>> owned;
};

} // namespace

Status CublasLt::multiply(const Gemm &g, CUstream stream) {
  const Library &lt = *library;
  runtime::cuda::Current current(*device);
  if (Status status = current.status(); !status)
    return status;
  Call call;
  auto layout = [&](int type, int64_t rows, int64_t cols, int64_t ld) {
    Handle made = nullptr;
    call.make("cublasLtMatrixLayoutCreate",
              lt.cublasLtMatrixLayoutCreate(&made, type, uint64_t(rows),
                                            uint64_t(cols), ld),
              made, lt.cublasLtMatrixLayoutDestroy);
    return made;
  };
  // In columns, as the library counts: y^T [n, m] = w x^T, where w and x^T are
  // stored as w^T and x^T.
  int type = g.type == DType::F32 ? CUDA_R_32F : CUDA_R_16BF;
  Handle desc = nullptr;
  int transpose = CUBLAS_OP_T;
  call.make("cublasLtMatmulDescCreate",
            lt.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            desc, lt.cublasLtMatmulDescDestroy);
  if (call.status)
    call.then("cublasLtMatmulDescSetAttribute",
              lt.cublasLtMatmulDescSetAttribute(
                  desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(int)));
  Handle w = layout(type, g.k, g.n, g.ldw), x = layout(type, g.k, g.m, g.ldx);
  int typeOfResult = g.result == DType::F32 ? CUDA_R_32F : CUDA_R_16BF;
  Handle y = layout(typeOfResult, g.n, g.m, g.ldy);
  if (!call.status)
    return call.status;

  auto choose = [&](int64_t rows, Algorithm &algorithm) {
    Call inner;
    Handle preference = nullptr, many = nullptr, result = nullptr;
    inner.make("cublasLtMatmulPreferenceCreate",
               lt.cublasLtMatmulPreferenceCreate(&preference), preference,
               lt.cublasLtMatmulPreferenceDestroy);
    inner.make("cublasLtMatrixLayoutCreate",
               lt.cublasLtMatrixLayoutCreate(&many, type, uint64_t(g.k),
                                             uint64_t(rows), g.ldx),
               many, lt.cublasLtMatrixLayoutDestroy);
    inner.make("cublasLtMatrixLayoutCreate",
               lt.cublasLtMatrixLayoutCreate(
                   &result, typeOfResult, uint64_t(g.n), uint64_t(rows), g.ldy),
               result, lt.cublasLtMatrixLayoutDestroy);
    if (!inner.status)
      return inner.status;
    size_t bytes = workspaceBytes;
    uint32_t noSplits = 0;
    for (auto [attribute, value, size] :
         {std::tuple<int, const void *, size_t>(
              CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
          {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &noSplits,
           sizeof(noSplits)}})
      inner.then("cublasLtMatmulPreferenceSetAttribute",
                 lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute,
                                                         value, size));
    Heuristic best = {};
    int found = 0;
    if (inner.status)
      inner.then("cublasLtMatmulAlgoGetHeuristic",
                 lt.cublasLtMatmulAlgoGetHeuristic(handle, desc, w, many,
                                                   result, result, preference,
                                                   1, &best, &found));
    if (inner.status && (found == 0 || best.status != 0))
      return Status(Error{"",
                          "cuBLASLt has no kernel for a product of [" +
                              std::to_string(rows) + "," + std::to_string(g.k) +
                              "] with [" + std::to_string(g.n) + "," +
                              std::to_string(g.k) + "]^T",
                          {}});
    std::copy_n(best.algorithm, 8, algorithm.data);
    return inner.status;
  };
  auto key = std::make_tuple(g.type, g.result, g.n, g.k, g.ldx, g.ldw, g.ldy);
  auto place = chosen.find(key);
  if (place == chosen.end()) {
    Algorithm algorithm;
    if (Status status = choose(rowsChosenFor, algorithm); !status)
      return status;
    place = chosen.emplace(key, algorithm).first;
  }
  float one = 1, before = g.onto ? 1 : 0;
  return check("cublasLtMatmul",
               lt.cublasLtMatmul(handle, desc, &one, g.w, w, g.x, x, &before,
                                 g.y, y, g.y, y, place->second.data,
                                 reinterpret_cast<void *>(workspace.get()),
                                 workspaceBytes, stream));
}

} // namespace plum::model
