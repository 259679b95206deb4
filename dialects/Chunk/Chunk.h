//===- Chunk.h - The chunk dialect ------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A chunk of C tokens as matrix equations. What each op means stands in
// ChunkOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_DIALECTS_CHUNK_CHUNK_H
#define PLUM_DIALECTS_CHUNK_CHUNK_H

#include "dialects/Assoc/Assoc.h"

#include "dialects/Chunk/ChunkDialect.h.inc"
#include "dialects/Chunk/ChunkEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Chunk/ChunkAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/Chunk/ChunkOps.h.inc"

#endif // PLUM_DIALECTS_CHUNK_CHUNK_H
