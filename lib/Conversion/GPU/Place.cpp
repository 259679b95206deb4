//===- Place.cpp - Which tokens a block has ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Place.h"

#include "plum/ABI/GpuABI.h"
#include "plum/Conversion/Passes.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

Value gpu::indexAt(Ptx &p, Value array, Value i, uint32_t flag) {
  Value flags = p.argument(ARG(flags), p.getI32Type());
  Value wide = p.cmp(arith::CmpIPredicate::ne, p.bitAnd(flags, flag), p.i32(0));
  return p.ifElse(
      wide, p.getI32Type(),
      [&]() -> Values {
        Value at = p.global(p.add(array, p.shl(p.toI64(i), 3)));
        return {p.toI32(p.load(p.getI64Type(), at))};
      },
      [&]() -> Values {
        Value at = p.global(p.add(array, p.shl(p.toI64(i), 2)));
        return {p.load(p.getI32Type(), at)};
      })[0];
}

Value gpu::sequenceStart(Ptx &p, Value cu, Value i) {
  return indexAt(p, cu, i, PLUM_GPU_CU64);
}

Value gpu::slotOf(Ptx &p, Value row) {
  Value slots = p.argument(ARG(slots), p.getI64Type());
  return p.ifElse(
      p.cmp(arith::CmpIPredicate::ne, slots, p.i64(0)), p.getI32Type(),
      [&]() -> Values { return {indexAt(p, slots, row, PLUM_GPU_SLOTS64)}; },
      [&]() -> Values { return {row}; })[0];
}

Value gpu::pastOf(Ptx &p, Value slot) {
  Value past = p.argument(ARG(past), p.getI64Type());
  return p.ifElse(
      p.cmp(arith::CmpIPredicate::ne, past, p.i64(0)), p.getI32Type(),
      [&]() -> Values { return {indexAt(p, past, slot, PLUM_GPU_PAST64)}; },
      [&]() -> Values {
        return {p.argument(ARG(past_rows), p.getI32Type())};
      })[0];
}

/// How many of begins[0 .. count) are at most `number`: every lane counts some,
/// the warp adds up. `begin` gives one of them.
static Value countUpTo(Ptx &p, Value number, Value count,
                       function_ref<Value(Value)> begin) {
  Value sum =
      p.loop(p.lane(), count, 32, ValueRange{p.i32(0)},
             [&](Value i, ValueRange sum) -> Values {
               Value counts = p.ge(number, begin(i));
               return {p.add(sum[0], p.select(counts, p.i32(1), p.i32(0)))};
             })[0];
  p.syncWarp();
  for (int64_t delta : {1, 2, 4, 8, 16})
    sum = p.add(sum, p.shuffleXor(sum, delta));
  return sum;
}

Value gpu::ownHead(Ptx &p, Value head, Value share) {
  return p.mulHigh(p.shl(head, 1), share);
}

TokenPlace gpu::chunkAt(Ptx &p, Value chunk, int64_t C) {
  Type i32 = p.getI32Type();
  Value cu = p.argument(ARG(cu_seqlens), p.getI64Type());
  Value packed = p.cmp(arith::CmpIPredicate::ne, cu, p.i64(0));
  Values where = p.ifElse(
      packed, {i32, i32, i32, i32, i32},
      [&]() -> Values {
        // The sequence is the last whose first chunk is not after this one.
        Value offsets = p.argument(ARG(chunk_offsets), p.getI64Type());
        Value count = p.argument(ARG(sequences), i32);
        auto firstOf = [&](Value i) {
          return p.load(i32, p.global(p.add(offsets, p.shl(p.toI64(i), 2))));
        };
        Value s =
            p.sub(countUpTo(p, chunk, p.add(count, 1), firstOf), p.i32(1));
        Value inside = p.lt(s, count);
        Value safe = p.minimum(s, p.sub(count, p.i32(1)));
        Value start = sequenceStart(p, cu, safe);
        Value stop = sequenceStart(p, cu, p.add(safe, 1));
        Value row = p.mul(p.sub(chunk, firstOf(safe)), C);
        Value left = p.minimum(p.sub(p.sub(stop, start), row), p.i32(C));
        return {p.i32(0), p.add(start, row), p.select(inside, left, p.i32(0)),
                safe, row};
      },
      [&]() -> Values {
        Value perSequence = p.argument(ARG(chunks), i32);
        Value tokens = p.argument(ARG(tokens), i32);
        Values at = p.ifElse(
            p.lt(chunk, perSequence), {i32, i32},
            [&]() -> Values { return {p.i32(0), chunk}; },
            [&]() -> Values {
              return {p.divu(chunk, perSequence), p.remu(chunk, perSequence)};
            });
        Value row = p.mul(at[1], C);
        return {at[0], row, p.minimum(p.sub(tokens, row), p.i32(C)), at[0],
                row};
      });
  return {where[0], where[1], where[2], where[3], where[4]};
}

