//===- GpuExperts.cpp - A mixture of experts on a GPU ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/GpuExperts.h"

#include "runtime/cuda/kernels/MoeArgs.h"

#include <cmath>

namespace plum::model {

using runtime::cuda::CUdeviceptr;
using runtime::cuda::ExpertFormat;
using runtime::cuda::ExpertMatrix;

static CUdeviceptr address(const void *pointer) {
  return CUdeviceptr(reinterpret_cast<uintptr_t>(pointer));
}

void GpuBackend::stackExperts(const Experts &experts, Matrix Mlp::*which,
                              Stack &to) {
  const Matrix &first = experts.experts[0].*which;
  int64_t count = int64_t(experts.experts.size());
  int64_t bytes = placedBytes(first), more = scaleBytes(first);
  auto *data = static_cast<std::byte *>(upload(size_t(count * (bytes + more))));
  to.kind = placedKind(first);
  std::vector<uint64_t> list, scaleList;
  for (int64_t e = 0; e < count; ++e) {
    std::byte *here = data + e * bytes,
              *scales = data + count * bytes + e * more;
    list.push_back(address(here));
    scaleList.push_back(address(scales));
    if (machine->good())
      place(experts.experts[size_t(e)].*which, here, scales);
  }
  to.list = static_cast<const uint64_t *>(
      upload(list.data(), list.size() * sizeof(uint64_t)));
  to.scaleList = static_cast<const uint64_t *>(
      upload(scaleList.data(), scaleList.size() * sizeof(uint64_t)));
}

ExpertMatrix GpuBackend::packExperts(const Experts &experts,
                                     Matrix Mlp::*which) {
  const Matrix &first = experts.experts[0].*which;
  int64_t count = int64_t(experts.experts.size());
  ExpertMatrix packed;
  packed.format = first.type == WeightType::MXFP4 ? ExpertFormat::MXFP4
                                                  : ExpertFormat::BF16;
  packed.rows = first.rows;
  packed.columns = first.cols;
  packed.data = address(upload(size_t(count * packed.expertBytes())));
  Block raw(this, size_t(placedBytes(first) + scaleBytes(first)));
  std::byte *scales =
      scaleBytes(first) ? raw.data() + placedBytes(first) : nullptr;
  for (int64_t e = 0; e < count && machine->good(); ++e) {
    place(experts.experts[size_t(e)].*which, raw.data(), scales);
    machine->then(
        runtime::cuda::packExpert(machine->kernels(), machine->stream(), packed,
                                  e, address(raw.data()), address(scales)));
  }
  machine->wait(); // `raw` goes.
  return packed;
}

const GpuBackend::ResidentExperts &
GpuBackend::residentExperts(const Experts &experts) {
  std::unique_ptr<ResidentExperts> &place = expertLists[&experts];
  if (place)
    return *place;
  place = std::make_unique<ResidentExperts>();
  ResidentExperts &resident = *place;
  for (Matrix Mlp::*which : {&Mlp::gate, &Mlp::up, &Mlp::down}) {
    const Matrix &first = experts.experts[0].*which;
    resident.bytes += placedBytes(first) + scaleBytes(first);
  }
  weightSum += int64_t(experts.experts.size()) * resident.bytes;
  if (options.compute == Compute::F32) {
    stackExperts(experts, &Mlp::gate, resident.gate);
    stackExperts(experts, &Mlp::up, resident.up);
    stackExperts(experts, &Mlp::down, resident.down);
    return resident;
  }
  runtime::cuda::MoeLayer &layer = resident.packed;
  layer.experts = int64_t(experts.experts.size());
  layer.chosen = experts.chosen;
  layer.softmax = experts.score == Experts::Softmax;
  layer.renormalize = experts.renormalize;
  layer.scale = experts.scale;
  layer.bias = experts.bias.empty() ? 0 : address(vector(experts.bias));
  layer.gate = packExperts(experts, &Mlp::gate);
  layer.up = packExperts(experts, &Mlp::up);
  layer.down = packExperts(experts, &Mlp::down);
  if (runtime::cuda::hasWideProducts(machine->kernels()))
    layer.products = runtime::cuda::MoeProducts::ByTokens;
  layer.situ = experts.act.kind == Activation::SiTU;
  layer.beta = experts.act.beta;
  layer.lambda = experts.act.lambda;
  return resident;
}

/// How many experts so many tokens are expected to choose. Nobody counts them:
/// it is as if tokens chose at random.
static double expectedExperts(const Experts &experts, int64_t tokens) {
  double all = double(experts.experts.size());
  return all * (1 - std::pow(1 - double(experts.chosen) / all, double(tokens)));
}

Rows GpuBackend::route(const Work &work, const Experts &experts, const View &x,
                       const View &z) {
  const ResidentExperts &resident = residentExperts(experts);
  work.weightBytes +=
      int64_t(expectedExperts(experts, x.count) * double(resident.bytes));
  Rows logits(*this, x.count, experts.router.rows);
  Product route{x, &experts.router, logits};
  multiply(work, {&route, 1});
  Rows y(*this, x.count, z.width);
  if (options.compute == Compute::F32) {
    routeExactly(work, experts, resident, logits, z, y);
    return y;
  }
  auto bytes = runtime::cuda::moeWorkspace(resident.packed, x.count);
  if (!bytes) {
    machine->then(bytes.error());
    return y;
  }
  Rows workspace(*this, 1, (*bytes + 3) / 4), in = narrowed(z);
  kernels::Rows input{in.row(0), z.width, kernels::Type::BF16};
  machine->run("experts", [&] {
    return runtime::cuda::moeForward(
        machine->kernels(), machine->stream(), resident.packed, x.count, input,
        rowsOf(logits), rowsOf(y), address(workspace.row(0)));
  });
  return y;
}

/// In f32, an expert for each token and choice by itself.
void GpuBackend::routeExactly(const Work &work, const Experts &experts,
                              const ResidentExperts &resident,
                              const View &logits, const View &z,
                              const View &y) {
  const int64_t chosen = experts.chosen, count = z.count;
  const int64_t pairs = count * chosen, wide = experts.experts[0].gate.rows;
  if (experts.router.rows > kernels::kMoeExperts ||
      chosen > kernels::kMoeChosen) {
    machine->then(Error{"",
                        "a mixture of " + std::to_string(experts.router.rows) +
                            " experts, " + std::to_string(chosen) +
                            " of them chosen, does not run on a GPU",
                        {}});
    return;
  }
  Rows choice(*this, count, chosen), weight(*this, count, chosen);
  kernels::MoeRouteArgs best;
  best.logits = rowsOf(logits);
  best.bias = experts.bias.empty() ? nullptr : vector(experts.bias);
  best.experts = reinterpret_cast<int32_t *>(choice.row(0));
  best.weights = weight.row(0);
  best.tokens = count;
  best.count = int32_t(experts.router.rows);
  best.chosen = int32_t(chosen);
  best.softmax = experts.score == Experts::Softmax;
  best.renormalize = experts.renormalize;
  best.scale = experts.scale;
  machine->launch("plum_moe_route", (count + 3) / 4, best);

  Rows g(*this, pairs, wide), u(*this, pairs, wide);
  Rows parts(*this, pairs, z.width);
  auto multiplyBy = [&](const Stack &stack, const View &from, int64_t share,
                        const View &to) {
    kernels::DotsArgs args;
    args.x = rowsOf(from);
    args.y = rowsOf(to);
    args.kind = stack.kind;
    args.choice = best.experts;
    args.weights = stack.list;
    args.scaleLists = stack.scaleList;
    args.rows = to.count;
    args.cols = from.width;
    args.outs = to.width;
    args.share = int32_t(share);
    launchDots(args);
  };
  multiplyBy(resident.gate, z, chosen, g);
  multiplyBy(resident.up, z, chosen, u);
  gated(work, experts.act, g, u);
  multiplyBy(resident.down, g, 1, parts);
  kernels::CombineRowsArgs sum;
  sum.parts = rowsOf(parts);
  sum.y = rowsOf(y);
  sum.weight = weight.row(0);
  sum.rows = count;
  sum.width = z.width;
  sum.chosen = int32_t(chosen);
  machine->launch("plum_combine_rows", count, sum);
}

} // namespace plum::model
