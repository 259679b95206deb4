//===- GpuAttention.cpp - Softmax attention on a GPU ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"
#include "runtime/model/gpu/GpuBackend.h"

#include <algorithm>
#include <iterator>

namespace plum::model {

using kernels::Type;

/// Shares that the keys of a query are cut into where tokens are single. Always
/// as many, so that sums do not depend on the batch.
static constexpr int32_t decodeSplits = 8;

Type GpuBackend::cacheKind() const {
  return options.compute == Compute::BF16 ? Type::BF16 : Type::F32;
}

const uint64_t *GpuBackend::cachesOf(int64_t state) const {
  return tables->caches + state * tables->sequences;
}

void GpuBackend::append(const View &x, int64_t state, int64_t cacheWidth,
                        int64_t begin) {
  kernels::AppendArgs args;
  args.x = rowsOf(x);
  args.caches = cachesOf(state);
  args.sequence = tables->sequence;
  args.position = tables->position;
  args.cacheType = cacheKind();
  args.cacheStride = cacheWidth;
  args.begin = begin;
  args.rows = x.count;
  args.width = x.width;
  machine->launch("plum_append", x.count, args);
}

std::string GpuBackend::flashFor(int64_t keyDim, int64_t valueDim) const {
  constexpr std::pair<int64_t, int64_t> kernels[] = {
      {32, 32}, {64, 64}, {128, 128}, {192, 128}};
  bool there = std::find(std::begin(kernels), std::end(kernels),
                         std::pair(keyDim, valueDim)) != std::end(kernels);
  if (!there || stepping || options.compute == Compute::F32)
    return "";
  return "plum_flash_" + std::to_string(keyDim) + "_" +
         std::to_string(valueDim);
}

void GpuBackend::startFlash(kernels::FlashArgs &args, const View &q,
                            const View &out, int64_t state) const {
  args.q = rowsOf(q);
  args.y = rowsOf(out);
  args.caches = cachesOf(state);
  args.tiles = tables->tiles;
  args.begins = tables->begins;
  args.position = tables->position;
}

Rows GpuBackend::attendTo(const View &q, int64_t heads, int64_t groups,
                          int64_t keyDim, int64_t valueDim, int64_t valueBegin,
                          int64_t state, int64_t cacheWidth, float scale) {
  Rows out(*this, q.count, heads * valueDim);
  if (keyDim > kernels::kMaxKeyDim || valueDim > kernels::kMaxValueDim) {
    machine->then(Error{"",
                        "attention with heads of " + std::to_string(keyDim) +
                            " and " + std::to_string(valueDim) +
                            " columns does not run on a GPU",
                        {}});
    return out;
  }
  kernels::AttendArgs args;
  args.q = rowsOf(q);
  args.y = rowsOf(out);
  args.caches = cachesOf(state);
  args.sequence = tables->sequence;
  args.position = tables->position;
  args.cacheType = cacheKind();
  args.cacheStride = cacheWidth;
  args.valueBegin = valueBegin;
  args.rows = q.count;
  args.heads = int32_t(heads);
  args.groups = int32_t(groups);
  args.keyDim = int32_t(keyDim);
  args.valueDim = int32_t(valueDim);
  args.scale = scale;
  args.splits = stepping ? decodeSplits : 1;
  Rows partial(*this, stepping ? q.count * heads * args.splits : 0,
               valueDim + 2);
  args.partial = partial.row(0);
  // All heads of a query share what they read of a latent cache, if the kernel
  // for it takes these sizes.
  constexpr int64_t latent = 512, whole = 576;
  const int sharedBytes = kernels::latentBytes(whole);
  if (stepping && options.compute == Compute::BF16 && groups == 1 &&
      keyDim == whole && valueDim == latent && valueBegin == 0 &&
      cacheWidth % 8 == 0 && q.stride % 2 == 0 &&
      machine->device().sharedBytes >= sharedBytes) {
    int64_t blocks =
        (heads + kernels::kLatentHeads - 1) / kernels::kLatentHeads;
    machine->launch("plum_latent_512_64", q.count * blocks * args.splits, args,
                    1, sharedBytes);
  } else {
    machine->launch("plum_attend", q.count * heads * args.splits, args);
  }
  if (args.splits > 1)
    machine->launch("plum_attend_combine", q.count * heads, args);
  return out;
}

Rows GpuBackend::attend(const Work &, const Attention &a, const View &q,
                        const View &k, const View &v) {
  append(k, a.memory.growing, a.cacheWidth(), 0);
  append(v, a.memory.growing, a.cacheWidth(), k.width);
  std::string flash = flashFor(a.keyDim, a.valueDim);
  if (!flash.empty() && a.cacheWidth() % 8 == 0) {
    Rows out(*this, q.count, a.heads * a.valueDim);
    kernels::FlashArgs args;
    startFlash(args, q, out, a.memory.growing);
    args.ownStride = a.cacheWidth();
    args.ownGroup = a.keyDim;
    args.valueBegin = a.groups * a.keyDim;
    args.valueGroup = a.valueDim;
    args.ownDim = int32_t(a.keyDim);
    args.heads = int32_t(a.heads);
    args.groups = int32_t(a.groups);
    args.scale = a.scale;
    machine->launch(flash.c_str(), tables->tileCount * a.heads, args, 1,
                    kernels::flashBytes(int(a.keyDim), int(a.valueDim)));
    return out;
  }
  return attendTo(q, a.heads, a.groups, a.keyDim, a.valueDim,
                  a.groups * a.keyDim, a.memory.growing, a.cacheWidth(),
                  a.scale);
}

/// Many queries: keys and values of all heads are made from the latent rows,
/// then it is attention as usual.
Rows GpuBackend::attendExpanded(const LatentAttention &a, const View &q) {
  const int64_t own = a.nope + a.valueDim, width = a.heads * own;
  const int64_t cacheWidth = a.latent + a.pe;
  Resident expand = weight(a.expand);
  Rows wide(*this, tables->keyCount, width / 2); // As bf16.
  int64_t begin = 0;
  for (const Span &span : spans) {
    int64_t keys = span.past + span.length;
    Gemm gemm;
    gemm.m = keys;
    gemm.n = width;
    gemm.k = a.latent;
    gemm.x = pool->growing(span.slot, a.memory.growing).data;
    gemm.w = expand.data;
    gemm.y = reinterpret_cast<uint16_t *>(wide.row(0)) + begin * width;
    gemm.result = DType::BF16;
    gemm.ldx = cacheWidth;
    gemm.ldw = a.latent;
    gemm.ldy = width;
    machine->multiply(gemm);
    begin += keys;
  }
  Rows out(*this, q.count, a.heads * a.valueDim);
  kernels::FlashArgs args;
  startFlash(args, q, out, a.memory.growing);
  args.expanded = wide.row(0);
  args.expandedBegin = tables->keyBegins;
  args.ownStride = width;
  args.ownGroup = own;
  args.valueBegin = a.nope;
  args.valueGroup = own;
  args.sharedStride = cacheWidth;
  args.sharedBegin = a.latent;
  args.ownDim = int32_t(a.nope);
  args.heads = args.groups = int32_t(a.heads);
  args.scale = a.scale;
  int64_t keyDim = a.nope + a.pe;
  machine->launch(flashFor(keyDim, a.valueDim).c_str(),
                  tables->tileCount * a.heads, args, 1,
                  kernels::flashBytes(int(keyDim), int(a.valueDim)));
  return out;
}

Rows GpuBackend::attend(const Work &, const LatentAttention &a, const View &q,
                        const View &rows) {
  const int64_t wide = a.latent + a.pe;
  append(rows, a.memory.growing, wide, 0);
  if (!flashFor(a.nope + a.pe, a.valueDim).empty() && wide % 8 == 0 &&
      a.nope % 8 == 0 && a.latent % 8 == 0)
    return attendExpanded(a, q);
  Resident expand = weight(a.expand);
  Rows queries(*this, q.count, a.heads * wide);
  kernels::AbsorbArgs args;
  args.q = rowsOf(q);
  args.y = rowsOf(queries);
  args.expand = expand.data;
  args.kind = expand.kind;
  args.rows = q.count;
  args.heads = int32_t(a.heads);
  args.nope = int32_t(a.nope);
  args.pe = int32_t(a.pe);
  args.valueDim = int32_t(a.valueDim);
  args.latent = int32_t(a.latent);
  machine->launch(
      "plum_absorb",
      a.heads * ((q.count + kernels::kAbsorbRows - 1) / kernels::kAbsorbRows),
      args);
  Rows mixed = attendTo(queries, a.heads, 1, wide, a.latent, 0,
                        a.memory.growing, wide, a.scale);
  Rows out(*this, q.count, a.heads * a.valueDim);
  kernels::DotsArgs up;
  up.x = rowsOf(mixed);
  up.y = rowsOf(out);
  up.weight = expand.data;
  up.scales = expand.scales;
  up.kind = expand.kind;
  up.rows = q.count;
  up.cols = a.latent;
  up.outs = out.width;
  up.heads = int32_t(a.heads);
  up.headRows = a.nope + a.valueDim;
  up.firstRow = a.nope;
  launchDots(up);
  return out;
}

} // namespace plum::model
