//===- Latent.cu - Around latent attention ----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// plum_append puts rows into caches, of which the keys and values of a prompt
// are made; plum_absorb turns queries into the caches' space. The attention
// itself is compiled (docs/layers/mla.plum, mla_prefill.plum).
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

namespace plum::kernels {

PLUM_KERNEL(plum_append, AppendArgs, 256, 1) {
  const int64_t row = blockX();
  void *cache = reinterpret_cast<void *>(args.caches[args.sequence[row]]);
  const int64_t at = args.position[row] * args.cacheStride + args.begin;
  for (int64_t c = threadIndex(); c < args.width; c += 256) {
    float value;
    load<1>(args.x, row, c, &value);
    store<1>(cache, args.cacheType, at + c, &value);
  }
}

PLUM_KERNEL(plum_absorb, AbsorbArgs, 128, 4) {
  PLUM_SHARED float query[kAbsorbRows][kAbsorbColumns];
  const int head = int(blockX() % args.heads), thread = threadIndex();
  const int64_t first = blockX() / args.heads * kAbsorbRows;
  const int count = int(smaller(int64_t(kAbsorbRows), args.rows - first));
  const Type type = args.kind == WeightKind::F32 ? Type::F32 : Type::BF16;
  for (int r = 0; r < count; ++r)
    for (int c = thread; c < args.nope; c += 128)
      load<1>(args.q, first + r, int64_t(head) * args.pitch + c, &query[r][c]);
  barrier();
  const int64_t base = int64_t(head) * (args.nope + args.valueDim);
  for (int c = thread; c < args.latent; c += 128) {
    float acc[kAbsorbRows] = {};
    for (int n = 0; n < args.nope; ++n) {
      float w;
      load<1>(args.expand, type, (base + n) * args.latent + c, &w);
      for (int r = 0; r < kAbsorbRows; ++r)
        acc[r] += r < count ? query[r][n] * w : 0;
    }
    for (int r = 0; r < count; ++r)
      store<1>(args.y, first + r, int64_t(head) * args.latent + c, &acc[r]);
  }
}

} // namespace plum::kernels
