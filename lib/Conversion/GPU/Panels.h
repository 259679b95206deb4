//===- Panels.h - Matrices in swizzled panels -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of 16-bit elements in shared memory, as dialects/Tile describes them:
// panels of 64 columns, a row being 128 bytes whose 16-byte pieces are permuted
// by the row; and products with them by mma.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_PANELS_H
#define PLUM_LIB_CONVERSION_GPU_PANELS_H

#include "Ptx.h"

namespace plum::gpu {

/// Byte offset in a panel of 16-byte piece `piece` (0 to 7) of a row.
Value pieceOffset(Ptx &p, Value row, Value piece);
/// Byte offset of a lane's 16 bytes for ldmatrix/stmatrix of 16 x 16, in a
/// panel: rows by l & 15 (`swap`: by columns of tiles), plus `row`.
Value matrixOffset(Ptx &p, Value lane, Value row, int64_t quarter, bool swap);

/// A tile as warps read it.
struct Panels {
  Value base;   ///< Of its first row.
  int64_t rows; ///< Of a panel.
  Value lane;

  int64_t panelBytes() const { return rows * 128; }
  static int64_t bytes(int64_t rows, int64_t columns) {
    return (columns + 63) / 64 * rows * 128;
  }
};
/// A lane's ldmatrix or stmatrix address of the 16 x 16 block (I, J).
Value blockAt(Ptx &p, const Panels &tile, Value I, Value J, bool swap);
/// Writes a block from the four registers of a left operand.
void storeBlock(Ptx &p, const Panels &tile, Value I, Value J,
                llvm::ArrayRef<Value> four);
/// Columns 16 J to 16 J + 15 of the 16 rows from `row` on (a multiple of 8), as
/// the four registers of a left operand.
Values leftOperand(Ptx &p, const Panels &tile, Value row, int64_t J);
/// acc + A B^T or, `transposed`, A B with B [depth, N] from column
/// 16 * firstBlock on; A in the four registers of each 16 columns. They are
/// those of B^T's columns from 16 * firstDepth on.
Values multiply(Ptx &p, llvm::ArrayRef<Value> a, const Panels &b, Values acc,
                bool transposed, Value firstBlock = {}, int64_t firstDepth = 0);

/// The same by wgmma, of a warpgroup's 64 rows: the products are under way.
/// With `zero` they start from zero, and `acc` is undefined. Fences and commits
/// are the caller's.
Values multiplyWide(Ptx &p, llvm::ArrayRef<Value> a, const Panels &b,
                    Values acc, bool zero, bool transposed);
/// acc + A B^T, A in shared memory: `depth` columns of 64 rows from `row` on (a
/// multiple of 8).
Values multiplyShared(Ptx &p, const Panels &a, Value row, int64_t depth,
                      const Panels &b, Values acc, bool zero);

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_PANELS_H
