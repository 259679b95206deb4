//===- Growing.h - Lists of rows between callers and kernels ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A growing state is a list of rows [d], one for each token so far. The rows
// of one head of one sequence lie in a view [N, H, capacity, d] of f32 or bf16
// with any strides, or at an address of their own (RunArgs::growingRows). A
// kernel works in place on f32 rows that are contiguous each; this is the one
// place that knows where a row is and converts the others.
//
// Rows never change once they are there. So where the final state is the very
// initial one, the rows so far need not be touched, whatever their type.
//
// Heads that share a list run at the same time, so none of them appends: the
// rows, which are those of an input, are copied before any kernel begins. A
// list that is not in place has a copy in each thread's scratch, which is
// filled with them as well, and one of its heads stores it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_GROWING_H
#define PLUM_RUNTIME_GROWING_H

#include "runtime/Problem.h"

#include <algorithm>

namespace plum::runtime {

/// Sets the `past` of every sequence, or says why it cannot be.
Status assignPast(const Manifest &manifest, const RunArgs &args,
                  Problem &problem);
/// That final views have room for all rows, and growingRows if given. Shapes
/// and dtypes of views are checked with those of other states.
Status checkGrowing(const Manifest &manifest, const RunArgs &args,
                    const Problem &problem);

/// For a run on a GPU, which does not look at the values of `past`.
Status checkDeviceGrowing(const Manifest &manifest, const RunArgs &args,
                          const Problem &problem);
/// Rows that growing states hold where there is no `past`: those of the initial
/// views.
int64_t defaultPast(const Manifest &manifest, const RunArgs &args);

/// Where the rows of one growing state are.
struct GrowingPort {
  const TensorView *view = nullptr; ///< [N, H, capacity, d]; or null, and
  const std::vector<plum_rows> *lists = nullptr; ///< of each sequence.
  int64_t headStride = 0;                        ///< Of `lists`, in bytes.
  int64_t d = 1;

  /// State `state` in `views`: args.initialStates or args.finalStates.
  static GrowingPort of(const Manifest &manifest, const RunArgs &args,
                        const std::vector<TensorView> &views, size_t state);

  /// Nowhere: no rows before, none wanted after.
  bool given() const { return view || lists; }
  /// A kernel can work on the rows as they are.
  bool inPlace() const {
    return lists || (view && view->dtype == DType::F32 &&
                     (d == 1 || view->stride[3] == 1));
  }
  bool sameAs(const GrowingPort &other) const {
    if (!view || !other.view)
      return lists == other.lists && given() == other.given();
    return view->data == other.view->data && view->dtype == other.view->dtype &&
           std::equal(view->stride, view->stride + 4, other.view->stride);
  }
  /// For a kernel, when it can.
  plum_rows rows(const Sequence &sequence, int64_t head) const {
    if (view)
      return {view->data ? view->at(sequence.slot, head, 0) : nullptr,
              view->stride[2] * int64_t(sizeof(float))};
    plum_rows list = (*lists)[size_t(sequence.index)];
    if (list.data)
      list.data = static_cast<char *>(list.data) + head * headStride;
    return list;
  }

  /// One row, as float or double.
  template <typename T>
  void load(const Sequence &sequence, int64_t head, int64_t row, T *to) const {
    if (inPlace()) {
      plum_rows from = rows(sequence, head);
      std::copy_n(rowAt(from, row), d, to);
      return;
    }
    for (int64_t c = 0; c < d; ++c)
      to[c] = element(view->at(sequence.slot, head, row, c));
  }
  template <typename T>
  void store(const Sequence &sequence, int64_t head, int64_t row,
             const T *from) const {
    if (inPlace()) {
      float *to = rowAt(rows(sequence, head), row);
      for (int64_t c = 0; c < d; ++c)
        to[c] = float(from[c]);
      return;
    }
    for (int64_t c = 0; c < d; ++c) {
      void *to = view->at(sequence.slot, head, row, c);
      if (view->dtype == DType::F32)
        *static_cast<float *>(to) = float(from[c]);
      else
        *static_cast<uint16_t *>(to) = floatToBf16(float(from[c]));
    }
  }

  static float *rowAt(const plum_rows &rows, int64_t row) {
    return reinterpret_cast<float *>(static_cast<char *>(rows.data) +
                                     row * rows.stride);
  }

private:
  float element(const void *from) const {
    return view->dtype == DType::F32
               ? *static_cast<const float *>(from)
               : bf16ToFloat(*static_cast<const uint16_t *>(from));
  }
};

/// One growing state of a run, before it and after it. `head` is the layer's.
class GrowingList {
public:
  GrowingList(const Manifest &manifest, const RunArgs &args,
              const Problem &problem, size_t state, bool shared);

  /// Floats that a thread must have for it.
  int64_t scratchRows() const { return room; }
  int64_t width() const { return final.d; }

  /// Before the kernels: what heads share is brought to its place.
  void prepare(const Sequence &sequence, int64_t head) const;
  /// The rows, those so far filled, for a kernel to read and add to: where the
  /// caller wants them if possible.
  plum_rows load(float *scratch, const Sequence &sequence, int64_t head) const;
  /// Those that are not where the caller wants them.
  void store(const plum_rows &rows, const Sequence &sequence,
             int64_t head) const;

private:
  void copyPast(const plum_rows &rows, const Sequence &sequence,
                int64_t head) const;
  void appendInput(const plum_rows &rows, const Sequence &sequence,
                   int64_t head) const;

  GrowingPort initial, final;
  int64_t group;    ///< Heads that share it.
  bool same;        ///< Rows so far are where they shall be.
  int64_t room = 0; ///< Rows of scratch.
  const TensorView *input =
      nullptr; ///< Its rows are appended; null: kernels do.
};

} // namespace plum::runtime

#endif // PLUM_RUNTIME_GROWING_H
