//===- Pack.cu - Weights of experts in the order of their use ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a checkpoint's rows to the blocks of ExpertWeights.h, once, when a model
// is loaded. A block of threads has a block of weights.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ExpertWeights.h"

#pragma clang force_cuda_host_device begin
namespace plum::kernels {
namespace {

/// Thread 32 half + lane has the lane's row g + 8 half.
template <typename Format> struct Place {
  int64_t row, column; ///< Of the lane's unit 0.
  char *to;

  Place(const MoePackArgs &args) {
    const int steps = int(ceilDiv<int64_t>(args.columns, Format::kColumns));
    const int64_t tile = blockX() / steps;
    row = tile * kExpertRows + lane() / 4 + 8 * warp();
    column = (blockX() - tile * steps) * Format::kColumns;
    to = args.to + blockX() * Format::kBytes;
  }
};

inline void packMxfp4(const MoePackArgs &args) {
  const Place<Mxfp4> place(args);
  const int64_t column = place.column + Mxfp4::unit(0, lane() % 4) * 8;
  const int half = warp();
  Bytes16 bytes = {};
  int power = 0;
  if (place.row < args.rows && column < args.columns) {
    const int64_t at = place.row * args.columns + column;
    bytes = *reinterpret_cast<const Bytes16 *>(
        static_cast<const char *>(args.weights) + at / 2);
    power = smaller(args.scales[at / 32] + Mxfp4::kExponent, 255);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    reinterpret_cast<uint32_t *>(place.to + Mxfp4::wordAt(i, lane()))[half] =
        Mxfp4::interleave(bytes.word[i]);
  place.to[Mxfp4::scaleAt(lane()) + half] = char(power);
}

inline void packBf16(const MoePackArgs &args) {
  const Place<Bf16> place(args);
  const int half = warp();
#pragma unroll
  for (int i = 0; i < Bf16::kUnits; ++i) {
    const int64_t column = place.column + Bf16::unit(i, lane() % 4) * 8;
    Bytes16 unit = {};
    if (place.row < args.rows && column < args.columns)
      unit = *reinterpret_cast<const Bytes16 *>(
          static_cast<const char *>(args.weights) +
          (place.row * args.columns + column) * 2);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      reinterpret_cast<uint32_t *>(
          place.to +
          Bf16::operandAt(i, pair / 2, lane()))[half + pair % 2 * 2] =
          unit.word[pair];
  }
}

} // namespace
} // namespace plum::kernels
#pragma clang force_cuda_host_device end

using namespace plum::kernels;

/// Grid: blocks of 16 rows by 128 columns.
PLUM_KERNEL(plum_pack_mxfp4, MoePackArgs, 64, 1) { packMxfp4(args); }

/// Grid: blocks of 16 rows by 64 columns.
PLUM_KERNEL(plum_pack_bf16, MoePackArgs, 64, 1) { packBf16(args); }
