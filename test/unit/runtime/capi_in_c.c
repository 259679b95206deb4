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
