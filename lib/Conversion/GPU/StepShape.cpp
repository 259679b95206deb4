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
static constexpr int64_t kWantedElements = 32, kMaxElements = 64;
static constexpr int64_t kWidth = 32, kMaxThreads = 512;

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

FailureOr<StepShape> StepShape::choose(LayerOp layer, const StepGraph &graph) {
  SmallVector<StateType> states;
  int64_t keys = 1, values = 1;
  for (BlockArgument state : layer.argumentsOf(Role::State)) {
    states.push_back(cast<StateType>(state.getType()));
    keys = std::max(keys, states.back().getKeyDim());
    values = std::max(values, states.back().getValueDim());
  }
  int64_t held = 0;
  for (int64_t width = kWidth; width >= 4; width /= 2) {
    StepShape shape;
    shape.slices = graph.wholeRows ? 1 : divideCeil(values, width);
    int64_t total = 0;
    for (StateType type : states)
      total += type.getKeyDim() * shape.columns(type.getValueDim()).width;
    // A thread for each element of a row of K, so that gates take no longer
    // than they must.
    int64_t wanted = std::max<int64_t>(divideCeil(total, kWantedElements),
                                       std::min<int64_t>(keys, 128));
    shape.threads = std::clamp<int64_t>(PowerOf2Ceil(wanted), 32, kMaxThreads);
    held = 0;
    for (StateType type : states)
      held += shape.state(type).elements();
    if (held <= kMaxElements)
      return shape;
  }
  InFlightDiagnostic error =
      layer.emitOpError()
      << "has no step kernel for a GPU: a thread would hold " << held
      << " elements of its states, at most " << kMaxElements << " fit";
  if (graph.wholeRows)
    error.attachNote() << "one block holds all columns, because a row of V is "
                          "reduced or read with";
  return failure();
}
