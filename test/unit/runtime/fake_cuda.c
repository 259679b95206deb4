/*===- fake_cuda.c - A CUDA driver without a GPU --------------------*- C
 * -*-===*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Tests name this library by PLUM_LIBCUDA. Its GPU has compute capability 9.0
 * and 132 SMs; its memory is the host's, so that a sanitizer sees a wrong
 * address. A kernel called ..._step or ..._scan runs the layer of ToyLayer.cpp
 * from nothing but its plum_gpu_args, as ABI/GpuABI.h defines them.
 *
 * Machine code is a 64-byte ELF header and "arch=sm_90"; PTX is any other text,
 * one with the word "error" in it does not compile.
 *
 *===----------------------------------------------------------------------===*/

#include "fake_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  invalidValue = 1,
  invalidContext = 201,
  noBinary = 209,
  invalidPtx = 218,
  notFound = 500,
  captureUnsupported = 900
};

static fake_state state;
static char failing[64];
static int failure, failAfter;
static __thread void *current;
static char primary; /* Its address is the context. */

__attribute__((constructor)) static void readEnvironment(void) {
  const char *text = getenv("FAKE_CUDA_FAIL");
  const char *colon = text ? strchr(text, ':') : NULL;
  if (!colon || colon - text >= (long)sizeof failing)
    return;
  memcpy(failing, text, (size_t)(colon - text));
  failure = atoi(colon + 1);
}

fake_state *fakeCuda(void) { return &state; }
void fakeReset(void) {
  int retained = state.retained, allocations = state.allocations;
  memset(&state, 0, sizeof state);
  state.retained = retained;
  state.allocations = allocations;
  failing[0] = '\0';
}
void fakeFail(const char *function, int error, int after) {
  snprintf(failing, sizeof failing, "%s", function);
  failure = error;
  failAfter = after;
}

static int fails(const char *function) {
  if (strcmp(function, failing) != 0)
    return 0;
  if (failAfter > 0) {
    --failAfter;
    return 0;
  }
  return failure;
}
#define ENTER                                                                  \
  do {                                                                         \
    int error = fails(__func__);                                               \
    if (error)                                                                 \
      return error;                                                            \
  } while (0)
/* With the context current, and no recording going on. */
#define ENTER_CONTEXT                                                          \
  ENTER;                                                                       \
  if (current != &primary)                                                     \
  return invalidContext

/*===--- Devices and contexts -----------------------------------------------*/

int cuInit(unsigned flags) {
  ENTER;
  return flags ? invalidValue : 0;
}
int cuDriverGetVersion(int *version) {
  ENTER;
  *version = 13000;
  return 0;
}
int cuGetErrorName(int error, const char **text) {
  switch (error) {
  case invalidValue:
    *text = "CUDA_ERROR_INVALID_VALUE";
    return 0;
  case 2:
    *text = "CUDA_ERROR_OUT_OF_MEMORY";
    return 0;
  case 100:
    *text = "CUDA_ERROR_NO_DEVICE";
    return 0;
  case invalidContext:
    *text = "CUDA_ERROR_INVALID_CONTEXT";
    return 0;
  case noBinary:
    *text = "CUDA_ERROR_NO_BINARY_FOR_GPU";
    return 0;
  case invalidPtx:
    *text = "CUDA_ERROR_INVALID_PTX";
    return 0;
  case notFound:
    *text = "CUDA_ERROR_NOT_FOUND";
    return 0;
  case 700:
    *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
  default:
    return invalidValue;
  }
}
int cuGetErrorString(int error, const char **text) {
  *text = error == invalidValue ? "invalid argument" : NULL;
  return 0;
}
int cuDeviceGetCount(int *count) {
  ENTER;
  *count = 1;
  return 0;
}
int cuDeviceGet(int *device, int ordinal) {
  ENTER;
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char *name, int length, int device) {
  ENTER;
  (void)device;
  snprintf(name, (size_t)length, "Fake H200");
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER;
  (void)device;
  switch (attribute) {
  case 16:
    *value = 132;
    return 0;
  case 38:
    *value = 1 << 20;
    return 0;
  case 75:
    *value = 9;
    return 0;
  case 76:
    *value = 0;
    return 0;
  case 97:
    *value = 232448;
    return 0;
  default:
    return invalidValue;
  }
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  ENTER;
  (void)device;
  *bytes = (size_t)1 << 30;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER;
  (void)device;
  *context = &primary;
  ++state.retained;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  --state.retained;
  return 0;
}
int cuCtxGetCurrent(void **context) {
  ENTER;
  *context = current;
  return 0;
}
int cuCtxPushCurrent_v2(void *context) {
  ENTER;
  ++state.contextDepth;
  current = context;
  return 0;
}
int cuCtxPopCurrent_v2(void **context) {
  --state.contextDepth;
  *context = current;
  current = NULL;
  return 0;
}

