//===- AttendTiles.cpp - Tiles of keys and values ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One turn for each tile:
//
//     wait      for its copies; barrier: all are done with the tile before
//     copy      the tile that takes the place of the one before
//     x         scores, times their factor and log2 e; what a row must not see
//               is -inf
//     m'        the largest so far
//     w         2^(x - m'), and what was summed before times 2^(m - m')
//     sums      + w values
//
// Warps that have the same rows exchange m' and w through shared memory.
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

void AttendEmitter::teamBarrier() {
  p.barrier(p.add(rowWarp, 1), shape.columnWarps * 32);
}

unsigned AttendEmitter::numberOf(unsigned list) const {
  SmallVector<unsigned> all = layer.read();
  return llvm::find(all, list) - all.begin();
}

Panels AttendEmitter::tileOf(unsigned list, Value stage) {
  Value base = p.at(p.shared(shape.stagesAt + shape.tileAt[numberOf(list)]),
                    p.mul(stage, shape.stageBytes));
  return {base, shape.keys, lane};
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

void AttendEmitter::fetchList(unsigned number, Value tile, Value stage) {
  const unsigned list = layer.read()[number];
  const int64_t width = layer.lists[list].width,
                pieces = layer.padded(width) / 8, units = shape.keys * pieces;
  const ListPlace &rows = lists[number];
  Panels to = tileOf(list, stage);
  Value first = p.mul(tile, shape.keys);
  Value last = p.sub(keyCount, p.i32(1));
  struct Unit {
    Value to, from, isThere; ///< from: after `bytes` a number.
  };
  auto unitAt = [&](Value unit, int64_t bytes) -> Unit {
    Value row = p.divu(unit, pieces), piece = p.remu(unit, pieces);
    Value offset = p.add(pieceOffset(p, row, p.bitAnd(piece, 7)),
                         p.mul(p.shr(piece, 3), to.panelBytes()));
    Value key = p.add(first, row);
    Value isThere = p.lt(key, keyCount);
    if (width % 16) {
      isThere = p.both(isThere, p.lt(piece, p.i32(width / 8)));
      piece = p.minimum(piece, p.i32(width / 8 - 1));
    }
    Value from = p.at(rows.pointer(p, p.minimum(key, last)),
                      p.toI64(p.mul(piece, 8 * bytes)));
    return {p.at(to.base, offset), from, isThere};
  };
  p.ifElse(
      rows.isF32, {},
      [&] {
        p.loop(tid, p.i32(units), shape.threads(), [&](Value unit) {
          Unit u = unitAt(unit, 4);
          Values pairs = packEight(p, loadEight(p, u.from, p.getF32Type()));
          for (Value &pair : pairs)
            pair = p.select(u.isThere, pair, p.i32(0));
          p.store(p.vector(pairs), u.to);
        });
        return Values();
      },
      [&] {
        for (int64_t i = 0; i < units; i += shape.threads()) {
          Value unit = p.add(tid, i);
          auto copy = [&] {
            Unit u = unitAt(unit, 2);
            p.copy16(u.to, u.from, p.select(u.isThere, p.i32(16), p.i32(0)));
          };
          if (i + shape.threads() <= units)
            copy();
          else
            p.ifThen(p.lt(unit, p.i32(units)), copy);
        }
        return Values();
      });
}

void AttendEmitter::fetch(Value tile, Value stage) {
  for (unsigned n = 0; n < lists.size(); ++n)
    fetchList(n, tile, stage);
}

void AttendEmitter::startCopies(Value firstTile, Value endTile) {
  for (int64_t s = 0; s + 1 < shape.stages; ++s) {
    Value tile = p.add(firstTile, s);
    p.ifThen(p.lt(tile, endTile), [&] { fetch(tile, p.i32(s)); });
    p.copyCommit();
  }
}

//===----------------------------------------------------------------------===//
// Scores and weights
//===----------------------------------------------------------------------===//

Values AttendEmitter::scores(Value stage) {
  if (shape.wide)
    return wideScores(stage);
  Values x(share() / 2, p.f32(0));
  int64_t at = 0;
  for (auto [i, list] : llvm::enumerate(layer.keys)) {
    Panels keys = tileOf(list, stage);
    keys.base = p.at(keys.base, p.mul(columnWarp, share() * 128));
    Panels queries{p.shared(shape.queryAt[i]), shape.rows(), lane};
    for (int64_t J = 0; J < layer.padded(layer.keyDim(i)) / 16; ++J, at += 4) {
      Values q = shape.hold ? Values(ArrayRef(held).slice(at, 4))
                            : leftOperand(p, queries, p.shl(rowWarp, 4), J);
      x = multiply(p, q, keys, x, false, {}, J);
    }
  }
  return x;
}

/// A warpgroup's, by wgmma; they are waited for.
Values AttendEmitter::wideScores(Value stage) {
  Values x(shape.keys / 2, p.undefined()), queries;
  for (unsigned i = 0; i < layer.keys.size(); ++i) {
    Panels from{p.shared(shape.queryAt[i]), shape.rows(), lane};
    for (int64_t J = 0; J < layer.padded(layer.keyDim(i)) / 16; ++J)
      queries.append(leftOperand(p, from, p.shl(rowWarp, 4), J));
  }
  queries = p.wgmmaFence(queries);
  int64_t at = 0;
  for (auto [i, list] : llvm::enumerate(layer.keys)) {
    const int64_t count = layer.padded(layer.keyDim(i)) / 4;
    x = multiplyWide(p, ArrayRef(queries).slice(at, count), tileOf(list, stage),
                     x, /*zero=*/i == 0,
                     /*transposed=*/false);
    at += count;
  }
  p.wgmmaCommit();
  return p.wgmmaWait(0, x);
}

/// sums + w values, of the tile in a stage.
void AttendEmitter::addValues(ArrayRef<Value> w, Value stage) {
  Panels values = tileOf(layer.values, stage);
  if (shape.wide) {
    Values written(w);
    written.append(sums);
    written = p.wgmmaFence(written);
    ArrayRef<Value> all = written;
    sums = multiplyWide(p, all.take_front(w.size()), values,
                        Values(all.drop_front(w.size())), /*zero=*/false,
                        /*transposed=*/true);
    p.wgmmaCommit();
    sums = p.wgmmaWait(0, sums);
    return;
  }
  Value firstBlock;
  if (shape.columnWarps > 1 && part() % 64 == 0)
    values.base =
        p.at(values.base, p.mul(columnWarp, part() / 64 * values.panelBytes()));
  else if (shape.columnWarps > 1)
    firstBlock = p.mul(columnWarp, part() / 16);
  sums = multiply(p, w, values, sums, true, firstBlock);
}

void AttendEmitter::shareMaxima(Value (&most)[2]) {
  for (Value &m : most)
    for (int64_t mask : {1, 2})
      m = p.fmax(m, p.shuffleXor(m, mask));
  if (shape.columnWarps == 1)
    return;
  const int64_t pitch = shape.columnWarps * 4;
  auto at = [&](int64_t half) {
    return p.at(p.shared(shape.exchangeAt), p.mul(rowOf(half), pitch));
  };
  p.ifThen(p.eq(t, p.i32(0)), [&] {
    for (int64_t half : {0, 1})
      p.store(most[half], p.at(at(half), p.shl(columnWarp, 2)));
  });
  teamBarrier();
  for (int64_t half : {0, 1}) {
    Value all = p.load(p.vec(p.getF32Type(), shape.columnWarps), at(half));
    most[half] = p.element(all, 0);
    for (int64_t i = 1; i < shape.columnWarps; ++i)
      most[half] = p.fmax(most[half], p.element(all, i));
  }
}

void AttendEmitter::softmax(Values &x, Value firstKey) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = p.fmul(x[i], factor[i % 4 / 2]);
  // Few tiles have anything that some row must not see.
  SmallVector<Type> types(x.size(), p.getF32Type());
  Value least = shape.step() ? keyCount
                             : p.add(p.add(past, place.begin),
                                     layer.attend.seesOwn() ? 1 : 0);
  x = p.ifElse(
      p.lt(least, p.add(firstKey, shape.keys)), types,
      [&] {
        Value mine =
            p.add(p.add(firstKey, p.mul(columnWarp, share())), p.shl(t, 1));
        Values kept;
        for (size_t i = 0; i < x.size(); ++i)
          kept.push_back(p.select(
              p.lt(p.add(mine, int64_t(i) / 4 * 8 + i % 2), seen[i % 4 / 2]),
              x[i], p.f32(-std::numeric_limits<double>::infinity())));
        return kept;
      },
      [&] { return x; });
  Value most[2];
  for (size_t i = 0; i < x.size(); ++i) {
    Value &m = most[i % 4 / 2];
    m = m ? p.fmax(m, x[i]) : x[i];
  }
  shareMaxima(most);
  Value keep[2];
  for (int64_t half : {0, 1}) {
    Value now = p.fmax(largest[half], most[half]);
    keep[half] = p.ex2(p.fsub(largest[half], now));
    largest[half] = now;
    total[half] = p.fmul(total[half], keep[half]);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = p.ex2(p.fsub(x[i], largest[i % 4 / 2]));
    total[i % 4 / 2] = p.fadd(total[i % 4 / 2], x[i]);
  }
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = p.fmul(sums[i], keep[i % 4 / 2]);
}

