//===- GpuRows.cpp - Norms, gates, convolutions on a GPU ------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Conv.h"
#include "runtime/model/gpu/GpuBackend.h"

#include <algorithm>
#include <cmath>

namespace plum::model {

using kernels::Elementwise;
using kernels::NormArgs;
using kernels::NormGate;

kernels::Rows GpuBackend::rowsOf(const View &x) {
  return {x.data, x.stride, kernels::Type::F32};
}

void GpuBackend::normalize(NormArgs args) {
  machine->run("norm", [&] {
    return runtime::cuda::normalize(machine->kernels(), machine->stream(),
                                    args);
  });
}

void GpuBackend::elementwise(Elementwise op, const View &x,
                             const kernels::Rows &u, const kernels::Rows &y,
                             const Activation *act) {
  kernels::ElementwiseArgs args;
  args.op = op;
  args.x = rowsOf(x);
  args.u = u;
  args.y = y;
  args.rows = x.count;
  args.width = x.width;
  if (act) {
    args.beta = act->beta;
    args.lambda = act->lambda;
  }
  machine->run("elementwise", [&] {
    return runtime::cuda::elementwise(machine->kernels(), machine->stream(),
                                      args);
  });
}

/// Norm of slices of `width` columns, in place.
static NormArgs slicesOf(const kernels::Rows &rows, const View &x,
                         const float *weight, int64_t width, float eps) {
  NormArgs args;
  args.x = args.y = rows;
  args.weight = {weight, kernels::Type::F32};
  args.rows = x.count;
  args.width = int32_t(width);
  args.slices = int32_t(x.width / width);
  args.eps = eps;
  return args;
}

Rows GpuBackend::rmsNorm(const Work &, const View &x, const Vector &weight,
                         float eps) {
  Rows y(*this, x.count, x.width);
  NormArgs args = slicesOf(rowsOf(x), x, vector(weight), x.width, eps);
  args.y = rowsOf(y);
  normalize(args);
  return y;
}

void GpuBackend::rmsNormHeads(const Work &, const View &x, const Vector &weight,
                              float eps) {
  normalize(
      slicesOf(rowsOf(x), x, vector(weight), int64_t(weight.size()), eps));
}

Rows GpuBackend::layerNorm(const Work &, const View &x, const Vector &weight,
                           const Vector &bias, float eps) {
  Rows y(*this, x.count, x.width);
  NormArgs args = slicesOf(rowsOf(x), x, vector(weight), x.width, eps);
  args.y = rowsOf(y);
  args.bias = {vector(bias), kernels::Type::F32};
  args.center = true;
  normalize(args);
  return y;
}

void GpuBackend::normThenGate(const Work &, const View &o, const View &gate,
                              const Vector &weight, float eps, GateKind act) {
  NormArgs args =
      slicesOf(rowsOf(o), o, vector(weight), int64_t(weight.size()), eps);
  args.gate = rowsOf(gate);
  args.act = act == GateKind::Sigmoid ? NormGate::Sigmoid : NormGate::SiLU;
  normalize(args);
}

void GpuBackend::gateThenNorm(const Work &, const View &o, const View &gate,
                              const Vector &weight, float eps) {
  NormArgs args = slicesOf(rowsOf(o), o, vector(weight), o.width, eps);
  args.gate = rowsOf(gate);
  args.act = NormGate::SiLUBefore;
  normalize(args);
}

void GpuBackend::add(const Work &, const View &x, const View &y) {
  elementwise(Elementwise::Add, x, rowsOf(y), rowsOf(x));
}

void GpuBackend::addBias(const Work &, const View &x, const Vector &bias) {
  kernels::Rows row{const_cast<float *>(vector(bias)), 0, kernels::Type::F32};
  elementwise(Elementwise::Add, x, row, rowsOf(x));
}

void GpuBackend::gated(const Work &, const Activation &act, const View &g,
                       const View &u) {
  elementwise(act.kind == Activation::SiTU ? Elementwise::SiTU
                                           : Elementwise::SiLUTimes,
              g, rowsOf(u), rowsOf(g), &act);
}

void GpuBackend::activate(const Work &, const Activation &act, const View &x) {
  elementwise(act.kind == Activation::Gelu ? Elementwise::Gelu
                                           : Elementwise::GeluTanh,
              x, {}, rowsOf(x));
}

void GpuBackend::gateSigmoid(const Work &, const View &x, const View &gate) {
  elementwise(Elementwise::TimesSigmoid, x, rowsOf(gate), rowsOf(x));
}

void GpuBackend::gateRows(const Work &, const View &x, const View &gate) {
  elementwise(Elementwise::TimesSigmoidRow, x, rowsOf(gate), rowsOf(x));
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

Rows GpuBackend::rowsOfTable(const Matrix &table, const int32_t *ids) {
  Resident resident = weight(table);
  Rows x(*this, tables->rows, table.cols);
  kernels::GatherArgs args;
  args.table = {const_cast<void *>(resident.data), table.cols,
                resident.kind == kernels::WeightKind::F32
                    ? kernels::Type::F32
                    : kernels::Type::BF16};
  args.y = rowsOf(x);
  args.ids = ids;
  args.rows = x.count;
  args.width = x.width;
  args.tableRows = table.rows;
  machine->run("gather", [&] {
    return runtime::cuda::gather(machine->kernels(), machine->stream(), args);
  });
  return x;
}

Rows GpuBackend::embed(const Work &, const Matrix &table) {
  return rowsOfTable(table, tables->ids);
}

void GpuBackend::addPlaces(const Work &work, const View &x,
                           const Matrix &table) {
  add(work, x, rowsOfTable(table, tables->position));
}

/// As many positions as the batch needs, and room for the next; recorded passes
/// hold the address, so that another table makes them void.
const float *GpuBackend::fillRotaryTable(RotaryTable &table) {
  int64_t half = table.dims / 2;
  std::vector<float> values;
  for (int64_t p = 0; p < table.positions; ++p)
    for (int64_t c = 0; c < half; ++c) {
      double angle = double(p) * std::pow(table.theta, -2.0 * double(c) /
                                                           double(table.dims));
      values.push_back(float(std::cos(angle)));
      values.push_back(float(std::sin(angle)));
    }
  table.data = static_cast<const float *>(
      upload(values.data(), values.size() * sizeof(float)));
  return table.data;
}

void GpuBackend::growRotaryTables() {
  for (RotaryTable &table : rotaryTables)
    if (lastPosition >= table.positions) {
      forget();
      table.positions = 2 * (lastPosition + 1);
      fillRotaryTable(table);
    }
}

const float *GpuBackend::rotaryTable(int64_t dims, double theta) {
  for (const RotaryTable &table : rotaryTables)
    if (table.dims == dims && table.theta == theta)
      return table.data;
  RotaryTable &table = rotaryTables.emplace_back();
  table.dims = dims;
  table.theta = theta;
  table.positions = std::max<int64_t>(4096, 2 * (lastPosition + 1));
  return fillRotaryTable(table);
}

void GpuBackend::rotate(const Work &, const View &x, int64_t width,
                        int64_t dims, double theta) {
  if (dims == 0)
    return;
  kernels::RotateArgs args;
  args.x = rowsOf(x);
  args.table = rotaryTable(dims, theta);
  args.position = tables->position;
  args.rows = x.count;
  args.heads = int32_t(x.width / width);
  args.width = int32_t(width);
  args.dims = int32_t(dims);
  machine->launch("plum_rotate", x.count, args);
}

void GpuBackend::pickHeads(const Work &, const View &from, int64_t stride,
                           int64_t begin, int64_t width, const View &to) {
  kernels::PickArgs args;
  args.x = rowsOf(from);
  args.y = rowsOf(to);
  args.rows = to.count;
  args.heads = int32_t(to.width / width);
  args.width = int32_t(width);
  args.stride = int32_t(stride);
  args.begin = int32_t(begin);
  machine->launch("plum_pick", to.count, args);
}

Rows GpuBackend::mixture(const Work &, std::span<const View> sources,
                         const Vector &mixer) {
  Rows y(*this, sources[0].count, sources[0].width);
  if (sources.size() > size_t(kernels::kMaxSources)) {
    machine->then(Error{"",
                        "attention residuals over more than " +
                            std::to_string(kernels::kMaxSources) +
                            " blocks do not run on a GPU",
                        {}});
    return y;
  }
  kernels::MixtureArgs args;
  for (size_t s = 0; s < sources.size(); ++s)
    args.sources[s] = rowsOf(sources[s]);
  args.y = rowsOf(y);
  args.mixer = vector(mixer);
  args.rows = y.count;
  args.count = int32_t(sources.size());
  args.width = int32_t(y.width);
  machine->launch("plum_mixture", y.count, args);
  return y;
}

//===----------------------------------------------------------------------===//
// What has a state
//===----------------------------------------------------------------------===//

Rows GpuBackend::convolve(const Work &work, const ShortConv &conv,
                          const View &x) {
  Rows y(*this, x.count, conv.channels);
  kernels::ConvArgs args;
  args.x = rowsOf(x);
  args.y = rowsOf(y);
  args.states = {work.states->fixed(0, conv.state), conv.channels,
                 kernels::Type::F32};
  args.slotStride = work.states->stride();
  args.taps = vector(conv.taps);
  args.bias = conv.bias.empty() ? nullptr : vector(conv.bias);
  args.begins = tables->begins;
  args.slots = tables->slots;
  args.rows = x.count;
  args.sequences = tables->sequences;
  args.channels = conv.channels;
  args.width = int32_t(conv.width);
  if (work.checkpoints) {
    args.kept = args.states;
    args.kept.data = work.states->checkpointBlocks() +
                     work.states->shape().fixed[size_t(conv.state)].offset;
    args.places = tables->after;
  }
  machine->run("convolution", [&] {
    return runtime::cuda::convolve(machine->kernels(), machine->stream(), args,
                                   longest);
  });
  return y;
}

Rows GpuBackend::narrowed(const View &x) {
  Rows packed(*this, x.count, (x.width + 1) / 2);
  elementwise(Elementwise::Copy, x, {},
              {packed.row(0), x.width, kernels::Type::BF16});
  return packed;
}

Rows GpuBackend::gathered(const kernels::Rows &x, const View &shape,
                          const int32_t *ids, DType type) {
  bool narrow = type == DType::BF16;
  Rows to(*this, shape.count, narrow ? (shape.width + 1) / 2 : shape.width);
  kernels::GatherArgs args;
  args.table = x;
  args.y = {to.row(0), shape.width,
            narrow ? kernels::Type::BF16 : kernels::Type::F32};
  args.ids = ids;
  args.rows = args.tableRows = shape.count;
  args.width = shape.width;
  machine->run("gather", [&] {
    return gather(machine->kernels(), machine->stream(), args);
  });
  return to;
}

} // namespace plum::model
