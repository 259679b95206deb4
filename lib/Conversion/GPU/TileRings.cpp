//===- TileRings.cpp - How a scan is fed ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A scan's team is followed by producer warps: on sm_90a the first issues, from
// one thread, the bulk copies of the blobs, the second copies rows of inputs;
// on sm_80 one warp copies everything. A ring has two barriers per stage:
// `full` completes when all parts have arrived, `empty` when every warp of the
// team has let go.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

void TileEmitter::planRings() {
  for (auto op : kernel.getBody().front().getOps<tile::RingOp>()) {
    RingState ring;
    ring.op = op;
    int64_t at = 0;
    for (Attribute attr : op.getParts()) {
      auto part = cast<tile::PartAttr>(attr);
      ring.offsets.push_back(at);
      at += part.getType().bytes();
      if (part.getRows())
        ++ring.rows;
      else
        ring.blobs = true;
      if (!part.getRows())
        ring.blobBytes += part.getType().bytes();
    }
    ring.usedBytes = (at + 15) / 16 * 16;
    ring.stageBytes = (at + 1023) / 1024 * 1024;
    ring.base = sharedBytes;
    sharedBytes += ring.stageBytes * op.getStages();
    rings[op.getRing()] = ring;
    ringOrder.push_back(op.getRing());
  }
  // Barriers fit behind the parts of some stage, as a rule; then one number.
  int64_t bytes = scan && !summary ? 16 : 0, at = -1;
  for (Value name : ringOrder)
    bytes += 16 * rings[name].op.getStages();
  for (Value name : ringOrder) {
    RingState &ring = rings[name];
    if (ring.stageBytes - ring.usedBytes >= bytes)
      at = ring.base + ring.usedBytes;
  }
  if (at < 0) {
    at = sharedBytes;
    sharedBytes += bytes;
  }
  for (Value name : ringOrder) {
    rings[name].barriers = at;
    at += 16 * rings[name].op.getStages();
  }
  snapshotsPlace = at;
}

Value TileEmitter::stageBase(RingState &ring, Value index) {
  return p.at(p.shared(ring.base), p.mul(index, ring.stageBytes));
}
Value TileEmitter::fullBarrier(RingState &ring, Value index) {
  return p.at(p.shared(ring.barriers), p.shl(index, 3));
}
Value TileEmitter::emptyBarrier(RingState &ring, Value index) {
  return p.at(fullBarrier(ring, index), int64_t(ring.op.getStages()) * 8);
}
std::pair<Value, Value> TileEmitter::nextStage(RingState &ring, Value index,
                                               Value parity) {
  Value next = p.add(index, 1);
  Value wraps = p.eq(next, p.i32(ring.op.getStages()));
  return {p.select(wraps, p.i32(0), next),
          p.select(wraps, p.bitXor(parity, p.i32(1)), parity)};
}

void TileEmitter::initBarriers() {
  p.ifThen(p.eq(tid, p.i32(0)), [&] {
    for (Value name : ringOrder) {
      RingState &ring = rings[name];
      // Whoever fills: one thread that expects bytes, a warp that copies rows.
      int64_t arrivals = !p.chip.hopper()
                             ? 32
                             : (ring.blobs ? 1 : 0) +
                                   32 * std::min<int64_t>(ring.rows, copiers());
      for (int64_t s = 0; s < int64_t(ring.op.getStages()); ++s) {
        p.barrierInit(fullBarrier(ring, p.i32(s)), arrivals);
        p.barrierInit(emptyBarrier(ring, p.i32(s)), warps);
      }
    }
    p.fenceBarrierInit();
    if (!summary)
      p.store(snapshotsBefore(), p.shared(snapshotsPlace));
  });
}

void TileEmitter::produce() {
  if (!p.chip.hopper())
    return produceAll();
  p.ifThen(p.eq(warp, p.i32(warps)),
           [&] { p.ifThen(p.eq(lane, p.i32(0)), [&] { produceBlobs(); }); });
  for (int64_t w = 0; w < copiers(); ++w)
    if (llvm::any_of(ringOrder, [&](Value r) { return rings[r].rows > w; }))
      p.ifThen(p.eq(warp, p.i32(warps + 1 + w)), [&] { produceRows(w); });
}

