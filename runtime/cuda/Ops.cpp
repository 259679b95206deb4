//===- Ops.cpp - Norms, activations, convolutions on a GPU ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Ops.h"

namespace plum::runtime::cuda {

using namespace kernels;

namespace {

constexpr int64_t kVector = 8;    ///< Elements of one access.
constexpr int64_t kThreads = 256; ///< Of a block; the kernels say it too.

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool aligned(const void *data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}
bool aligned(const Rows &rows) {
  return aligned(rows.data) && rows.stride % kVector == 0;
}

/// Blocks side by side that cover a row.
int64_t across(int64_t width, bool vectorized) {
  return ceilDiv(width, kThreads * (vectorized ? kVector : 1));
}

Error refuse(const std::string &what) { return {"", what, {}}; }

} // namespace

Status normalize(const Kernels &kernels, CUstream stream, NormArgs args) {
  if (args.rows < 0 || args.slices < 1 || args.width < 1)
    return refuse("a norm needs columns, got " + std::to_string(args.slices) +
                  " slices of " + std::to_string(args.width));
  if (!args.x.data || !args.y.data ||
      (args.act != NormGate::None && !args.gate.data))
    return refuse("a norm needs x, y and the gate that it names");
  if (args.residual.data && args.act == NormGate::SiLUBefore)
    return refuse("a norm has a residual or a gate before it, not both");
  args.vectorized = args.width % kVector == 0 && aligned(args.x) &&
                    aligned(args.y) && aligned(args.residual) &&
                    aligned(args.gate) && aligned(args.weight.data) &&
                    aligned(args.bias.data);
  // A warp has 1024 columns in four turns.
  const int64_t slices = args.rows * args.slices;
  if (args.width <= 1024 && (args.slices > 1 || args.width <= 256))
    return kernels.launch(stream, "plum_norm_warps", {ceilDiv(slices, 8)},
                          args);
  return kernels.launch(stream, "plum_norm_blocks", {slices}, args);
}

Status elementwise(const Kernels &kernels, CUstream stream,
                   ElementwiseArgs args) {
  const bool alone = args.op == Elementwise::Copy ||
                     args.op == Elementwise::Gelu ||
                     args.op == Elementwise::GeluTanh;
  if (!args.x.data || !args.y.data || (!alone && !args.u.data))
    return refuse("an elementwise kernel needs its operands");
  if (args.op == Elementwise::SiTU && !(args.beta > 0))
    return refuse("SiTU needs beta > 0, got " + std::to_string(args.beta));
  if (alone)
    args.u = {};
  args.vectorized =
      args.width % kVector == 0 && aligned(args.x) && aligned(args.y) &&
      (args.op == Elementwise::TimesSigmoidRow || aligned(args.u));
  return kernels.launch(stream, "plum_elementwise",
                        {args.rows, across(args.width, args.vectorized)}, args);
}

Status gather(const Kernels &kernels, CUstream stream, GatherArgs args) {
  if (!args.table.data || !args.y.data || !args.ids)
    return refuse("a gather needs a table, ids and a place for its rows");
  args.vectorized =
      args.width % kVector == 0 && aligned(args.table) && aligned(args.y);
  return kernels.launch(stream, "plum_gather",
                        {args.rows, across(args.width, args.vectorized)}, args);
}

Status convolve(const Kernels &kernels, CUstream stream, ConvArgs args,
                int64_t longest) {
  if (args.width < 2 || args.width > kMaxConvWidth)
    return refuse("a short convolution has 2 to " +
                  std::to_string(kMaxConvWidth) + " taps, got " +
                  std::to_string(args.width));
  if (!args.x.data || !args.y.data || !args.states.data || !args.taps ||
      !args.begins || !args.slots)
    return refuse("a convolution needs x, y, states, taps, begins and slots");
  if (args.x.data == args.y.data)
    return refuse("a convolution cannot write over its input");
  if (bool(args.kept.data) != bool(args.places))
    return refuse("states that a convolution keeps need places");
  if (args.rows == 0 || args.sequences == 0)
    return Status::ok();
  if (args.slotStride == 0)
    args.slotStride = (args.width - 1) * args.states.stride;
  args.vectorized =
      args.channels % kVector == 0 && args.slotStride % kVector == 0 &&
      aligned(args.x) && aligned(args.y) && aligned(args.states) &&
      aligned(args.kept) && aligned(args.taps) && aligned(args.bias);
  const int64_t columns =
      across(args.channels, args.vectorized && args.width == 4);
  if (longest <= 1 && !args.places)
    return kernels.launch(stream, "plum_conv_step", {args.sequences, columns},
                          args);
  if (Status status = kernels.launch(stream, "plum_conv",
                                     {ceilDiv(args.rows, 16), columns}, args);
      !status)
    return status;
  if (args.places)
    return kernels.launch(stream, "plum_conv_kept", {args.rows, columns}, args);
  return kernels.launch(stream, "plum_conv_states", {args.sequences, columns},
                        args);
}

} // namespace plum::runtime::cuda
