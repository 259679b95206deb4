//===- Prepare.cpp - What does not depend on the state ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One team per chunk and head; warp w has the 16 tokens of block w. Decays are
// base-2 logarithms, and no exponential of a positive number is formed between
// blocks. With c(i) the decay of a channel from the start of row i's block up
// to i, P(I) that of all blocks before I, F(I) that of block I, Q(I) of all
// after:
//
//   read tile    x_i 2^(c(i) + P(I))
//   key tile     y_j 2^(F(J) - c(j) + Q(J))
//   scores       blocks I > J: x_i 2^c(i) . 2^(sum of F between J and I) . y_j
//   2^(F(J) - c(j))
//                the diagonal:  x_i 2^c(i) . y_j 2^-c(j)       where |16 a| is
//                bounded
//
// Without a bound the diagonal is taken apart by halves: rows i in the upper
// and j in the lower half of a group of 16, 8, 4, 2 rows meet at the anchor
// between them (see tile.cumsum), and equal rows meet without decay.
//
// A pass over the strips of 16 columns keeps little in registers. The first
// pass has the gates and the sums per block, whose exchange is the kernel's one
// exchange between warps; the second makes every tile and the diagonal, from
// the gates that the first kept or, where it needs the registers, from new
// ones.
//
//===----------------------------------------------------------------------===//

#include "ToTile.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

namespace {

class Prepare {
public:
  Prepare(TileBuilder &b, const Graph &graph, const BlobLayout &blob)
      : b(b), graph(graph), blob(blob), R(graph.chunk), K(graph.K),
        blocks(R / 16) {}
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
  void channelSums();
  void tables();
  static constexpr int64_t kHalves[] = {8, 4, 2, 1};
  void halves(Value a, Value strip, MutableArrayRef<Value> sums);
  void joinHalves(ArrayRef<Value> sums);
  Value decayStrip(Value strip);
  void tiles();
  void scores();
  void storedBlocks();
  void vectors();
  Value vectorColumn(const TokenVector &vector);
  void keyWeights();
  void keySum();
  Value rowScale(const Scale &scale);
  Value decayOf(Moment moment, Value a);
  /// Products read the rows from the input's tile, as they are.
  bool direct(const Rows &r) const {
    return r.raw && graph.decay != Graph::Decay::Channel;
  }

  TileBuilder &b;
  const Graph &graph;
  const BlobLayout &blob;
  const int64_t R, K, blocks;

  std::optional<RowMaths> maths;
  llvm::StringMap<Value> inputs;  ///< Raw tiles [R, d].
  SmallVector<Value> free;        ///< Raw tiles, reusable strip by strip.
  Value logDecay;                 ///< [R, K] or [R]
  Value sums;                     ///< F [blocks, K]
  Value before, after, between;   ///< 2^P, 2^Q tables; 2^(sums between).
  Value cumulated;                ///< G [1, R] of a scalar decay.
  SmallVector<Value> xs;          ///< bf16 [R, K] by distinct score rows x.
  SmallVector<Rows> xRows, yRows; ///< Distinct rows of scores.
  SmallVector<Value> yTiles;      ///< Shared, by yRows.
  SmallVector<Value> diagonals;   ///< [R, 16] by scores.
  SmallVector<Value> readTiles, keyTiles;
  SmallVector<Value> weights; ///< [1, R] by key of the vector state.
  SmallVector<std::pair<Scale, Value>, 2> rowScales;
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
    types.push_back(RankedTensorType::get({type.getDimSize(0), columns},
                                          type.getElementType()));
  }
  auto op = tile::StripsOp::create(b, types, columns / 16, init);
  op.getBody().takeBody(region);
  return SmallVector<Value>(op.getResults());
}

