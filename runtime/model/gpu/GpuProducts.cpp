//===- GpuProducts.cpp - Products with weights on a GPU -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequences that have one token each use kernels of our own, which read a
// weight once for all of them; longer ones use cuBLASLt. Which of the two does
// not depend on the number of sequences, so a sequence has the same bits in
// every batch. Tokens with checkpoints count as single ones.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/GpuBackend.h"

namespace plum::model {

using kernels::WeightKind;

void GpuBackend::dots(const View &x, const Resident &w, const View &y) {
  kernels::DotsArgs args;
  args.x = rowsOf(x);
  args.y = rowsOf(y);
  args.weight = w.data;
  args.scales = w.scales;
  args.kind = w.kind;
  args.rows = x.count;
  args.cols = x.width;
  args.outs = y.width;
  launchDots(args);
}

/// A block has 8 outputs of 8 rows, or with a choice 64 of one.
void GpuBackend::launchDots(const kernels::DotsArgs &args) {
  if (args.choice)
    machine->launch("plum_dots", (args.outs + 63) / 64, args, args.rows);
  else
    machine->launch("plum_dots", (args.outs + 7) / 8, args,
                    (args.rows + 7) / 8);
}

/// Rows of single tokens and weights in bf16: all products in a launch, or as
/// many as one takes.
void GpuBackend::skinny(std::span<const Product *const> products) {
  const int64_t rows = products[0]->x.count;
  const int64_t tile = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  const int64_t outs = tile <= 16 ? 16 : 32; // Of a block.
  std::vector<std::pair<const float *, Rows>> packed;
  kernels::SkinnyArgs args;
  args.rows = rows;
  int64_t blocks = 0;
  auto flush = [&] {
    if (args.count > 0)
      machine->launch(("plum_skinny_" + std::to_string(tile)).c_str(), blocks,
                      args, (rows + tile - 1) / tile);
    args.count = 0;
    blocks = 0;
  };
  for (const Product *p : products) {
    kernels::SkinnyPart &part = args.parts[args.count++];
    part.x = p->x.data;
    part.ldx = p->x.stride;
    if (tile > 16) {
      part.x = narrowedOnce(p->x, packed);
      part.ldx = p->x.width;
    }
    part.w = weight(*p->w).data;
    part.y = p->y.data;
    part.ldy = p->y.stride;
    part.outs = p->w->rows;
    part.cols = p->w->cols;
    part.firstBlock = blocks;
    blocks += (part.outs + outs - 1) / outs;
    if (args.count == kernels::kMaxParts)
      flush();
  }
  flush();
}

/// Rows that several products share are narrowed once.
const float *
GpuBackend::narrowedOnce(const View &x,
                         std::vector<std::pair<const float *, Rows>> &packed) {
  for (const auto &[from, rows] : packed)
    if (from == x.data)
      return rows.row(0);
  return packed.emplace_back(x.data, narrowed(x)).second.row(0);
}

void GpuBackend::multiply(const Work &, std::span<const Product> products) {
  std::vector<std::pair<const float *, Rows>> packed;
  std::vector<const Product *> few;
  for (const Product &p : products) {
    if (p.x.count == 0)
      continue;
    Resident w = weight(*p.w);
    bool exact = options.compute == Compute::F32;
    bool aligned = p.w->cols % 8 == 0 && p.x.stride % 8 == 0 &&
                   reinterpret_cast<uintptr_t>(p.x.data) % 32 == 0;
    if (stepping && !exact && w.kind == WeightKind::BF16 && aligned) {
      few.push_back(&p);
      continue;
    }
    // cuBLASLt has no algorithm for bf16 rows that do not start on 16 bytes,
    // nor for a gate of one column.
    bool odd = !exact && (p.w->cols % 8 || p.w->rows % 8 || p.y.stride % 4);
    if (stepping || odd ||
        w.kind != (exact ? WeightKind::F32 : WeightKind::BF16)) {
      dots(p.x, w, p.y);
      continue;
    }
    Gemm gemm;
    gemm.type = exact ? DType::F32 : DType::BF16;
    gemm.m = p.x.count;
    gemm.n = p.w->rows;
    gemm.k = p.w->cols;
    gemm.x = exact ? p.x.data : narrowedOnce(p.x, packed);
    gemm.ldx = exact ? p.x.stride : p.x.width;
    gemm.w = w.data;
    gemm.ldw = p.w->cols;
    gemm.y = p.y.data;
    gemm.ldy = p.y.stride;
    machine->multiply(gemm);
  }
  if (!few.empty())
    skinny(few);
}

} // namespace plum::model