/*===--- Code ---------------------------------------------------------------*/

static const char machineCode[] = "arch=sm_90";

/* Options are the info log, its size, the error log, its size. */
static void report(void **values, const char *text) {
  if (values)
    snprintf(values[2], (size_t)values[3], "%s", text);
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count,
                       int *options, void **values) {
  ENTER_CONTEXT;
  (void)options;
  if (memcmp(image,
             "\x7f"
             "ELF",
             4) == 0) {
    if (memcmp((const char *)image + 64, machineCode, sizeof machineCode - 1))
      return noBinary;
    ++state.loadedCubins;
  } else {
    if (strstr(image, "error")) {
      report(count ? values : NULL,
             "ptxas line 1; error : it says error\n\nptxas fatal");
      return invalidPtx;
    }
    ++state.loadedPtx;
  }
  *module = &state;
  return 0;
}
int cuModuleUnload(void *module) {
  ENTER_CONTEXT;
  (void)module;
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  ENTER_CONTEXT;
  (void)module;
  if (strncmp(name, "plum_", 5) != 0)
    return notFound;
  static char names[64][64];
  int i = 0;
  while (i < 63 && names[i][0] && strcmp(names[i], name) != 0)
    ++i;
  snprintf(names[i], sizeof names[i], "%s", name);
  *function = names[i];
  return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  ENTER_CONTEXT;
  (void)function;
  *value = attribute == 0 ? 512 : 40;
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  ENTER_CONTEXT;
  (void)function;
  if (attribute == 8 && state.maxSharedCount < 16)
    state.maxShared[state.maxSharedCount++] = value;
  return 0;
}

typedef struct link_state {
  int good;
  char image[64 + sizeof machineCode];
} link_state;

int cuLinkCreate_v2(unsigned count, int *options, void **values, void **link) {
  ENTER_CONTEXT;
  (void)count, (void)options, (void)values;
  *link = calloc(1, sizeof(link_state));
  return 0;
}
int cuLinkAddData_v2(void *link, int type, void *data, size_t size,
                     const char *name, unsigned count, int *options,
                     void **values) {
  ENTER_CONTEXT;
  (void)name, (void)count, (void)options, (void)values;
  if (type != 1 || ((const char *)data)[size - 1] != '\0')
    return invalidValue;
  if (strstr(data, "error"))
    return invalidPtx;
  ((link_state *)link)->good = 1;
  return 0;
}
int cuLinkComplete(void *link, void **cubin, size_t *size) {
  ENTER_CONTEXT;
  link_state *made = link;
  if (!made->good)
    return invalidPtx;
  memcpy(made->image,
         "\x7f"
         "ELF",
         4);
  memcpy(made->image + 64, machineCode, sizeof machineCode);
  *cubin = made->image;
  *size = sizeof made->image;
  ++state.linked;
  return 0;
}
int cuLinkDestroy(void *link) {
  free(link);
  return 0;
}

/*===--- Memory -------------------------------------------------------------*/

