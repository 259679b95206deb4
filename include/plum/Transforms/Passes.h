//===- Passes.h - From the recurrence to a plan -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TRANSFORMS_PASSES_H
#define PLUM_TRANSFORMS_PASSES_H

#include "dialects/Chunk/Chunk.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"

namespace plum {

#define GEN_PASS_DECL
#include "plum/Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "plum/Transforms/Passes.h.inc"

/// Attributes of the functions that assoc-to-chunk makes and their arguments.
constexpr llvm::StringLiteral kLayerAttr = "plum.layer"; ///< Name of the layer.
constexpr llvm::StringLiteral kChunkAttr = "plum.chunk"; ///< C, in tokens.
constexpr llvm::StringLiteral kRoleAttr = "plum.role";   ///< Of an argument.
constexpr llvm::StringLiteral kNameAttr = "plum.name";   ///< Of an argument.

} // namespace plum

#endif // PLUM_TRANSFORMS_PASSES_H
