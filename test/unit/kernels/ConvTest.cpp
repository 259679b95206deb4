//===- ConvTest.cpp - The short convolution against float64 ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gpu.h"

using namespace plum;
using namespace plum::runtime::cuda;
using namespace plum::runtime::cuda::test;
using kernels::ConvArgs;

namespace {

/// Sequences of some lengths, in slots of a pool of states.
struct Batch {
  std::vector<int32_t> lengths, slots;
};

/// Runs a batch and compares outputs and states with a float64 history of every
/// slot; what is in other slots has to stay.
void expectConv(const Batch &batch, int64_t channels, int width, Type type,
                bool bias) {
  Gpu gpu;
  std::mt19937 random(11);
  const int64_t pool = 6, past = width - 1;
  std::vector<int32_t> begins = {0};
  for (int32_t length : batch.lengths)
    begins.push_back(begins.back() + length);
  const int64_t rows = begins.back();
  Matrix x(gpu, rows, channels, type, 8, random), y(gpu, rows, channels, type),
      states(gpu, pool * past, channels, Type::F32, 0, random),
      taps(gpu, width, channels, Type::F32, 0, random),
      shift(gpu, 1, channels, Type::F32, 0, random);
  Buffer<int32_t> starts(gpu, begins), slots(gpu, batch.slots);
  std::vector<float> before(size_t(pool * past * channels));
  std::memcpy(before.data(), states.buffer.data(), before.size() * 4);

  ConvArgs args;
  args.x = x;
  args.y = y;
  args.states = states;
  args.taps = reinterpret_cast<const float *>(taps.buffer.data());
  args.bias =
      bias ? reinterpret_cast<const float *>(shift.buffer.data()) : nullptr;
  args.begins = starts.data();
  args.slots = slots.data();
  args.rows = rows;
  args.sequences = int64_t(batch.lengths.size());
  args.channels = channels;
  args.width = width;
  int64_t longest =
      *std::max_element(batch.lengths.begin(), batch.lengths.end());
  EXPECT_OK(convolve(*gpu.kernels, nullptr, args, longest));

  std::vector<bool> used(size_t(pool), false);
  for (size_t s = 0; s < batch.lengths.size(); ++s) {
    const int32_t slot = batch.slots[s];
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<double> history;
      for (int64_t j = 0; j < past; ++j)
        history.push_back(
            slot < 0
                ? 0
                : double(before[size_t((slot * past + j) * channels + c)]));
      for (int64_t t = 0; t < batch.lengths[s]; ++t) {
        history.push_back(x.at(begins[s] + t, c));
        double sum = bias ? shift.at(0, c) : 0;
        for (int64_t j = 0; j < width; ++j)
          sum += taps.at(j, c) *
                 history[history.size() - size_t(width) + size_t(j)];
        expectNear(y, begins[s] + t, c, sum / (1 + std::exp(-sum)), 4e-6);
      }
      if (slot < 0)
        continue;
      used[size_t(slot)] = true;
      for (int64_t j = 0; j < past; ++j)
        ASSERT_EQ(states.at(slot * past + j, c),
                  history[history.size() - size_t(past) + size_t(j)])
            << "sequence " << s << ", input " << j << ", channel " << c;
    }
  }
  for (int64_t slot = 0; slot < pool; ++slot)
    for (int64_t i = 0; !used[size_t(slot)] && i < past * channels; ++i)
      ASSERT_EQ(states.at(slot * past + i / channels, i % channels),
                double(before[size_t(slot * past * channels + i)]));
}

const Batch prefill{{33, 0, 1, 2, 20, 5, 0}, {4, 1, 0, 2, -1, 5, 3}};
const Batch decode{{1, 1, 0, 1}, {3, -1, 2, 0}};

TEST(Conv, PrefillsAndMovesStates) {
  for (Type type : {Type::F32, Type::BF16}) {
    expectConv(prefill, 48, 4, type, false);
    expectConv(prefill, 48, 4, type, true);
  }
  expectConv({{100}, {2}}, 2056, 4, Type::BF16, false);
}

