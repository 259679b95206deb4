//===- ToTile.h - The kernels of a chunkwise layer --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `prepare`, `summary` and `scan` of one planned function. They agree on the
// blob, which is laid out here, and on nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_TILE_TOTILE_H
#define PLUM_LIB_CONVERSION_TILE_TOTILE_H

#include "RowMaths.h"

namespace plum::totile {

/// What the tuner may change.
struct Schedule {
  int64_t slice = 64; ///< Columns of V that one team scans.
  int64_t stages = 0; ///< Of the scan's rings; 0: as many as fit, up to 3.
  int64_t terms = 1;  ///< Of a number that is rounded on the chain, see Scan.
  int64_t shared = 0; ///< Bytes of shared memory that a CTA can have.
};

/// Byte offsets of the tiles in a chunk's blob. First what the scan needs
/// first.
struct BlobLayout {
  llvm::SmallVector<int64_t> reads, solves, scores, keys,
      stored; ///< By number.
  llvm::SmallVector<int64_t> solvesLow, scoresLow,
      keysLow;        ///< Second terms of the same, or -1.
  int64_t decay = -1; ///< exp(G_C), [K] f32.
  llvm::SmallVector<int64_t> vectors, rowSums; ///< [R] f32, by number.
  /// Of the vector state, [K] f32: what a chunk adds to it; in the first chunk
  /// of a sequence, its initial value.
  int64_t keySum = -1, kept = -1;
  int64_t bytes = 0;
  /// Key tile i has the same bytes as read tile sharedWith[i], or -1.
  llvm::SmallVector<int64_t> sharedWith;
};
BlobLayout layoutBlob(const Graph &graph, int64_t terms);

/// Bytes of a [rows, cols] bf16 tile in swizzled panels.
inline int64_t tileBytes(int64_t rows, int64_t cols) {
  return (cols + 63) / 64 * rows * 128;
}

tile::KernelOp makeKernel(TileBuilder &b, const Graph &graph,
                          llvm::StringRef role, int64_t warps,
                          const BlobLayout &blob);
void buildPrepare(mlir::ModuleOp module, const Graph &graph,
                  const BlobLayout &blob, int64_t terms);
/// The graph without outputs and what only they need, with the places of what
/// is left; see Summary.cpp.
std::pair<Graph, BlobLayout> chainOf(const Graph &graph,
                                     const BlobLayout &blob);
/// Why the scan cannot have its tiles in shared memory; empty when it can.
std::string scanTooLarge(mlir::MLIRContext *context, const Graph &graph,
                         const BlobLayout &blob, const Schedule &schedule);
/// The kernel `scan`, or of a graph without outputs `summary`.
void buildScan(mlir::ModuleOp module, const Graph &graph,
               const BlobLayout &blob, const Schedule &schedule);

} // namespace plum::totile

#endif // PLUM_LIB_CONVERSION_TILE_TOTILE_H
