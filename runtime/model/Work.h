//===- Work.h - What a forward pass carries along ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A forward pass runs the rows of several sequences at once, one after the
// other in one list of rows. Spans say which rows belong to which sequence;
// only what has a memory (convolutions, attention, states) looks at them.
//
// Compute bf16 stores as f32 but rounds where the models' own code rounds to
// bf16 (k3.md calls these bf16 points), so that it shows what a bf16 engine
// computes. Sums are f32 in both.
//
// `each`, `scratch` and `round` are for what runs on this CPU.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_WORK_H
#define PLUM_RUNTIME_MODEL_WORK_H

#include "plum/Support/Result.h"
#include "runtime/ThreadPool.h"
#include "runtime/model/Tensor.h"

#include <functional>
#include <span>

namespace plum::model {

class StatePool;

enum class Compute : uint8_t { F32, BF16 };

/// Rows begin .. begin + length are the next tokens of the sequence in `slot`,
/// which has `past` tokens already.
struct Span {
  int64_t slot = 0, begin = 0, length = 0, past = 0;
};

struct Work {
  runtime::ThreadPool &pool;
  std::vector<runtime::AlignedBuffer> &lanes; ///< Scratch, one per thread.
  Compute compute = Compute::F32;
  Backend *backend = nullptr; ///< Where the pass runs; null: on this CPU.
  StatePool *states = nullptr;
  std::span<const Span> spans = {};
  /// Keep the state after each token, for a roll-back.
  bool checkpoints = false;
  /// Called with the output of each layer.
  std::function<void(int64_t layer, const View &rows)> trace = {};

  int threads() const { return int(lanes.size()); }

  /// Undefined values, where the pass runs.
  Rows rows(int64_t count, int64_t width) const;

  /// The first thing that went wrong; the pass goes on and its result is lost.
  void fail(const Error &error) const {
    if (!failure)
      failure = error;
  }
  mutable std::optional<Error> failure = {};
  /// Of the weights that products have read.
  mutable int64_t weightBytes = 0;

  /// item(thread, index) for each index < count, on all threads when the whole
  /// takes more than about `cost` = 100 000 simple operations.
  template <typename Fn> void each(int64_t count, double cost, Fn item) const {
    if (count > 1 && threads() > 1 && cost > 1e5)
      pool.run(threads(), count, item);
    else
      for (int64_t i = 0; i < count; ++i)
        item(0, i);
  }

  /// `count` floats that belong to `thread` until it asks again.
  float *scratch(int thread, int64_t count) const {
    runtime::AlignedBuffer &lane = lanes[size_t(thread)];
    if (!lane.reserve(size_t(count) * sizeof(float)))
      throw std::bad_alloc();
    return reinterpret_cast<float *>(lane.data());
  }

  /// A bf16 point. What a backend's functions return has been rounded where it
  /// should be, and lies on a device.
  void round(const View &rows) const {
    if (compute == Compute::F32 || backend)
      return;
    for (int64_t i = 0; i < rows.count; ++i)
      for (int64_t c = 0; c < rows.width; ++c)
        rows.row(i)[c] = bf16ToFloat(floatToBf16(rows.row(i)[c]));
  }
};

/// y[t] = x[t] W^T, one of several that are done together.
struct Product {
  View x;
  const Matrix *w = nullptr;
  View y;
};

/// All products, as one piece of parallel work.
void multiply(const Work &work, std::span<const Product> products);
/// The same, without a bf16 point after it.
void multiplyExact(const Work &work, std::span<const Product> products);

/// x W^T.
Rows linear(const Work &work, const View &x, const Matrix &w);

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_WORK_H
