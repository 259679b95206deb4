/*===- toy_kernel.c - A layer compiled by hand ---------------------*- C -*-===*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What a compiler would make of the specs in ToyLayer.cpp and ToyAttention.cpp.
 * Every kernel of a layer does the same thing; each notes how it was called and
 * spoils its workspace, so that tests see what the executor does.
 *
 *===----------------------------------------------------------------------===*/

#include "plum/ABI/KernelABI.h"

#include <math.h>
#include <string.h>

enum { K = 4, V = 3, workspaceBytes = 200 };

/* Calls since a test last set toyCalls to 0: chunk (1: step) and tokens. */
int64_t toyCalls;
int64_t toyLog[256][2];
/* Calls whose workspace was not on a 64-byte boundary. */
int64_t toyMisaligned;

static float bf16(const void *data, int64_t i) {
  uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void note(const plum_kernel_args *args, int64_t chunk) {
  int64_t call = __atomic_fetch_add(&toyCalls, 1, __ATOMIC_RELAXED);
  if (call < 256) {
    toyLog[call][0] = chunk;
    toyLog[call][1] = args->tokens;
  }
  if ((uintptr_t)args->workspace % 64 != 0)
    __atomic_fetch_add(&toyMisaligned, 1, __ATOMIC_RELAXED);
  memset(args->workspace, 0xff, workspaceBytes);
}

static void run(const plum_kernel_args *args, int64_t chunk, int wide) {
  note(args, chunk);
  float *S = args->states[0], *z = args->states[1];
  const float *bias = args->params[0];
  for (int64_t t = 0; t < args->tokens; ++t) {
    const void *row[4];
    for (int i = 0; i < 4; ++i)
      row[i] = (const char *)args->inputs[i].data + t * args->inputs[i].stride;
    const float *q = row[0], *k = row[1], *g = row[3];
    float *o =
        (float *)((char *)args->outputs[0].data + t * args->outputs[0].stride);
    float *n =
        (float *)((char *)args->outputs[1].data + t * args->outputs[1].stride);
    float decay = expf(*g), norm = 0;
    for (int v = 0; v < V; ++v)
      o[v] = bias[v];
    for (int c = 0; c < K; ++c) {
      z[c] += k[c];
      norm += q[c] * z[c];
      for (int v = 0; v < V; ++v) {
        float x = wide ? ((const float *)row[2])[v] : bf16(row[2], v);
        S[c * V + v] = decay * S[c * V + v] + k[c] * x;
        o[v] += q[c] * S[c * V + v];
      }
    }
    *n = norm;
  }
}

void toy_step(const plum_kernel_args *args) { run(args, 1, 0); }
void toy_chunk4(const plum_kernel_args *args) { run(args, 4, 0); }
void toy_chunk16(const plum_kernel_args *args) { run(args, 16, 0); }
void toy_wide_step(const plum_kernel_args *args) { run(args, 1, 1); }
/* Wrong on purpose: the last token of a call is left out. */
void toy_wrong(const plum_kernel_args *args) {
  plum_kernel_args fewer = *args;
  if (fewer.tokens > 0)
    --fewer.tokens;
  run(&fewer, 4, 0);
}

static float *row(const plum_rows *rows, int64_t t) {
  return (float *)((char *)rows->data + t * rows->stride);
}

/* Layer toy_lists: keys and values grow. */
static void attend(const plum_kernel_args *args, int64_t chunk) {
  note(args, chunk);
  const float *scale = args->params[0];
  for (int64_t t = 0; t < args->tokens; ++t) {
    int64_t rows = args->past + t / (args->heads ? args->heads : 1) + 1;
    const float *q = row(&args->inputs[0], t), *k = row(&args->inputs[1], t);
    const void *v = row(&args->inputs[2], t);
    float *o = row(&args->outputs[0], t), sum = 0;
    for (int c = 0; c < K && !args->heads; ++c)
      row(&args->growing[0], rows - 1)[c] = k[c];
    for (int c = 0; c < V && !args->heads; ++c)
      row(&args->growing[1], rows - 1)[c] = bf16(v, c);
    for (int c = 0; c < V; ++c)
      o[c] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      float score = 0;
      for (int c = 0; c < K; ++c)
        score += *scale * q[c] * row(&args->growing[0], r)[c];
      score = expf(score);
      sum += score;
      for (int c = 0; c < V; ++c)
        o[c] += score * row(&args->growing[1], r)[c];
    }
    for (int c = 0; c < V; ++c)
      o[c] /= sum;
  }
}

/* Layer toy_attention: the same, and a z between them that does not. */
static void attendAndSum(const plum_kernel_args *args, int64_t chunk) {
  attend(args, chunk);
  float *z = args->states[0];
  for (int64_t t = 0; t < args->tokens; ++t) {
    const float *q = row(&args->inputs[0], t), *k = row(&args->inputs[1], t);
    float norm = 0;
    for (int c = 0; c < K; ++c) {
      z[c] += k[c];
      norm += q[c] * z[c];
    }
    *row(&args->outputs[1], t) = norm;
  }
}

void toy_lists_step(const plum_kernel_args *args) { attend(args, 1); }
void toy_lists_chunk4(const plum_kernel_args *args) { attend(args, 4); }
void toy_attend_step(const plum_kernel_args *args) { attendAndSum(args, 1); }
void toy_attend_chunk4(const plum_kernel_args *args) { attendAndSum(args, 4); }
/* Wrong on purpose: the last row of a call is not appended. */
void toy_attend_wrong(const plum_kernel_args *args) {
  plum_kernel_args fewer = *args;
  if (fewer.tokens > 0)
    --fewer.tokens;
  attendAndSum(&fewer, 4);
}
