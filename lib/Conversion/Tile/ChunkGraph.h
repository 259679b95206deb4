//===- ChunkGraph.h - A planned chunk as tiles and terms --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the two kernels of a chunkwise layer have to say to each other. The scan
// multiplies the state, and blocks of rows [R, V], with matrices that do not
// depend on the state; `prepare` makes these, once, in the form in which the
// scan's products read them, and leaves them in the chunk's blob:
//
//   read tiles    s_i x_i exp(G(i))         [R, K]   met by the state
//   score tiles   s_i M_ij s'_j             [R, R]   met by a block
//   solve tiles   (I - diag(c) M)^-1 diag(s)   [R, R]
//   key tiles     s_j k_j exp(G_C - G(j))   [R, K]   met by a block, into the
//   state
//
// Every factor that scales rows of a block is folded into the tile that meets
// the block next (diag(c) (X~ S) is (diag(c) X~) S), so the scan is products
// and sums only. Where all terms of a solve's right side share a factor, as
// beta in T (beta v - beta R), it moves into T, and the block is the input as
// it lies in memory: v is never rewritten.
//
// Where decays are one number a token, or none, keys and queries need not be
// rewritten either: k = s x_k with x_k an input has (s 2^G x_k) S = s 2^G (x_k
// S), so the scan reads the input itself, exact in bf16, and scales the
// product's rows in fp32. The blob is then little more than the R x R matrices.
//
// Beside the matrix there may be a vector state z [K] with the same decay,
// which keys are added to: the normaliser of linear attention. What a chunk
// adds to it, and what its tokens see of that, does not depend on the state:
//
//   key sum       sum_j u_j k_j exp(G_C - G(j))   [K]
//   row sums      sum_j s_i M_ij u_j              [R]
//
// which leaves z' = exp(G_C) z + key sum and, for a token, x~_i z + row sum to
// the scan.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_TILE_CHUNKGRAPH_H
#define PLUM_LIB_CONVERSION_TILE_CHUNKGRAPH_H

#include "plum/Transforms/Passes.h"

namespace plum::totile {

using mlir::Value;

/// A factor for each row: a constant times scalars of a map's region.
struct Scale {
  double constant = 1;
  llvm::SmallVector<Value> factors; ///< Sorted by address.

  bool isOne() const { return constant == 1 && factors.empty(); }
  bool operator==(const Scale &o) const {
    return constant == o.constant && factors == o.factors;
  }
  void multiply(const Scale &other);
};

/// Rows of a map that meet a state or each other at a moment of the token.
struct Rows {
  Value value; ///< Yielded by the map: vector<d>, in the map's region.
  chunk::Moment moment = chunk::Moment::After;
  /// The rows are an input (argument `raw`) as it lies in memory, times
  /// `scale`.
  std::optional<unsigned> raw = std::nullopt;
  Scale scale = {};
  bool operator==(const Rows &) const = default;
};

/// A factor for each token that the scan applies itself: [R] f32 in the blob.
struct TokenVector {
  Scale scale;
  enum Decay { None, Grow, GrowBefore, Shrink } decay = None; ///< 2^G(i), ...
  bool isOne() const { return decay == None && scale.isOne(); }
  bool operator==(const TokenVector &) const = default;
};

/// With `vector`, the tile is the raw input, and the factor is applied to the
/// product (reads) or to the block (keys).
struct ReadTile {
  Rows x;
  Scale scale;
  std::optional<unsigned> vector = std::nullopt;
  bool isRaw() const { return vector.has_value(); }
  bool operator==(const ReadTile &) const = default;
};
struct KeyTile {
  Rows k;
  Scale scale;
  std::optional<unsigned> vector = std::nullopt;
  bool isRaw() const { return vector.has_value(); }
  bool operator==(const KeyTile &) const = default;
};
/// M_ij of rows x and y; `strict` unless x looks after its own token's write.
struct Scores {
  Rows x, y;
  bool strict() const { return x.moment != chunk::Moment::After; }
  bool operator==(const Scores &) const = default;
};
struct ScoreTile {
  unsigned scores;
  Scale rows, columns;
  bool operator==(const ScoreTile &) const = default;
};
struct SolveTile {
  unsigned scores;
  Scale rows;    ///< c
  Scale columns; ///< s
};

/// A block of rows [R, V].
struct RowBlock {
  enum Kind {
    Input,  ///< An input as it lies in memory.
    Stored, ///< Rows of a map, which prepare writes to the blob.
    Solve   ///< Result of solve tile `index`.
  } kind;
  unsigned index = 0; ///< Of the input or the solve.
  Value rows;         ///< Stored.
  bool operator==(const RowBlock &) const = default;
};

/// A sum of products that gives a block or an output. Of the vector state:
/// reads and row sums, one number a token.
struct Sum {
  bool ofVector = false;
  std::optional<unsigned> rowSums;
  std::optional<unsigned> base;      ///< RowBlock that stands by itself.
  llvm::SmallVector<unsigned> reads; ///< Read tiles.
  bool negateReads = false;          ///< base - reads.
  llvm::SmallVector<std::pair<unsigned, unsigned>>
      products; ///< Score tile, block.
};

struct Solve {
  unsigned tile;
  Sum right;
};

struct VectorState {
  unsigned argument;
  llvm::SmallVector<unsigned> keys; ///< Tiles that a chunk adds the rows of.
};

/// An argument of the function.
struct Argument {
  std::string name, role;
  mlir::Type element;
  llvm::SmallVector<int64_t> shape; ///< [d], [] or [K, V].
};

struct Graph {
  std::string layer;
  int64_t chunk, K, V;
  int64_t steps = 1; ///< Updates a token, each a row: see StepRows.h.
  int64_t rows() const { return chunk * steps; }
  llvm::SmallVector<Argument> arguments; ///< params, inputs, state, outputs.
  mlir::func::FuncOp function;

