/*===- KernelABI.h - What a compiled layer and its caller agree on -*- C -*-===*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The whole contract between compiled CPU code and whoever calls it. One call
 * runs `tokens` tokens of ONE head of ONE sequence and updates its states in
 * place; sequences and heads are independent, so the caller spreads calls over
 * threads as it likes. A kernel allocates nothing, keeps nothing between calls
 * and touches only what is named here. Inputs, params, states and outputs come
 * in the order of the bundle's manifest.json.
 *
 * A state is fixed, [K, V] whatever came before, or grows by one row [d] for
 * each token. All growing states of a layer hold the same number of rows; the
 * caller has room for those that a call adds.
 *
 * Where every row that is appended is an input as it stands ("rows" in the
 * manifest), heads can share the growing states: the caller appends, once, and
 * kernels only read (`heads` below). A row of inputs and outputs may then also
 * be one of several heads of a token, so that a call reads a list once for all.
 *
 *===----------------------------------------------------------------------===*/

#ifndef PLUM_ABI_KERNELABI_H
#define PLUM_ABI_KERNELABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bumped when a struct below changes. Written to manifest.json. */
#define PLUM_KERNEL_ABI 3

/* Rows of one tensor for one head: token t's row (d elements, contiguous) lies
 * at data + t * stride; stride is in bytes and may be any multiple of the
 * element size (views into fused buffers need no copy). */
typedef struct plum_rows {
  void *data;
  int64_t stride;
} plum_rows;

typedef struct plum_kernel_args {
  int64_t tokens;          /* rows of inputs and outputs, each a token; >= 0,
                              with 0 the states stay as they are */
  void *workspace;         /* workspace_bytes of the manifest, 64-byte aligned;
                              contents undefined before and after */
  const plum_rows *inputs; /* one each, read only */
  const void *const *params; /* this head's values, contiguous */
  float *const *states;      /* fixed ones: in/out, f32, [K, V] row-major
                                contiguous ([K] for a vector state) */
  const plum_rows *outputs;  /* one each, written for every token */
  const plum_rows *growing; /* growing states, one each, f32: rows 0 .. past are
                               there, the call writes the next `tokens` */
  int64_t past;             /* rows in every growing state before the call; 0
                               where a layer has none */
  int64_t heads;            /* 0: as said. n > 0: growing states have the rows
                               of all tokens already, nothing is appended; row i
                               of inputs and outputs is of token i / n. n > 1
                               only where no state is fixed */
} plum_kernel_args;

typedef void (*plum_kernel)(const plum_kernel_args *args);

#ifdef __cplusplus
} /* extern "C" */

static_assert(sizeof(void *) == 8, "the kernel ABI is for 64-bit targets");
static_assert(sizeof(plum_rows) == 16, "compiled code indexes plum_rows");
static_assert(sizeof(plum_kernel_args) == 72,
              "compiled code reads these fields at fixed offsets");
#endif

#endif /* PLUM_ABI_KERNELABI_H */