TokenPlace gpu::tokenAt(Ptx &p, Value token) {
  Type i32 = p.getI32Type();
  Value cu = p.argument(ARG(cu_seqlens), p.getI64Type());
  Value packed = p.cmp(arith::CmpIPredicate::ne, cu, p.i64(0));
  Values where = p.ifElse(
      packed, {i32, i32, i32, i32, i32},
      [&]() -> Values {
        // Of several that begin here all but the last are empty.
        Value count = p.argument(ARG(sequences), i32);
        Value s =
            p.sub(countUpTo(p, token, p.add(count, 1),
                            [&](Value i) { return sequenceStart(p, cu, i); }),
                  p.i32(1));
        Value inside = p.lt(s, count);
        Value safe = p.minimum(s, p.sub(count, p.i32(1)));
        return {p.i32(0), token, p.select(inside, p.i32(1), p.i32(0)), safe,
                p.sub(token, sequenceStart(p, cu, safe))};
      },
      [&]() -> Values {
        Value tokens = p.argument(ARG(tokens), i32);
        Value sequence = p.divu(token, tokens);
        Value row = p.sub(token, p.mul(sequence, tokens));
        return {sequence, row, p.i32(1), sequence, row};
      });
  return {where[0], where[1], where[2], where[3], where[4]};
}

/// sums[i] = what the sequences before i have, for i up to `count`, by one
/// warp.
static void emitSums(Ptx &p, Value count, Value sums,
                     function_ref<Value(Value)> ofSequence) {
  Type i32 = p.getI32Type();
  Value lane = p.tid();
  p.loop(p.i32(0), p.add(count, 1), 32, ValueRange{p.i32(0)},
         [&](Value base, ValueRange state) -> Values {
           Value i = p.add(base, lane);
           Value own = p.ifElse(
               p.lt(i, count), i32, [&]() -> Values { return {ofSequence(i)}; },
               [&]() -> Values { return {p.i32(0)}; })[0];
           Value sum = own;
           for (int64_t d : {1, 2, 4, 8, 16}) {
             Value up = p.shuffleUp(sum, d);
             sum = p.select(p.ge(lane, p.i32(d)), p.add(sum, up), sum);
           }
           Value before = p.add(state[0], p.sub(sum, own));
           p.ifThen(p.ge(count, i), [&] {
             p.store(before, p.global(p.add(sums, p.shl(p.toI64(i), 2))));
           });
           p.syncWarp();
           return {p.add(state[0], p.shuffleIndex(sum, p.i32(31)))};
         });
}

/// chunk_offsets: the chunks and, where the run wants them, the snapshots of
/// the sequences before each.
KernelShape gpu::emitIndex(Ptx &p, int64_t C) {
  Type i32 = p.getI32Type();
  Value count = p.argument(ARG(sequences), i32);
  Value cu = p.argument(ARG(cu_seqlens), p.getI64Type());
  Value offsets = p.argument(ARG(chunk_offsets), p.getI64Type());
  auto length = [&](Value i) {
    return p.sub(sequenceStart(p, cu, p.add(i, 1)), sequenceStart(p, cu, i));
  };
  emitSums(p, count, offsets,
           [&](Value i) { return p.divu(p.add(length(i), C - 1), C); });
  Value every = p.argument(ARG(snapshot_every), i32);
  p.ifThen(p.lt(p.i32(0), every), [&] {
    Value second = p.add(offsets, p.shl(p.toI64(p.add(count, 1)), 2));
    emitSums(p, count, second, [&](Value i) {
      Value number = p.divu(p.divu(length(i), p.i32(C)), every);
      return p.select(p.ge(slotOf(p, i), p.i32(0)), number, p.i32(0));
    });
  });
  KernelShape shape;
  shape.threads = 32;
  return shape;
}

void gpu::describe(Ptx &p, const LaunchFacts &facts, const KernelShape &shape) {
  LLVM::LLVMFuncOp f = p.function();
  auto word = [&](StringRef name, StringRef value) {
    f->setAttr(name, p.getStringAttr(value));
  };
  auto number = [&](StringRef name, int64_t value) {
    f->setAttr(name, p.getI64IntegerAttr(value));
  };
  word(kFormAttr, facts.form);
  word(kRoleAttr, facts.role);
  word(kGridAttr, facts.grid);
  number(kChunkAttr, facts.chunk);
  number(kSlicesAttr, facts.slices);
  number(kThreadsAttr, shape.threads);
  number(kSharedBytesAttr, shape.sharedBytes);
}
