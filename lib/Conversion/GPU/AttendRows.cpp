//===- AttendRows.cpp - Rows into lists, parts into answers -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

#include "plum/ABI/GpuABI.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))
#define FIELD(NAME) int64_t(offsetof(plum_gpu_tensor, NAME))

AttendEmitter::AttendEmitter(Ptx &p, const AttendLayer &layer,
                             const AttendShape &shape)
    : p(p), layer(layer), shape(shape), maths(p, layer), V(layer.valueDim()) {
  tid = p.tid();
  lane = p.bitAnd(tid, 31);
  warp = p.shr(tid, 5);
  g = p.shr(lane, 2);
  t = p.bitAnd(lane, 3);
}

Value AttendEmitter::take(Value &id, Value count) {
  Value mine = p.remu(id, count);
  id = p.divu(id, count);
  return mine;
}

void AttendEmitter::forSequence(function_ref<void()> body) {
  p.ifThen(p.lt(p.i32(0), place.rows), [&] {
    slot = slotOf(p, place.sequence);
    p.ifThen(p.ge(slot, p.i32(0)), [&] {
      past = pastOf(p, slot);
      body();
    });
  });
}

//===----------------------------------------------------------------------===//
// carry
//===----------------------------------------------------------------------===//

KernelShape AttendEmitter::carry() {
  const int64_t threads = 128, together = threads / 8;
  Value id = p.ctaid();
  Value slice = take(id, p.i32(kCarrySlices));
  head = take(id, p.argument(ARG(heads), p.getI32Type()));
  slot = slotOf(p, id);
  p.ifThen(p.ge(slot, p.i32(0)), [&] {
    past = pastOf(p, slot);
    for (auto [i, list] : llvm::enumerate(layer.lists)) {
      const int64_t before = layer.initial(i), after = layer.final(i);
      Value from = maths.field64(before, FIELD(data));
      Value isThere = p.cmp(arith::CmpIPredicate::ne, from, p.i64(0));
      Value isElsewhere = p.cmp(arith::CmpIPredicate::ne, from,
                                maths.field64(after, FIELD(data)));
      Value mine =
          p.both(p.both(isThere, isElsewhere), maths.isFirstOf(after, head));
      p.ifThen(mine, [&] {
        ListPlace source = maths.list(before, slot, head);
        ListPlace target = maths.list(after, slot, head);
        Value first = p.add(p.mul(slice, together), p.shr(tid, 3));
        p.loop(first, past, kCarrySlices * together, [&](Value row) {
          for (int64_t n = 0; n < LaneRows::pieces(list.width); ++n)
            maths.ifHas(list.width, n, [&] {
              Value at = p.toI64(p.mul(maths.piece(n), 8));
              auto pointer = [&](const ListPlace &list, int64_t bytes) {
                return p.at(list.pointer(p, row), p.mul(at, bytes));
              };
              SmallVector<Type> types(8, p.getF32Type());
              Values eight = p.ifElse(
                  source.isF32, types,
                  [&] {
                    return loadEight(p, pointer(source, 4), p.getF32Type());
                  },
                  [&] {
                    return loadEight(p, pointer(source, 2), p.getBF16Type());
                  });
              p.ifElse(
                  target.isF32, {},
                  [&] {
                    storeEight(p, eight, pointer(target, 4), p.getF32Type());
                    return Values();
                  },
                  [&] {
                    storeEight(p, eight, pointer(target, 2), p.getBF16Type());
                    return Values();
                  });
            });
        });
      });
    }
  });
  return {.threads = threads};
}

//===----------------------------------------------------------------------===//
// append
//===----------------------------------------------------------------------===//

KernelShape AttendEmitter::append() {
  const int64_t threads = shape.step() ? 32 : 128;
  Value id = p.ctaid();
  head = take(id, p.argument(ARG(heads), p.getI32Type()));
  place = shape.step() ? tokenAt(p, id) : chunkAt(p, id, shape.chunk);
  forSequence([&] { appendRows(threads); });
  return {.threads = threads, .registers = kMostRegisters};
}