TEST(Conv, HasOtherWidthsAndOddChannels) {
  expectConv(prefill, 48, 3, Type::BF16, false);
  expectConv(prefill, 13, 4, Type::F32, true);
  expectConv(prefill, 13, 2, Type::F32, true);
  expectConv(prefill, 16, 8, Type::F32, false);
}

TEST(Conv, Decodes) {
  expectConv(decode, 48, 4, Type::BF16, true);
  expectConv(decode, 13, 4, Type::F32, false);
  expectConv(decode, 24, 2, Type::F32, false);
}

// As the sequences' ends, cut off after every row, would leave it; the pool
// stays as it is.
TEST(Conv, KeepsTheStateAfterEveryRow) {
  for (auto [channels, width] : {std::pair(48, 4), {13, 4}, {16, 3}}) {
    Gpu gpu;
    std::mt19937 random(12);
    const std::vector<int32_t> lengths = {5, 0, 1, 2}, pool = {2, 0, -1, 1},
                               begins = {0, 5, 5, 6, 8},
                               places = {3, 0, -1, 6, 1, 5, 7, 2};
    const int64_t past = width - 1, rows = 8;
    Matrix x(gpu, rows, channels, Type::F32, 8, random),
        y(gpu, rows, channels, Type::F32),
        states(gpu, 3 * past, channels, Type::F32, 0, random),
        kept(gpu, 8 * past, channels, Type::F32, 0, random),
        taps(gpu, width, channels, Type::F32, 0, random);
    Matrix before(gpu, 8 * past, channels, Type::F32);
    for (int64_t r = 0; r < 8 * past; ++r)
      for (int64_t c = 0; c < channels; ++c)
        before.set(r, c, float(kept.at(r, c)));
    Buffer<int32_t> starts(gpu, begins), slots(gpu, pool), to(gpu, places);
    ConvArgs args;
    args.x = x;
    args.y = y;
    args.states = states;
    args.kept = kept;
    args.places = to.data();
    args.taps = reinterpret_cast<const float *>(taps.buffer.data());
    args.begins = starts.data();
    args.slots = slots.data();
    args.rows = rows;
    args.sequences = 4;
    args.channels = channels;
    args.width = width;
    std::vector<char> pooled(states.buffer.data(),
                             states.buffer.data() + 3 * past * channels * 4);
    EXPECT_OK(convolve(*gpu.kernels, nullptr, args, 5));
    EXPECT_EQ(0,
              std::memcmp(pooled.data(), states.buffer.data(), pooled.size()));
    for (size_t s = 0; s < lengths.size(); ++s)
      for (int64_t t = 0; t < lengths[s]; ++t)
        for (int64_t j = 0; j < past; ++j)
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = t + 1 - past + j;
            const int64_t place = places[size_t(begins[s] + t)];
            if (place < 0)
              continue;
            double expected = at >= 0 ? x.at(begins[s] + at, c)
                              : pool[s] < 0
                                  ? 0
                                  : states.at(pool[s] * past + at + past, c);
            ASSERT_EQ(kept.at(place * past + j, c), expected)
                << "sequence " << s << ", token " << t << ", input " << j;
          }
    for (int64_t j = 0; j < past; ++j) // Slot 4 is nobody's.
      for (int64_t c = 0; c < channels; ++c)
        ASSERT_EQ(kept.at(4 * past + j, c), before.at(4 * past + j, c));
    args.places = nullptr;
    EXPECT_FALSE(convolve(*gpu.kernels, nullptr, args, 5));
  }
}

TEST(Conv, RefusesToOverwriteItsInput) {
  Gpu gpu;
  std::mt19937 random(1);
  Matrix x(gpu, 4, 8, Type::F32, 0, random), states(gpu, 3, 8, Type::F32);
  Buffer<int32_t> begins(gpu, {0, 4}), slots(gpu, {0, 0});
  ConvArgs args{.x = x, .y = x, .states = states};
  args.taps = reinterpret_cast<const float *>(states.buffer.data());
  args.begins = begins.data();
  args.slots = slots.data();
  args.width = 4;
  Status status = convolve(*gpu.kernels, nullptr, args, 4);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().str(),
            "error: a convolution cannot write over its input");
}

} // namespace
