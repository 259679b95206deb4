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
void GpuBackend::skinny(std::span<const Skinny> products) {
  const int64_t rows = products[0].x.count;
  const int64_t tile = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  int64_t outs = tile <= 16 ? 16 : 32; // Of a block.
  std::string kernel = "plum_skinny_";
  if (products[0].heads > 1) {
    kernel += "heads_"; // These come alone.
  } else if (tile == 64) {
    int64_t tall = 0; // Blocks of 64 outputs, if these fill the GPU.
    for (const Skinny &p : products)
      tall += (p.part.outs + 63) / 64;
    if (4 * tall >= 3 * int64_t(machine->device().processors)) {
      kernel += "tall_";
      outs = 64;
    }
  }
  kernel += std::to_string(tile);
  std::vector<std::pair<const float *, Rows>> packed;
  kernels::SkinnyArgs args;
  args.rows = rows;
  int64_t blocks = 0;
  auto flush = [&] {
    if (args.count > 0)
      machine->launch(kernel.c_str(), blocks, args, (rows + tile - 1) / tile);
    args.count = 0;
    blocks = 0;
  };
  for (const Skinny &p : products) {
    kernels::SkinnyPart &part = args.parts[args.count++];
    part = p.part;
    part.x = p.x.data;
    part.ldx = p.x.stride;
    part.xHead *= tile > 16 ? 2 : 4; // In bytes.
    if (tile > 16) {
      part.x = narrowedOnce(p.x, packed);
      part.ldx = p.x.width;
    }
    part.y = p.y.data;
    part.ldy = p.y.stride;
    part.firstBlock = blocks;
    blocks += (part.outs + outs - 1) / outs * p.heads;
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

/// f32 sums are as good as they are short: those of `exact` products are made
/// of up to eight parts.
void GpuBackend::multiplyExactly(Gemm gemm) {
  const int64_t cols = gemm.k;
  const int64_t step = std::max<int64_t>((cols / 8 + 31) / 32 * 32, 32);
  for (int64_t c = 0; c < cols; c += step) {
    gemm.k = std::min(step, cols - c);
    gemm.onto = c > 0;
    machine->multiply(gemm);
    gemm.x = static_cast<const float *>(gemm.x) + step;
    gemm.w = static_cast<const float *>(gemm.w) + step;
  }
}

void GpuBackend::multiply(const Work &, std::span<const Product> products) {
  std::vector<std::pair<const float *, Rows>> packed;
  std::vector<Skinny> few;
  for (const Product &p : products) {
    if (p.x.count == 0)
      continue;
    Resident w = weight(*p.w);
    bool exact = options.compute == Compute::F32;
    bool aligned = p.w->cols % 8 == 0 && p.x.stride % 8 == 0 &&
                   reinterpret_cast<uintptr_t>(p.x.data) % 32 == 0;
    if (stepping && !exact && w.kind == WeightKind::BF16 && aligned) {
      Skinny &one = few.emplace_back(Skinny{p.x, p.y});
      one.part.w = w.data;
      one.part.outs = p.w->rows;
      one.part.cols = p.w->cols;
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
    if (exact)
      multiplyExactly(gemm);
    else
      machine->multiply(gemm);
  }
  if (!few.empty())
    skinny(few);
}

void GpuBackend::multiplyHeads(const HeadProduct &p) {
  if (p.x.count == 0)
    return;
  if (stepping && p.w.kind == WeightKind::BF16 && p.cols % 8 == 0 &&
      p.pitch % 8 == 0 && p.x.stride % 8 == 0) {
    Skinny all{p.x, p.y, p.heads};
    all.part.w = static_cast<const uint16_t *>(p.w.data) + p.firstRow * p.cols;
    all.part.outs = p.y.width / p.heads;
    all.part.cols = p.cols;
    all.part.xHead = p.pitch;
    all.part.wHead = p.headRows * p.cols;
    all.part.yHead = all.part.outs;
    return skinny(std::span(&all, 1));
  }
  kernels::DotsArgs args;
  args.x = rowsOf(p.x);
  args.y = rowsOf(p.y);
  args.weight = p.w.data;
  args.scales = p.w.scales;
  args.kind = p.w.kind;
  args.rows = p.x.count;
  args.cols = p.cols;
  args.outs = p.y.width;
  args.heads = int32_t(p.heads);
  args.headColumns = p.pitch;
  args.headRows = p.headRows;
  args.firstRow = p.firstRow;
  launchDots(args);
}

} // namespace plum::model