typedef struct fake_stream {
  int recording;
  int count;
  fake_launch *recorded;
} fake_stream;
static int recordings; /* Streams that record, anywhere. */

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  ENTER_CONTEXT;
  if (recordings)
    return captureUnsupported;
  void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = (uint64_t)(uintptr_t)memory;
  ++state.allocations;
  return 0;
}
int cuMemFree_v2(uint64_t address) {
  ENTER_CONTEXT;
  free((void *)(uintptr_t)address);
  --state.allocations;
  return 0;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  (void)flags;
  uint64_t address = 0;
  int result = cuMemAlloc_v2(&address, bytes);
  *memory = (void *)(uintptr_t)address;
  return result;
}
int cuMemFreeHost(void *memory) {
  return cuMemFree_v2((uint64_t)(uintptr_t)memory);
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  ENTER_CONTEXT;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return recordings ? captureUnsupported : 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  ENTER_CONTEXT;
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return recordings ? captureUnsupported : 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                         void *stream) {
  (void)stream;
  return cuMemcpyHtoD_v2(to, from, bytes);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  (void)stream;
  return cuMemcpyDtoH_v2(to, from, bytes);
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes);
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes,
                    void *stream) {
  (void)stream;
  return cuMemsetD8_v2(address, value, bytes);
}
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
  (void)stream;
  function(data);
  return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                         void *stream) {
  ENTER_CONTEXT;
  (void)to, (void)from, (void)bytes, (void)stream;
  return 0;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes) {
  ENTER_CONTEXT;
  memset((void *)(uintptr_t)address, value, bytes);
  return 0;
}

/*===--- The toy layer from its plum_gpu_args
 * ---------------------------------*/

enum { K = 4, V = 3 };
enum { bias, q, k, v, g, S0, z0, S1, z1, o, n, SEvery, zEvery };

static int64_t integer(uint64_t address, int64_t i, int wide) {
  return wide ? ((const int64_t *)(uintptr_t)address)[i]
              : ((const int32_t *)(uintptr_t)address)[i];
}

