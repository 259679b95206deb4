//===- Scores.h - M_xy and its triangular inverse ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// M[i, j] = sum_c x_i[c] y_j[c] exp(G(i)[c] - G(j)[c]) over the rows of a
// chunk.
//
// One factor per step (or none): the decay does not depend on c, so M is the
// plain product X Y^T times a matrix D of products of factors, built row by row
// (D_i = D_{i-1} w_i).
//
// One factor per channel: by sub-blocks of 16 tokens. For a row block I and all
// columns before it the factor splits at the start of I,
//
//   exp(G(i) - G(j)) = in[i] * (out[j] * totals of the blocks between),
//
// both at most 1. The right part is kept transposed for all columns so far and
// multiplied by one total as I advances, so it costs one pass per block. Within
// a block the product runs from i down to j (one multiplication and one dot
// product per pair), which never divides and never exponentiates.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_SCORES_H
#define PLUM_LIB_CONVERSION_CPU_SCORES_H

#include "Decay.h"

namespace plum::cpu {

/// The rows a token has in a matrix and where each stands.
using RowPlaces = llvm::SmallVector<chunk::AtAttr>;

struct ScoresJob {
  Buffer x, result;
  RowPlaces xRows;
};

/// Several score matrices of the same y, which share its transposed copy.
void emitScores(KernelBuilder &b, llvm::ArrayRef<ScoresJob> jobs,
                const Buffer &y, const RowPlaces &yRows,
                const DecayTables *decay, int64_t chunk, int64_t steps);

/// to = x times the decay since the start of the chunk, exp(G(i)).
void emitDecayedRows(KernelBuilder &b, const Buffer &x, const RowPlaces &rows,
                     const DecayTables &decay, int64_t chunk, int64_t steps,
                     const Buffer &to);

/// to = x times the decay to the end of the chunk, exp(G_C - G(i)).
void emitRowsToEnd(KernelBuilder &b, const Buffer &x, const RowPlaces &rows,
                   const DecayTables &decay, int64_t chunk, int64_t steps,
                   const Buffer &to);

/// T = (I - diag(c) M)^-1 by forward substitution on blocks of at most 16 rows
/// and exact merges; c = 1 when it has no base.
void emitInverse(KernelBuilder &b, const Buffer &m, const Buffer &c,
                 const Buffer &t);

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_SCORES_H
