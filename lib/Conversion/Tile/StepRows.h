//===- StepRows.h - Several updates a token as rows -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A token of n updates is n rows of a chunk, each of which updates the state
// once: then what follows knows of one update a token only. A map yields n
// values for such a row, one for each step; they become one value that holds
// for all rows, from inputs that are read row by row:
//
//   the same maths on k1 and on k2    the maths on the input "k1,k2", row i of
//                                     which is the row of step i mod n
//   the same value                    that; inputs have each row n times
//   anything else                     a choice by the number of the step
//
// What a token reads after its last update, as an output does, is read in each
// of its rows; only the last one's is of use.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_TILE_STEPROWS_H
#define PLUM_LIB_CONVERSION_TILE_STEPROWS_H

#include "plum/Transforms/Passes.h"

namespace plum::totile {

/// Role of the argument that is the number of a row's step.
constexpr llvm::StringLiteral kStepRole = "step";

struct StepRows {
  int64_t steps = 1;
  llvm::SmallVector<bool> decays; ///< By step: does it decay the state?
};

/// Rewrites the maps of a function of chunk-plan as above: each yields one
/// value per result. Joined inputs are new arguments, of the names joined by
/// commas; the function does not verify any more. Fails when a map has rows for
/// some steps only.
mlir::FailureOr<StepRows> joinSteps(mlir::func::FuncOp function);

/// The moment at which all rows of a token's steps meet the state, or none.
/// `at` says it for each step, or for the last one alone.
std::optional<chunk::Moment> momentOf(mlir::ArrayAttr at, const StepRows &rows);

} // namespace plum::totile

#endif // PLUM_LIB_CONVERSION_TILE_STEPROWS_H
