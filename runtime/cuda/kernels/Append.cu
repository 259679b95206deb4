//===- Append.cu - Rows into caches -----------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows into caches, of which keys and values of a prompt are made. Elsewhere
// the compiled layers append (docs/layers/mla.plum).
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

namespace plum::kernels {

PLUM_KERNEL(plum_append, AppendArgs, 256, 1) {
  const int64_t row = blockX();
  void *cache = reinterpret_cast<void *>(args.caches[args.sequence[row]]);
  const int64_t at = args.position[row] * args.cacheStride;
  for (int64_t c = threadIndex(); c < args.width; c += 256) {
    float value;
    load<1>(args.x, row, c, &value);
    store<1>(cache, args.cacheType, at + c, &value);
  }
}

} // namespace plum::kernels
