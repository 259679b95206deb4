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

void Attention::load(Build &build, const std::string &name) {
  memory = build.memory(spec(keyDim, valueDim), name, heads,
                        {Vector(size_t(heads), scale)}, groups);
}

Rows Attention::run(const Work &work, const View &q, const View &k,
                    const View &v) const {
  Rows out = memory.run(work, {{q, heads}, {k, groups}, {v, groups}});
  work.round(out);
  return out;
}

void LatentAttention::load(Build &build, const std::string &name) {
  const Vector scales(size_t(heads), scale);
  memory = build.memory(spec(latent, pe), name, heads, {scales}, 1);
  prompts =
      build.memory(promptSpec(nope, pe, valueDim), name, heads, {scales}, 0);
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

Rows LatentAttention::attend(const Work &work, const View &absorbed,
                             const View &q, const View &rows) const {
  Rows places = work.rows(q.count, heads * pe);
  pickHeads(work, q, nope + pe, nope, pe, places);
  return memory.run(work, {{absorbed, heads},
                           {rows.columns(0, latent), 1},
                           {places, heads},
                           {rows.columns(latent, pe), 1}});
}

Rows LatentAttention::run(const Work &work, const View &q,
                          const View &rows) const {
  if (work.backend)
    return work.backend->attend(work, *this, q, rows);
  Rows mixed = attend(work, absorb(work, q), q, rows);
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
