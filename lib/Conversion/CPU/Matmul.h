//===- Matmul.h - The matrix product of the CPU kernels ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One routine writes every product. It keeps a tile of C in registers and runs
// over k: a row of B is loaded once per tile, an element of A is broadcast from
// memory. So B and C must be row-major, while A may have any strides, which
// makes K^^T U as cheap as Q~ S. Tiles are sized to the register file: with 32
// registers of 16 lanes, 4 x 64 or 8 x 32 (16 accumulators hide the latency of
// two fused multiply-adds a cycle, and loads stay below one per product).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_MATMUL_H
#define PLUM_LIB_CONVERSION_CPU_MATMUL_H

#include "KernelBuilder.h"

namespace plum::cpu {

/// C = init + A B, C [m, n], A [m, k], B [k, n].
struct Matmul {
  mlir::Value a; ///< !llvm.ptr
  int64_t aRow, aCol;
  mlir::Value b;
  int64_t bRow;
  mlir::Value c;
  int64_t cRow;
  int64_t m, n, k;
  /// Upper end of k for the rows [m0, m0 + mr); k when absent.
  std::function<mlir::Value(mlir::Value m0, int64_t mr)> kEnd;
  /// Run-time number of columns instead of n, a multiple of `columnStep`.
  mlir::Value nEnd;
  int64_t columnStep = 0;
  /// Start from what C holds instead of zero...
  bool accumulate = false;
  /// ... times a factor of the row.
  std::function<mlir::Value(mlir::Value row)> rowScale;
  /// Run-time number of rows; a few behind it may be computed as well.
  mlir::Value mEnd = {};
  /// Address of a row of B, where they are not bRow apart.
  std::function<mlir::Value(mlir::Value k)> bAt = {};
};

void emitMatmul(KernelBuilder &b, const Matmul &product);

/// to [cols, rows] = from [rows, cols]^T, row r of it at `from(r)`; `toRow` in
/// elements.
void emitTranspose(KernelBuilder &b,
                   llvm::function_ref<mlir::Value(mlir::Value r)> from,
                   int64_t rows, int64_t cols, mlir::Value to, int64_t toRow);

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_MATMUL_H
