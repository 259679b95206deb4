//===- Prepare.cpp - From inputs to exports, in order ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prepare.h explains the kernel.
//
//===----------------------------------------------------------------------===//

#include "Prepare.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

SmallVector<Value> Prepare::strips(int64_t columns, ArrayRef<Value> init,
                                   function_ref<void(Value, Strips &)> body) {
  // The body decides how many pieces there are, so it is built first.
  Region region;
  Block &block = region.emplaceBlock();
  Value index = block.addArgument(b.getIndexType(), b.getLoc());
  Strips s;
  for (Value v : init)
    s.carried.push_back(block.addArgument(v.getType(), b.getLoc()));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&block);
    maths->newStrips();
    scaledRows.clear();
    body(index, s);
    SmallVector<Value> yielded = s.carried;
    yielded.append(s.pieces);
    tile::YieldOp::create(b, yielded);
  }
  maths->newStrips();
  SmallVector<Type> types;
  for (Value v : init)
    types.push_back(v.getType());
  for (Value v : s.pieces) {
    auto type = cast<RankedTensorType>(v.getType());
    types.push_back(RankedTensorType::get({type.getDimSize(0), columns / teams},
                                          type.getElementType()));
  }
  auto op = tile::StripsOp::create(b, types, columns / 16 / teams, init);
  op.getBody().takeBody(region);
  return SmallVector<Value>(op.getResults());
}

Value Prepare::earlyScale(const Rows &r) {
  if (!r.raw || graph.decay != Graph::Decay::Channel)
    return Value();
  Value scale = column(r.scale);
  return scale && isa<RankedTensorType>(scale.getType()) ? scale : Value();
}

Value Prepare::lateScale(const Scale &scale, const Rows &r) {
  return maths->scaleColumn(earlyScale(r) ? scale : both(scale, r.scale));
}

Value Prepare::rowsStrip(const Rows &r, Value strip) {
  Value scale = earlyScale(r);
  if (!scale)
    return maths->vector(r, strip);
  for (auto &[known, rows] : scaledRows)
    if (known.raw == r.raw && known.scale == r.scale)
      return rows;
  Value rows = b.mul(maths->vector(r, strip), scale);
  scaledRows.push_back({r, rows});
  return rows;
}

/// Vectors of tokens that prepare reads.
static SmallVector<Value> rowsNeeded(const Graph &graph) {
  SmallVector<Value> needed;
  for (const ReadTile &t : graph.readTiles)
    needed.push_back(t.x.value);
  for (const KeyTile &t : graph.keyTiles)
    needed.push_back(t.k.value);
  for (const Scores &s : graph.scores) {
    needed.push_back(s.x.value);
    needed.push_back(s.y.value);
  }
  for (const RowBlock &block : graph.blocks)
    if (block.kind == RowBlock::Stored)
      needed.push_back(block.rows);
  for (Value rows : graph.preparedOutputs)
    if (rows)
      needed.push_back(rows);
  for (ArrayRef<ScoreTile> terms : graph.rowSums)
    for (const ScoreTile &term : terms)
      needed.append(term.columns.factors);
  if (graph.logDecay)
    needed.push_back(graph.logDecay);
  return needed;
}

/// Factors of tokens that prepare multiplies with.
static SmallVector<Value> factorsNeeded(const Graph &graph) {
  SmallVector<Value> needed;
  auto add = [&](const Scale &scale) { needed.append(scale.factors); };
  for (const ReadTile &t : graph.readTiles) {
    add(t.scale);
    add(t.x.scale);
  }
  for (const KeyTile &t : graph.keyTiles) {
    add(t.scale);
    add(t.k.scale);
  }
  for (const Scores &s : graph.scores) {
    add(s.x.scale);
    add(s.y.scale);
  }
  for (const ScoreTile &t : graph.scoreTiles) {
    add(t.rows);
    add(t.columns);
  }
  for (const SolveTile &t : graph.solveTiles) {
    add(t.rows);
    add(t.columns);
  }
  for (const TokenVector &v : graph.vectors)
    add(v.scale);
  return needed;
}

