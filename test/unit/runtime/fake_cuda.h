/*===- fake_cuda.h - A CUDA driver without a GPU --------------------*- C
 * -*-===*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What tests reach of fake_cuda.c beside the driver's own functions, by dlsym.
 *
 *===----------------------------------------------------------------------===*/

#ifndef PLUM_TEST_UNIT_RUNTIME_FAKE_CUDA_H
#define PLUM_TEST_UNIT_RUNTIME_FAKE_CUDA_H

#include "plum/ABI/GpuABI.h"

/* One launch since fakeReset. */
typedef struct fake_launch {
  char symbol[64];
  unsigned grid[3], block[3], sharedBytes;
  void *stream;
  int captured;
  plum_gpu_args args;
} fake_launch;

typedef struct fake_state {
  int launchCount;
  fake_launch launches[64];
  int linked;        /* Completed links. */
  int loadedPtx;     /* Modules loaded from PTX text, */
  int loadedCubins;  /* and from machine code. */
  int allocations;   /* Live ones. */
  int contextDepth;  /* Pushed and not popped. */
  int retained;      /* Primary contexts. */
  int maxShared[16]; /* Set for each function, in order. */
  int maxSharedCount;
} fake_state;

/* fake_state *fakeCuda(void);  the state
 * void fakeReset(void);        forgets launches, counts and failures
 * void fakeFail(const char *function, int error, int after);
 *                              its calls fail, but for the first `after` ones
 *
 * FAKE_CUDA_FAIL=function:error in the environment does so from the start. */
typedef fake_state *(*fakeCudaFunction)(void);
typedef void (*fakeResetFunction)(void);
typedef void (*fakeFailFunction)(const char *function, int error, int after);

#endif /* PLUM_TEST_UNIT_RUNTIME_FAKE_CUDA_H */
