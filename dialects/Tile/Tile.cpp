//===- Tile.cpp - Dialect and verifiers -------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constraints carry the number they have in TileOps.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum::tile;

#include "dialects/Tile/TileDialect.cpp.inc"
#include "dialects/Tile/TileEnums.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Tile/TileTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.cpp.inc"

void TileDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Tile/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Tile/TileOps.cpp.inc"
      >();
}

std::optional<LayoutKind> plum::tile::layoutOf(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return std::nullopt;
  auto layout = dyn_cast_or_null<LayoutAttr>(tensor.getEncoding());
  return layout ? std::optional(layout.getKind()) : std::nullopt;
}

RankedTensorType plum::tile::withLayout(Type type, LayoutKind kind) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType(),
                               LayoutAttr::get(type.getContext(), kind));
}

bool plum::tile::isOpb(LayoutKind kind) {
  return kind == LayoutKind::Opb || kind == LayoutKind::OpbRow ||
         kind == LayoutKind::OpbCol;
}

LogicalResult ReuseOp::verify() {
  // reuse_c1
  if (int64_t(getOffset()) + getTile().getType().bytes() >
      getFrom().getType().bytes())
    return emitOpError() << "expects a tile of at most "
                         << getFrom().getType().bytes() << " bytes, got "
                         << getTile().getType().bytes();
  return success();
}
