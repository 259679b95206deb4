//===- StepShape.cpp - How threads share a step's states --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepShape.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;
using llvm::divideCeil;
using llvm::PowerOf2Ceil;

/// Elements of all states that a thread should hold, and that it can.
static constexpr int64_t kWantedElements = 40, kMaxElements = 64;
/// Narrower slices than 32 are for states that hold more than this otherwise;
/// below 8 columns, a sector of memory, only what does not fit is cut.
static constexpr int64_t kEasyElements = 48;
static constexpr int64_t kWidth = 32, kSectorWidth = 8, kMaxThreads = 512;

int64_t StateSplit::partials() const {
  return columns.groups < 32 ? runs * columns.groups / 32 : runs;
}

ColumnSplit StepShape::columns(int64_t length) const {
  if (length == 1)
    return {1, 1, 1, 1};
  int64_t width =
      std::max<int64_t>(4, PowerOf2Ceil(divideCeil(length, slices)));
  int64_t each = std::max<int64_t>(4, width / threads);
  return {length, width, each, width / each};
}

StateSplit StepShape::state(StateType type) const {
  ColumnSplit split = columns(type.getValueDim());
  int64_t runs = threads / split.groups;
  return {split, type.getKeyDim(), runs,
          int64_t(divideCeil(type.getKeyDim(), runs))};
}

/// The shape of slices of `width` columns.
static StepShape shapeOf(ArrayRef<StateType> states, int64_t width,
                         bool wholeRows) {
  int64_t keys = 1, values = 1, total = 0;
  for (StateType type : states) {
    keys = std::max(keys, type.getKeyDim());
    values = std::max(values, type.getValueDim());
  }
  StepShape shape;
  shape.slices = wholeRows ? 1 : divideCeil(values, width);
  for (StateType type : states)
    total += type.getKeyDim() * shape.columns(type.getValueDim()).width;
  // A thread for each element of a row of K, so that gates take no longer than
  // they must.
  int64_t wanted = std::max<int64_t>(divideCeil(total, kWantedElements),
                                     std::min<int64_t>(keys, 128));
  shape.threads = std::clamp<int64_t>(PowerOf2Ceil(wanted), 32, kMaxThreads);
  return shape;
}

FailureOr<StepShape> StepShape::choose(LayerOp layer, const StepGraph &graph,
                                       bool hasChunks) {
  SmallVector<StateType> states;
  for (BlockArgument state : layer.argumentsOf(Role::State))
    states.push_back(cast<StateType>(state.getType()));
  int64_t held = 0;
  for (auto [limit, narrowest] : {std::pair(kEasyElements, kSectorWidth),
                                  std::pair(kMaxElements, int64_t(4))})
    for (int64_t width = kWidth; width >= narrowest; width /= 2) {
      StepShape shape = shapeOf(states, width, graph.wholeRows);
      held = 0;
      for (StateType type : states)
        held += shape.state(type).elements();
      if (held <= limit)
        return shape;
    }
  InFlightDiagnostic message =
      hasChunks ? layer.emitWarning() : layer.emitOpError();
  message << (hasChunks ? "no step kernel for this layer on a GPU"
                        : "has no step kernel for a GPU")
          << ": a thread would hold " << held
          << " elements of its states, at most " << kMaxElements << " fit";
  if (graph.wholeRows)
    message.attachNote() << "one block holds all columns, because a row of V "
                            "is reduced or read with";
  if (hasChunks)
    message.attachNote() << "the chunk kernels run it, one token as well";
  message.report();
  return failure();
}
