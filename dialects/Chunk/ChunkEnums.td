//===- ChunkEnums.td - Words of the chunk dialect ----------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_CHUNK_ENUMS_TD
#define PLUM_DIALECTS_CHUNK_ENUMS_TD

include "mlir/IR/EnumAttr.td"

def Chunk_Before : I32EnumAttrCase<"Before", 0, "before">;
def Chunk_Decayed : I32EnumAttrCase<"Decayed", 1, "decayed">;
def Chunk_After : I32EnumAttrCase<"After", 2, "after">;
def Chunk_MomentEnum : I32EnumAttr<"Moment", "when, within a step, a row meets the state",
    [Chunk_Before, Chunk_Decayed, Chunk_After]> {
  let cppNamespace = "::plum::chunk";
}

def Chunk_Prepare : I32EnumAttrCase<"Prepare", 0, "prepare">;
def Chunk_Scan : I32EnumAttrCase<"Scan", 1, "scan">;
def Chunk_StageEnum : I32EnumAttr<"Stage", "which half of a chunk's work", [Chunk_Prepare, Chunk_Scan]> {
  let cppNamespace = "::plum::chunk";
}

#endif // PLUM_DIALECTS_CHUNK_ENUMS_TD