static float bf16(const void *data) {
  uint32_t bits = (uint32_t)*(const uint16_t *)data << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Element a of a row. */
static char *row(const plum_gpu_args *args, int tensor, int64_t sequence,
                 int64_t token, int64_t head) {
  const plum_gpu_tensor *t = &args->tensors[tensor];
  return (char *)(uintptr_t)t->data + sequence * t->sequence +
         token * t->token +
         (int64_t)(2 * (uint64_t)head * t->share >> 32) * t->head;
}
static float f32(const char *address, int64_t i) {
  return ((const float *)address)[i];
}

/* Copies a state between the layer's own [K, V] and a tensor. */
static void move(const plum_gpu_args *args, int tensor, int64_t slot,
                 int64_t snapshot, int64_t head, float *own, int rows,
                 int columns, int store) {
  const plum_gpu_tensor *t = &args->tensors[tensor];
  if (!t->data) {
    if (!store)
      memset(own, 0, sizeof(float) * (size_t)(rows * columns));
    return;
  }
  for (int a = 0; a < rows; ++a)
    for (int b = 0; b < columns; ++b) {
      char *at = (char *)(uintptr_t)t->data + slot * t->sequence +
                 snapshot * t->token + head * t->head + a * t->row +
                 b * t->column;
      float *value = &own[a * columns + b];
      if (t->dtype == PLUM_GPU_F32 && store)
        *(float *)at = *value;
      else if (t->dtype == PLUM_GPU_F32)
        *value = *(float *)at;
      else if (store) {
        uint32_t bits;
        memcpy(&bits, value, 4);
        *(uint16_t *)at = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      } else
        *value = bf16(at);
    }
}

/* Of packed sequence i; none if it is padding. */
static int64_t snapshotsOf(const plum_gpu_args *args, int64_t chunk,
                           int64_t i) {
  int wide = (args->flags & PLUM_GPU_CU64) != 0;
  if (args->slots &&
      integer(args->slots, i, args->flags & PLUM_GPU_SLOTS64) < 0)
    return 0;
  return (integer(args->cu_seqlens, i + 1, wide) -
          integer(args->cu_seqlens, i, wide)) /
         (args->snapshot_every * chunk);
}

/* Scans read what `index` left, steps count. */
static int64_t snapshotsBefore(const plum_gpu_args *args, int64_t chunk,
                               int64_t i) {
  if (chunk > 1)
    return ((const int32_t *)(uintptr_t)
                args->chunk_offsets)[args->sequences + 1 + i];
  int64_t sum = 0;
  for (int64_t n = 0; n < i; ++n)
    sum += snapshotsOf(args, chunk, n);
  return sum;
}

static void toy(const plum_gpu_args *args, int64_t chunk) {
  int packed = args->cu_seqlens != 0;
  int64_t every = args->snapshot_every * chunk;
  for (int64_t i = 0; i < args->sequences; ++i) {
    int64_t slot = i, begin = 0, length = args->tokens, batch = i;
    if (args->slots)
      slot = integer(args->slots, i, args->flags & PLUM_GPU_SLOTS64);
    if (slot < 0)
      continue;
    if (packed) {
      int wide = (args->flags & PLUM_GPU_CU64) != 0;
      begin = integer(args->cu_seqlens, i, wide);
      length = integer(args->cu_seqlens, i + 1, wide) - begin;
      batch = 0;
    }
    for (int64_t h = 0; h < args->heads; ++h) {
      float S[K * V], z[K];
      move(args, S0, slot, 0, h, S, K, V, 0);
      move(args, z0, slot, 0, h, z, K, 1, 0);
      for (int64_t t = begin; t < begin + length; ++t) {
        const char *qs = row(args, q, batch, t, h),
                   *ks = row(args, k, batch, t, h),
                   *vs = row(args, v, batch, t, h);
        float decay = expf(f32(row(args, g, batch, t, h), 0)), norm = 0;
        float *out = (float *)row(args, o, batch, t, h);
        for (int c = 0; c < V; ++c)
          out[c] = f32(row(args, bias, 0, 0, h), c);
        for (int a = 0; a < K; ++a) {
          z[a] += f32(ks, a);
          norm += f32(qs, a) * z[a];
          for (int c = 0; c < V; ++c) {
            S[a * V + c] = decay * S[a * V + c] + f32(ks, a) * bf16(vs + 2 * c);
            out[c] += f32(qs, a) * S[a * V + c];
          }
        }
        *(float *)row(args, n, batch, t, h) = norm;
        int64_t done = t - begin + 1;
        if (every > 0 && done % every == 0) {
          int64_t before = packed ? snapshotsBefore(args, chunk, i) : 0;
          move(args, SEvery, batch, before + done / every - 1, h, S, K, V, 1);
          move(args, zEvery, batch, before + done / every - 1, h, z, K, 1, 1);
        }
      }
      move(args, S1, slot, 0, h, S, K, V, 1);
      move(args, z1, slot, 0, h, z, K, 1, 1);
    }
  }
}

/* Counts chunks of 16, and snapshots, as the kernel of that role does. */
static void countChunks(const plum_gpu_args *args) {
  int32_t *offsets = (int32_t *)(uintptr_t)args->chunk_offsets;
  int wide = (args->flags & PLUM_GPU_CU64) != 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < args->sequences; ++i)
    offsets[i + 1] =
        offsets[i] + (int32_t)((integer(args->cu_seqlens, i + 1, wide) -
                                integer(args->cu_seqlens, i, wide) + 15) /
                               16);
  int32_t *second = offsets + args->sequences + 1;
  second[0] = 0;
  for (int64_t i = 0; i < args->sequences && args->snapshot_every; ++i)
    second[i + 1] = second[i] + (int32_t)snapshotsOf(args, 16, i);
}

