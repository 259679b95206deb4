//===- Prepare.cpp - What does not depend on the state ----------*- C++ -*-===//
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

#include "ToTile.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <numbers>

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

namespace {

class Prepare {
public:
  Prepare(TileBuilder &b, const Graph &graph, const BlobLayout &blob,
          int64_t teams)
      : b(b), graph(graph), blob(blob), R(graph.rows()), K(graph.K),
        blocks(R / 16), teams(teams) {}
  void build();

private:
  struct Strips {
    SmallVector<Value> carried; ///< In: arguments. Out: next values.
    SmallVector<Value> pieces;  ///< Out.
  };
  /// A strips op over K; returns its results.
  SmallVector<Value> strips(int64_t columns, ArrayRef<Value> init,
                            function_ref<void(Value, Strips &)> body);
  void fetchInputs();
  void rowSums();
  void channelSums();
  void tables();
  static constexpr int64_t kHalves[] = {8, 4, 2, 1};
  /// Bounded decays: rows x have 2^(c + kShift), rows y 2^-(c + kShift), with c
  /// from -116 to 0. So neither comes near the ends of the exponents, however
  /// small a norm made x or however large y is.
  static constexpr double kShift = 56;
  void halves(Value a, Value strip, MutableArrayRef<Value> sums);
  void joinHalves(ArrayRef<Value> sums);
  Value decayStrip(Value strip);
  void tiles();
  void scores();
  void exportScores(ArrayRef<Value> matrices, int64_t team);
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
  Value decayOf(Moment moment, Value a);
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
  const int64_t R, K, blocks, teams;

  std::optional<RowMaths> maths;
  llvm::StringMap<Value> inputs;  ///< Raw tiles [R, d].
  SmallVector<Value> free;        ///< Raw tiles, reusable strip by strip.
  Value logDecay;                 ///< [R, K] or [R]
  Value stash;                    ///< Unbounded decays, once they are made.
  Value base2;                    ///< log2 e, 0 in rows past the end.
  Value sums;                     ///< F [blocks, K]
  Value before, after, between;   ///< 2^P, 2^Q tables; 2^(sums between).
  Value ends, from;               ///< 2^F and, of bounded decays, 2^(F + Q).
                                  ///< P and F + Q with their share of kShift.
  Value cumulated;                ///< G [1, R] of a scalar decay.
  SmallVector<Value> xs;          ///< bf16 [R, K] by distinct score rows x.
  SmallVector<Rows> xRows, yRows; ///< Distinct rows of scores.
  SmallVector<Value> yTiles;      ///< Shared, by yRows.
  SmallVector<Value> diagonals;   ///< [R, 16] by scores.
  SmallVector<Value> readTiles, keyTiles;
  SmallVector<Value> weights; ///< [1, R] by key of the vector state.
  struct SolveSpace {
    Value blocks, result, diagonal;
  };
  SmallVector<SolveSpace> solveSpaces; ///< By solve tiles.
  SmallVector<std::pair<Scale, Value>, 2> rowScales;
  SmallVector<std::pair<Rows, Value>, 4> scaledRows; ///< Of this strip.
};

Scale both(Scale a, const Scale &b) {
  a.multiply(b);
  return a;
}

template <typename T>
unsigned position(const SmallVector<T> &list, const T &item) {
  return llvm::find(list, item) - list.begin();
}

} // namespace

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

