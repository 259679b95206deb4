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

/// sums + w values, of the tile in a stage.
void AttendEmitter::addValues(ArrayRef<Value> w, Value stage) {
  Panels values = tileOf(layer.values, stage);
  Value firstBlock;
  if (shape.columnWarps > 1 && part() % 64 == 0)
    values.base =
        p.at(values.base, p.mul(columnWarp, part() / 64 * values.panelBytes()));
  else if (shape.columnWarps > 1)
    firstBlock = p.mul(columnWarp, part() / 16);
  sums = multiply(p, w, values, sums, true, firstBlock);
}

void AttendEmitter::shareMaxima(MutableArrayRef<Value> most) {
  for (Value &m : most)
    for (int64_t mask : {1, 2})
      m = p.fmax(m, p.shuffleXor(m, mask));
  if (shape.wide || shape.columnWarps == 1)
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

Value AttendEmitter::seenByAll() {
  return shape.step()
             ? keyCount
             : p.add(p.add(past, place.begin), layer.attend.seesOwn() ? 1 : 0);
}

void AttendEmitter::mask(Values &x, Value firstKey) {
  Value mine = p.add(p.add(firstKey, p.mul(columnWarp, share())), p.shl(t, 1));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] =
        p.select(p.lt(p.add(mine, int64_t(i) / 4 * 8 + i % 2), seen[i % 4 / 2]),
                 x[i], p.f32(-std::numeric_limits<double>::infinity()));
}

/// Few tiles have anything that some row must not see.
void AttendEmitter::maskSome(Values &x, Value firstKey) {
  SmallVector<Type> types(x.size(), p.getF32Type());
  x = p.ifElse(
      p.lt(seenByAll(), p.add(firstKey, shape.keys)), types,
      [&] {
        Values masked = x;
        mask(masked, firstKey);
        return masked;
      },
      [&] { return x; });
}

/// x times the row's factor is as exact as an fma has it, but for huge scores:
/// there only the largest counts, and a power of two leaves differences as they
/// are.
AttendEmitter::Base AttendEmitter::baseOf(Value most, int64_t half) {
  Value scaled = p.fmul(most, factor[half]);
  Value isHuge =
      p.fcmp(arith::CmpFPredicate::OGT, p.fabs(scaled), p.f32(double(1 << 30)));
  Value power = p.floatOf(p.bitAnd(p.bitsOf(factor[half]), 0x7f800000));
  return {p.select(isHuge, p.fmul(most, power), scaled),
          p.select(isHuge, power, factor[half])};
}

/// Weights are 2^(x - m) for an m that follows the largest x only when that is
/// more than 2^kLag larger: as few tiles are, sums are seldom scaled.
AttendEmitter::Scales AttendEmitter::softmax(Values &x) {
  constexpr double kLag = 8;
  Value most[4], sum[4]; // Two chains for each row.
  auto chain = [](size_t i) { return i % 4 / 2 + i / 4 % 2 * 2; };
  for (size_t i = 0; i < x.size(); ++i) {
    Value &m = most[chain(i)];
    m = m ? p.fmax(m, x[i]) : x[i];
  }
  for (int64_t half : {0, 1})
    if (most[half + 2])
      most[half] = p.fmax(most[half], most[half + 2]);
  shareMaxima(MutableArrayRef(most).take_front(2));
  Scales keep;
  Base base[2];
  for (int64_t half : {0, 1}) {
    Base before = baseOf(largest[half], half), now = baseOf(most[half], half);
    Value follows = p.fcmp(arith::CmpFPredicate::UGT, now.exponent,
                           p.fadd(before.exponent, p.f32(kLag)));
    largest[half] = p.select(follows, most[half], largest[half]);
    base[half] = {p.select(follows, now.exponent, before.exponent),
                  p.select(follows, now.factor, before.factor)};
    keep[half] =
        p.fmin(p.ex2(p.fsub(before.exponent, base[half].exponent)), p.f32(1));
    total[half] = p.fmul(total[half], keep[half]);
    base[half].exponent = p.fneg(base[half].exponent);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const Base &b = base[i % 4 / 2];
    x[i] = p.ex2(p.fma(x[i], b.factor, b.exponent));
    Value &s = sum[chain(i)];
    s = s ? p.fadd(s, x[i]) : x[i];
  }
  for (int64_t half : {0, 1}) {
    if (sum[half + 2])
      sum[half] = p.fadd(sum[half], sum[half + 2]);
    total[half] = p.fadd(total[half], sum[half]);
  }
  return keep;
}

void AttendEmitter::rescale(const Scales &keep) {
  Value some =
      p.fcmp(arith::CmpFPredicate::ULT, p.fmin(keep[0], keep[1]), p.f32(1));
  SmallVector<Type> types(sums.size(), p.getF32Type());
  sums = p.ifElse(
      p.anyLane(some), types,
      [&] {
        Values scaled;
        for (size_t i = 0; i < sums.size(); ++i)
          scaled.push_back(p.fmul(sums[i], keep[i % 4 / 2]));
        return scaled;
      },
      [&] { return sums; });
}

Values AttendEmitter::pack(ArrayRef<Value> x) {
  Values pairs;
  for (size_t i = 0; i < x.size(); i += 2)
    pairs.push_back(p.pack(x[i], x[i + 1]));
  return pairs;
}

Values AttendEmitter::weights(ArrayRef<Value> x) {
  Values own = pack(x);
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

void AttendEmitter::startLoop() {
  sums.assign(part() / 2, p.f32(0));
  for (int64_t half : {0, 1}) {
    // Less than any score, and a number when it is scaled.
    largest[half] = p.fmul(p.f32(-1e38), p.fmin(p.f32(1), p.rcp(factor[half])));
    total[half] = p.f32(0);
  }
}

void AttendEmitter::loop(Value firstTile, Value endTile) {
  startLoop();
  Values init = sums;
  init.append({largest[0], largest[1], total[0], total[1], p.i32(0)});
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
        p.barrier(int64_t(0), shape.threads());
        Value next = p.add(tile, shape.stages - 1);
        Value before = p.select(p.eq(stage, p.i32(0)), p.i32(shape.stages - 1),
                                p.sub(stage, p.i32(1)));
        p.ifThen(p.lt(next, endTile), [&] { fetch(next, before); });
        p.copyCommit();
        Values x = scores(stage);
        maskSome(x, p.mul(tile, shape.keys));
        rescale(softmax(x));
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