void Prepare::fetchInputs() {
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
  for (ArrayRef<ScoreTile> terms : graph.rowSums)
    for (const ScoreTile &term : terms)
      needed.append(term.columns.factors);
  if (graph.logDecay)
    needed.push_back(graph.logDecay);
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
  tile::ArrivedOp::create(b);
  maths.emplace(b, graph, R, inputs);
  maths->prepareReductions(needed);
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

/// The log decay of each row, in base 2; a factor of 0 becomes 2^-1000.
static Value toBase2(TileBuilder &b, Value decay, bool linear) {
  auto type = cast<RankedTensorType>(decay.getType());
  if (!linear)
    return b.mul(decay, b.constant(1.4426950408889634, type));
  Value log = math::Log2Op::create(b, decay);
  return arith::MaximumFOp::create(b, log, b.constant(-1000, type));
}

/// The base-2 log decay of a strip: from registers, or made again.
Value Prepare::decayStrip(Value strip) {
  if (logDecay)
    return tile::StripOp::create(b, b.tensor({R, 16}), logDecay, strip);
  Value a = toBase2(b, maths->vector(graph.logDecay, strip), graph.linear);
  return tile::ValidOp::create(b, a.getType(), a, b.getF32FloatAttr(0));
}

void Prepare::channelSums() {
  sums = b.alloc(b.shared(blocks, K, /*half=*/false));
  SmallVector<Value> kept = strips(K, {}, [&](Value strip, Strips &s) {
    Value a = decayStrip(strip);
    tile::BlockSumOp::create(b, a, sums, strip);
    // The sums of halves need the registers that the decays would stay in.
    if (graph.bounded)
      s.pieces.push_back(a);
  });
  if (!kept.empty())
    logDecay = kept[0];
  tile::BarrierOp::create(b);
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
  after = b.alloc(b.shared(blocks, K, false));
  Value sum = b.constant(0, row);
  for (int64_t i = 0; i < blocks; ++i) {
    store(b.exp2(sum), before, i);
    sum = b.add(sum, f[i]);
  }
  tile::ExportVectorOp::create(b, b.exp2(sum), false, blob.decay);
  sum = b.constant(0, row);
  for (int64_t i = blocks; i-- > 0;) {
    store(b.exp2(sum), after, i);
    sum = b.add(sum, f[i]);
  }
  if (blocks > 1 && !graph.scores.empty()) {
    between = b.alloc(b.shared(blocks * (blocks - 1) / 2, K, false));
    for (int64_t i = 1; i < blocks; ++i) {
      sum = b.constant(0, row);
      for (int64_t j = i; j-- > 0;) {
        store(b.exp2(sum), between, i * (i - 1) / 2 + j);
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
  unsigned next = 0;
  for (int64_t half : kHalves) {
    auto decay = [&](bool exclusive, bool upper) {
      Value e = b.exp2(tile::CumsumOp::create(
          b, block, a, b.getI64IntegerAttr(half), exclusive));
      return Value(tile::HalfOp::create(b, block, e, half, upper));
    };
    Value lower = decay(false, false), upper = decay(false, true);
    // A row that looks before its decay lacks its own.
    Value upperBefore = looksBefore ? decay(true, true) : Value();
    SmallVector<Value> x, y;
    for (const Rows &r : xRows)
      x.push_back(
          b.narrow(b.mul(maths->vector(r, strip),
                         r.moment == Moment::Before ? upperBefore : upper)));
    for (const Rows &r : yRows)
      y.push_back(b.narrow(b.mul(maths->vector(r, strip), lower)));
    for (const Scores &score : graph.scores) {
      sums[next] =
          tile::DotDiagOp::create(b, block, x[position(xRows, score.x)],
                                  y[position(yRows, score.y)], sums[next]);
      ++next;
    }
  }
  for (const Scores &score : graph.scores)
    if (!score.strict()) {
      sums[next] = b.add(sums[next], b.mul(maths->vector(score.x, strip),
                                           maths->vector(score.y, strip)));
      ++next;
    }
}

/// The diagonal blocks from those sums.
void Prepare::joinHalves(ArrayRef<Value> sums) {
  const RankedTensorType block = b.tensor({R, 16});
  diagonals.assign(graph.scores.size(), b.constant(0, block));
  unsigned next = 0;
  auto join = [&](unsigned i, Value sum, int64_t half) {
    Value part =
        tile::MaskOp::create(b, block, sum, false, b.getI64IntegerAttr(half));
    diagonals[i] = b.add(diagonals[i], part);
  };
  for (int64_t half : kHalves)
    for (size_t i = 0; i < graph.scores.size(); ++i)
      join(i, sums[next++], half);
  for (auto [i, score] : llvm::enumerate(graph.scores))
    if (!score.strict()) {
      Value row = tile::ReduceOp::create(b, b.tensor({R}), sums[next++]);
      join(i, tile::BroadcastOp::create(b, block, row, /*rows=*/false), 0);
    }
}

/// c of the strip's rows at a moment, from their log decays.
Value Prepare::decayOf(Moment moment, Value a) {
  return tile::CumsumOp::create(b, a.getType(), a, IntegerAttr(),
                                moment == Moment::Before);
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
    init.assign(graph.scores.size() * std::size(kHalves) + inclusive,
                b.constant(0, b.tensor({R, 16})));
  }
  SmallVector<Value> readScales, keyScales;
  for (const ReadTile &t : graph.readTiles)
    readScales.push_back(maths->scaleColumn(both(t.scale, t.x.scale)));
  for (const KeyTile &t : graph.keyTiles)
    keyScales.push_back(maths->scaleColumn(both(t.scale, t.k.scale)));
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
    Value c, grow, growBefore, shrink, tail, p, q;
    if (channel) {
      Value a = decayStrip(strip);
      c = decayOf(Moment::After, a);
      grow = b.exp2(c);
      if (llvm::any_of(graph.readTiles, [](const ReadTile &t) {
            return t.x.moment == Moment::Before;
          }))
        growBefore = b.exp2(decayOf(Moment::Before, a));
      tail = b.exp2(b.sub(table(sums), c));
      if (!byHalves && !graph.scores.empty())
        shrink = b.exp2(arith::NegFOp::create(b, c));
      p = table(before);
      q = table(after);
      if (byHalves)
        halves(a, strip, s.carried);
    }
    auto decayed = [&](Rows r) {
      Value v = maths->vector(r, strip);
      return channel ? b.mul(v, r.moment == Moment::Before ? growBefore : grow)
                     : v;
    };
    SmallVector<Value> x(xRows.size()), stores;
    for (auto [i, r] : llvm::enumerate(xRows)) {
      if (direct(r))
        continue;
      x[i] = b.narrow(decayed(r));
      s.pieces.push_back(x[i]);
    }
    for (auto [t, scale] : llvm::zip(graph.readTiles, readScales)) {
      if (t.isRaw()) {
        stores.push_back(Value());
        continue;
      }
      Value v = decayed(t.x);
      if (channel)
        v = b.mul(v, p);
      if (scalar)
        v = b.mul(v, t.x.moment == Moment::Before ? wholeBefore : whole);
      stores.push_back(b.narrow(scale ? b.mul(v, scale) : v));
    }
    for (auto [i, t] : llvm::enumerate(graph.keyTiles)) {
      if (!keyTiles[i]) {
        stores.push_back(Value());
        continue;
      }
      Value v = maths->vector(t.k, strip);
      if (channel)
        v = b.mul(b.mul(v, tail), q);
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
      Value v = maths->vector(r, strip);
      y.push_back(b.narrow(channel ? b.mul(v, tail) : v));
    }
    if (!init.empty() && !byHalves) {
      SmallVector<Value> near;
      for (Rows r : yRows)
        near.push_back(b.narrow(b.mul(maths->vector(r, strip), shrink)));
      for (auto [i, score] : llvm::enumerate(graph.scores))
        s.carried[i] = tile::DotDiagOp::create(
            b, s.carried[i].getType(), x[position(xRows, score.x)],
            near[position(yRows, score.y)], s.carried[i]);
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
      diagonals.push_back(tile::MaskOp::create(b, out[i].getType(), out[i],
                                               !score.strict(), IntegerAttr()));
  size_t piece = init.size();
  for (Rows r : xRows)
    xs.push_back(direct(r) ? b.load(inputs.lookup(graph.arguments[*r.raw].name),
                                    b.tensor({R, K}, true))
                           : out[piece++]);
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
      m = tile::MaskOp::create(b, square, m, !score.strict(), IntegerAttr());
    }
    matrices[i] = m;
  }
  // Rows that were read raw bring their scale here, in fp32. Along the columns
  // a scale was left in shared memory before the barrier.
  auto byColumn = [&](Value m, const Scale &scale, bool alongRows) {
    Value s = maths->scaleColumn(scale);
    if (!s)
      return m;
    if (s.getType().isF32())
      return b.mul(m, s);
    if (alongRows)
      s = b.load(rowScale(scale), b.tensor({R}));
    return b.mul(m, Value(tile::BroadcastOp::create(b, square, s, alongRows)));
  };
  for (auto [i, score] : llvm::enumerate(graph.scores)) {
    if (score.x.raw)
      matrices[i] = byColumn(matrices[i], score.x.scale, false);
    if (score.y.raw)
      matrices[i] = byColumn(matrices[i], score.y.scale, true);
  }
  for (auto [i, t] : llvm::enumerate(graph.scoreTiles)) {
    Value m = byColumn(matrices[t.scores], t.rows, false);
    m = byColumn(m, t.columns, true);
    tile::ExportMatrixOp::create(b, b.narrow(m), blob.scores[i]);
  }
  for (auto [i, terms] : llvm::enumerate(graph.rowSums)) {
    Value total;
    for (const ScoreTile &t : terms) {
      Value m = byColumn(matrices[t.scores], t.rows, false);
      m = byColumn(m, t.columns, true);
      total = total ? b.add(total, m) : m;
    }
    Value sum = tile::ReduceOp::create(b, b.tensor({R}), total);
    tile::ExportVectorOp::create(b, sum, /*tokens=*/true, blob.rowSums[i]);
  }
  if (graph.solveTiles.empty())
    return;
  // Every warp is done with the rows y; their bytes serve the inverse.
  Value diagonal = b.alloc(b.shared(R, 20, false));
  tile::BarrierOp::create(b);
  for (auto [i, t] : llvm::enumerate(graph.solveTiles)) {
    Value n = byColumn(matrices[t.scores], t.rows, false);
    Value scale = maths->scaleColumn(t.columns);
    if (scale)
      scale = b.fit(scale, b.tensor({R}));
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
    Value scratch = place(0), result = place(1);
    tile::InverseOp::create(b, n, scale, result, scratch, diagonal);
    tile::BarrierOp::create(b);
    tile::ExportOp::create(b, result, blob.solves[i]);
  }
}

void Prepare::storedBlocks() {
  for (auto [i, block] : llvm::enumerate(graph.blocks)) {
    if (block.kind != RowBlock::Stored)
      continue;
    int64_t columns = cast<VectorType>(block.rows.getType()).getDimSize(0);
    Value tile = b.alloc(b.shared(R, columns));
    strips(columns, {}, [&](Value strip, Strips &) {
      Value v = maths->vector(block.rows, strip);
      if (!preservesZero(block.rows))
        v = tile::ValidOp::create(b, v.getType(), v, b.getF32FloatAttr(0));
      b.store(b.narrow(v), tile, strip);
    });
    tile::BarrierOp::create(b);
    tile::ExportOp::create(b, tile, blob.stored[i]);
  }
}

void Prepare::build() {
  for (const Scores &s : graph.scores) {
    if (!llvm::is_contained(xRows, s.x))
      xRows.push_back(s.x);
    if (!llvm::is_contained(yRows, s.y))
      yRows.push_back(s.y);
  }
  fetchInputs();
  storedBlocks();
  if (graph.decay == Graph::Decay::Channel) {
    channelSums();
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
    if (score.y.raw)
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
  tile::KernelOp kernel =
      makeKernel(b, graph, "prepare", graph.chunk / 16, blob);
  // 128 threads have 168 registers each in three CTAs, and 255 in two, which
  // decays per channel need: they stay in registers from pass to pass.
  const int64_t teams = std::max<int64_t>(8 / (graph.chunk / 16), 1);
  kernel->setAttr(tile::kResidentAttr,
                  b.getI64IntegerAttr(graph.decay == Graph::Decay::Channel
                                          ? teams
                                          : teams * 3 / 2));
  b.setInsertionPointToStart(&kernel.getBody().front());
  Prepare(b, graph, blob).build();
}
