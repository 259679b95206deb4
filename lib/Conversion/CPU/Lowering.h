//===- Lowering.h - Chunk loops and layers as kernels -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two lowerings behind plum-lower-to-cpu, one file each.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_LOWERING_H
#define PLUM_LIB_CONVERSION_CPU_LOWERING_H

#include "KernelBuilder.h"

namespace plum::cpu {

/// Makes the kernel of a function of assoc-to-chunk, before or after the plan.
mlir::func::FuncOp lowerChunkFunction(mlir::func::FuncOp source,
                                      Machine machine);

/// Makes the step kernel of a layer in normal form.
mlir::func::FuncOp lowerStepLayer(assoc::LayerOp layer, Machine machine);

/// An empty kernel function `name` after `before`.
mlir::func::FuncOp createKernel(mlir::Operation *before, llvm::StringRef name);

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_LOWERING_H
