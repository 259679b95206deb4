//===- Products.cu - Few rows times a weight --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decoding reads every weight once for a handful of rows. A warp has one row of
// the weight and up to eight of x; sums are f32, and in an order that depends
// on the number of columns alone: a row's result is the same in every batch.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/kernels/ModelArgs.h"
#include "runtime/cuda/kernels/Vocabulary.h"

namespace plum::kernels {
#pragma clang force_cuda_host_device begin
namespace {

constexpr int kEach = 8, kWarps = 8;

/// E2M1: sign, two bits of exponent, one of mantissa.
float fromE2M1(uint32_t code) {
  const uint32_t magnitude = code & 7;
  // 0 0.5 1 1.5 2 3 4 6, as the bits of a float but for the two smallest.
  float value =
      magnitude < 2
          ? 0.5f * float(magnitude)
          : __builtin_bit_cast(float, (magnitude << 22) + 0x3f000000u);
  return code & 8 ? -value : value;
}
float fromE8M0(uint8_t scale) {
  return scale == 0 ? __builtin_bit_cast(float, 0x00400000u)
                    : __builtin_bit_cast(float, uint32_t(scale) << 23);
}

/// N values of row `row` from column `column`: 8, or 1.
template <int N>
void weights(const DotsArgs &args, const void *data, const uint8_t *scales,
             int64_t row, int64_t column, float *to) {
  const int64_t at = row * args.cols + column;
  if (args.kind != WeightKind::MXFP4)
    return load<N>(data, args.kind == WeightKind::F32 ? Type::F32 : Type::BF16,
                   at, to);
  const auto *codes = static_cast<const uint8_t *>(data) + at / 2;
  const float scale = fromE8M0(scales[at / 32]);
  if constexpr (N == 1) {
    *to = scale * fromE2M1(at % 2 ? *codes >> 4 : *codes & 15);
  } else {
    const uint32_t eight = *reinterpret_cast<const uint32_t *>(codes);
    for (int i = 0; i < 8; ++i)
      to[i] = scale * fromE2M1(eight >> (4 * i) & 15);
  }
}

/// What a warp has: up to eight rows of x and one of the weight, or, with
/// `many`, the other way round.
struct Task {
  const void *data;
  const uint8_t *scales;
  int64_t weightRow, row, column;
  int count;
  bool many;
};

/// Sums of this lane, over every 32nd group of N columns.
template <int N>
void partial(const DotsArgs &args, const Task &task, float (&sums)[kEach]) {
  for (int64_t c = int64_t(lane()) * N; c < args.cols; c += kWarp * N) {
    float one[N], other[N];
    if (task.many)
      load<N>(args.x, task.row / args.share, task.column + c, one);
    else
      weights<N>(args, task.data, task.scales, task.weightRow, c, one);
#pragma unroll // sums stay in registers.
    for (int r = 0; r < kEach; ++r) {
      if (r >= task.count)
        break;
      if (task.many)
        weights<N>(args, task.data, task.scales, task.weightRow + r, c, other);
      else
        load<N>(args.x, (task.row + r) / args.share, task.column + c, other);
      for (int i = 0; i < N; ++i)
        sums[r] = __builtin_fmaf(one[i], other[i], sums[r]);
    }
  }
}

} // namespace
#pragma clang force_cuda_host_device end

/// Grid: outputs / 8, rows / 8; with a choice outputs / 64, rows.
PLUM_KERNEL(plum_dots, DotsArgs, kWarps *kWarp, 2) {
  // The lanes' sums; a lane then adds those of one row. 33: no conflicts.
  PLUM_SHARED float parts[kWarps][kEach][kWarp + 1];
  Task task;
  task.many = args.choice != nullptr;
  const int64_t out = (blockX() * kWarps + warp()) * (task.many ? kEach : 1);
  task.row = int64_t(blockY()) * (task.many ? 1 : kEach);
  const int64_t left = task.many ? args.outs - out : args.rows - task.row;
  task.count = out < args.outs ? int(smaller(int64_t(kEach), left)) : 0;
  task.data = args.weight;
  task.scales = args.scales;
  if (task.many) {
    const int32_t chosen = args.choice[task.row];
    task.data = reinterpret_cast<const void *>(args.weights[chosen]);
    if (args.kind == WeightKind::MXFP4)
      task.scales = reinterpret_cast<const uint8_t *>(args.scaleLists[chosen]);
  }
  const int64_t each = args.outs / args.heads, head = out / each;
  task.weightRow =
      args.heads > 1 ? head * args.headRows + args.firstRow + out % each : out;
  task.column = args.heads > 1 ? head * args.headColumns : 0;
  if (task.count > 0) {
    float sums[kEach] = {};
    const bool aligned = args.cols % 8 == 0 && args.x.stride % 8 == 0 &&
                         reinterpret_cast<uint64_t>(args.x.data) % 16 == 0;
    if (aligned)
      partial<8>(args, task, sums);
    else
      partial<1>(args, task, sums);
#pragma unroll
    for (int r = 0; r < kEach; ++r)
      if (r < task.count)
        parts[warp()][r][lane()] = sums[r];
  }
  barrier();
  if (lane() >= task.count)
    return;
  float sum = 0;
  for (int i = 0; i < kWarp; ++i)
    sum += parts[warp()][lane()][i];
  const int64_t row = task.row + (task.many ? 0 : lane());
  store<1>(args.y, row, out + (task.many ? lane() : 0), &sum);
}

PLUM_KERNEL(plum_combine_rows, CombineRowsArgs, 256, 1) {
  const int64_t row = blockX();
  for (int64_t c = threadIndex(); c < args.width; c += 256) {
    float sum = 0;
    for (int i = 0; i < args.chosen; ++i) {
      float value;
      load<1>(args.parts, row * args.chosen + i, c, &value);
      sum += args.weight[row * args.chosen + i] * value;
    }
    store<1>(args.y, row, c, &sum);
  }
}

} // namespace plum::kernels
