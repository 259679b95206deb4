/*===- GpuABI.h - What GPU kernels and their launcher agree on --*- C -*-====*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Every GPU kernel takes one parameter, a plum_gpu_args by value, and reads
 * from it whatever it needs: so one host routine fills it for all kernels of a
 * launch plan, and the kernels of one run differ only in name, grid and shared
 * memory. All strides are in bytes and 64 bit; all counts 32 bit.
 *
 * Work is cut into chunks. A batch without cu_seqlens has ceil(tokens / C)
 * chunks for each sequence; a packed one is counted on the device by the
 * `index` kernel, into chunk_offsets[0][N + 1], so that the host never reads
 * cu_seqlens and a captured graph serves new ones.
 *
 * Snapshots of sequence n of a batch begin at n * `sequence` bytes; those of
 * packed sequences follow each other, and rows of padding have none. Before
 * sequence n lie as many as `index` left in chunk_offsets[1][n]; step kernels
 * add them up themselves.
 *
 *===----------------------------------------------------------------------===*/

#ifndef PLUM_ABI_GPUABI_H
#define PLUM_ABI_GPUABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bumped when what is below changes. Written to manifest.json. */
#define PLUM_GPU_ABI 4

#define PLUM_GPU_MAX_TENSORS 32

/* plum_gpu_tensor.share: ceil(2^31 / g) */
#define PLUM_GPU_SHARE(g) ((uint32_t)((0x7fffffffu + (uint64_t)(g)) / (g)))

/* plum_gpu_tensor.dtype */
#define PLUM_GPU_F32 0
#define PLUM_GPU_BF16 1
#define PLUM_GPU_F16 2
/* Or'ed into that of a state that grows: each sequence has its rows at a place
   of its own, which a table tells. */
#define PLUM_GPU_TABLE 4u

/* One tensor. Element (n, t, h, a, b):
 *   input, output of shape [d]   n * sequence + t * token + own(h) * head
 *                                + a * element size   (d contiguous)
 *   param of shape [d]           own(h) * head + a * element size
 *   state of shape [K, V]        slot(n) * sequence + h * head + a * row
 *                                + b * column, in either memory layout
 *   state that grows, rows [d]   slot(n) * sequence + own(h) * head + i * row
 *                                + a * element size (d contiguous)
 *   the same, PLUM_GPU_TABLE     data is that of an int64 table [N]: at
 *                                table[n] + sequence + own(h) * head + ...,
 *                                so that one of the two is an address
 * For a packed run n is 0 in inputs and outputs and t counts from cu[0] on.
 * Where g heads of the layer share one of the tensor's, own(h) = h / g, which
 * is the high half of 2h * share: exact for h * g < 2^31, without a division.
 */
typedef struct plum_gpu_tensor {
  uint64_t data;    /* device address; 0: an optional tensor is not given */
  int64_t sequence; /* bytes between sequences (states: pool slots) */
  int64_t token;    /* bytes between tokens (snapshots: between snapshots) */
  int64_t head;     /* bytes between heads */
  int64_t row;      /* states: bytes between rows k */
  int64_t column;   /* states: bytes between columns v */
  uint32_t share;   /* PLUM_GPU_SHARE(g) */
  uint32_t dtype;   /* states only: PLUM_GPU_F32 or PLUM_GPU_BF16, and
                       maybe PLUM_GPU_TABLE */
} plum_gpu_tensor;

/* plum_gpu_args.flags */
#define PLUM_GPU_CU64 1u    /* cu_seqlens holds int64, else int32 */
#define PLUM_GPU_SLOTS64 2u /* slots holds int64, else int32 */
#define PLUM_GPU_PAST64 4u  /* past holds int64, else int32 */

typedef struct plum_gpu_args {
  uint64_t workspace;  /* 0:  256-byte aligned */
  uint64_t cu_seqlens; /* 8:  [N + 1], or 0 for a batch */
  uint64_t slots;      /* 16: [N] slots of the state pool, or 0: slot n = n */
  uint64_t chunk_offsets;  /* 24: int32 [2][N + 1] in the workspace, packed
                              only */
  uint32_t sequences;      /* 32: N */
  uint32_t tokens;         /* 36: T of a batch; of a packed run, rows in all */
  uint32_t heads;          /* 40: H of the layer (states and outputs) */
  uint32_t chunks;         /* 44: chunks of a sequence; packed: an upper bound
                              for all sequences together */
  uint32_t segments;       /* 48: P >= 1 parts that a sequence is split into */
  uint32_t snapshot_every; /* 52: chunks (or steps) between them; 0: none */
  uint32_t flags;          /* 56 */
  uint32_t reserved;       /* 60 */
  uint64_t segment_states; /* 64: f32 scratch of the split, 0 when P = 1 */
  uint64_t blobs;          /* 72: what `prepare` leaves for `scan`, one blob a
                              chunk and head, chunk-major: chunk * H + head */
  uint64_t past;       /* 80: rows that growing states hold before the run: of
                          [N] sequences or, with slots, of each slot; or 0 */
  uint32_t past_rows;  /* 88: of every sequence, where past is 0 */
  uint32_t head_block; /* 92: heads of a token that a block of `attend` of step
                          kernels has; they share all growing states */
  /* 96: params, inputs, initial states, final states, outputs, snapshots, each
     in the order of the manifest. */
  plum_gpu_tensor tensors[PLUM_GPU_MAX_TENSORS];
} plum_gpu_args;

#ifdef __cplusplus
} /* extern "C" */

static_assert(sizeof(plum_gpu_tensor) == 56, "kernels index plum_gpu_tensor");
static_assert(sizeof(plum_gpu_args) == 96 + 56 * PLUM_GPU_MAX_TENSORS,
              "kernels read plum_gpu_args at fixed offsets");
#endif

#endif /* PLUM_ABI_GPUABI_H */