/// State of a producer's loop: stage and parity of each ring it fills.
void TileEmitter::produceBlobs() {
  Values init{p.i64(0)};
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(1)});
  p.loop(p.i32(0), chunkCount, 1, init, [&](Value, ValueRange state) -> Values {
    Value from = p.at(blob, state[0]);
    Values next{p.add(state[0], blobStep)};
    for (auto [i, name] : llvm::enumerate(ringOrder)) {
      RingState &ring = rings[name];
      Value index = state[1 + 2 * i], parity = state[2 + 2 * i];
      if (ring.blobs) {
        p.wait(emptyBarrier(ring, index), parity);
        Value full = fullBarrier(ring, index), stage = stageBase(ring, index);
        p.arriveExpect(full, p.i32(ring.blobBytes));
        // Parts that lie side by side on both sides are one copy.
        int64_t run = -1, runFrom = 0, runTo = 0;
        Value runSlice;
        auto flush = [&] {
          if (run > 0) {
            Value source = p.at(from, runFrom);
            if (runSlice)
              source = p.at(source, p.toI64(runSlice));
            p.bulkLoad(p.at(stage, runTo), source, run, full);
          }
          run = -1;
          runSlice = Value();
        };
        for (auto [k, attr] : llvm::enumerate(ring.op.getParts())) {
          auto part = cast<tile::PartAttr>(attr);
          if (part.getRows()) {
            flush();
            continue;
          }
          int64_t bytes = part.getType().bytes();
          bool joins = run > 0 && !part.getSliced() && !runSlice &&
                       part.getBlob() == runFrom + run &&
                       ring.offsets[k] == runTo + run;
          if (joins) {
            run += bytes;
            continue;
          }
          flush();
          run = bytes;
          runFrom = part.getBlob();
          runTo = ring.offsets[k];
          if (part.getSliced())
            runSlice = p.mul(valueSlice, bytes);
        }
        flush();
      }
      auto [n, par] = nextStage(ring, index, parity);
      next.append({n, par});
    }
    return next;
  });
}

/// Warp `copier` of those that copy rows: every copiers()-th part of a ring.
void TileEmitter::produceRows(int64_t copier) {
  Values init;
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(1)});
  p.loop(p.i32(0), chunkCount, 1, init,
         [&](Value n, ValueRange state) -> Values {
           Values next;
           for (auto [i, name] : llvm::enumerate(ringOrder)) {
             RingState &ring = rings[name];
             Value index = state[2 * i], parity = state[2 * i + 1];
             if (ring.rows > copier) {
               p.wait(emptyBarrier(ring, index), parity);
               Value row0 = p.mul(n, C);
               int64_t number = 0;
               for (auto [k, attr] : llvm::enumerate(ring.op.getParts())) {
                 auto part = cast<tile::PartAttr>(attr);
                 if (!part.getRows() || number++ % copiers() != copier)
                   continue;
                 SharedTile to{p.at(stageBase(ring, index), ring.offsets[k]),
                               part.getType()};
                 copyRows(RowCopy{part.getRows(), to,
                                  part.getSliced()
                                      ? p.mul(valueSlice, kernel.getSlice() * 2)
                                      : Value()},
                          lane, 32, p.add(firstToken, row0),
                          p.sub(length, row0), /*rolled=*/true);
               }
               p.copyArrive(fullBarrier(ring, index));
             }
             auto [nx, par] = nextStage(ring, index, parity);
             next.append({nx, par});
           }
           return next;
         });
}

/// sm_80: one warp, 16 bytes a lane and turn.
void TileEmitter::produceAll() {
  Values init{p.i64(0)};
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(1)});
  p.loop(
      p.i32(0), chunkCount, 1, init, [&](Value n, ValueRange state) -> Values {
        Value from = p.at(blob, state[0]);
        Values next{p.add(state[0], blobStep)};
        Value mine = p.shl(lane, 4);
        for (auto [i, name] : llvm::enumerate(ringOrder)) {
          RingState &ring = rings[name];
          Value index = state[1 + 2 * i], parity = state[2 + 2 * i];
          p.wait(emptyBarrier(ring, index), parity);
          Value stage = stageBase(ring, index);
          Value row0 = p.mul(n, C);
          for (auto [k, attr] : llvm::enumerate(ring.op.getParts())) {
            auto part = cast<tile::PartAttr>(attr);
            SharedTile to{p.at(stage, ring.offsets[k]), part.getType()};
            if (part.getRows()) {
              copyRows(RowCopy{part.getRows(), to,
                               part.getSliced()
                                   ? p.mul(valueSlice, kernel.getSlice() * 2)
                                   : Value()},
                       lane, 32, p.add(firstToken, row0), p.sub(length, row0));
              continue;
            }
            const int64_t bytes = part.getType().bytes();
            Value source = p.at(from, part.getBlob());
            if (part.getSliced())
              source = p.at(source, p.toI64(p.mul(valueSlice, bytes)));
            auto copy = [&](Value offset) {
              p.copy16(p.at(to.base, offset), p.at(source, p.toI64(offset)),
                       p.i32(16));
            };
            const int64_t whole = bytes / 2048 * 2048;
            p.loop(p.i32(0), p.i32(whole), 2048, [&](Value at) {
              Value base = p.add(at, mine);
              for (int64_t u = 0; u < 4; ++u)
                copy(p.add(base, u * 512));
            });
            for (int64_t at = whole; at < bytes; at += 512)
              p.ifThen(p.lt(mine, p.i32(bytes - at)),
                       [&] { copy(p.add(mine, at)); });
          }
          p.copyArrive(fullBarrier(ring, index));
          auto [nx, par] = nextStage(ring, index, parity);
          next.append({nx, par});
        }
        return next;
      });
}
