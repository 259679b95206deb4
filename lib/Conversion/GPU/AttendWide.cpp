//===- AttendWide.cpp - Attention by warpgroups -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block of teams, warpgroups with 64 rows each, and behind them a warpgroup
// that copies: tiles of keys and of values, each into a ring of its own.
// Products are wgmma's. Those of two tiles are under way while a team takes
// exponentials (FlashAttention-3, arXiv 2407.08608):
//
//     scores of tile j        of queries and keys in shared memory
//     sums + w values         of tile j - 1, whose weights w are in registers
//     wait for the scores; softmax
//     wait for the sums; they are scaled by what the softmax found
//
// Each stage has two barriers for keys and two for values: `full` completes
// when all rows have arrived, `empty` when all warps have let go. A list that
// is keys and values is let go as values are.
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

static constexpr int64_t kProducers = AttendShape::kProducers;
/// Of the named barriers: all threads of the block, before they part.
static constexpr int64_t kWholeBlock = 15;

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

Value AttendEmitter::barrierOf(Ring ring, bool empty, Value stage) {
  const int64_t row = (ring == Ring::Values ? 2 : 0) + (empty ? 1 : 0);
  return p.at(p.shared(shape.barriersAt + row * shape.stages * 8),
              p.shl(stage, 3));
}

AttendEmitter::Turn AttendEmitter::next(Turn turn) {
  Value stage = p.add(turn.stage, 1);
  Value wraps = p.eq(stage, p.i32(shape.stages));
  return {p.select(wraps, p.i32(0), stage),
          p.select(wraps, p.bitXor(turn.parity, p.i32(1)), turn.parity)};
}

const ListPlace &AttendEmitter::placeOf(unsigned list) const {
  SmallVector<unsigned> all = layer.read();
  return lists[llvm::find(all, list) - all.begin()];
}

void AttendEmitter::initBarriers() {
  p.ifThen(p.eq(tid, p.i32(0)), [&] {
    for (Ring ring : {Ring::Keys, Ring::Values})
      for (int64_t s = 0; s < shape.stages; ++s) {
        p.barrierInit(barrierOf(ring, false, p.i32(s)), kProducers);
        // Of two teams with the same rows one makes scores.
        const bool one = shape.heads() && ring != valuesRing();
        p.barrierInit(barrierOf(ring, true, p.i32(s)),
                      one ? shape.rowWarps : shape.warps());
      }
    p.fenceBarrierInit();
  });
  p.barrier(kWholeBlock, shape.threads() + kProducers);
}

void AttendEmitter::acquire(Ring ring, Turn turn) {
  p.wait(barrierOf(ring, false, turn.stage), turn.parity);
  p.fenceAsync(); // wgmma reads past the caches of threads.
}