Values AttendEmitter::weights(ArrayRef<Value> x) {
  Values own;
  for (size_t i = 0; i < x.size(); i += 2)
    own.push_back(p.pack(x[i], x[i + 1]));
  if (shape.columnWarps == 1)
    return own;
  Panels all{p.shared(shape.weightsAt), shape.rows(), lane};
  for (int64_t n = 0; n < share() / 16; ++n)
    storeBlock(p, all, rowWarp, p.add(p.mul(columnWarp, share() / 16), n),
               ArrayRef(own).slice(4 * n, 4));
  teamBarrier();
  Values out;
  for (int64_t J = 0; J < shape.keys / 16; ++J)
    out.append(leftOperand(p, all, p.shl(rowWarp, 4), J));
  return out;
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

void AttendEmitter::loop(Value firstTile, Value endTile) {
  Values init(part() / 2, p.f32(0));
  // A difference of two of them is a number.
  init.append({p.f32(-3e38), p.f32(-3e38), p.f32(0), p.f32(0), p.i32(0)});
  auto take = [&](ValueRange state) {
    const size_t n = part() / 2;
    sums = Values(state.take_front(n));
    for (int64_t half : {0, 1}) {
      largest[half] = state[n + half];
      total[half] = state[n + 2 + half];
    }
  };
  Values end = p.loop(
      firstTile, endTile, 1, init, [&](Value tile, ValueRange state) -> Values {
        take(state);
        Value stage = state.back();
        p.copyWait(shape.stages - 2);
        if (shape.wide)
          p.fenceAsync(); // wgmma reads past the caches of threads.
        p.barrier(int64_t(0), shape.threads());
        Value next = p.add(tile, shape.stages - 1);
        Value before = p.select(p.eq(stage, p.i32(0)), p.i32(shape.stages - 1),
                                p.sub(stage, p.i32(1)));
        p.ifThen(p.lt(next, endTile), [&] { fetch(next, before); });
        p.copyCommit();
        Values x = scores(stage);
        softmax(x, p.mul(tile, shape.keys));
        addValues(weights(x), stage);
        Values out = sums;
        out.append({largest[0], largest[1], total[0], total[1]});
        Value after = p.add(stage, 1);
        out.push_back(
            p.select(p.eq(after, p.i32(shape.stages)), p.i32(0), after));
        return out;
      });
  take(end);
}
