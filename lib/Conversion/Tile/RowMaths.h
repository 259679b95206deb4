//===- RowMaths.h - A token's maths on a tile of tokens ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The regions of chunk.map say what happens to one token: vectors [d] and
// scalars. RowMaths rewrites that for R tokens at once: a vector becomes R rows
// of 16 of its columns (one strip), a scalar a column [R]; what is the same for
// all tokens stays a number or is broadcast. Values are made where they are
// first asked for, so a kernel contains what it needs and nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_TILE_ROWMATHS_H
#define PLUM_LIB_CONVERSION_TILE_ROWMATHS_H

#include "ChunkGraph.h"
#include "dialects/Tile/Tile.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace plum::totile {

/// An f32 value or tile as a sum of bf16 ones, each what those before lack.
using Terms = llvm::SmallVector<Value, 2>;

/// Kernel code in the tile dialect, before layouts are assigned.
struct TileBuilder : mlir::ImplicitLocOpBuilder {
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  mlir::RankedTensorType tensor(llvm::ArrayRef<int64_t> shape,
                                bool half = false);
  tile::SharedType shared(int64_t rows, int64_t cols, bool half = true);
  Value constant(double value, mlir::Type type);
  /// Makes `value` (f32, [R], [16]) a value of `type`.
  Value fit(Value value, mlir::RankedTensorType type);
  Value mul(Value a, Value b);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value exp2(Value a);
  Value narrow(Value a); ///< To bf16.
  Value widen(Value a);  ///< To f32.
  Terms terms(Value a, int64_t count);
  /// Their sum.
  Value wide(llvm::ArrayRef<Value> terms);
  Value alloc(tile::SharedType type);
  Value load(Value tile, mlir::RankedTensorType type, Value strip = {});
  void store(Value value, Value tile, Value strip = {});
  /// What the teams have, added up; of matrices, see tile.sum_teams.
  llvm::SmallVector<Value> sumTeams(llvm::ArrayRef<Value> values,
                                    int64_t teams);
};

class RowMaths {
public:
  /// `rows` tokens; `tiles` holds the inputs that are vectors, by name. Teams
  /// share the strips.
  RowMaths(TileBuilder &b, const Graph &graph, int64_t rows, int64_t teams,
           llvm::StringMap<Value> tiles)
      : b(b), graph(graph), rows(rows), teams(teams), tiles(std::move(tiles)) {}

  /// Names of the vector inputs that `values` read, with their lengths.
  static llvm::MapVector<llvm::StringRef, int64_t>
  vectorInputs(const Graph &graph, llvm::ArrayRef<Value> values);

  /// Makes the row sums and scalars that `values` need, and the row sums of
  /// factors, at the current place; true if teams met in a barrier for it.
  bool prepareReductions(llvm::ArrayRef<Value> values,
                         llvm::ArrayRef<Value> factors = {});
  bool needsSums(Value value);
  /// [R, 16] of a vector, inside the strips region whose index is `strip`.
  Value vector(Value value, Value strip);
  /// Rows without the factors that Rows::scale has.
  Value vector(const Rows &rows, Value strip);
  /// [R], or f32 where it is the same for all tokens. Made at the current
  /// place.
  Value scalar(Value value);
  /// Forget vectors: a new strips region begins.
  void newStrips() {
    vectors.clear();
    raws.clear();
  }
  /// Applies a scale to [R, 16], or to a column.
  Value scaled(Value rows, const Scale &scale);
  /// The scale as a column [R] or a number; null when it is 1.
  Value scaleColumn(const Scale &scale);

private:
  void prepareScalars(Value value);
  /// The input whose elements are squared in `value`; empty if none is.
  llvm::StringRef squaredInput(Value value);
  void collectReductions(Value value, llvm::SetVector<Value> &out);
  Value elementwise(mlir::Operation *op, mlir::RankedTensorType type,
                    Value strip);

  TileBuilder &b;
  const Graph &graph;
  int64_t rows, teams;
  llvm::StringMap<Value> tiles;
  llvm::DenseMap<Value, Value> scalars, vectors;
  llvm::StringMap<Value> raws;
};

/// Does a row of zeros in every input give zero? Then rows past the end of a
/// sequence, which are read as zeros, need no masking.
bool preservesZero(Value value);

} // namespace plum::totile

#endif // PLUM_LIB_CONVERSION_TILE_ROWMATHS_H
