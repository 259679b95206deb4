//===- Passes.h - From plans to code for one kind of machine ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_CONVERSION_PASSES_H
#define PLUM_CONVERSION_PASSES_H

#include "dialects/Tile/Tile.h"
#include "plum/Transforms/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace plum {

#define GEN_PASS_DECL
#include "plum/Conversion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "plum/Conversion/Passes.h.inc"

/// Attributes of the kernels that plum-lower-to-cpu makes.
constexpr llvm::StringLiteral kWorkspaceAttr = "plum.workspace_bytes";
/// Array of dictionaries {what, m, n, k}: products of one chunk.
constexpr llvm::StringLiteral kMatmulsAttr = "plum.matmuls";
/// Of a step kernel: operations on the states, for one token.
constexpr llvm::StringLiteral kFlopsAttr = "plum.flops";

/// Attributes of a kernel for a GPU: what its manifest says of it, see
/// runtime/Manifest.h. Kernels of one form and chunk are in launch order.
constexpr llvm::StringLiteral kFormAttr = "plum.form"; ///< "chunk", "step".
constexpr llvm::StringLiteral kGridAttr = "plum.grid";
constexpr llvm::StringLiteral kSlicesAttr = "plum.slices";
constexpr llvm::StringLiteral kThreadsAttr = "plum.threads";
constexpr llvm::StringLiteral kSharedBytesAttr = "plum.shared_bytes";
constexpr llvm::StringLiteral kBlobBytesAttr = "plum.blob_bytes";
constexpr llvm::StringLiteral kSegmentBytesAttr = "plum.segment_bytes";
constexpr llvm::StringLiteral kHeadBlockAttr = "plum.head_block";
// And kRoleAttr, kChunkAttr, kMatmulsAttr, kFlopsAttr.

} // namespace plum

#endif // PLUM_CONVERSION_PASSES_H