/// The vector inputs that either reads, with their lengths.
static auto inputsNeeded(const Graph &graph) {
  SmallVector<Value> needed = rowsNeeded(graph);
  needed.append(factorsNeeded(graph));
  return RowMaths::vectorInputs(graph, needed);
}

/// Teams that share the channels, of which everything must have so many panels.
static int64_t teamsFor(const Graph &graph) {
  const int64_t teams = graph.K / 64;
  if (graph.decay != Graph::Decay::Channel || graph.K % 64 ||
      !graph.rowSums.empty() || graph.vectorState)
    return 1;
  auto shared = [&](int64_t columns) { return columns % (64 * teams) == 0; };
  for (auto [name, columns] : inputsNeeded(graph))
    if (!shared(columns))
      return 1;
  auto sharedRows = [&](Value rows) {
    return shared(cast<VectorType>(rows.getType()).getDimSize(0));
  };
  for (const RowBlock &block : graph.blocks)
    if (block.kind == RowBlock::Stored && !sharedRows(block.rows))
      return 1;
  for (Value rows : graph.preparedOutputs)
    if (rows && !sharedRows(rows))
      return 1;
  return teams;
}

void Prepare::fetchInputs() {
  const auto vectors = inputsNeeded(graph);
  for (auto [name, columns] : vectors) {
    Value tile = b.alloc(b.shared(R, columns));
    inputs[name] = tile;
    // A tile that products read as it is stays as it is.
    bool raw = llvm::any_of(graph.scores, [&, name = name](const Scores &s) {
      return (direct(s.x) && graph.arguments[*s.x.raw].name == name) ||
             (direct(s.y) && graph.arguments[*s.y.raw].name == name);
    });
    if (columns == K && !raw)
      free.push_back(tile);
  }
  for (auto [name, columns] : vectors) // Next to each other: one branch.
    tile::FetchOp::create(b, name, inputs[name]);
  maths.emplace(b, graph, R, teams, inputs);
  // Columns come from memory as well: asked for now, they are there in time.
  if (graph.decay == Graph::Decay::Scalar)
    maths->scalar(graph.logDecay);
  for (Value factor : factorsNeeded(graph))
    if (!maths->needsSums(factor))
      maths->scalar(factor);
  tile::ArrivedOp::create(b);
}

/// Sums along rows, and of the decays of each block.
void Prepare::rowSums() {
  const bool channel = graph.decay == Graph::Decay::Channel;
  // The teams' exchange of row sums serves the decays' as well, if these do not
  // depend on it.
  const bool early = channel && !maths->needsSums(graph.logDecay);
  if (early) {
    maths->prepareReductions(graph.logDecay); // Its numbers.
    channelSums();
  }
  const bool exchanged =
      maths->prepareReductions(rowsNeeded(graph), factorsNeeded(graph));
  if (channel && !early)
    channelSums();
  if (channel && !(early && exchanged))
    tile::BarrierOp::create(b);
  // Sums of halves need the registers that these scales would stay in.
  if (channel && !graph.bounded) {
    for (const SolveTile &t : graph.solveTiles) {
      rowScale(t.rows);
      rowScale(t.columns);
    }
    for (const Scores &s : graph.scores)
      for (const Rows *r : {&s.x, &s.y})
        if (earlyScale(*r))
          rowScale(r->scale);
  }
  // Scales are columns that every strip uses: make them once, out here.
  for (const ReadTile &t : graph.readTiles)
    maths->scaleColumn(t.scale);
  for (const KeyTile &t : graph.keyTiles)
    maths->scaleColumn(t.scale);
  for (const Scores &s : graph.scores) {
    maths->scaleColumn(s.x.scale);
    maths->scaleColumn(s.y.scale);
  }
}

