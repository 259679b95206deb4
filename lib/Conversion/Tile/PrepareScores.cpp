//===- PrepareScores.cpp - Scores, solves, vectors ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What follows from the tiles: matrices of scores and what is exported of them,
// systems that are solved, vectors along the tokens and sums of keys.
//
//===----------------------------------------------------------------------===//

#include "Prepare.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

/// A scale where every thread can read all of it; stored on first use, which
/// must come before a barrier.
Value Prepare::rowScale(const Scale &scale) {
  for (auto &[known, tile] : rowScales)
    if (known == scale)
      return tile;
  Value column = maths->scaleColumn(scale);
  if (!column || column.getType().isF32())
    return Value();
  Value tile = b.alloc(b.shared(1, R, /*half=*/false));
  tile::StoreOp::create(b, column, tile, Value(), false, /*tokens=*/true,
                        b.getI64IntegerAttr(0));
  rowScales.push_back({scale, tile});
  return tile;
}

Value Prepare::column(const Scale &scale) {
  for (auto &[known, tile] : rowScales)
    if (known == scale)
      return b.load(tile, b.tensor({R}));
  return maths->scaleColumn(scale);
}

/// What the scan multiplies rows of products and blocks with.
Value Prepare::vectorColumn(const TokenVector &v) {
  RankedTensorType column = b.tensor({R});
  Value out = maths->scaleColumn(v.scale);
  if (v.decay != TokenVector::None) {
    Value g = b.load(cumulated, column);
    if (v.decay == TokenVector::GrowBefore)
      g = b.sub(g, logDecay);
    if (v.decay == TokenVector::Shrink)
      g = b.sub(b.fit(tile::ElementOp::create(b, b.getF32Type(), cumulated,
                                              uint64_t(0), uint64_t(R - 1)),
                      column),
                g);
    out = out ? b.mul(out, b.exp2(g)) : b.exp2(g);
  }
  return b.fit(out ? out : b.constant(1, b.getF32Type()), column);
}
void Prepare::vectors() {
  for (auto [i, v] : llvm::enumerate(graph.vectors))
    if (!v.isOne())
      tile::ExportVectorOp::create(b, vectorColumn(v), /*tokens=*/true,
                                   blob.vectors[i]);
}

/// Weights of the keys that a vector state adds up: 0 past the end of the
/// sequence, where a key need not be 0. Before a barrier.
void Prepare::keyWeights() {
  RankedTensorType column = b.tensor({R});
  for (unsigned key : graph.vectorState->keys) {
    const KeyTile &tile = graph.keyTiles[key];
    Value w = tile.isRaw() ? vectorColumn(graph.vectors[*tile.vector])
                           : b.constant(1, column);
    w = tile::ValidOp::create(b, column, w, b.getF32FloatAttr(0));
    weights.push_back(b.alloc(b.shared(1, R, /*half=*/false)));
    tile::StoreOp::create(b, w, weights.back(), Value(), false, /*tokens=*/true,
                          b.getI64IntegerAttr(0));
  }
}
/// What a chunk adds to the vector state, from keys as the scan has them.
void Prepare::keySum() {
  Value sum;
  for (auto [key, weight] : llvm::zip(graph.vectorState->keys, weights)) {
    const KeyTile &tile = graph.keyTiles[key];
    Value rows = tile.isRaw() ? inputs.lookup(graph.arguments[*tile.k.raw].name)
                 : blob.sharedWith[key] >= 0 ? readTiles[blob.sharedWith[key]]
                                             : keyTiles[key];
    Value one = tile::ColumnSumsOp::create(b, b.tensor({K}), rows, weight);
    sum = sum ? b.add(sum, one) : one;
  }
  if (!sum)
    sum = b.constant(0, b.tensor({K}));
  tile::ExportVectorOp::create(b, sum, /*tokens=*/false, blob.keySum);
  tile::KeepStateOp::create(
      b, graph.arguments[graph.vectorState->argument].name, K, blob.kept);
}

