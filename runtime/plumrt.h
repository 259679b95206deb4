/*===- plumrt.h - Run a compiled layer from C ----------------------*- C -*-===*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The runtime behind a C interface, for C, ctypes and anything else that can
 * call a shared library:
 *
 *   char error[512];
 *   plumrt_bundle *layer;
 *   if (plumrt_open("kda.bundle", &layer, error, sizeof error) != 0)
 *     fputs(error, stderr);
 *   plumrt_run_args args = {.size = sizeof args, .inputs = inputs, ...};
 *   if (plumrt_run(layer, &args, error, sizeof error) != 0)
 *     fputs(error, stderr);
 *   plumrt_close(layer);
 *
 * Bundles for a GPU run by the functions plumrt_gpu_* and plumrt_plan_* below.
 *
 * Functions return 0, or 1 with a text in `error` (cut to `error_size`, always
 * terminated; may be NULL when error_size is 0). A failed run has written
 * nothing. Nothing is kept of `args`. One run at a time per bundle; different
 * bundles are independent.
 *
 *===----------------------------------------------------------------------===*/

#ifndef PLUM_RUNTIME_PLUMRT_H
#define PLUM_RUNTIME_PLUMRT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PLUMRT_API __attribute__((visibility("default")))
#else
#define PLUMRT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plumrt_bundle plumrt_bundle;

enum {
  PLUMRT_F32 = 0,
  PLUMRT_F16 = 1,
  PLUMRT_BF16 = 2,
  PLUMRT_I32 = 3,
  PLUMRT_I64 = 4
};
enum { PLUMRT_AUTO = 0, PLUMRT_STEP = 1, PLUMRT_CHUNK = 2 };
enum { PLUMRT_KV = 0, PLUMRT_VK = 1 };

/* Strides in elements. What the axes mean:
 *   input, output   [B, T, H, d]   d = product of the declared shape
 *   param           [1, 1, H, d]
 *   state           [N, H, K, V], [N, H, V, K] in layout VK; a vector state
 *                   [N, H, 1, K], a scalar one [N, H, 1, 1]; a growing state
 *                   ("grows" in the manifest) [N, H, capacity, d], a row for
 *                   each token so far, in both layouts
 * Inputs may have fewer heads, a divisor of H; so do the growing states whose
 * rows are such an input ("rows" in the manifest).
 * Axis d must be contiguous but in states. */
typedef struct plumrt_tensor {
  void *data;
  int32_t dtype;
  int32_t reserved; /* 0 */
  int64_t shape[4];
  int64_t stride[4];
} plumrt_tensor;

/* Lists are in the order of the bundle's manifest. A list that may be left out
 * is NULL. Fields may be added at the end: `size` says which ones you know,
 * and those you do not know count as zero. */
typedef struct plumrt_run_args {
  size_t size; /* sizeof(plumrt_run_args) */
  const plumrt_tensor *inputs;
  const plumrt_tensor *params;
  const plumrt_tensor *outputs;
  const plumrt_tensor *initial_states; /* NULL: zeros */
  const plumrt_tensor *final_states;   /* NULL: not wanted; may be the same
                                          memory as initial_states */
  const void *cu_seqlens; /* [cu_count] packs cu_count - 1 sequences along T,
                             B being 1; NULL: each batch row is a sequence */
  int64_t cu_count;
  const void *slots; /* [slot_count], one for each sequence; states are pools
                        [P, ...]; -1 skips the sequence; NULL: no pool */
  int64_t slot_count;
  int32_t cu_dtype;               /* PLUMRT_I32 or PLUMRT_I64 */
  int32_t slot_dtype;             /* PLUMRT_I32 or PLUMRT_I64 */
  int32_t layout;                 /* PLUMRT_KV, PLUMRT_VK: of fixed states */
  int32_t form;                   /* PLUMRT_AUTO, PLUMRT_STEP, PLUMRT_CHUNK */
  int64_t chunk;                  /* tokens per chunk; 0: the bundle's first */
  int32_t threads;                /* 0: one per CPU */
  int32_t reserved;               /* 0 */
  int64_t states_every;           /* n > 0: states after n, 2n, ... tokens */
  const plumrt_tensor *snapshots; /* [M, ...], M the sum of len / n; the entry
                                     of a growing state is not looked at */
  const void *past; /* [past_count], one for each sequence, or with slots for
                       each slot of the pool: rows that growing states hold
                       before the run, past + T being those they hold after it,
                       for which final_states must have room. NULL: all rows of
                       initial_states, else 0 */
  int64_t past_count;
  int32_t past_dtype; /* PLUMRT_I32 or PLUMRT_I64 */
  int32_t reserved2;  /* 0 */
} plumrt_run_args;

PLUMRT_API int plumrt_open(const char *directory, plumrt_bundle **bundle,
                           char *error, size_t error_size);
PLUMRT_API void plumrt_close(plumrt_bundle *bundle); /* NULL is fine */
PLUMRT_API int plumrt_run(plumrt_bundle *bundle, const plumrt_run_args *args,
                          char *error, size_t error_size);
/* The manifest as JSON; lives as long as the bundle. */
PLUMRT_API const char *plumrt_manifest(const plumrt_bundle *bundle);

