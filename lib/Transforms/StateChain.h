//===- StateChain.h - What a layer says about one state ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of one state of a normalised layer, taken apart into the rows that
// the chunkwise form stacks, and the order in which several states and their
// reads can be computed: a value has level 0 when it needs inputs only, and the
// reads of a state are one level above what its steps need. A list has the
// level of the row that it is given, and what attends to it is read like a
// state. States whose writes depend on their own reads other than by an erase,
// directly or in a circle through others, have no level and no chunkwise form.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TRANSFORMS_STATECHAIN_H
#define PLUM_LIB_TRANSFORMS_STATECHAIN_H

#include "plum/Transforms/Passes.h"

namespace plum {

/// A row of the chunk: a value of the token's equations, and where it stands.
struct Row {
  mlir::Value value;
  chunk::AtAttr at;
};

/// A read, where it stands, and the level at which its key is known.
struct ChainRead {
  assoc::ReadOp op;
  chunk::AtAttr at;
  int level = 0;
};

struct StateChain {
  mlir::BlockArgument start;
  llvm::SmallVector<assoc::StepOp> steps;
  llvm::SmallVector<ChainRead> reads; ///< In the order of the layer.
  bool decays = false;
  assoc::Domain domain = assoc::Domain::Log; ///< Linear if any step's is.
  assoc::BoundsAttr bounds;
  /// Erases, one entry each; u0 (the write that shares the key) may be null.
  llvm::SmallVector<Row> along, at;
  llvm::SmallVector<mlir::Value> by, u0;
  /// The other writes.
  llvm::SmallVector<Row> keys;
  llvm::SmallVector<mlir::Value> values;
  int level = 0; ///< Of what its steps need.

  assoc::StateType type() const {
    return llvm::cast<assoc::StateType>(start.getType());
  }
};

/// A growing state: what is appended, and the level at which that is known.
struct ListChain {
  assoc::AppendOp append;
  int level = 0;
};
struct ListRead {
  assoc::AttendOp op;
  int level = 0;
};

struct StateChains {
  llvm::SmallVector<StateChain, 0> states;
  llvm::SmallVector<ListChain> lists;
  llvm::SmallVector<ListRead> attends;
};

/// The chains of all states, with the levels of all that they need. Fails with
/// a warning that says why when the layer has no chunkwise form.
llvm::FailureOr<StateChains> readStateChains(assoc::LayerOp layer);

/// The one op that appends to a list, which is given before or after it.
assoc::AppendOp appendTo(mlir::Value list);

} // namespace plum

#endif // PLUM_LIB_TRANSFORMS_STATECHAIN_H
