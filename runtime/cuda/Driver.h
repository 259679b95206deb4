//===- Driver.h - The CUDA driver, when there is one ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libcuda.so.1, opened at run time: nothing of CUDA is needed to build Plum or
// to run it on a CPU. What little of the driver's interface we use is declared
// here, by the names that its documentation has; the symbols behind them are
// those of the versions that NVIDIA keeps stable (cuMemAlloc_v2 and so on).
//
// PLUM_LIBCUDA names another library to open, for tests.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_DRIVER_H
#define PLUM_RUNTIME_CUDA_DRIVER_H

#include "plum/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace plum::runtime::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;
using CUlinkState = struct CUlinkState_st *;

// The enumerators that we pass or compare.
enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
};
enum : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_JIT_INFO_LOG_BUFFER = 3,
  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
  CU_JIT_INPUT_PTX = 1,
  CU_STREAM_NON_BLOCKING = 1,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/// F(name, symbol, parameters) for each function used.
#define PLUM_CUDA_FUNCTIONS(F)                                                 \
  F(cuInit, "cuInit", (unsigned flags))                                        \
  F(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                  \
  F(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **text))     \
  F(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text)) \
  F(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                        \
  F(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))              \
  F(cuDeviceGetName, "cuDeviceGetName",                                        \
    (char *name, int length, CUdevice device))                                 \
  F(cuDeviceGetAttribute, "cuDeviceGetAttribute",                              \
    (int *value, int attribute, CUdevice device))                              \
  F(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, CUdevice device)) \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                      \
    (CUcontext * context, CUdevice device))                                    \
  F(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2",                 \
    (CUdevice device))                                                         \
  F(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext * context))                 \
  F(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))              \
  F(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * context))              \
  F(cuModuleLoadDataEx, "cuModuleLoadDataEx",                                  \
    (CUmodule * module, const void *image, unsigned count, int *options,       \
     void **values))                                                           \
  F(cuModuleUnload, "cuModuleUnload", (CUmodule module))                       \
  F(cuModuleGetFunction, "cuModuleGetFunction",                                \
    (CUfunction * function, CUmodule module, const char *name))                \
  F(cuFuncGetAttribute, "cuFuncGetAttribute",                                  \
    (int *value, int attribute, CUfunction function))                          \
  F(cuFuncSetAttribute, "cuFuncSetAttribute",                                  \
    (CUfunction function, int attribute, int value))                           \
  F(cuLinkCreate, "cuLinkCreate_v2",                                           \
    (unsigned count, int *options, void **values, CUlinkState *state))         \
  F(cuLinkAddData, "cuLinkAddData_v2",                                         \
    (CUlinkState state, int type, void *data, size_t size, const char *name,   \
     unsigned count, int *options, void **values))                             \
  F(cuLinkComplete, "cuLinkComplete",                                          \
    (CUlinkState state, void **cubin, size_t *size))                           \
  F(cuLinkDestroy, "cuLinkDestroy", (CUlinkState state))                       \
  F(cuLaunchKernel, "cuLaunchKernel",                                          \
    (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,      \
     unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,  \
     CUstream stream, void **parameters, void **extra))                        \
  F(cuLaunchHostFunc, "cuLaunchHostFunc",                                      \
    (CUstream stream, void (*function)(void *), void *data))                   \
  F(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * address, size_t bytes))        \
  F(cuMemFree, "cuMemFree_v2", (CUdeviceptr address))                          \
  F(cuMemHostAlloc, "cuMemHostAlloc",                                          \
    (void **memory, size_t bytes, unsigned flags))                             \
  F(cuMemFreeHost, "cuMemFreeHost", (void *memory))                            \
  F(cuMemcpyHtoD, "cuMemcpyHtoD_v2",                                           \
    (CUdeviceptr to, const void *from, size_t bytes))                          \
  F(cuMemcpyDtoH, "cuMemcpyDtoH_v2",                                           \
    (void *to, CUdeviceptr from, size_t bytes))                                \
  F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                 \
    (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))         \
  F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                 \
    (void *to, CUdeviceptr from, size_t bytes, CUstream stream))               \
  F(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                 \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))         \
  F(cuMemsetD8, "cuMemsetD8_v2",                                               \
    (CUdeviceptr address, unsigned char value, size_t bytes))                  \
  F(cuMemsetD8Async, "cuMemsetD8Async",                                        \
    (CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)) \
  F(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))     \
  F(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                  \
  F(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))             \
  F(cuStreamBeginCapture, "cuStreamBeginCapture_v2",                           \
    (CUstream stream, int mode))                                               \
  F(cuStreamEndCapture, "cuStreamEndCapture",                                  \
    (CUstream stream, CUgraph * graph))                                        \
  F(cuGraphInstantiate, "cuGraphInstantiateWithFlags",                         \
    (CUgraphExec * exec, CUgraph graph, unsigned long long flags))             \
  F(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec exec, CUstream stream))       \
  F(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec exec))              \
  F(cuGraphDestroy, "cuGraphDestroy", (CUgraph graph))                         \
  F(cuEventCreate, "cuEventCreate", (CUevent * event, unsigned flags))         \
  F(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                      \
  F(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))          \
  F(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                 \
  F(cuEventElapsedTime, "cuEventElapsedTime",                                  \
    (float *milliseconds, CUevent start, CUevent end))

/// The driver's functions, none of them null.
struct Driver {
  /// Opens the driver and initialises it; it is never closed again.
  static Result<std::shared_ptr<const Driver>> open();

  /// "CALL: CUDA_ERROR_INVALID_VALUE (invalid argument)".
  Error failure(const std::string &call, CUresult result) const;
  /// Success, or that error.
  Status check(const std::string &call, CUresult result) const {
    return result == CUDA_SUCCESS ? Status::ok() : failure(call, result);
  }

#define PLUM_FUNCTION(NAME, SYMBOL, PARAMETERS)                                \
  CUresult(*NAME) PARAMETERS = nullptr;
  PLUM_CUDA_FUNCTIONS(PLUM_FUNCTION)
#undef PLUM_FUNCTION
  int version = 0; ///< 13000 is CUDA 13.0.
};

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_DRIVER_H
