//===- Constraints.h - What verifiers have in common ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A constraint on layouts holds for tensors without one: tile-assign-layouts is
// still to come.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_CONSTRAINTS_H
#define PLUM_DIALECTS_TILE_CONSTRAINTS_H

#include "dialects/Tile/Tile.h"

namespace plum::tile {

using llvm::ArrayRef;
using llvm::cast;
using llvm::StringRef;
using mlir::LogicalResult;
using mlir::Operation;
using mlir::RankedTensorType;
using mlir::Type;
using mlir::Value;

inline int64_t dim(Value value, unsigned i) {
  return cast<RankedTensorType>(value.getType()).getDimSize(i);
}
inline int64_t lengthOf(Value vector) { return dim(vector, 0); }
inline SharedType tileOf(Value value) {
  return cast<SharedType>(value.getType());
}

/// A value of this shape and element, in whatever layout.
LogicalResult expectTensor(Operation *op, StringRef what, Value value,
                           ArrayRef<int64_t> shape, Type element);
LogicalResult expectTensor(Operation *op, StringRef what, Value value,
                           ArrayRef<int64_t> shape);
LogicalResult expectTile(Operation *op, StringRef what, Value tile,
                         int64_t rows, int64_t cols);
LogicalResult expectLayout(Operation *op, StringRef what, Value value,
                           ArrayRef<LayoutKind> legal);
/// All tensors that an op takes and makes are matrices in acc.
LogicalResult expectAcc(Operation *op);
/// Teams that share the columns of a matrix, where an op stands.
int64_t teamsAround(Operation *op);
/// `strip` counts the turns of a tile.strips around the op, and that many
/// strips make `columns` at most; in shared memory the teams share them.
LogicalResult expectStrip(Operation *op, Value strip, int64_t columns,
                          bool shared = true);
/// The kernel around an op, which scans or prepares.
KernelOp expectKernel(Operation *op, std::optional<bool> scans);
/// `name` is an argument; of `element`, where that is given.
LogicalResult expectArgument(Operation *op, KernelOp kernel, StringRef name,
                             Type element = Type());
LogicalResult expectHalf(Operation *op, std::optional<int64_t> half);

} // namespace plum::tile

#endif // PLUM_DIALECTS_TILE_CONSTRAINTS_H