  enum class Decay { None, Scalar, Channel } decay = Decay::None;
  Value logDecay;       ///< In the map's region: f32 or vector<K>.
  bool linear = false;  ///< logDecay is the factor itself.
  bool bounded = false; ///< 16 steps of it fit one exponent.

  llvm::SmallVector<Scores> scores;
  llvm::SmallVector<TokenVector> vectors;
  llvm::SmallVector<ReadTile> readTiles;
  llvm::SmallVector<ScoreTile> scoreTiles;
  llvm::SmallVector<SolveTile> solveTiles;
  llvm::SmallVector<KeyTile> keyTiles;
  llvm::SmallVector<RowBlock> blocks;
  llvm::SmallVector<Solve> solves; ///< In the order of their tiles.
  std::optional<VectorState> vectorState;
  llvm::SmallVector<llvm::SmallVector<ScoreTile>> rowSums; ///< Sums of scores.
  llvm::SmallVector<Sum> reads; ///< What the output op reads of the scan.
  llvm::SmallVector<std::pair<unsigned, unsigned>> carry; ///< Key tile, block.
  /// By output: its rows, where they do not depend on the state and read what a
  /// map makes. `prepare` writes these; the others are the scan's.
  llvm::SmallVector<Value> preparedOutputs;
  /// Do outputs of the scan add up the elements of a row, as norms do? One team
  /// then has all columns of V.
  bool sumsOutputs = false;
  mutable chunk::OutputOp output; ///< mutable: op handles have no const access.

  /// Chunks that erase nothing only decay a state and add to it.
  bool erases() const {
    return llvm::any_of(carry, [&](auto pair) {
      return blocks[pair.second].kind == RowBlock::Solve;
    });
  }
  /// The argument behind a value: a block argument of the function or, through
  /// the maps, of a region. Null when the value is none.
  const Argument *argument(Value value) const;
  /// The arguments of a region that a value of it is made from.
  static llvm::SetVector<mlir::BlockArgument> sources(Value value);
  /// What an argument of a map's or output's region stands for: an argument of
  /// the function, or the value that another map yields.
  Value source(mlir::BlockArgument argument) const;
};

/// Reads a function of chunk-plan, or says in `why` what the GPU kernels
/// cannot do yet.
mlir::FailureOr<Graph> analyse(mlir::func::FuncOp function, std::string &why);

} // namespace plum::totile

#endif // PLUM_LIB_CONVERSION_TILE_CHUNKGRAPH_H
