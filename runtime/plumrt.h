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
 *                   [N, H, 1, K], a scalar one [N, H, 1, 1]
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
  int32_t layout;                 /* PLUMRT_KV, PLUMRT_VK: of every state */
  int32_t form;                   /* PLUMRT_AUTO, PLUMRT_STEP, PLUMRT_CHUNK */
  int64_t chunk;                  /* tokens per chunk; 0: the bundle's first */
  int32_t threads;                /* 0: one per CPU */
  int32_t reserved;               /* 0 */
  int64_t states_every;           /* n > 0: states after n, 2n, ... tokens */
  const plumrt_tensor *snapshots; /* [M, ...], M the sum of len / n */
} plumrt_run_args;

PLUMRT_API int plumrt_open(const char *directory, plumrt_bundle **bundle,
                           char *error, size_t error_size);
PLUMRT_API void plumrt_close(plumrt_bundle *bundle); /* NULL is fine */
PLUMRT_API int plumrt_run(plumrt_bundle *bundle, const plumrt_run_args *args,
                          char *error, size_t error_size);
/* The manifest as JSON; lives as long as the bundle. */
PLUMRT_API const char *plumrt_manifest(const plumrt_bundle *bundle);

#ifdef __cplusplus
} /* extern "C" */

static_assert(sizeof(plumrt_tensor) == 80, "callers lay this out by hand");
static_assert(sizeof(plumrt_run_args) == 128, "callers lay this out by hand");
#endif

#endif /* PLUM_RUNTIME_PLUMRT_H */
