//===- TileEnums.td - Words of the tile dialect ------------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_TILE_ENUMS_TD
#define PLUM_DIALECTS_TILE_ENUMS_TD

include "mlir/IR/EnumAttr.td"

def Tile_Acc : I32EnumAttrCase<"Acc", 0, "acc">;
def Tile_AccRow : I32EnumAttrCase<"AccRow", 1, "acc_row">;
def Tile_AccCol : I32EnumAttrCase<"AccCol", 2, "acc_col">;
def Tile_Opb : I32EnumAttrCase<"Opb", 3, "opb">;
def Tile_OpbRow : I32EnumAttrCase<"OpbRow", 4, "opb_row">;
def Tile_OpbCol : I32EnumAttrCase<"OpbCol", 5, "opb_col">;
def Tile_Linear : I32EnumAttrCase<"Linear", 6, "linear">;
def Tile_LayoutKindEnum : I32EnumAttr<"LayoutKind", "how a tensor is spread over the threads of a team",
    [Tile_Acc, Tile_AccRow, Tile_AccCol, Tile_Opb, Tile_OpbRow, Tile_OpbCol, Tile_Linear]> {
  let cppNamespace = "::plum::tile";
  let genSpecializedAttr = 0;
}

#endif // PLUM_DIALECTS_TILE_ENUMS_TD
