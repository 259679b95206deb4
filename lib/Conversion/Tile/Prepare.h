//===- Prepare.h - What does not depend on the state ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One CTA per chunk and head; warp w of a team has the 16 tokens of block w.
// Where each channel has a decay, there is a team for every 64 of them. Decays
// are base-2 logarithms, and no exponential of a positive number is formed
// between blocks. With c(i) the decay of a channel from the start of row i's
// block up to i, P(I) that of all blocks before I, F(I) that of block I, Q(I)
// of all after:
//
//   read tile    x_i 2^(c(i) + P(I))
//   key tile     y_j 2^(F(J) - c(j) + Q(J))
//   scores       blocks I > J: x_i 2^c(i) . 2^(sum of F between J and I) . y_j
//   2^(F(J) - c(j))
//                the diagonal:  x_i 2^c(i) . y_j 2^-c(j)       where |16 a| is
//                bounded (and c is shifted by half of that)
//
// Without a bound the diagonal is taken apart by halves: rows i in the upper
// and j in the lower half of a group of 16, 8, 4, 2 rows meet at the anchor
// between them (see tile.cumsum), and equal rows meet without decay.
//
// A pass over the strips of 16 columns keeps little in registers. The first
// pass has the gates and the sums per block, which warps exchange; the second
// makes every tile and the diagonal, from the gates that the first kept. Where
// the sums of halves need the registers, gates wait in shared memory, each
// thread's own, and rows x of scores after them in the same place.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_TILE_PREPARE_H
#define PLUM_LIB_CONVERSION_TILE_PREPARE_H

#include "ToTile.h"

namespace plum::totile {

class Prepare {
public:
  Prepare(TileBuilder &b, const Graph &graph, const BlobLayout &blob,
          int64_t teams, int64_t terms)
      : b(b), graph(graph), blob(blob), R(graph.rows()), K(graph.K),
        blocks(R / 16), teams(teams), terms(terms) {}
  void build();

private:
  struct Strips {
    llvm::SmallVector<Value> carried; ///< In: arguments. Out: next values.
    llvm::SmallVector<Value> pieces;  ///< Out.
  };
  /// A strips op over K; returns its results.
  llvm::SmallVector<Value>
  strips(int64_t columns, llvm::ArrayRef<Value> init,
         llvm::function_ref<void(Value, Strips &)> body);
  void fetchInputs();
  void rowSums();
  void channelSums();
  void tables();
  static constexpr int64_t kHalves[] = {8, 4, 2, 1};
  /// Bounded decays: rows x have 2^(c + kShift), rows y 2^-(c + kShift), with c
  /// from -116 to 0. So neither comes near the ends of the exponents, however
  /// small a norm made x or however large y is.
  static constexpr double kShift = 56;
  void halves(Value a, Value strip, llvm::MutableArrayRef<Value> sums);
  void joinHalves(llvm::ArrayRef<Value> sums);
  Value decayStrip(Value strip);
  void tiles();
  void scores();
  void exportScores(llvm::ArrayRef<Value> matrices, int64_t team);
  void allocateSolves();
  Value scaled(Value m, const Scale &scale, bool alongRows);
  /// Columns of rows that a map makes, in a tile after a barrier.
  Value rowsTile(Value rows);
  void storedBlocks();
  void outputs();
  void vectors();
  Value vectorColumn(const TokenVector &vector);
  void keyWeights();
  void keySum();
  Value rowScale(const Scale &scale);
  /// The scale as a column, or a number: from there, or as it was made.
  Value column(const Scale &scale);
  Value decayOf(chunk::Moment moment, Value a);
  /// A scale that rows have from the first product on: where they are rewritten
  /// anyway, and it differs from row to row.
  Value earlyScale(const Rows &r);
  /// What is left of the scales of a tile's rows.
  Value lateScale(const Scale &scale, const Rows &r);
  /// A strip of rows, with their early scale.
  Value rowsStrip(const Rows &r, Value strip);
  /// Products read the rows from the input's tile, as they are.
  bool direct(const Rows &r) const {
    return r.raw && graph.decay != Graph::Decay::Channel;
  }

  TileBuilder &b;
  const Graph &graph;
  const BlobLayout &blob;
  const int64_t R, K, blocks, teams, terms;

  std::optional<RowMaths> maths;
  llvm::StringMap<Value> inputs; ///< Raw tiles [R, d].
  llvm::SmallVector<Value> free; ///< Raw tiles, reusable strip by strip.
  Value logDecay;                ///< [R, K] or [R]
  Value stash;                   ///< Unbounded decays, once they are made.
  Value base2;                   ///< log2 e, 0 in rows past the end.
  Value sums;                    ///< F [blocks, K]
  Value before, after, between;  ///< 2^P, 2^Q tables; 2^(sums between).
  Value ends, from;              ///< 2^F and, of bounded decays, 2^(F + Q).
                                 ///< P and F + Q with their share of kShift.
  Value cumulated;               ///< G [1, R] of a scalar decay.
  llvm::SmallVector<Value> xs;   ///< bf16 [R, K] by distinct score rows x.
  llvm::SmallVector<Rows> xRows, yRows; ///< Distinct rows of scores.
  llvm::SmallVector<Value> yTiles;      ///< Shared, by yRows.
  llvm::SmallVector<Value> yLows;       ///< Their second terms, or null.
  llvm::SmallVector<Value> diagonals;   ///< [R, 16] by scores.
  llvm::SmallVector<Value> readTiles, keyTiles, keyLows;
  llvm::SmallVector<Value> weights; ///< [1, R] by key of the vector state.
  struct SolveSpace {
    Value blocks, result, diagonal, lowBlocks, low;
  };
  llvm::SmallVector<SolveSpace> solveSpaces; ///< By solve tiles.
  llvm::SmallVector<std::pair<Scale, Value>, 2> rowScales;
  llvm::SmallVector<std::pair<Rows, Value>, 4> scaledRows; ///< Of this strip.
};

inline Scale both(Scale a, const Scale &b) {
  a.multiply(b);
  return a;
}

template <typename T>
unsigned position(const llvm::SmallVector<T> &list, const T &item) {
  return llvm::find(list, item) - list.begin();
}

/// The log decay of each row, in base 2. None is below -160, which is 0 as a
/// factor: differences of sums must still know what comes after a token that
/// forgets everything, were it by 2^-1e30.
Value toBase2(TileBuilder &b, Value decay, bool linear);

} // namespace plum::totile

#endif // PLUM_LIB_CONVERSION_TILE_PREPARE_H