Value Prepare::rowsTile(Value rows) {
  int64_t columns = cast<VectorType>(rows.getType()).getDimSize(0);
  Value tile = b.alloc(b.shared(R, columns));
  if (auto narrowed = rows.getDefiningOp<arith::TruncFOp>())
    rows = narrowed.getIn(); // As it is stored anyway.
  strips(columns, {}, [&](Value strip, Strips &) {
    Value v = maths->vector(rows, strip);
    if (!preservesZero(rows))
      v = tile::ValidOp::create(b, v.getType(), v, b.getF32FloatAttr(0));
    b.store(b.narrow(v), tile, strip);
  });
  tile::BarrierOp::create(b);
  return tile;
}

void Prepare::storedBlocks() {
  for (auto [i, block] : llvm::enumerate(graph.blocks))
    if (block.kind == RowBlock::Stored)
      tile::ExportOp::create(b, rowsTile(block.rows), blob.stored[i]);
}

void Prepare::outputs() {
  unsigned next = 0;
  for (const Argument &argument : graph.arguments)
    if (argument.role == "output")
      if (Value rows = graph.preparedOutputs[next++])
        tile::ExportRowsOp::create(b, rowsTile(rows), argument.name);
}

void Prepare::build() {
  for (const Scores &s : graph.scores) {
    if (!llvm::is_contained(xRows, s.x))
      xRows.push_back(s.x);
    if (!llvm::is_contained(yRows, s.y))
      yRows.push_back(s.y);
  }
  fetchInputs();
  rowSums();
  storedBlocks();
  outputs();
  if (graph.decay == Graph::Decay::Channel) {
    tables();
  } else if (graph.decay == Graph::Decay::Scalar) {
    Value a = b.fit(maths->scalar(graph.logDecay), b.tensor({R}));
    logDecay = toBase2(b, a, graph.linear);
    logDecay = tile::ValidOp::create(b, logDecay.getType(), logDecay,
                                     b.getF32FloatAttr(0));
    cumulated = b.alloc(b.shared(1, R, false));
    tile::CumulateOp::create(b, logDecay, cumulated);
    Value last = tile::ElementOp::create(b, b.getF32Type(), cumulated,
                                         uint64_t(0), uint64_t(R - 1));
    tile::ExportVectorOp::create(b, b.fit(b.exp2(last), b.tensor({K})), false,
                                 blob.decay);
  }
  tiles();
  for (const Scores &score : graph.scores)
    if (score.y.raw && !earlyScale(score.y))
      rowScale(score.y.scale);
  for (const ScoreTile &tile : graph.scoreTiles)
    rowScale(tile.columns);
  for (ArrayRef<ScoreTile> terms : graph.rowSums)
    for (const ScoreTile &term : terms)
      rowScale(term.columns);
  if (graph.vectorState)
    keyWeights();
  tile::BarrierOp::create(b);
  vectors();
  if (graph.vectorState)
    keySum();
  for (auto [i, tile] : llvm::enumerate(readTiles))
    if (tile)
      tile::ExportOp::create(b, tile, blob.reads[i]);
  for (auto [i, tile] : llvm::enumerate(keyTiles))
    if (tile)
      tile::ExportOp::create(b, tile, blob.keys[i]);
  for (auto [i, tile] : llvm::enumerate(keyLows))
    if (tile)
      tile::ExportOp::create(b, tile, blob.keysLow[i]);
  if (!graph.scores.empty())
    scores();
}

void plum::totile::buildPrepare(ModuleOp module, const Graph &graph,
                                const BlobLayout &blob, int64_t terms) {
  TileBuilder b(module.getLoc(), module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  const int64_t warps = graph.rows() / 16, teams = teamsFor(graph);
  tile::KernelOp kernel = makeKernel(b, graph, "prepare", warps, blob);
  kernel.setTeams(teams);
  b.setInsertionPointToStart(&kernel.getBody().front());
  Prepare(b, graph, blob, teams, terms).build();
}
