//===- Tile.h - The tile dialect --------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels as tiles with a place on the chip. What each op means stands in
// TileOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_TILE_H
#define PLUM_DIALECTS_TILE_TILE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Tile/TileDialect.h.inc"
#include "dialects/Tile/TileEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Tile/TileTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.h.inc"

namespace plum::tile {

/// The layout of a tensor, once it is assigned.
std::optional<LayoutKind> layoutOf(mlir::Type type);
mlir::RankedTensorType withLayout(mlir::Type type, LayoutKind kind);
/// acc for acc_row, and so on; the family of a vector's layout.
bool isOpb(LayoutKind kind);

} // namespace plum::tile

#endif // PLUM_DIALECTS_TILE_TILE_H
