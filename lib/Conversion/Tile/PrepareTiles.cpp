//===- PrepareTiles.cpp - Decays, and rows as they meet others ------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass that sums decays, the tables made of the sums, and the pass that
// makes every tile and the diagonals. Prepare.h explains them.
//
//===----------------------------------------------------------------------===//

#include "Prepare.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <numbers>

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

Value plum::totile::toBase2(TileBuilder &b, Value decay, bool linear) {
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
    SmallVector<Value> x;
    SmallVector<Terms> y;
    for (const Rows &r : xRows)
      x.push_back(b.narrow(b.mul(rowsStrip(r, strip),
                                 r.moment == Moment::Before ? before : after)));
    for (const Rows &r : yRows)
      y.push_back(b.terms(b.mul(rowsStrip(r, strip), after), terms));
    for (const Scores &score : graph.scores) {
      Value &sum = sums[next++];
      for (Value term : y[position(yRows, score.y)])
        sum = tile::DotDiagOp::create(b, sum.getType(),
                                      x[position(xRows, score.x)], term, sum,
                                      b.getI64IntegerAttr(half));
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
  for (auto [i, t] : llvm::enumerate(graph.keyTiles)) {
    keyTiles.push_back(t.isRaw() || blob.sharedWith[i] >= 0 ? Value() : take());
    keyLows.push_back(blob.keysLow[i] < 0 ? Value() : take());
  }
  // Rows y as they meet other blocks; decayed, they may be two terms. Without a
  // decay, or where a scalar one is applied to the scores, they may be a tile
  // that is there anyway.
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
    yLows.push_back(channel && terms > 1 ? take() : Value());
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
      llvm::any_of(readTiles, isSet) || llvm::any_of(keyTiles, isSet) ||
      llvm::any_of(keyLows, isSet);
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
    SmallVector<Value> x(xRows.size()), stores, lows;
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
      if (!keyTiles[i] && !keyLows[i]) {
        stores.push_back(Value());
        lows.push_back(Value());
        continue;
      }
      Value v = rowsStrip(t.k, strip);
      if (channel)
        v = b.mul(shrink ? shrunk(v) : b.mul(v, tail), q);
      if (scalar)
        v = b.mul(v, rest);
      auto terms = b.terms(keyScales[i] ? b.mul(v, keyScales[i]) : v,
                           keyLows[i] ? 2 : 1);
      stores.push_back(terms.front());
      lows.push_back(terms.back());
    }
    stores.append(lows);
    SmallVector<Terms> y;
    for (Rows r : yRows) {
      if (direct(r)) {
        y.push_back({Value(), Value()});
        continue;
      }
      Value v = rowsStrip(r, strip);
      y.push_back(b.terms(channel ? b.mul(shrunk(v), shrink ? end : tail) : v,
                          channel ? terms : 1));
    }
    if (!init.empty() && !byHalves) {
      SmallVector<Terms> near;
      for (Rows r : yRows)
        near.push_back(b.terms(shrunk(rowsStrip(r, strip)), terms));
      for (auto [i, score] : llvm::enumerate(graph.scores))
        for (Value term : near[position(yRows, score.y)])
          s.carried[i] = tile::DotDiagOp::create(
              b, s.carried[i].getType(), x[position(xRows, score.x)], term,
              s.carried[i], IntegerAttr());
    }
    size_t next = 0;
    for (ArrayRef<Value> tiles :
         {ArrayRef(readTiles), ArrayRef(keyTiles), ArrayRef(keyLows)})
      for (Value tile : tiles) {
        if (tile)
          b.store(stores[next], tile, strip);
        ++next;
      }
    for (auto [rows, tile, low] : llvm::zip(y, yTiles, yLows)) {
      if (rows.front() && !llvm::is_contained(readTiles, tile) &&
          !llvm::is_contained(keyTiles, tile))
        b.store(rows.front(), tile, strip);
      if (low)
        b.store(rows.back(), low, strip);
    }
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
