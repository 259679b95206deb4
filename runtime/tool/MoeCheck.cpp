//===- MoeCheck.cpp - A random mixture of experts, and its check ----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Support/DType.h"
#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/tool/MoeBench.h"

#include <algorithm>
#include <cmath>

namespace plum::runtime::tool {

using namespace cuda;
using kernels::FillArgs;
using kernels::WeightKind;

namespace {

constexpr int64_t kGroup = 32; ///< Columns of one scale.

Status randomize(const Kernels &kernels, CUdeviceptr data, int64_t count,
                 WeightKind kind, float spread, uint32_t seed,
                 bool scales = false) {
  FillArgs args;
  args.data = reinterpret_cast<void *>(data);
  args.count = count;
  args.kind = kind;
  args.scales = scales;
  args.spread = spread;
  args.seed = seed;
  return kernels.launch(nullptr, "plum_fill",
                        {std::min<int64_t>(1024, (count + 255) / 256)}, args);
}

template <typename T>
Status download(const Device &device, CUdeviceptr from, std::vector<T> &to) {
  Current current(device);
  return device.driver().check(
      "cuMemcpyDtoH",
      device.driver().cuMemcpyDtoH(to.data(), from, to.size() * sizeof(T)));
}

double bf16(double x) { return double(bf16ToFloat(floatToBf16(float(x)))); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// y = W x in float64.
std::vector<double> times(const std::vector<float> &w,
                          const std::vector<double> &x) {
  std::vector<double> y(w.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    double sums[4] = {};
    const float *row = w.data() + r * x.size();
    for (size_t c = 0; c < x.size(); ++c)
      sums[c % 4] += double(row[c]) * x[c];
    y[r] = sums[0] + sums[1] + sums[2] + sums[3];
  }
  return y;
}

} // namespace

const ExpertMatrix &MoeWeights::matrix(Which which) const {
  return which == Gate ? made.gate : which == Up ? made.up : made.down;
}

int64_t MoeWeights::expertBytes() const {
  return made.gate.expertBytes() + made.up.expertBytes() +
         made.down.expertBytes();
}

Status MoeWeights::fill(const Kernels &kernels, int64_t expert,
                        Which which) const {
  const ExpertMatrix &to = matrix(which);
  const int64_t count = to.rows * to.columns;
  const uint32_t seed = uint32_t(expert * 8 + which);
  if (to.format == ExpertFormat::BF16)
    return randomize(kernels, numbers.get(), count, WeightKind::BF16,
                     1 / std::sqrt(float(to.columns)), seed);
  if (Status status = randomize(kernels, numbers.get(), count / 2,
                                WeightKind::MXFP4, 1, seed);
      !status)
    return status;
  return randomize(kernels, scales.get(), count / kGroup, WeightKind::MXFP4, 1,
                   seed + 4, true);
}

Status MoeWeights::make(const Kernels &kernels, const MoeSizes &sizes) {
  const ExpertFormat format =
      sizes.mxfp4 ? ExpertFormat::MXFP4 : ExpertFormat::BF16;
  made.experts = sizes.experts;
  made.chosen = sizes.chosen;
  made.situ = true;
  made.beta = 4;
  made.lambda = 25;
  made.gate = made.up = {0, format, sizes.wide, sizes.width};
  made.down = {0, format, sizes.width, sizes.wide};
  // Before anything is allocated.
  if (Result<int64_t> bytes = moeWorkspace(made, 1); !bytes)
    return bytes.error();
  const int64_t count = sizes.wide * sizes.width;
  auto allocateTo = [&](Memory &to, int64_t bytes) -> Status {
    Result<Memory> memory = allocate(kernels.device(), size_t(bytes));
    if (!memory)
      return memory.error();
    to = std::move(*memory);
    return Status::ok();
  };
  if (Status status = allocateTo(numbers, count * 2); !status)
    return status;
  if (Status status = allocateTo(scales, count / kGroup); !status)
    return status;
  ExpertMatrix *all[] = {&made.gate, &made.up, &made.down};
  for (Which which : {Gate, Up, Down}) {
    ExpertMatrix &to = *all[which];
    if (Status status =
            allocateTo(memory[which], sizes.experts * to.expertBytes());
        !status)
      return status;
    to.data = memory[which].get();
    for (int64_t e = 0; e < sizes.experts; ++e) {
      if (Status status = fill(kernels, e, which); !status)
        return status;
      if (Status status = packExpert(kernels, nullptr, to, e, numbers.get(),
                                     sizes.mxfp4 ? scales.get() : 0);
          !status)
        return status;
    }
  }
  return Status::ok();
}

Result<std::vector<float>>
MoeWeights::values(const Kernels &kernels, int64_t expert, Which which) const {
  const ExpertMatrix &from = matrix(which);
  const size_t count = size_t(from.rows * from.columns);
  std::vector<float> values(count);
  if (Status status = fill(kernels, expert, which); !status)
    return status.error();
  if (from.format == ExpertFormat::BF16) {
    std::vector<uint16_t> narrow(count);
    if (Status status = download(kernels.device(), numbers.get(), narrow);
        !status)
      return status.error();
    std::transform(narrow.begin(), narrow.end(), values.begin(), bf16ToFloat);
    return values;
  }
  std::vector<uint8_t> nibbles(count / 2), powers(count / size_t(kGroup));
  if (Status status = download(kernels.device(), numbers.get(), nibbles);
      !status)
    return status.error();
  if (Status status = download(kernels.device(), scales.get(), powers); !status)
    return status.error();
  constexpr float codes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t i = 0; i < count; ++i) {
    const int code = nibbles[i / 2] >> 4 * (i % 2) & 15;
    values[i] = std::ldexp(code & 8 ? -codes[code & 7] : codes[code & 7],
                           powers[i / size_t(kGroup)] - 127);
  }
  return values;
}

Status MoeRun::make(const Kernels &kernels, const MoeLayer &layer,
                    int64_t tokens, uint32_t seed) {
  this->tokens = tokens;
  const int64_t width = layer.gate.columns;
  Result<int64_t> bytes = moeWorkspace(layer, tokens);
  if (!bytes)
    return bytes.error();
  const std::pair<Memory *, int64_t> all[] = {
      {&x, tokens * width * 2},
      {&logits, tokens * layer.experts * 4},
      {&y, tokens * width * 2},
      {&workspace, *bytes}};
  for (auto [to, size] : all) {
    Result<Memory> memory = allocate(kernels.device(), size_t(size));
    if (!memory)
      return memory.error();
    *to = std::move(*memory);
  }
  if (Status status = randomize(kernels, x.get(), tokens * width,
                                WeightKind::BF16, 1, seed);
      !status)
    return status;
  if (Status status = randomize(kernels, logits.get(), tokens * layer.experts,
                                WeightKind::F32, 2, seed + 1);
      !status)
    return status;
  Result<MoePass> made =
      MoePass::make(layer, tokens, rowsAt(x.get(), width),
                    rowsAt(logits.get(), layer.experts, kernels::Type::F32),
                    rowsAt(y.get(), width), workspace.get());
  if (!made)
    return made.error();
  pass = {*made};
  return Status::ok();
}

Result<std::vector<int32_t>> MoeRun::chosen(const Kernels &kernels,
                                            const MoeLayer &layer) const {
  std::vector<int32_t> experts(size_t(tokens * layer.chosen));
  if (Status status = download(kernels.device(), pass[0].experts, experts);
      !status)
    return status.error();
  return experts;
}

Result<double> MoeRun::error(const Kernels &kernels, const MoeWeights &weights,
                             int64_t token) const {
  const MoeLayer &layer = weights.layer();
  const int64_t width = layer.gate.columns;
  std::vector<uint16_t> in(size_t(width), 0), out(size_t(width), 0);
  std::vector<int32_t> experts(size_t(layer.chosen), 0);
  std::vector<float> shares(size_t(layer.chosen), 0);
  const Device &device = kernels.device();
  const auto at = CUdeviceptr(token);
  for (Status status :
       {download(device, x.get() + at * in.size() * 2, in),
        download(device, y.get() + at * out.size() * 2, out),
        download(device, pass[0].experts + at * experts.size() * 4, experts),
        download(device, pass[0].weights + at * shares.size() * 4, shares)})
    if (!status)
      return status.error();
  std::vector<double> row(in.size()), sum(in.size(), 0.0);
  std::transform(in.begin(), in.end(), row.begin(),
                 [](uint16_t bits) { return double(bf16ToFloat(bits)); });
  for (size_t i = 0; i < experts.size(); ++i) {
    std::vector<double> product[2];
    for (auto which : {MoeWeights::Gate, MoeWeights::Up}) {
      Result<std::vector<float>> w = weights.values(kernels, experts[i], which);
      if (!w)
        return w.error();
      product[which] = times(*w, row);
    }
    std::vector<double> &hidden = product[0];
    for (size_t r = 0; r < hidden.size(); ++r) {
      const double g = bf16(hidden[r]), u = bf16(product[1][r]);
      const double beta = double(layer.beta), lambda = double(layer.lambda);
      hidden[r] = bf16(beta * std::tanh(g / beta) * sigmoid(g) * lambda *
                       std::tanh(u / lambda));
    }
    Result<std::vector<float>> w =
        weights.values(kernels, experts[i], MoeWeights::Down);
    if (!w)
      return w.error();
    std::vector<double> part = times(*w, hidden);
    for (size_t c = 0; c < sum.size(); ++c)
      sum[c] += double(shares[i]) * bf16(part[c]);
  }
  double squares = 0, largest = 0;
  for (size_t c = 0; c < sum.size(); ++c) {
    squares += sum[c] * sum[c] / double(sum.size());
    const double off = std::abs(double(bf16ToFloat(out[c])) - sum[c]);
    largest = off <= largest ? largest : off; // NaN is the largest.
  }
  return largest / std::sqrt(squares);
}

} // namespace plum::runtime::tool
