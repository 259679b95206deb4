/*===- capi_in_c.c - plumrt.h from C -------------------------------*- C -*-===*
 *
 * Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*/

#include "runtime/plumrt.h"

/* One token of one head of layer toy (K = 4, V = 3), everything 1; o[0]. */
int toyInC(const char *directory, float *result, char *error, size_t size) {
  float q[4] = {1, 1, 1, 1}, k[4] = {1, 1, 1, 1}, g = 0, bias[3] = {0, 0, 0};
  uint16_t v[3] = {0x3f80, 0x3f80, 0x3f80};
  float o[3], n;
  plumrt_tensor inputs[4] = {{q, PLUMRT_F32, 0, {1, 1, 1, 4}, {4, 4, 4, 1}},
                             {k, PLUMRT_F32, 0, {1, 1, 1, 4}, {4, 4, 4, 1}},
                             {v, PLUMRT_BF16, 0, {1, 1, 1, 3}, {3, 3, 3, 1}},
                             {&g, PLUMRT_F32, 0, {1, 1, 1, 1}, {1, 1, 1, 1}}};
  plumrt_tensor params[1] = {{bias, PLUMRT_F32, 0, {1, 1, 1, 3}, {3, 3, 3, 1}}};
  plumrt_tensor outputs[2] = {{o, PLUMRT_F32, 0, {1, 1, 1, 3}, {3, 3, 3, 1}},
                              {&n, PLUMRT_F32, 0, {1, 1, 1, 1}, {1, 1, 1, 1}}};
  plumrt_run_args args = {.size = sizeof args,
                          .inputs = inputs,
                          .params = params,
                          .outputs = outputs};
  plumrt_bundle *bundle;
  int failed = plumrt_open(directory, &bundle, error, size);
  if (failed)
    return failed;
  failed = plumrt_run(bundle, &args, error, size);
  plumrt_close(bundle);
  *result = failed ? 0 : o[0];
  return failed;
}

/* Two tokens of one head of layer toy_attention, whose values are 1 and 2, then
 * one whose value is 6, in place: the output after each run, the values, and
 * one number behind them. */
int attentionInC(const char *directory, float *result, char *error,
                 size_t size) {
  float q[8] = {1, 1, 1, 1, 1, 1, 1, 1}, k[8] = {0}, scale = 1, o[6], n[2];
  uint16_t v[6] = {0x3f80, 0x3f80, 0x3f80, 0x4000, 0x4000, 0x4000};
  float keys[16], z[4] = {0}, values[12];
  plumrt_tensor inputs[3] = {{q, PLUMRT_F32, 0, {1, 2, 1, 4}, {8, 4, 4, 1}},
                             {k, PLUMRT_F32, 0, {1, 2, 1, 4}, {8, 4, 4, 1}},
                             {v, PLUMRT_BF16, 0, {1, 2, 1, 3}, {6, 3, 3, 1}}};
  plumrt_tensor params[1] = {
      {&scale, PLUMRT_F32, 0, {1, 1, 1, 1}, {1, 1, 1, 1}}};
  plumrt_tensor outputs[2] = {{o, PLUMRT_F32, 0, {1, 2, 1, 3}, {6, 3, 3, 1}},
                              {n, PLUMRT_F32, 0, {1, 2, 1, 1}, {2, 1, 1, 1}}};
  /* Room for four rows. */
  plumrt_tensor states[3] = {
      {keys, PLUMRT_F32, 0, {1, 1, 4, 4}, {16, 16, 4, 1}},
      {z, PLUMRT_F32, 0, {1, 1, 1, 4}, {4, 4, 4, 1}},
      {values, PLUMRT_F32, 0, {1, 1, 4, 3}, {12, 12, 3, 1}}};
  int64_t past[1] = {0};
  plumrt_run_args args = {.size = sizeof args,
                          .inputs = inputs,
                          .params = params,
                          .outputs = outputs,
                          .initial_states = states,
                          .final_states = states,
                          .past = past,
                          .past_count = 1,
                          .past_dtype = PLUMRT_I64};
  plumrt_bundle *bundle;
  int failed = plumrt_open(directory, &bundle, error, size);
  if (failed)
    return failed;
  for (int i = 0; i < 12; ++i)
    values[i] = 777;
  failed = plumrt_run(bundle, &args, error, size);
  result[0] = o[3];
  if (!failed) {
    past[0] = 2;
    v[0] = v[1] = v[2] = 0x40c0;
    for (int i = 0; i < 3; ++i)
      inputs[i].shape[1] = 1;
    for (int i = 0; i < 2; ++i)
      outputs[i].shape[1] = 1;
    failed = plumrt_run(bundle, &args, error, size);
  }
  plumrt_close(bundle);
  result[1] = o[0];
  for (int i = 0; i < 4; ++i)
    result[2 + i] = values[3 * i];
  return failed;
}
