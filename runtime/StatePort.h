//===- StatePort.h - States between callers and kernels ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's state is dense f32 [K, V]. A caller's may be [V, K], bf16, strided
// or in a pool. This is the one place that converts between the two.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_STATEPORT_H
#define PLUM_RUNTIME_STATEPORT_H

#include "runtime/Problem.h"

#include <cstring>

namespace plum::runtime {

struct StatePort {
  const TensorView *view = nullptr; ///< Null: no such state.
  StateLayout layout = StateLayout::KV;
  int64_t rows = 1, cols = 1; ///< K, V; a vector state is [1, K].

  /// The port of state `index` in `views`, which may be empty.
  static StatePort of(const ManifestTensor &state, StateLayout layout,
                      const std::vector<TensorView> &views, size_t index) {
    auto [rows, cols] = stateExtents(state, StateLayout::KV);
    return {views.empty() ? nullptr : &views[index],
            state.shape.size() == 2 ? layout : StateLayout::KV, rows, cols};
  }

  int64_t elements() const { return rows * cols; }

  /// The address where a kernel can work as it is; else null.
  float *inPlace(int64_t slot, int64_t head) const {
    int64_t row = offset(0, 0, 1, 0), col = offset(0, 0, 0, 1);
    bool dense = (cols == 1 || col == 1) && (rows == 1 || row == cols);
    if (view->dtype != DType::F32 || !dense)
      return nullptr;
    return reinterpret_cast<float *>(view->at(slot, head, 0));
  }

  template <typename T> void load(int64_t slot, int64_t head, T *to) const {
    forEach(slot, head, [&](int64_t from, int64_t i) {
      to[i] =
          view->dtype == DType::F32
              ? static_cast<const float *>(view->data)[from]
              : bf16ToFloat(static_cast<const uint16_t *>(view->data)[from]);
    });
  }
  void store(int64_t slot, int64_t head, const float *from) const {
    if (float *to = inPlace(slot, head)) {
      if (from != to)
        std::memcpy(to, from, size_t(elements()) * sizeof(float));
      return;
    }
    forEach(slot, head, [&](int64_t to, int64_t i) {
      if (view->dtype == DType::F32)
        static_cast<float *>(view->data)[to] = from[i];
      else
        static_cast<uint16_t *>(view->data)[to] = floatToBf16(from[i]);
    });
  }

private:
  int64_t offset(int64_t slot, int64_t head, int64_t k, int64_t v) const {
    return layout == StateLayout::VK ? view->offset(slot, head, v, k)
                                     : view->offset(slot, head, k, v);
  }
  /// element(offset in the view, index in dense [K, V]).
  template <typename Fn>
  void forEach(int64_t slot, int64_t head, Fn element) const {
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t v = 0; v < cols; ++v)
        element(offset(slot, head, k, v), k * cols + v);
  }
};

} // namespace plum::runtime

#endif // PLUM_RUNTIME_STATEPORT_H
