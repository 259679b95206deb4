//===- HostDriver.cpp - A CUDA driver whose GPU is the CPU ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Named by PLUM_LIBCUDA, it runs the runtime's own kernels (Cta.h) behind the
// driver's interface: tests go through the same launches as a GPU does. Memory
// is the host's, filled with 0xff (NaN, -1) when it is new. Streams are in
// order and immediate; a captured stream keeps its launches for the graph. The
// code that it is given to load is not looked at: kernels go by their names.
//
//===----------------------------------------------------------------------===//

#include "Cta.h"

#include "runtime/cuda/Driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

using namespace plum::kernels;
using namespace plum::runtime::cuda;

namespace {

enum : CUresult {
  invalidValue = 1,
  outOfMemory = 2,
  notFound = 500,
  launchFailed = 719,
  captureUnsupported = 900,
};

using Work = std::function<CUresult()>;

thread_local CUcontext current;
char primary; ///< Its address is the context.

CUresult run(const Entry &kernel, unsigned x, unsigned y, unsigned shared,
             const void *args) {
  std::string error = runGrid(kernel, x, int(y), int(shared), args);
  if (error.empty())
    return CUDA_SUCCESS;
  std::fprintf(stderr, "%s\n", error.c_str());
  return launchFailed;
}

} // namespace

struct plum::runtime::cuda::CUstream_st {
  bool recording = false;
  std::vector<Work> recorded;
};
struct plum::runtime::cuda::CUgraph_st {
  std::vector<Work> work;
};
struct plum::runtime::cuda::CUgraphExec_st {
  std::vector<Work> work;
};

namespace {

CUresult enqueue(CUstream stream, Work work) {
  if (!stream || !stream->recording)
    return work();
  stream->recorded.push_back(std::move(work));
  return CUDA_SUCCESS;
}

void *pointer(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

} // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **text) {
  *text = error == launchFailed  ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == notFound    ? "CUDA_ERROR_NOT_FOUND"
          : error == outOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                                 : "CUDA_ERROR_INVALID_VALUE";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) {
  *text = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice) {
  std::snprintf(name, size_t(length), "the host");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 4
           : attribute == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE            ? 1 << 20
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
               ? 232448
               : 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
  *bytes = size_t(1) << 34;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(&primary);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  *context = current;
  current = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *, unsigned, int *,
                            void **) {
  *module = reinterpret_cast<CUmodule>(&primary);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
  const Entry *kernel = findKernel(name);
  if (!kernel)
    return notFound;
  *function = reinterpret_cast<CUfunction>(const_cast<Entry *>(kernel));
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, int, CUfunction function) {
  *value = reinterpret_cast<const Entry *>(function)->threads;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, int, int) { return CUDA_SUCCESS; }
// No machine code: the caller goes on to cuModuleLoadDataEx.
CUresult cuLinkCreate_v2(unsigned, int *, void **, CUlinkState *) {
  return invalidValue;
}
CUresult cuLinkAddData_v2(CUlinkState, int, void *, size_t, const char *,
                          unsigned, int *, void **) {
  return invalidValue;
}
CUresult cuLinkComplete(CUlinkState, void **, size_t *) { return invalidValue; }
CUresult cuLinkDestroy(CUlinkState) { return CUDA_SUCCESS; }

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                        unsigned threads, unsigned, unsigned, unsigned shared,
                        CUstream stream, void **parameters, void **) {
  const Entry &kernel = *reinterpret_cast<const Entry *>(function);
  if (x == 0 || y == 0 || z != 1 || int(threads) != kernel.threads)
    return invalidValue;
  const char *args = static_cast<const char *>(parameters[0]);
  std::vector<char> copy(args, args + kernel.argumentBytes);
  return enqueue(stream, [&kernel, x, y, shared, copy = std::move(copy)] {
    return run(kernel, x, y, shared, copy.data());
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  void *memory = nullptr;
  if (posix_memalign(&memory, 256, bytes))
    return outOfMemory;
  std::memset(memory, 0xff, bytes);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  std::free(pointer(address));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  CUdeviceptr address;
  CUresult result = cuMemAlloc_v2(&address, bytes);
  *memory = result == CUDA_SUCCESS ? pointer(address) : nullptr;
  return result;
}
CUresult cuMemFreeHost(void *memory) {
  std::free(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  std::memcpy(pointer(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  std::memcpy(to, pointer(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                              CUstream stream) {
  // As from pageable memory: taken at once.
  const char *begin = static_cast<const char *>(from);
  std::vector<char> copy(begin, begin + bytes);
  return enqueue(stream, [to, copy = std::move(copy)] {
    std::memcpy(pointer(to), copy.data(), copy.size());
    return CUDA_SUCCESS;
  });
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  return enqueue(stream, [=] {
    std::memcpy(to, pointer(from), bytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes,
                         CUstream stream) {
  return enqueue(stream, [=] {
    std::memset(pointer(address), value, bytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *),
                          void *data) {
  return enqueue(stream, [=] {
    function(data);
    return CUDA_SUCCESS;
  });
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  return enqueue(stream, [=] {
    std::memcpy(pointer(to), pointer(from), bytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t bytes) {
  std::memset(pointer(address), value, bytes);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned) {
  *stream = new CUstream_st;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  delete stream;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  return stream && stream->recording ? CUresult(captureUnsupported)
                                     : CUresult(CUDA_SUCCESS);
}
CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  stream->recording = true;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  *graph = new CUgraph_st{std::move(stream->recorded)};
  stream->recorded.clear();
  stream->recording = false;
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                     unsigned long long) {
  *exec = new CUgraphExec_st{graph->work};
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  for (const Work &work : exec->work)
    if (CUresult error = work())
      return error;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete exec;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned) {
  *event = reinterpret_cast<CUevent>(&primary);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *milliseconds, CUevent, CUevent) {
  *milliseconds = 1;
  return CUDA_SUCCESS;
}

} // extern "C"
