//===- AttendHeads.cpp - Heads that share long lists ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of steps whose values are long, as latents are: a block has up to 64 heads of
// a token, rows of one wgmma, and a warpgroup cannot hold their sums. So two
// have the same rows, each half of the columns:
//
//     the first     scores, softmax; weights and what sums are scaled by go to
//                   shared memory; sums + w values
//     the second    takes them; sums + w values
//
// and the first makes the next scores while the second still multiplies. Rings
// and producers are those of AttendWide.
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

/// Named barriers of both teams: weights are there, and they have been read.
static constexpr int64_t kGiven = 1, kTaken = 2;

void AttendEmitter::giveWeights(ArrayRef<Value> w, const Scales &keep) {
  Panels to{p.shared(shape.weightsAt), shape.rows(), lane};
  for (int64_t n = 0; n < shape.keys / 16; ++n)
    storeBlock(p, to, rowWarp, p.i32(n), w.slice(4 * n, 4));
  p.ifThen(p.eq(t, p.i32(0)), [&] {
    for (int64_t half : {0, 1})
      p.store(keep[half],
              p.at(p.shared(shape.exchangeAt), p.shl(rowOf(half), 2)));
  });
  p.barrierArrive(p.i32(kGiven), shape.threads());
}

Values AttendEmitter::takeWeights(Scales &keep) {
  p.barrier(kGiven, shape.threads());
  Panels from{p.shared(shape.weightsAt), shape.rows(), lane};
  Values w;
  for (int64_t J = 0; J < shape.keys / 16; ++J)
    w.append(leftOperand(p, from, p.shl(rowWarp, 4), J));
  for (int64_t half : {0, 1})
    keep[half] = p.load(p.getF32Type(), p.at(p.shared(shape.exchangeAt),
                                             p.shl(rowOf(half), 2)));
  p.barrierArrive(p.i32(kTaken), shape.threads());
  return w;
}

void AttendEmitter::lead(Value firstTile, Value endTile) {
  Values init = sums;
  init.append({largest[0], largest[1], total[0], total[1], p.i32(0), p.i32(0)});
  auto take = [&](ValueRange state) {
    const size_t n = sums.size();
    sums = Values(state.take_front(n));
    for (int64_t half : {0, 1}) {
      largest[half] = state[n + half];
      total[half] = state[n + 2 + half];
    }
    return Turn{state[n + 4], state[n + 5]};
  };
  Values end = p.loop(firstTile, endTile, 1, init,
                      [&](Value tile, ValueRange state) -> Values {
                        Turn now = take(state);
                        acquire(Ring::Keys, now);
                        p.wgmmaFence({});
                        Values x = startScores(now.stage);
                        x = p.wgmmaWait(0, x);
                        if (valuesRing() == Ring::Values)
                          release(Ring::Keys, now);
                        maskSome(x, p.mul(tile, shape.keys));
                        Scales keep = softmax(x);
                        Values w = pack(x);
                        giveWeights(w, keep);
                        rescale(keep);
                        if (valuesRing() == Ring::Values)
                          acquire(Ring::Values, now);
                        fenceSums(w);
                        startSums(w, now.stage);
                        x.clear();
                        waitSums(w, x);
                        release(valuesRing(), now);
                        p.barrier(kTaken, shape.threads());
                        Values out = sums;
                        Turn after = next(now);
                        out.append({largest[0], largest[1], total[0], total[1],
                                    after.stage, after.parity});
                        return out;
                      });
  take(end);
  exchangeTotals();
  storePart();
}

void AttendEmitter::follow(Value firstTile, Value endTile) {
  const size_t n = sums.size();
  Values init = sums;
  init.append({p.i32(0), p.i32(0)});
  Values end = p.loop(firstTile, endTile, 1, init,
                      [&](Value, ValueRange state) -> Values {
                        sums = Values(state.take_front(n));
                        Turn now{state[n], state[n + 1]};
                        Scales keep;
                        Values w = takeWeights(keep), none;
                        rescale(keep);
                        acquire(valuesRing(), now);
                        fenceSums(w);
                        startSums(w, now.stage);
                        waitSums(w, none);
                        release(valuesRing(), now);
                        Turn after = next(now);
                        Values out = sums;
                        out.append({after.stage, after.parity});
                        return out;
                      });
  sums = Values(ArrayRef(end).take_front(n));
  storePart();
}

void AttendEmitter::consumeHeads(Value firstTile, Value endTile) {
  p.ifElse(
      p.eq(columnWarp, p.i32(0)), {},
      [&]() -> Values {
        startLoop();
        lead(firstTile, endTile);
        return {};
      },
      [&]() -> Values {
        startLoop();
        follow(firstTile, endTile);
        return {};
      });
}
