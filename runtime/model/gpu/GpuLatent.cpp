//===- GpuLatent.cpp - Latent attention on a GPU --------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both ways of Attention.h: a pass of single tokens absorbs, and the compiled
// memory does the rest; a prompt in bf16 makes keys and values of all tokens so
// far, which then are the lists of another compiled layer, mla_prefill.
//
//   cache [c | k_pe]    W_kvb c     ->   wide, of each token, [k_h | v_h] of
//                                        each head
//   lists               keys        ->   wide, from column 0 of a head
//                       places      ->   the cache, from column `latent`
//                       values      ->   wide, from column `nope` of a head
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"
#include "runtime/model/Dots.h"
#include "runtime/model/gpu/GpuBackend.h"

namespace plum::model {

using runtime::RowTable;
using runtime::TensorView;

void GpuBackend::append(const View &x, int64_t state, int64_t cacheWidth) {
  kernels::AppendArgs args;
  args.x = rowsOf(x);
  args.caches = cachesOf(state);
  args.sequence = tables->sequence;
  args.position = tables->position;
  args.cacheType = kernels::Type::BF16; // f32 prompts are not expanded.
  args.cacheStride = cacheWidth;
  args.rows = x.count;
  args.width = x.width;
  machine->launch("plum_append", x.count, args);
}

GpuBackend::Resident GpuBackend::absorbing(const LatentAttention &a) {
  auto [found, fresh] = weights.try_emplace(&a);
  Resident &resident = found->second;
  if (!fresh || !machine->good())
    return resident;
  const DotKernels &dots = DotKernels::get();
  Rows turned(a.heads * a.latent, a.nope), keyUp(a.nope, a.latent);
  for (int64_t head = 0; head < a.heads; ++head) {
    dots.widen(a.expand.slice(head * (a.nope + a.valueDim), a.nope),
               keyUp.row(0));
    for (int64_t c = 0; c < a.latent; ++c)
      for (int64_t n = 0; n < a.nope; ++n)
        turned.row(head * a.latent + c)[n] = keyUp.row(n)[c];
  }
  const Matrix matrix = Matrix::of(turned);
  const int64_t bytes = placedBytes(matrix);
  resident.kind = placedKind(matrix);
  void *data = upload(size_t(bytes));
  resident.data = data;
  weightSum += bytes;
  if (machine->good())
    place(matrix, data, nullptr);
  return resident;
}

/// Keys and values of all tokens so far of all sequences, one after the other.
/// `firsts`: where those of each begin, in bytes.
Rows GpuBackend::expand(const LatentAttention &a,
                        std::vector<int64_t> &firsts) {
  const int64_t width = a.heads * (a.nope + a.valueDim);
  int64_t count = 0;
  for (const Span &span : spans) {
    firsts.push_back(count * width * 2);
    count += span.past + span.length;
  }
  Rows wide(*this, count, width / 2); // As bf16.
  Resident expand = weight(a.expand);
  for (size_t s = 0; s < spans.size(); ++s) {
    Gemm gemm;
    gemm.m = spans[s].past + spans[s].length;
    gemm.n = width;
    gemm.k = a.latent;
    gemm.x = pool->growing(spans[s].slot, a.memory.growing).data;
    gemm.w = expand.data;
    gemm.y = reinterpret_cast<std::byte *>(wide.row(0)) + firsts[s];
    gemm.result = DType::BF16;
    gemm.ldx = a.latent + a.pe;
    gemm.ldw = a.latent;
    gemm.ldy = width;
    machine->multiply(gemm);
  }
  return wide;
}

Rows GpuBackend::attendExpanded(const LatentAttention &a, const View &q,
                                const View &rows) {
  const int64_t cacheWidth = a.latent + a.pe, own = a.nope + a.valueDim;
  append(rows, a.memory.growing, cacheWidth);
  std::vector<int64_t> firsts;
  Rows wide = expand(a, firsts);
  Rows table(*this, 1, 2 * int64_t(firsts.size()));
  machine->copyIn(table.row(0), firsts.data(), firsts.size() * sizeof(int64_t));
  auto offsets = reinterpret_cast<const int64_t *>(table.row(0));
  auto base = int64_t(reinterpret_cast<uintptr_t>(wide.row(0)));
  const int64_t wideRow = a.heads * own * 2;
  const RowTable keys{offsets, base, DType::BF16, wideRow, own * 2},
      values{offsets, base + a.nope * 2, DType::BF16, wideRow, own * 2},
      places{cachesOf(a.memory.growing), a.latent * 2, DType::BF16,
             cacheWidth * 2, 0};

  const std::vector<runtime::ManifestTensor> &inputs =
      a.prompts.kernel->manifest().inputs;
  const DType type = inputs[0].dtype;
  Rows packed;
  if (type == DType::BF16)
    packed = narrowed(q);
  auto query = [&](int64_t begin, int64_t width) {
    const View &from = type == DType::BF16 ? View(packed) : q;
    const int64_t stride = type == DType::BF16 ? q.width : q.stride;
    TensorView view{from.data,
                    type,
                    {1, q.count, a.heads, width},
                    {q.count * stride, stride, a.nope + a.pe, 1}};
    view.data = view.at(0, 0, 0, begin);
    return view;
  };
  auto row = [&](int64_t heads, int64_t width) { // In the lists already.
    return TensorView::dense(nullptr, type, 1, q.count, heads, width);
  };
  runtime::RunArgs args;
  args.inputs = {query(0, a.nope), row(a.heads, a.nope), query(a.nope, a.pe),
                 row(1, a.pe), row(a.heads, a.valueDim)};
  args.rowTables = {keys, places, values};
  args.appended = true;
  return runOnce(a.prompts, args, q.count);
}

Rows GpuBackend::attend(const Work &work, const LatentAttention &a,
                        const View &q, const View &rows) {
  if (!stepping && options.compute == Compute::BF16)
    return attendExpanded(a, q, rows);
  Rows absorbed(*this, q.count, a.heads * a.latent);
  multiplyHeads(
      {q, absorbed, absorbing(a), a.heads, a.nope, a.nope + a.pe, a.latent, 0});
  Rows mixed = a.attend(work, absorbed, q, rows);
  Rows out(*this, q.count, a.heads * a.valueDim);
  multiplyHeads({mixed, out, weight(a.expand), a.heads, a.latent, a.latent,
                 a.nope + a.valueDim, a.nope});
  return out;
}

} // namespace plum::model
