//===- Attention.cpp - Softmax attention with a cache ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"

#include "runtime/model/Backend.h"
#include "runtime/model/Blas.h"
#include "runtime/model/Dots.h"
#include "runtime/model/Network.h"

namespace plum::model {

namespace {

MemoryLayer cache(Build &build, const MemorySpec &spec, const std::string &name,
                  int64_t heads, int64_t listHeads, float scale,
                  int64_t width) {
  MemoryLayer memory = build.memory(spec, name, heads,
                                    {Vector(size_t(heads), scale)}, listHeads);
  if (!memory.kernel)
    memory.growing = build.states.addGrowing(name, width);
  return memory;
}

} // namespace

void Attention::load(Build &build, const std::string &name) {
  memory = cache(build, spec(keyDim, valueDim), name, heads, groups, scale,
                 cacheWidth());
}

Rows Attention::run(const Work &work, const View &q, const View &k,
                    const View &v) const {
  if (work.backend)
    return work.backend->attend(work, *this, q, k, v);
  Rows out = memory.run(work, {{q, heads}, {k, groups}, {v, groups}});
  work.round(out);
  return out;
}

void LatentAttention::load(Build &build, const std::string &name) {
  memory = cache(build, spec(latent, pe), name, heads, 1, scale, latent + pe);
}

Rows LatentAttention::absorb(const Work &work, const View &q) const {
  const DotKernels &kernels = DotKernels::get();
  const Blas *blas = q.count >= manyRows ? Blas::get() : nullptr;
  Rows absorbed(q.count, heads * latent);
  work.weightBytes += expand.bytes() / (nope + valueDim) * nope;
  double cost = double(q.count * heads) * double(nope * latent) / 8;
  work.each(heads, cost, [&](int thread, int64_t head) {
    Matrix keyUp = expand.slice(head * (nope + valueDim), nope);
    View from = q.columns(head * (nope + pe), nope);
    View to = absorbed.columns(head * latent, latent);
    if (!blas) {
      for (int64_t t = 0; t < q.count; ++t)
        kernels.combine(keyUp, from.row(t), to.row(t));
      return;
    }
    float *wide = work.scratch(thread, nope * latent);
    kernels.widen(keyUp, wide);
    blas->times(q.count, latent, nope, from.data, from.stride, wide, latent,
                to.data, to.stride);
  });
  return absorbed;
}

Rows LatentAttention::run(const Work &work, const View &q,
                          const View &rows) const {
  if (work.backend)
    return work.backend->attend(work, *this, q, rows);
  Rows absorbed = absorb(work, q);
  Rows places(q.count, heads * pe);
  pickHeads(work, q, nope + pe, nope, pe, places);
  Rows mixed = memory.run(work, {{absorbed, heads},
                                 {rows.columns(0, latent), 1},
                                 {places, heads},
                                 {rows.columns(latent, pe), 1}});
  Rows out(q.count, heads * valueDim);
  std::vector<Matrix> valueUps;
  for (int64_t head = 0; head < heads; ++head)
    valueUps.push_back(expand.slice(head * (nope + valueDim) + nope, valueDim));
  std::vector<Product> products;
  for (int64_t head = 0; head < heads; ++head)
    products.push_back({mixed.columns(head * latent, latent),
                        &valueUps[size_t(head)],
                        out.columns(head * valueDim, valueDim)});
  multiply(work, products);
  return out;
}

} // namespace plum::model
