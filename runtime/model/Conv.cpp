//===- Conv.cpp - Short causal convolution --------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Conv.h"

#include "runtime/model/Backend.h"
#include "runtime/model/Elementwise.h"

#include <algorithm>

namespace plum::model {

void ShortConv::addChannels(const Vector &weight, int64_t count) {
  if (weight.empty()) // It could not be read.
    return;
  Vector all(size_t(width * (channels + count)));
  for (int64_t j = 0; j < width; ++j) {
    float *row = all.data() + j * (channels + count);
    std::copy_n(taps.data() + j * channels, channels, row);
    for (int64_t c = 0; c < count; ++c)
      row[channels + c] = weight[size_t(c * width + j)];
  }
  taps = std::move(all);
  channels += count;
}

Rows ShortConv::run(const Work &work, const View &x) const {
  if (work.backend)
    return work.backend->convolve(work, *this, x);
  Rows y(x.count, channels);
  const int64_t past = width - 1;
  auto token = [&](const Span &span, const float *state, int64_t t) {
    float *to = y.row(span.begin + t);
    if (bias.empty())
      std::fill_n(to, channels, 0.0f);
    else
      std::copy_n(bias.data(), channels, to);
    for (int64_t j = 0; j < width; ++j) {
      int64_t at = t - past + j;
      const float *from =
          at >= 0 ? x.row(span.begin + at) : state + (at + past) * channels;
      const float *tap = taps.data() + j * channels;
      for (int64_t c = 0; c < channels; ++c)
        to[c] += tap[c] * from[c];
    }
    for (int64_t c = 0; c < channels; ++c)
      to[c] = silu(to[c]);
  };
  /// The inputs before token `t`, from those before token 0.
  auto advance = [&](const Span &span, const float *from, float *to,
                     int64_t t) {
    for (int64_t j = 0; j < past; ++j) {
      int64_t at = t - past + j;
      const float *row =
          at >= 0 ? x.row(span.begin + at) : from + (at + past) * channels;
      std::copy_n(row, channels, to + j * channels);
    }
  };
  for (size_t s = 0; s < work.spans.size(); ++s) {
    const Span &span = work.spans[s];
    float *current = work.states->fixed(span.slot, state);
    work.each(span.length, double(span.length * channels * (width + 8)),
              [&](int, int64_t t) { token(span, current, t); });
    for (int64_t t = 0; work.checkpoints && t < span.length; ++t)
      advance(span, current, work.states->checkpoint(s, t, state), t + 1);
    // Rows of the state move up only: in place is safe.
    advance(span, current, current, span.length);
  }
  work.round(y);
  return y;
}

} // namespace plum::model