/// Heads that share a list leave its rows to the first of them.
void AttendEmitter::appendRows(int64_t threads) {
  Values isFirst;
  Value any;
  for (auto [i, list] : llvm::enumerate(layer.lists)) {
    isFirst.push_back(maths.isFirstOf(layer.final(i), head));
    any = any ? p.createOrFold<arith::OrIOp>(any, isFirst[i]) : isFirst[i];
  }
  p.ifThen(any, [&] {
    p.loop(p.i32(0), place.rows, threads / 8, [&](Value base) {
      Value row = p.add(base, p.shr(tid, 3));
      Value valid = p.lt(row, place.rows);
      Value safe = p.minimum(row, p.sub(place.rows, p.i32(1)));
      maths.begin(place.inputSequence, p.add(place.firstToken, safe), head);
      SmallVector<Values> rows; // Here, where control flow is of all lanes.
      for (const AttendLayer::List &list : layer.lists)
        rows.push_back(maths.all(list.row));
      for (auto [i, list] : llvm::enumerate(layer.lists))
        p.ifThen(p.both(isFirst[i], valid), [&] {
          maths.storeRow(rows[i], list.width,
                         maths.list(layer.final(i), slot, head),
                         p.add(p.add(past, place.begin), safe));
        });
    });
  });
}

//===----------------------------------------------------------------------===//
// merge
//===----------------------------------------------------------------------===//

void AttendEmitter::storeOutputs(Value valid) {
  SmallVector<Value> outputs(layer.op.yieldedOutputs());
  for (Value output : outputs)
    maths.all(output);
  p.ifThen(valid, [&] {
    for (unsigned i = 0; i < outputs.size(); ++i)
      maths.storeOutput(i);
  });
}

Value AttendEmitter::tilesEach(Value tiles) {
  Value least = p.i32(shape.leastTiles);
  if (shape.heads()) // A short list is waited for.
    least = p.minimum(p.maximum(p.divu(tiles, 4), p.i32(4)), least);
  return p.maximum(p.divu(p.add(tiles, shape.splits - 1), shape.splits), least);
}

/// One warp: of each four splits, eight lanes have one.
KernelShape AttendEmitter::merge() {
  Value id = p.ctaid();
  Value part = p.toI64(id); // Token by token, heads the faster.
  head = take(id, p.argument(ARG(heads), p.getI32Type()));
  place = tokenAt(p, id);
  forSequence([&] {
    Value count =
        p.add(p.add(past, place.begin), layer.attend.seesOwn() ? 1 : 0);
    Value tiles = p.divu(p.add(count, shape.keys - 1), shape.keys);
    Value each = tilesEach(tiles);
    Value used = p.divu(p.add(tiles, p.sub(each, p.i32(1))), each);
    const int64_t pieces = LaneRows::pieces(V),
                  bytes = AttendShape::partBytes(layer);
    Value from = p.global(p.add(p.argument(ARG(blobs), p.getI64Type()),
                                p.mul(part, shape.splits * bytes)));
    Value quarter = p.shr(lane, 3);
    Values init(8 * pieces + 1, p.f32(0));
    init.push_back(p.f32(-3e38));
    Values found = p.loop(
        quarter, used, 4, init, [&](Value split, ValueRange before) -> Values {
          Value mine = p.at(from, p.toI64(p.mul(split, bytes)));
          Value pair = p.load(p.vec(p.getF32Type(), 2), p.at(mine, V * 4));
          Value largest = p.fmax(before.back(), p.element(pair, 0));
          Value old = p.ex2(p.fsub(before.back(), largest));
          Value scale = p.ex2(p.fsub(p.element(pair, 0), largest));
          Values next;
          for (int64_t i = 0; i < pieces; ++i) {
            Value at = p.minimum(maths.piece(i), p.i32(V / 8 - 1));
            for (int64_t n = 0; n < 4; ++n) {
              Value two =
                  p.load(p.vec(p.getF32Type(), 2),
                         p.at(mine, p.toI64(p.add(p.mul(at, 32), 8 * n))));
              for (int64_t m : {0, 1})
                next.push_back(p.fma(p.element(two, m), scale,
                                     p.fmul(before[8 * i + 2 * n + m], old)));
            }
          }
          next.push_back(p.fma(p.element(pair, 1), scale,
                               p.fmul(before[8 * pieces], old)));
          next.push_back(largest);
          return next;
        });
    Value largest = found.pop_back_val(), all = largest;
    p.syncWarp();
    for (int64_t mask : {8, 16})
      all = p.fmax(all, p.shuffleXor(all, mask));
    Value scale = p.ex2(p.fsub(largest, all));
    for (Value &x : found) {
      x = p.fmul(x, scale);
      for (int64_t mask : {8, 16})
        x = p.fadd(x, p.shuffleXor(x, mask));
    }
    Value total = found.pop_back_val();
    Value isNone = p.eq(used, p.i32(0));
    Value inverse = p.select(isNone, p.f32(0), p.rcp(total));
    for (Value &x : found)
      x = p.fmul(x, inverse);
    maths.begin(place.inputSequence, place.firstToken, head);
    maths.set(layer.attend.getResult(), found);
    storeOutputs(p.eq(quarter, p.i32(0)));
  });
  return {.threads = 32, .registers = kMostRegisters};
}
