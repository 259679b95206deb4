//===- GpuProducts.cpp - Products with weights on a GPU -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequences that have one token each use kernels of our own, which read a
// weight once for all of them; longer ones use cuBLASLt. Which of the two does
// not depend on the number of sequences, so a sequence has the same bits in
// every batch.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/GpuBackend.h"
#include "runtime/model/gpu/GpuExperts.h"

#include <algorithm>
#include <cmath>

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

void GpuBackend::multiply(const Work &, std::span<const Product> products) {
  // Rows that several products share are narrowed once.
  std::vector<std::pair<const float *, Rows>> packed;
  for (const Product &p : products) {
    if (p.x.count == 0)
      continue;
    Resident w = weight(*p.w);
    bool exact = options.compute == Compute::F32;
    if (single || w.kind != (exact ? WeightKind::F32 : WeightKind::BF16)) {
      dots(p.x, w, p.y);
      continue;
    }
    Gemm gemm;
    gemm.type = exact ? DType::F32 : DType::BF16;
    gemm.m = p.x.count;
    gemm.n = p.w->rows;
    gemm.k = p.w->cols;
    gemm.x = p.x.data;
    gemm.ldx = p.x.stride;
    if (!exact) {
      auto found =
          std::find_if(packed.begin(), packed.end(), [&](const auto &entry) {
            return entry.first == p.x.data;
          });
      if (found == packed.end())
        found = packed.emplace(found, p.x.data, narrowed(p.x));
      gemm.x = found->second.row(0);
      gemm.ldx = p.x.width;
    }
    gemm.w = w.data;
    gemm.ldw = p.w->cols;
    gemm.y = p.y.data;
    gemm.ldy = p.y.stride;
    machine->multiply(gemm);
  }
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

const GpuBackend::ResidentExperts &
GpuBackend::residentExperts(const Experts &experts) {
  std::unique_ptr<ResidentExperts> &lists = expertLists[&experts];
  if (lists)
    return *lists;
  lists = std::make_unique<ResidentExperts>();
  auto stack = [&](Matrix Mlp::*which, ResidentExperts::Stack &to) {
    const Matrix &first = experts.experts[0].*which;
    int64_t count = int64_t(experts.experts.size());
    int64_t bytes = placedBytes(first);
    int64_t more =
        first.type == WeightType::MXFP4 ? first.rows * first.cols / mxGroup : 0;
    auto data = static_cast<std::byte *>(
        const_cast<void *>(upload(nullptr, size_t(count * bytes))));
    auto scales = static_cast<std::byte *>(const_cast<void *>(
        more ? upload(nullptr, size_t(count * more)) : nullptr));
    to.data = data;
    to.scales = reinterpret_cast<const uint8_t *>(scales);
    to.kind = placedKind(first);
    to.bytes = bytes + more;
    weightSum += count * to.bytes;
    std::vector<uint64_t> list, scaleList;
    for (int64_t e = 0; e < count; ++e) {
      std::byte *scale = scales ? scales + e * more : nullptr;
      list.push_back(reinterpret_cast<uintptr_t>(data + e * bytes));
      scaleList.push_back(reinterpret_cast<uintptr_t>(scale));
      if (machine->good())
        place(experts.experts[size_t(e)].*which, data + e * bytes, scale);
    }
    to.list = static_cast<const uint64_t *>(
        upload(list.data(), list.size() * sizeof(uint64_t)));
    to.scaleList = static_cast<const uint64_t *>(
        upload(scaleList.data(), scaleList.size() * sizeof(uint64_t)));
  };
  stack(&Mlp::gate, lists->gate);
  stack(&Mlp::up, lists->up);
  stack(&Mlp::down, lists->down);
  return *lists;
}

void GpuBackend::choose(const Experts &experts, const View &logits,
                        const View &choice, const View &weight) {
  if (experts.router.rows > kernels::kMaxExperts) {
    machine->then(Error{"",
                        "more than " + std::to_string(kernels::kMaxExperts) +
                            " experts do not run on a GPU",
                        {}});
    return;
  }
  kernels::ChooseArgs args;
  args.logits = rowsOf(logits);
  args.bias = experts.bias.empty() ? nullptr : vector(experts.bias);
  args.choice = reinterpret_cast<int32_t *>(choice.data);
  args.weight = weight.data;
  args.rows = logits.count;
  args.experts = int32_t(experts.router.rows);
  args.chosen = int32_t(experts.chosen);
  args.softmax = experts.score == Experts::Softmax;
  args.renormalize = experts.renormalize;
  args.scale = experts.scale;
  machine->launch("plum_choose", logits.count, args);
}

/// What the passes' experts are expected to have: nobody counts those that were
/// chosen, so it is as if tokens chose at random.
static double expectedExperts(const Experts &experts, int64_t tokens) {
  double all = double(experts.experts.size());
  return all * (1 - std::pow(1 - double(experts.chosen) / all, double(tokens)));
}

Rows GpuBackend::route(const Work &work, const Experts &experts, const View &x,
                       const View &z) {
  const ResidentExperts &resident = residentExperts(experts);
  int64_t chosen = experts.chosen, wide = experts.experts[0].gate.rows;
  Rows logits(*this, x.count, experts.router.rows);
  Product route{x, &experts.router, logits};
  multiply(work, {&route, 1});
  Rows y(*this, x.count, z.width);
  Rows choice(*this, x.count, chosen), weight(*this, x.count, chosen);
  choose(experts, logits, choice, weight);

  Rows g(*this, x.count * chosen, wide), u(*this, x.count * chosen, wide);
  Rows parts(*this, x.count * chosen, z.width);
  auto one = [&](const View &from, int32_t share,
                 const ResidentExperts::Stack &stack, const View &to) {
    kernels::DotsArgs args;
    args.x = rowsOf(from);
    args.y = rowsOf(to);
    args.kind = stack.kind;
    args.choice = reinterpret_cast<const int32_t *>(choice.row(0));
    args.weights = stack.list;
    args.scaleLists = stack.scaleList;
    args.rows = to.count;
    args.cols = from.width;
    args.outs = to.width;
    args.share = share;
    launchDots(args);
  };
  one(z, int32_t(chosen), resident.gate, g);
  one(z, int32_t(chosen), resident.up, u);
  gated(work, experts.act, g, u);
  one(g, 1, resident.down, parts);
  work.weightBytes += int64_t(
      expectedExperts(experts, x.count) *
      double(resident.gate.bytes + resident.up.bytes + resident.down.bytes));
  kernels::CombineArgs sum;
  sum.parts = rowsOf(parts);
  sum.y = rowsOf(y);
  sum.weight = weight.row(0);
  sum.rows = x.count;
  sum.width = z.width;
  sum.chosen = int32_t(chosen);
  machine->launch("plum_combine_rows", x.count, sum);
  return y;
}

} // namespace plum::model
