//===- Interpreter.h - Run the IR of a phase in float64 ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A slow and obvious evaluator of what a phase's IR means, op by op, as the .td
// files define it. It takes the same Head as the float64 recurrence, so that
// both can be compared to rounding and a wrong result is pinned to one phase:
//
//   assoc, normal   entry is the layer: its body runs once per token
//   chunk, plan     entry is a chunk function: its loop runs chunk by chunk
//
// Every value is a double. Conversions between storage types and f32 round
// nothing, so what is left is the rounding of float64. Two places need care:
//
//   - Constants. The IR holds them as f32. `constants` lists what the spec
//     wrote; an f32 constant that is the rounding of one of them stands for it.
//     Only a constant that a pass has folded out of others keeps its rounding,
//     near 1e-8.
//   - Decays. G of chunk.cumsum is the list of the steps' factors w, and
//     exp(G_i - G_j) the product of those in between: no logarithm of w = 0, no
//     difference of large numbers.
//
// Rows of a chunk's outputs that nothing writes are NaN.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_INTERPRETER_INTERPRETER_H
#define PLUM_INTERPRETER_INTERPRETER_H

#include "plum/Reference/Recurrence.h"
#include "plum/Support/Result.h"

#include "mlir/IR/BuiltinOps.h"

namespace plum::interpreter {

/// Runs `entry`, an assoc.layer or a chunk function of `module`, over the
/// tokens of one head. An op that has no meaning here, or a head of other
/// sizes, is an error; outputs and states are then unspecified.
Status interpret(mlir::ModuleOp module, llvm::StringRef entry,
                 reference::Head &head, llvm::ArrayRef<double> constants = {});

} // namespace plum::interpreter

#endif // PLUM_INTERPRETER_INTERPRETER_H