void Prepare::scores() {
  allocateSolves();
  const bool channel = graph.decay == Graph::Decay::Channel;
  RankedTensorType square = b.tensor({R, R});
  SmallVector<Value> matrices(graph.scores.size());
  for (auto [j, y] : llvm::enumerate(yRows)) {
    SmallVector<Value> operands;
    SmallVector<unsigned> numbers;
    for (auto [i, score] : llvm::enumerate(graph.scores))
      if (score.y == y) {
        operands.push_back(xs[position(xRows, score.x)]);
        numbers.push_back(i);
      }
    SmallVector<Type> types(operands.size(), square);
    auto dot =
        tile::DotBlocksOp::create(b, types, operands, yTiles[j], yLows[j],
                                  channel ? between : Value(), !channel);
    for (auto [i, result] : llvm::zip(numbers, dot.getResults()))
      matrices[i] = result;
  }
  for (auto [i, score] : llvm::enumerate(graph.scores)) {
    Value m = matrices[i];
    if (channel) {
      m = tile::PlaceDiagOp::create(b, square, diagonals[i], m);
    } else {
      if (graph.decay == Graph::Decay::Scalar) {
        Value rowG = b.load(cumulated, b.tensor({R}));
        if (score.x.moment == Moment::Before)
          rowG = b.sub(rowG, logDecay);
        Value column =
            tile::BroadcastOp::create(b, square, rowG, /*rows=*/false);
        Value row = tile::BroadcastOp::create(b, square,
                                              b.load(cumulated, b.tensor({R})),
                                              /*rows=*/true);
        // What is masked out may not overflow before it is.
        Value d = arith::MinimumFOp::create(b, b.sub(column, row),
                                            b.constant(0, square));
        m = b.mul(m, b.exp2(d));
      }
      m = tile::MaskOp::create(b, square, m, !score.strict());
    }
    matrices[i] = m;
  }
  // Rows that were read raw bring their scale here, in fp32.
  for (auto [i, score] : llvm::enumerate(graph.scores)) {
    if (score.x.raw && !earlyScale(score.x))
      matrices[i] = scaled(matrices[i], score.x.scale, false);
    if (score.y.raw && !earlyScale(score.y))
      matrices[i] = scaled(matrices[i], score.y.scale, true);
  }
  if (teams == 1)
    return exportScores(matrices, 0);
  // Every matrix has a team that goes on with it.
  matrices = b.sumTeams(matrices, teams);
  for (int64_t team = 0; team < std::min<int64_t>(teams, matrices.size());
       ++team) {
    auto op = tile::TeamOp::create(b, team);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&op.getBody().emplaceBlock());
    exportScores(matrices, team);
  }
}

/// A matrix times a scale of its rows, or of its columns, which was left in
/// shared memory before the barrier.
Value Prepare::scaled(Value m, const Scale &scale, bool alongRows) {
  Value s = column(scale);
  if (!s)
    return m;
  if (s.getType().isF32())
    return b.mul(m, s);
  if (alongRows)
    s = b.load(rowScale(scale), b.tensor({R}));
  return b.mul(m, Value(tile::BroadcastOp::create(
                      b, cast<RankedTensorType>(m.getType()), s, alongRows)));
}

/// The tiles of the matrices of one team, and of all where there is one.
void Prepare::exportScores(ArrayRef<Value> matrices, int64_t team) {
  auto mine = [&](unsigned scores) { return scores % teams == team; };
  for (auto [i, t] : llvm::enumerate(graph.scoreTiles)) {
    if (!mine(t.scores))
      continue;
    Value m = scaled(matrices[t.scores], t.rows, false);
    m = scaled(m, t.columns, true);
    auto terms = b.terms(m, blob.scoresLow[i] < 0 ? 1 : 2);
    tile::ExportMatrixOp::create(b, terms.front(), blob.scores[i]);
    if (terms.size() > 1)
      tile::ExportMatrixOp::create(b, terms.back(), blob.scoresLow[i]);
  }
  for (auto [i, terms] : llvm::enumerate(graph.rowSums)) {
    Value total;
    for (const ScoreTile &t : terms) {
      Value m = scaled(matrices[t.scores], t.rows, false);
      m = scaled(m, t.columns, true);
      total = total ? b.add(total, m) : m;
    }
    Value sum = tile::ReduceOp::create(b, b.tensor({R}), total);
    tile::ExportVectorOp::create(b, sum, /*tokens=*/true, blob.rowSums[i]);
  }
  if (teams == 1 && !graph.solveTiles.empty())
    tile::BarrierOp::create(b); // Where rows y were is the inverse's scratch.
  for (auto [i, t] : llvm::enumerate(graph.solveTiles)) {
    if (!mine(t.scores))
      continue;
    Value n = scaled(matrices[t.scores], t.rows, false);
    Value scale = column(t.columns);
    if (scale)
      scale = b.fit(scale, b.tensor({R}));
    const SolveSpace &space = solveSpaces[i];
    tile::InverseOp::create(b, n, scale, space.result, space.blocks,
                            space.diagonal, space.low, space.lowBlocks);
    tile::BarrierOp::create(b);
    tile::ExportOp::create(b, space.result, blob.solves[i]);
    if (space.low)
      tile::ExportOp::create(b, space.low, blob.solvesLow[i]);
  }
}

/// Where systems are solved: in the bytes of rows y, if those are theirs alone.
void Prepare::allocateSolves() {
  Value diagonal;
  for (size_t i = 0; i < graph.solveTiles.size(); ++i) {
    tile::SharedType type = b.shared(R, R);
    auto place = [&](Value bytes, int64_t number) -> Value {
      if (!bytes)
        return b.alloc(type);
      bool own = !direct(yRows.front()) &&
                 !llvm::is_contained(readTiles, bytes) &&
                 !llvm::is_contained(keyTiles, bytes);
      int64_t size = cast<tile::SharedType>(bytes.getType()).bytes();
      if (own && i == 0 && (number + 1) * type.bytes() <= size)
        return tile::ReuseOp::create(b, type, bytes, number * type.bytes());
      return b.alloc(type);
    };
    Value bytes = yTiles.front(), lows = yLows.front();
    // Systems of one team follow each other.
    if (!diagonal || teams > 1)
      diagonal = b.alloc(b.shared(R, 20, false));
    SolveSpace space{place(bytes, 0), place(bytes, 1), diagonal, Value(),
                     Value()};
    if (blob.solvesLow[i] >= 0) {
      space.lowBlocks = place(lows, 0);
      space.low = place(lows, 1);
    }
    solveSpaces.push_back(space);
  }
}
