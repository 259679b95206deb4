//===- StepShape.h - How threads share a step's states ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sizes of StepGraph.h's forms, chosen when the layer is compiled. A step
// is bound by the memory that its states are read from and written to, so a CTA
// is small (32 columns, 32 elements a thread): many fit on a multiprocessor,
// some loading while others compute, and one sequence of 32 heads still reaches
// most of a GPU's 132.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_STEPSHAPE_H
#define PLUM_LIB_CONVERSION_GPU_STEPSHAPE_H

#include "StepGraph.h"

namespace plum::gpu {

/// A slice of a row of `length`: `groups` threads hold `each` elements. All
/// three are powers of two; the last slices may go past the row's end.
struct ColumnSplit {
  int64_t length, width, each, groups;
};

/// [K x width] of a state: thread r of a column holds `rows` of K, those from
/// r * rows on; the last may go past the end.
struct StateSplit {
  ColumnSplit columns;
  int64_t keys, runs, rows;
  int64_t elements() const { return rows * columns.each; }
  bool hasPadding() const { return runs * rows > keys; }
  /// Threads whose partial sums of one column remain once each warp has summed.
  int64_t partials() const;
};

struct StepShape {
  int64_t slices = 1, threads = 32;

  ColumnSplit columns(int64_t length) const;
  StateSplit state(assoc::StateType type) const;

  /// Fails where the states do not fit into registers: with an error, or with a
  /// warning when there are chunk kernels to run the layer.
  static mlir::FailureOr<StepShape>
  choose(assoc::LayerOp layer, const StepGraph &graph, bool hasChunks);
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_STEPSHAPE_H