/// Teams that share the channels, of which everything must have so many panels.
static int64_t teamsFor(const Graph &graph) {
  const int64_t teams = graph.K / 64;
  if (graph.decay != Graph::Decay::Channel || graph.K % 64 ||
      !graph.rowSums.empty() || graph.vectorState)
    return 1;
  auto shared = [&](int64_t columns) { return columns % (64 * teams) == 0; };
  for (auto [name, columns] : RowMaths::vectorInputs(graph, rowsNeeded(graph)))
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
  SmallVector<Value> needed = rowsNeeded(graph);
  for (auto [name, columns] : RowMaths::vectorInputs(graph, needed)) {
    Value tile = b.alloc(b.shared(R, columns));
    tile::FetchOp::create(b, name, tile);
    inputs[name] = tile;
    // A tile that products read as it is stays as it is.
    bool raw = llvm::any_of(graph.scores, [&, name = name](const Scores &s) {
      return (direct(s.x) && graph.arguments[*s.x.raw].name == name) ||
             (direct(s.y) && graph.arguments[*s.y.raw].name == name);
    });
    if (columns == K && !raw)
      free.push_back(tile);
  }
  maths.emplace(b, graph, R, teams, inputs);
  // Columns come from memory as well: asked for now, they are there in time.
  if (graph.decay == Graph::Decay::Scalar)
    maths->scalar(graph.logDecay);
  for (const ReadTile &t : graph.readTiles)
    maths->prepareScale(both(t.scale, t.x.scale));
  for (const KeyTile &t : graph.keyTiles)
    maths->prepareScale(both(t.scale, t.k.scale));
  for (const Scores &s : graph.scores)
    maths->prepareScale(both(s.x.scale, s.y.scale));
  for (const ScoreTile &t : graph.scoreTiles)
    maths->prepareScale(both(t.rows, t.columns));
  for (const SolveTile &t : graph.solveTiles)
    maths->prepareScale(both(t.rows, t.columns));
  for (const TokenVector &v : graph.vectors)
    maths->prepareScale(v.scale);
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
  const bool exchanged = maths->prepareReductions(rowsNeeded(graph));
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

/// The log decay of each row, in base 2. None is below -160, which is 0 as a
/// factor: differences of sums must still know what comes after a token that
/// forgets everything, were it by 2^-1e30.
static Value toBase2(TileBuilder &b, Value decay, bool linear) {
  auto type = cast<RankedTensorType>(decay.getType());
  Value log = linear ? Value(math::Log2Op::create(b, decay))
                     : b.mul(decay, b.constant(std::numbers::log2e, type));
  return arith::MaximumFOp::create(b, log, b.constant(-160, type));
}

/// The base-2 log decay of a strip: made, or from where it was left.
Value Prepare::decayStrip(Value strip) {
  if (logDecay)
    return tile::StripOp::create(b, b.tensor({R, 16}), logDecay, strip);
  if (stash)
    return tile::UnstashOp::create(b, b.tensor({R, 16}), stash, strip,
                                   /*second=*/false);
  Value a = maths->vector(graph.logDecay, strip);
  if (base2) // A bounded decay is a number, whatever the row.
    return b.mul(a, base2);
  a = toBase2(b, a, graph.linear);
  return tile::ValidOp::create(b, a.getType(), a, b.getF32FloatAttr(0));
}

void Prepare::channelSums() {
  if (graph.bounded && !graph.linear) {
    Value log = b.constant(std::numbers::log2e, b.tensor({R}));
    base2 = tile::ValidOp::create(b, log.getType(), log, b.getF32FloatAttr(0));
  }
  sums = b.alloc(b.shared(blocks, K, /*half=*/false));
  Value space;
  if (!graph.bounded)
    space = b.alloc(b.shared(R, K, /*half=*/false));
  SmallVector<Value> kept = strips(K, {}, [&](Value strip, Strips &s) {
    Value a = decayStrip(strip);
    tile::BlockSumOp::create(b, a, sums, strip);
    // The sums of halves need the registers that the decays would stay in.
    if (graph.bounded)
      s.pieces.push_back(a);
    else
      tile::StashOp::create(b, a, space, strip, /*second=*/false);
  });
  if (!kept.empty())
    logDecay = kept[0];
  stash = space;
}

void Prepare::tables() {
  RankedTensorType row = b.tensor({K});
  auto store = [&](Value v, Value tile, int64_t r) {
    tile::StoreOp::create(b, v, tile, Value(), false, false,
                          b.getI64IntegerAttr(r));
  };
  SmallVector<Value> f;
  for (int64_t i = 0; i < blocks; ++i)
    f.push_back(tile::LoadOp::create(b, row, sums, Value(), false, false,
                                     b.getI64IntegerAttr(i)));
  before = b.alloc(b.shared(blocks, K, false));
  // Rows y decay to their block's end and from there. What meets its own block
  // did not decay yet, and needs both.
  Value &onward = graph.bounded ? from : after;
  onward = b.alloc(b.shared(blocks, K, false));
  if (graph.bounded && !yRows.empty()) {
    ends = b.alloc(b.shared(blocks, K, false));
    for (int64_t i = 0; i < blocks; ++i)
      store(b.exp2(f[i]), ends, i);
  }
  const double shift = graph.bounded ? kShift : 0;
  auto shifted = [&](Value v, double by) {
    return b.exp2(by ? b.add(v, b.constant(by, row)) : v);
  };
  Value sum = b.constant(0, row);
  for (int64_t i = 0; i < blocks; ++i) {
    store(shifted(sum, -shift), before, i);
    sum = b.add(sum, f[i]);
  }
  tile::ExportVectorOp::create(b, b.exp2(sum), false, blob.decay);
  sum = b.constant(0, row);
  for (int64_t i = blocks; i-- > 0;) {
    Value later = sum;
    sum = b.add(sum, f[i]);
    store(shifted(graph.bounded ? sum : later, shift), onward, i);
  }
  if (blocks > 2 && !graph.scores.empty()) {
    between = b.alloc(b.shared((blocks - 1) * (blocks - 2) / 2, K, false));
    for (int64_t i = 2; i < blocks; ++i) {
      sum = f[i - 1];
      for (int64_t j = i - 1; j-- > 0;) {
        store(b.exp2(sum), between, (i - 1) * (i - 2) / 2 + j);
        sum = b.add(sum, f[j]);
      }
    }
  }
  tile::BarrierOp::create(b);
}

/// One strip of the products that halves of groups contribute to the diagonal:
/// for each half and score, then the rows that meet themselves.
void Prepare::halves(Value a, Value strip, MutableArrayRef<Value> sums) {
  const RankedTensorType block = b.tensor({R, 16});
  const bool looksBefore = llvm::any_of(
      xRows, [](const Rows &r) { return r.moment == Moment::Before; });
  // Rows that meet themselves, first: then they are no longer in registers.
  size_t dots = graph.scores.size() * std::size(kHalves);
  for (const Scores &score : graph.scores)
    if (!score.strict()) {
      Value products =
          b.mul(rowsStrip(score.x, strip), rowsStrip(score.y, strip));
      sums[dots] =
          b.add(sums[dots], tile::ReduceOp::create(b, b.tensor({R}), products));
      ++dots;
    }
  unsigned next = 0;
  for (int64_t half : kHalves) {
    auto decay = [&](bool exclusive) {
      return b.exp2(tile::CumsumOp::create(
          b, block, a, b.getI64IntegerAttr(half), exclusive, FloatAttr()));
    };
    // Of upper rows from the border on, of lower ones up to it. A row that
    // looks before its decay lacks its own.
    Value after = decay(false), before = looksBefore ? decay(true) : Value();
    SmallVector<Value> x, y;
    for (const Rows &r : xRows)
      x.push_back(b.narrow(b.mul(rowsStrip(r, strip),
                                 r.moment == Moment::Before ? before : after)));
    for (const Rows &r : yRows)
      y.push_back(b.narrow(b.mul(rowsStrip(r, strip), after)));
    for (const Scores &score : graph.scores) {
      Value &sum = sums[next++];
      sum = tile::DotDiagOp::create(
          b, sum.getType(), x[position(xRows, score.x)],
          y[position(yRows, score.y)], sum, b.getI64IntegerAttr(half));
    }
  }
}

/// The diagonal blocks from those sums.
void Prepare::joinHalves(ArrayRef<Value> sums) {
  const size_t scores = graph.scores.size();
  size_t dots = scores * std::size(kHalves);
  for (auto [i, score] : llvm::enumerate(graph.scores)) {
    SmallVector<Value> halves;
    for (size_t h = 0; h < std::size(kHalves); ++h)
      halves.push_back(sums[h * scores + i]);
    Value diagonal;
    if (!score.strict())
      diagonal = sums[dots++];
    diagonals.push_back(
        tile::JoinHalvesOp::create(b, b.tensor({R, 16}), halves, diagonal));
  }
}

/// c of the strip's rows at a moment, from their log decays.
Value Prepare::decayOf(Moment moment, Value a) {
  return tile::CumsumOp::create(
      b, a.getType(), a, IntegerAttr(), moment == Moment::Before,
      graph.bounded ? b.getF32FloatAttr(kShift) : FloatAttr());
}

void Prepare::tiles() {
  const bool channel = graph.decay == Graph::Decay::Channel;
  const bool scalar = graph.decay == Graph::Decay::Scalar;
  // Where tiles go: over inputs that this very strip has just been read from.
  auto take = [&]() {
    if (free.empty())
      return b.alloc(b.shared(R, K));
    return free.pop_back_val();
  };
  for (const ReadTile &t : graph.readTiles)
    readTiles.push_back(t.isRaw() ? Value() : take());
  for (auto [i, t] : llvm::enumerate(graph.keyTiles))
    keyTiles.push_back(t.isRaw() || blob.sharedWith[i] >= 0 ? Value() : take());
  // Rows y as they meet other blocks. Without a decay, or where a scalar one is
  // applied to the scores, they may be a tile that is there anyway.
  for (Rows y : yRows) {
    Value tile;
    if (direct(y))
      tile = inputs.lookup(graph.arguments[*y.raw].name);
    else if (graph.decay == Graph::Decay::None)
      for (auto [i, key] : llvm::enumerate(graph.keyTiles))
        if (key.k.value == y.value && key.scale.isOne())
          tile = blob.sharedWith[i] >= 0 ? readTiles[blob.sharedWith[i]]
                                         : keyTiles[i];
    yTiles.push_back(tile ? tile : take());
  }

  SmallVector<Value> init;
  const bool byHalves = channel && !graph.bounded;
  if (channel)
    init.assign(graph.scores.size(), b.constant(0, b.tensor({R, 16})));
  if (byHalves) {
    size_t inclusive = llvm::count_if(
        graph.scores, [](const Scores &s) { return !s.strict(); });
    init.assign(graph.scores.size() * std::size(kHalves),
                b.constant(0, b.tensor({R, 8})));
    init.append(inclusive, b.constant(0, b.tensor({R})));
  }
  SmallVector<Value> readScales, keyScales;
  for (const ReadTile &t : graph.readTiles)
    readScales.push_back(lateScale(t.scale, t.x));
  for (const KeyTile &t : graph.keyTiles)
    keyScales.push_back(lateScale(t.scale, t.k));
  // A scalar decay: 2^G(i) and 2^(G_C - G(j)) are columns.
  Value whole, rest, wholeBefore;
  if (scalar) {
    auto column = b.tensor({R});
    Value g = b.load(cumulated, column);
    Value end = b.fit(tile::ElementOp::create(b, b.getF32Type(), cumulated,
                                              uint64_t(0), uint64_t(R - 1)),
                      column);
    whole = b.exp2(g);
    wholeBefore = b.exp2(b.sub(g, logDecay));
    rest = b.exp2(b.sub(end, g));
  }

  // Once a strip's decays are read, its rows x can lie in their place.
  auto inStash = [&](size_t x) { return stash && x < 2; };
  auto isRaw = [&](const Rows &r) { return direct(r); };
  auto isSet = [](Value v) { return bool(v); };
  const bool work =
      !llvm::all_of(xRows, isRaw) || !llvm::all_of(yRows, isRaw) ||
      llvm::any_of(readTiles, isSet) || llvm::any_of(keyTiles, isSet);
  auto body = [&](Value strip, Strips &s) {
    RankedTensorType type = b.tensor({R, 16});
    auto table = [&](Value tile) {
      return Value(tile::LoadOp::create(b, type, tile, strip, false,
                                        /*blocks=*/true, IntegerAttr()));
    };
    // Evaluate everything before anything is overwritten.
    Value c, grow, growBefore, p, q;
    // To meet other blocks a row y decays to its block's end: by `tail`, or, of
    // what meets its own block, by `shrink` and then `end`, the same for all
    // rows. From there to the chunk's end it decays by q, which has `end` in
    // it.
    Value shrink, end, tail;
    if (channel) {
      Value a = decayStrip(strip);
      if (byHalves) // First, while nothing else is in registers.
        halves(a, strip, s.carried);
      c = decayOf(Moment::After, a);
      grow = b.exp2(c);
      if (llvm::any_of(graph.readTiles, [](const ReadTile &t) {
            return t.x.moment == Moment::Before;
          }))
        growBefore = b.exp2(decayOf(Moment::Before, a));
      p = table(before);
      q = table(graph.bounded ? from : after);
      if (graph.bounded) {
        shrink = b.exp2(arith::NegFOp::create(b, c));
        if (ends)
          end = table(ends);
      } else {
        tail = b.exp2(b.sub(table(sums), c));
      }
    }
    auto decayed = [&](Rows r) {
      Value v = rowsStrip(r, strip);
      return channel ? b.mul(v, r.moment == Moment::Before ? growBefore : grow)
                     : v;
    };
    auto shrunk = [&](Value v) { return shrink ? b.mul(v, shrink) : v; };
    SmallVector<Value> x(xRows.size()), stores;
    for (auto [i, r] : llvm::enumerate(xRows)) {
      if (direct(r))
        continue;
      x[i] = b.narrow(decayed(r));
      if (inStash(i))
        tile::StashOp::create(b, x[i], stash, strip, /*second=*/i == 1);
      else
        s.pieces.push_back(x[i]);
    }
    for (auto [t, scale] : llvm::zip(graph.readTiles, readScales)) {
      if (t.isRaw()) {
        stores.push_back(Value());
        continue;
      }
      Value v = decayed(t.x);
      // A number goes with the row of p, which many elements share.
      const bool number = channel && scale && scale.getType().isF32();
      if (channel)
        v = b.mul(v, number ? b.mul(p, scale) : p);
      if (scalar)
        v = b.mul(v, t.x.moment == Moment::Before ? wholeBefore : whole);
      stores.push_back(b.narrow(scale && !number ? b.mul(v, scale) : v));
    }
    for (auto [i, t] : llvm::enumerate(graph.keyTiles)) {
      if (!keyTiles[i]) {
        stores.push_back(Value());
        continue;
      }
      Value v = rowsStrip(t.k, strip);
      if (channel)
        v = b.mul(shrink ? shrunk(v) : b.mul(v, tail), q);
      if (scalar)
        v = b.mul(v, rest);
      stores.push_back(b.narrow(keyScales[i] ? b.mul(v, keyScales[i]) : v));
    }
    SmallVector<Value> y;
    for (Rows r : yRows) {
      if (direct(r)) {
        y.push_back(Value());
        continue;
      }
      Value v = rowsStrip(r, strip);
      y.push_back(
          b.narrow(channel ? b.mul(shrunk(v), shrink ? end : tail) : v));
    }
    if (!init.empty() && !byHalves) {
      SmallVector<Value> near;
      for (Rows r : yRows)
        near.push_back(b.narrow(shrunk(rowsStrip(r, strip))));
      for (auto [i, score] : llvm::enumerate(graph.scores))
        s.carried[i] = tile::DotDiagOp::create(
            b, s.carried[i].getType(), x[position(xRows, score.x)],
            near[position(yRows, score.y)], s.carried[i], IntegerAttr());
    }
    size_t next = 0;
    for (ArrayRef<Value> tiles : {ArrayRef(readTiles), ArrayRef(keyTiles)})
      for (Value tile : tiles) {
        if (tile)
          b.store(stores[next], tile, strip);
        ++next;
      }
    for (auto [value, tile] : llvm::zip(y, yTiles))
      if (value && !llvm::is_contained(readTiles, tile) &&
          !llvm::is_contained(keyTiles, tile))
        b.store(value, tile, strip);
  };
  SmallVector<Value> out;
  if (work)
    out = strips(K, init, body);
  if (byHalves)
    joinHalves(ArrayRef(out).take_front(init.size()));
  else if (!init.empty())
    for (auto [i, score] : llvm::enumerate(graph.scores))
      diagonals.push_back(
          tile::MaskOp::create(b, out[i].getType(), out[i], !score.strict()));
  size_t piece = init.size();
  for (auto [i, r] : llvm::enumerate(xRows))
    if (direct(r))
      xs.push_back(b.load(inputs.lookup(graph.arguments[*r.raw].name),
                          b.tensor({R, K}, true)));
    else if (inStash(i))
      xs.push_back(strips(K, {}, [&, i = i](Value strip, Strips &s) {
        s.pieces.push_back(tile::UnstashOp::create(
            b, b.tensor({R, 16}, /*half=*/true), stash, strip, i == 1));
      })[0]);
    else
      xs.push_back(out[piece++]);
}

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
    auto dot = tile::DotBlocksOp::create(b, types, operands, yTiles[j],
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
    tile::ExportMatrixOp::create(b, b.narrow(m), blob.scores[i]);
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
                            space.diagonal);
    tile::BarrierOp::create(b);
    tile::ExportOp::create(b, space.result, blob.solves[i]);
  }
}