static void execute(const fake_launch *launch) {
  const char *role = strrchr(launch->symbol, '_');
  if (strcmp(role, "_step") == 0)
    toy(&launch->args, 1);
  else if (strcmp(role, "_scan") == 0)
    toy(&launch->args, 16);
  else if (strcmp(role, "_index") == 0)
    countChunks(&launch->args);
  else if (strcmp(role, "_prepare") == 0 && launch->grid[0] > 0)
    memset((void *)(uintptr_t)launch->args.blobs, 1,
           launch->grid[0] * (size_t)320); /* Its blob_bytes. */
}

/*===--- Streams, graphs, events --------------------------------------------*/

int cuLaunchKernel(void *function, unsigned gridX, unsigned gridY,
                   unsigned gridZ, unsigned blockX, unsigned blockY,
                   unsigned blockZ, unsigned sharedBytes, void *stream,
                   void **parameters, void **extra) {
  ENTER_CONTEXT;
  if (gridX == 0 || extra)
    return invalidValue;
  fake_launch launch = {.grid = {gridX, gridY, gridZ},
                        .block = {blockX, blockY, blockZ},
                        .sharedBytes = sharedBytes,
                        .stream = stream};
  snprintf(launch.symbol, sizeof launch.symbol, "%s", (char *)function);
  memcpy(&launch.args, parameters[0], sizeof launch.args);
  fake_stream *on = stream;
  launch.captured = on && on->recording;
  if (launch.captured) {
    on->recorded =
        realloc(on->recorded, sizeof(fake_launch) * (size_t)(on->count + 1));
    on->recorded[on->count++] = launch;
  } else
    execute(&launch);
  if (state.launchCount < 64)
    state.launches[state.launchCount++] = launch;
  return 0;
}

int cuStreamCreate(void **stream, unsigned flags) {
  ENTER_CONTEXT;
  (void)flags;
  *stream = calloc(1, sizeof(fake_stream));
  return 0;
}
int cuStreamDestroy_v2(void *stream) {
  ENTER_CONTEXT;
  free(stream);
  return 0;
}
int cuStreamSynchronize(void *stream) {
  ENTER_CONTEXT;
  fake_stream *on = stream;
  return on && on->recording ? captureUnsupported : 0;
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
  ENTER_CONTEXT;
  (void)mode;
  ((fake_stream *)stream)->recording = 1;
  ++recordings;
  return 0;
}
int cuStreamEndCapture(void *stream, void **graph) {
  ENTER_CONTEXT;
  fake_stream *from = stream, *made = calloc(1, sizeof *made);
  *made = *from;
  memset(from, 0, sizeof *from);
  --recordings;
  *graph = made;
  return 0;
}
int cuGraphInstantiateWithFlags(void **exec, void *graph,
                                unsigned long long flags) {
  ENTER_CONTEXT;
  (void)flags;
  fake_stream *from = graph, *made = malloc(sizeof *made);
  *made = *from;
  from->recorded = NULL;
  *exec = made;
  return 0;
}
int cuGraphLaunch(void *exec, void *stream) {
  ENTER_CONTEXT;
  (void)stream;
  fake_stream *graph = exec;
  for (int i = 0; i < graph->count; ++i)
    execute(&graph->recorded[i]);
  return 0;
}
int cuGraphExecDestroy(void *exec) {
  free(((fake_stream *)exec)->recorded);
  free(exec);
  return 0;
}
int cuGraphDestroy(void *graph) { return cuGraphExecDestroy(graph); }
int cuEventCreate(void **event, unsigned flags) {
  ENTER_CONTEXT;
  (void)flags;
  *event = malloc(1);
  return 0;
}
int cuEventDestroy_v2(void *event) {
  free(event);
  return 0;
}
int cuEventRecord(void *event, void *stream) {
  ENTER_CONTEXT;
  (void)event, (void)stream;
  return 0;
}
int cuEventSynchronize(void *event) {
  ENTER_CONTEXT;
  (void)event;
  return 0;
}
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  ENTER_CONTEXT;
  (void)start, (void)end;
  *milliseconds = 0.5f;
  return 0;
}
