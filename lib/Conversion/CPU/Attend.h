//===- Attend.h - Softmax over the rows of growing states -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// O = softmax(sum_p Q_p K_p^T) V for the rows of a chunk, the keys and values
// being lists in the caller's memory that are as long as the sequence so far.
//
// Lists are taken in blocks of rows, once. A row of the chunk keeps m, the
// largest score so far, l, the sum of exp(score - m), and O, the sum of
// exp(score - m) v; a block with a larger score first multiplies l and O by
// exp(m - m'). So no exponent is positive, and memory does not grow with the
// sequence. This is the online softmax (arXiv 1805.02867) in the blocks of
// arXiv 2205.14135.
//
// Many rows: the keys of a block are transposed and all is matrix products. One
// row (the step form): dot products with the list's rows where they lie. Rows
// are tokens, or heads of tokens that share the lists: what differs is only how
// many rows of a list each sees. Its sums are the same, whatever stands beside
// it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_ATTEND_H
#define PLUM_LIB_CONVERSION_CPU_ATTEND_H

#include "KernelBuilder.h"

namespace plum::cpu {

/// A growing state in the caller's memory.
struct GrowingRows {
  KernelBuilder::Rows rows;
  int64_t width = 0;

  /// Address of a row.
  mlir::Value at(KernelBuilder &b, mlir::Value row) const;
};

struct AttendJob {
  struct Pair {
    Buffer queries; ///< [R, d]
    GrowingRows keys;
  };
  llvm::SmallVector<Pair> pairs;
  GrowingRows values;
  mlir::Value row;   ///< Of the call: row 0 of the queries,
  mlir::Value count; ///< of which there are so many.
  bool own = true;   ///< They see their own token's row.
  Buffer out;        ///< [R, e]; rows behind `count` are 0.
};

void emitAttend(KernelBuilder &b, const AttendJob &job);

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_ATTEND_H