/*===--- On a GPU -----------------------------------------------------------===
 *
 * Tensors lie in the memory of the GPU's primary context: that of PyTorch, JAX
 * and every program that uses the CUDA runtime. Once for each shape:
 *
 *   plumrt_gpu *gpu;
 *   plumrt_plan *plan;
 *   plumrt_plan_info info = {.size = sizeof info};
 *   plumrt_gpu_open("kda.bundle", 0, &gpu, error, sizeof error);
 *   plumrt_plan_create(gpu, &args, 0, &plan, error, sizeof error);
 *   plumrt_plan_query(plan, &info, error, sizeof error);
 *   // allocate info.workspace_bytes
 *
 * and then, from any thread and as often as wanted,
 *
 *   plumrt_launch launch = {.size = sizeof launch, .inputs = inputs, ...};
 *   plumrt_plan_launch(plan, &launch, error, sizeof error);
 *
 * which enqueues kernels on the stream and returns: it allocates nothing, waits
 * for nothing and reads no device memory, so it may be captured into a graph. A
 * graph replayed with other lengths in cu_seqlens, other slots or another past
 * serves those. cu_seqlens, slots and past are not checked: they must be as
 * plumrt_run_args says, cu_seqlens[N] at most T. */

typedef struct plumrt_gpu plumrt_gpu;   /* a bundle's kernels on one GPU */
typedef struct plumrt_plan plumrt_plan; /* launches of one shape */

/* `device` counts the GPUs that the driver shows. */
PLUMRT_API int plumrt_gpu_open(const char *directory, int32_t device,
                               plumrt_gpu **gpu, char *error,
                               size_t error_size);
/* Plans made from it stay good; memory goes with the last of them. */
PLUMRT_API void plumrt_gpu_close(plumrt_gpu *gpu); /* NULL is fine */
PLUMRT_API const char *plumrt_gpu_manifest(const plumrt_gpu *gpu);

/* Shapes, strides, dtypes, layout, form and chunk come from `args`. Tensors may
 * have data NULL; where they have some, it is looked at for its alignment only.
 * cu_count > 0 says that sequences are packed, slot_count > 0 that states are
 * pools. Rows whose size is a multiple of 16 bytes must start on 16-byte
 * boundaries. `segments` is the number of parts that each sequence is split
 * into, 0: as many as pay. Bits depend on it, and on nothing else of the batch:
 * 1 gives a sequence the same bits in every batch. Of chunk kernels
 * states_every must be a multiple of the chunk. Snapshots of sequence n in a
 * batch are entries n * (T / states_every) and following, padding or not;
 * packed sequences have theirs one after the other, len / states_every each and
 * none of padding, and their views must have room for T / states_every.
 * Growing states must be in final_states, rows contiguous and, as rows of their
 * width are a multiple of 16 bytes, on 16-byte boundaries; where they lie in
 * initial_states too, nothing is copied. Of past only dtype and count matter
 * here; NULL: all rows of initial_states, else 0. */
PLUMRT_API int plumrt_plan_create(plumrt_gpu *gpu, const plumrt_run_args *args,
                                  int64_t segments, plumrt_plan **plan,
                                  char *error, size_t error_size);
PLUMRT_API void plumrt_plan_destroy(plumrt_plan *plan); /* NULL is fine */

/* Fields may be added at the end; as many as `size` covers are written. */
typedef struct plumrt_plan_info {
  size_t size;              /* sizeof(plumrt_plan_info) */
  uint64_t workspace_bytes; /* the workspace must be 256-byte aligned */
  int64_t chunk;            /* tokens per chunk */
  int64_t segments;
  int32_t form;    /* PLUMRT_STEP or PLUMRT_CHUNK */
  int32_t kernels; /* that one launch enqueues */
} plumrt_plan_info;
PLUMRT_API int plumrt_plan_query(const plumrt_plan *plan,
                                 plumrt_plan_info *info, char *error,
                                 size_t error_size);

/* Device addresses; each list is in the manifest's order. The same rules for
 * `size` as in plumrt_run_args. */
typedef struct plumrt_launch {
  size_t size; /* sizeof(plumrt_launch) */
  const void *const *inputs;
  const void *const *params;
  void *const *outputs;
  const void *const *initial_states; /* NULL: zeros */
  void *const *final_states;         /* NULL: not wanted */
  void *const *snapshots;            /* NULL: not wanted */
  const void *cu_seqlens;            /* NULL in a plan of a batch */
  const void *slots;                 /* NULL in a plan without pools */
  void *workspace;                   /* not shared by launches that overlap */
  uint64_t workspace_bytes;
  void *stream;     /* a CUstream or cudaStream_t; NULL: the default stream */
  const void *past; /* NULL in a plan without it */
} plumrt_launch;
PLUMRT_API int plumrt_plan_launch(const plumrt_plan *plan,
                                  const plumrt_launch *launch, char *error,
                                  size_t error_size);

/* The workspace of any run: of `sequences` sequences of `tokens` tokens each,
 * or, packed, of so many rows in all. form is PLUMRT_STEP or PLUMRT_CHUNK,
 * chunk 0 the bundle's first, segments at least 1. */
PLUMRT_API int plumrt_gpu_workspace(const plumrt_gpu *gpu, int32_t form,
                                    int64_t chunk, int64_t sequences,
                                    int64_t tokens, int64_t heads,
                                    int32_t packed, int64_t segments,
                                    uint64_t *bytes, char *error,
                                    size_t error_size);

#ifdef __cplusplus
} /* extern "C" */

static_assert(sizeof(plumrt_plan_info) == 40, "callers lay this out by hand");
static_assert(sizeof(plumrt_launch) == 104, "callers lay this out by hand");
static_assert(sizeof(plumrt_tensor) == 80, "callers lay this out by hand");
static_assert(sizeof(plumrt_run_args) == 152, "callers lay this out by hand");
#endif

#endif /* PLUM_RUNTIME_PLUMRT_H */