void AttendEmitter::release(Ring ring, Turn turn) {
  p.syncWarp();
  p.ifThen(p.eq(lane, p.i32(0)),
           [&] { p.arrive(barrierOf(ring, true, turn.stage)); });
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// Rows of a list, by all producers: eight of them have a row's 64 columns, so
/// a thread's rows are 16 apart and lie in its place of the swizzle.
void AttendEmitter::produceList(unsigned list, Value tile, Turn turn) {
  const ListPlace &rows = placeOf(list);
  const int64_t pieces = layer.lists[list].width / 8, step = kProducers / 8;
  Panels to = tileOf(list, turn.stage);
  Value id = p.sub(tid, p.i32(shape.threads()));
  Value row = p.shr(id, 3), piece = p.bitAnd(id, 7);
  Value target = p.at(to.base, pieceOffset(p, row, piece));
  Value first = p.add(p.mul(tile, shape.keys), row);
  Value last = p.maximum(p.sub(keyCount, p.i32(1)), p.i32(0));
  /// Of each panel that has this thread's piece of a row.
  auto panels = [&](function_ref<void(int64_t)> body) {
    for (int64_t n = 0; 8 * n < pieces; ++n)
      if (8 * (n + 1) <= pieces)
        body(n);
      else
        p.ifThen(p.lt(piece, p.i32(pieces - 8 * n)), [&] { body(n); });
  };
  auto rowOfList = [&](Value key, int64_t bytes) {
    return p.at(rows.pointer(p, p.minimum(key, last)),
                p.toI64(p.mul(piece, 8 * bytes)));
  };
  auto narrow = [&] {
    p.loop(p.i32(0), p.i32(shape.keys), step, [&](Value i) {
      Value key = p.add(first, i), isThere = p.lt(key, keyCount);
      Value from = rowOfList(key, 4);
      panels([&](int64_t n) {
        Values pairs =
            packEight(p, loadEight(p, p.at(from, n * 256), p.getF32Type()));
        for (Value &pair : pairs)
          pair = p.select(isThere, pair, p.i32(0));
        p.store(p.vector(pairs),
                p.at(p.at(target, p.shl(i, 7)), n * to.panelBytes()));
      });
    });
    return Values();
  };
  auto copy = [&](Value from, int64_t i, Value bytes) {
    panels([&](int64_t n) {
      p.copy16(p.at(target, i * 128 + n * to.panelBytes()), p.at(from, n * 128),
               bytes);
    });
  };
  auto whole = [&] {
    Value from = rowOfList(first, 2), stride = p.mul(rows.row, p.i64(step));
    for (int64_t i = 0; i < shape.keys; i += step) {
      copy(from, i, p.i32(16));
      from = p.at(from, stride);
    }
    return Values();
  };
  auto partial = [&] {
    for (int64_t i = 0; i < shape.keys; i += step) {
      Value key = p.add(first, i);
      copy(rowOfList(key, 2), i,
           p.select(p.lt(key, keyCount), p.i32(16), p.i32(0)));
    }
    return Values();
  };
  p.ifElse(rows.isF32, {}, narrow, [&] {
    Value end = p.mul(p.add(tile, 1), shape.keys);
    p.ifElse(p.ge(keyCount, end), {}, whole, partial);
    return Values();
  });
}

/// When the rows of these lists are there, some of them by ordinary stores.
void AttendEmitter::arrive(ArrayRef<unsigned> each, Value full) {
  Value stored;
  for (unsigned list : each) {
    Value isF32 = placeOf(list).isF32;
    stored = stored ? p.createOrFold<arith::OrIOp>(stored, isF32) : isF32;
  }
  p.ifElse(
      stored, {},
      [&] {
        p.copyCommit();
        p.copyWait(0);
        p.fenceAsync();
        p.arrive(full);
        return Values();
      },
      [&] {
        p.copyArrive(full);
        return Values();
      });
}

void AttendEmitter::produce(Value firstTile, Value endTile) {
  SmallVector<unsigned> rings[2];
  for (unsigned list : layer.read())
    rings[layer.valuesAreKeys() || list != layer.values ? 0 : 1].push_back(
        list);
  p.loop(firstTile, endTile, 1, {p.i32(0), p.i32(1)},
         [&](Value tile, ValueRange state) -> Values {
           Turn turn{state[0], state[1]};
           for (Ring ring : {Ring::Keys, Ring::Values}) {
             ArrayRef<unsigned> each = rings[ring == Ring::Values];
             if (each.empty())
               continue;
             p.wait(barrierOf(ring, true, turn.stage), turn.parity);
             for (unsigned list : each)
               produceList(list, tile, turn);
             arrive(each, barrierOf(ring, false, turn.stage));
           }
           Turn after = next(turn);
           return {after.stage, after.parity};
         });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The scores of a tile, under way.
Values AttendEmitter::startScores(Value stage) {
  Values x(shape.keys / 2, p.undefined());
  Value row = p.shl(p.shr(rowWarp, 2), 6); // Of the team.
  for (auto [i, list] : llvm::enumerate(layer.keys)) {
    Panels queries{p.shared(shape.queryAt[i]), shape.rows(), lane};
    x = multiplyShared(p, queries, row, layer.keyDim(i), tileOf(list, stage), x,
                       /*zero=*/i == 0);
  }
  p.wgmmaCommit();
  return x;
}

/// sums + w values, under way.
void AttendEmitter::startSums(ArrayRef<Value> w, Value stage) {
  Panels values = tileOf(layer.values, stage);
  if (shape.columnWarps > 1)
    values.base =
        p.at(values.base, p.mul(columnWarp, part() / 64 * values.panelBytes()));
  sums = multiplyWide(p, w, values, sums, /*zero=*/false, /*transposed=*/true);
  p.wgmmaCommit();
}

/// Of the products with w, which stays in its registers until then; what is
/// made meanwhile, x, is made before: ptxas would put it off.
void AttendEmitter::waitSums(ArrayRef<Value> w, Values &x) {
  Values all = sums;
  all.append(x);
  all.append(w.begin(), w.end());
  all = p.wgmmaWaitAfter(p.fadd(total[0], total[1]), all);
  sums.assign(all.begin(), all.begin() + sums.size());
  x.assign(all.begin() + sums.size(), all.begin() + sums.size() + x.size());
}

void AttendEmitter::fenceSums(Values &w) {
  Values all = w;
  all.append(sums);
  all = p.wgmmaFence(all);
  w.assign(all.begin(), all.begin() + w.size());
  sums.assign(all.begin() + w.size(), all.end());
}

Values AttendEmitter::turnOf(Value tile, Values w, Turn before, Turn now,
                             bool masked) {
  const Ring held = valuesRing();
  // Values of the tile before came before these keys.
  if (held == Ring::Values)
    p.wait(barrierOf(held, false, before.stage), before.parity);
  acquire(Ring::Keys, now);
  fenceSums(w);
  Values x = startScores(now.stage);
  startSums(w, before.stage);
  x = p.wgmmaWait(1, x);
  if (held == Ring::Values)
    release(Ring::Keys, now);
  if (masked)
    mask(x, p.mul(tile, shape.keys));
  Scales keep = softmax(x);
  waitSums(w, x);
  release(held, before);
  rescale(keep);
  return pack(x);
}

/// Of a chunk: all keys in turn.
void AttendEmitter::consume(Value tiles) {
  startLoop();
  Turn first{p.i32(0), p.i32(0)};
  acquire(Ring::Keys, first);
  p.wgmmaFence({});
  Values x = startScores(first.stage);
  x = p.wgmmaWait(0, x);
  if (!layer.valuesAreKeys())
    release(Ring::Keys, first);
  mask(x, p.i32(0));
  softmax(x);

  // What goes from tile to tile: sums, weights, largest, total, the turn.
  Values state = sums;
  const size_t V2 = sums.size(), W = x.size() / 2;
  auto append = [&](Values w, Turn turn) {
    Values out = sums;
    out.append(w);
    out.append(
        {largest[0], largest[1], total[0], total[1], turn.stage, turn.parity});
    return out;
  };
  auto take = [&](ValueRange state) {
    sums = Values(state.take_front(V2));
    ValueRange rest = state.drop_front(V2 + W);
    for (int64_t half : {0, 1}) {
      largest[half] = rest[half];
      total[half] = rest[2 + half];
    }
    return std::pair(Values(state.drop_front(V2).take_front(W)),
                     Turn{rest[4], rest[5]});
  };
  state = append(pack(x), first);
  // Few tiles have anything that some row must not see: those at the end.
  Value begin = p.i32(1);
  Value clear = p.maximum(p.divu(seenByAll(), shape.keys), begin);
  for (bool masked : {false, true})
    state = p.loop(masked ? clear : begin, masked ? tiles : clear, 1, state,
                   [&](Value tile, ValueRange state) -> Values {
                     auto [w, before] = take(state);
                     Turn now = next(before);
                     return append(turnOf(tile, w, before, now, masked), now);
                   });
  auto [w, last] = take(state);
  if (!layer.valuesAreKeys())
    acquire(Ring::Values, last);
  fenceSums(w);
  startSums(w, last.stage);
  x.clear();
  waitSums(w, x);
  exchangeTotals();
  storeAnswers();
}

void AttendEmitter::wideBlock(Value firstTile, Value endTile) {
  initBarriers();
  p.ifElse(
      p.ge(tid, p.i32(shape.threads())), {},
      [&]() -> Values {
        p.setMaxRegisters(false, shape.producerRegisters());
        produce(firstTile, endTile);
        return {};
      },
      [&]() -> Values {
        p.setMaxRegisters(true, shape.teamRegisters());
        makeQueries();
        p.fenceAsync();
        p.barrier(int64_t(0), shape.threads());
        readFactors();
        if (shape.heads())
          consumeHeads(firstTile, endTile);
        else
          consume(endTile);
        return {};
      });
}