/// Where systems are solved: in the bytes of rows y, if those are theirs alone.
void Prepare::allocateSolves() {
  Value diagonal;
  for (size_t i = 0; i < graph.solveTiles.size(); ++i) {
    tile::SharedType type = b.shared(R, R);
    auto place = [&](int64_t number) -> Value {
      Value bytes = yTiles.front();
      bool own = !direct(yRows.front()) &&
                 !llvm::is_contained(readTiles, bytes) &&
                 !llvm::is_contained(keyTiles, bytes);
      int64_t size = cast<tile::SharedType>(bytes.getType()).bytes();
      if (own && i == 0 && (number + 1) * type.bytes() <= size)
        return tile::ReuseOp::create(b, type, bytes, number * type.bytes());
      return b.alloc(type);
    };
    // Systems of one team follow each other.
    if (!diagonal || teams > 1)
      diagonal = b.alloc(b.shared(R, 20, false));
    Value blocks = place(0), result = place(1);
    solveSpaces.push_back({blocks, result, diagonal});
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
  if (!graph.scores.empty())
    scores();
}

void plum::totile::buildPrepare(ModuleOp module, const Graph &graph,
                                const BlobLayout &blob) {
  TileBuilder b(module.getLoc(), module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  const int64_t warps = graph.rows() / 16, teams = teamsFor(graph);
  tile::KernelOp kernel = makeKernel(b, graph, "prepare", warps, blob);
  kernel.setTeams(teams);
  b.setInsertionPointToStart(&kernel.getBody().front());
  Prepare(b, graph, blob, teams).build();
}
