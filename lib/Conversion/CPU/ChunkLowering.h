//===- ChunkLowering.h - A planned chunk loop as a kernel -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks the ops of a chunk in order. Every tensor gets a buffer when it is made
// and loses it after its last use; states stay in the caller's memory and are
// updated in place by `chunk.carry`.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_CHUNKLOWERING_H
#define PLUM_LIB_CONVERSION_CPU_CHUNKLOWERING_H

#include "KernelBuilder.h"

namespace plum::cpu {

/// Makes the kernel of a function of assoc-to-chunk, before or after the plan.
mlir::func::FuncOp lowerChunkFunction(mlir::func::FuncOp source,
                                      Machine machine);

/// Makes the step kernel of a layer in normal form.
mlir::func::FuncOp lowerStepLayer(assoc::LayerOp layer, Machine machine);

/// An empty kernel function `name` after `before`.
mlir::func::FuncOp createKernel(mlir::Operation *before, llvm::StringRef name);

/// Loads a scalar or row of type `type` from `pointer`.
mlir::Value loadRow(KernelBuilder &b, mlir::Type type, mlir::Value pointer);

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_CHUNKLOWERING_H
