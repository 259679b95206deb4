//===- StepStates.cpp - States of a step kernel, and snapshots --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepMemory.h"

#include "plum/ABI/GpuABI.h"

#include <functional>

using namespace mlir;
using namespace plum::gpu;

#define PLUM_ARG(FIELD, TYPE) b.argument(offsetof(plum_gpu_args, FIELD), TYPE)
#define PLUM_FIELD(TENSOR, FIELD, TYPE)                                        \
  field(TENSOR, offsetof(plum_gpu_tensor, FIELD), TYPE)

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

StepMemory::StatePlace StepMemory::statePlace(int64_t tensor, Value base) {
  Type i64 = b.getI64Type();
  Value isF32 =
      b.eq(PLUM_FIELD(tensor, dtype, b.getI32Type()), b.i32(PLUM_GPU_F32));
  return {base, PLUM_FIELD(tensor, row, i64), PLUM_FIELD(tensor, column, i64),
          isF32};
}

StepMemory::StatePlace StepMemory::statePlace(int64_t tensor) {
  Type i64 = b.getI64Type();
  Value base =
      b.add(PLUM_FIELD(tensor, data, i64),
            b.add(b.mul(slot, PLUM_FIELD(tensor, sequence, i64)),
                  b.mul(b.toI64(head), PLUM_FIELD(tensor, head, i64))));
  return statePlace(tensor, base);
}

/// Runs `body` in the first way that the strides allow or else `single`, all
/// threads of all CTAs the same.
Values StepMemory::withAccess(const StatePlace &place, const StateSplit &split,
                              TypeRange types,
                              function_ref<Values(Access)> body,
                              function_ref<Values()> single) {
  const int64_t K = split.keys, V = split.columns.length;
  SmallVector<std::pair<Value, Access>> ways;
  for (bool isF32 : {true, false}) {
    const int64_t bytes = isF32 ? 4 : 2;
    Value isAligned = b.eq(b.bitAnd(place.base, 4 * bytes - 1), b.i64(0));
    Value isType = isF32 ? place.isF32 : b.eq(place.isF32, b.boolean(false));
    auto add = [&](Access::Four four, Value outer, int64_t length,
                   Value inner) {
      Value isDense =
          b.both(b.eq(outer, b.i64(length * bytes)), b.eq(inner, b.i64(bytes)));
      ways.push_back(
          {b.both(b.both(isType, isAligned), isDense), {four, isF32}});
    };
    if (V % 4 == 0)
      add(Access::AlongColumns, place.row, V, place.column);
    if (K % 4 == 0 && split.rows % 4 == 0)
      add(Access::AlongRows, place.column, K, place.row);
  }
  std::function<Values(size_t)> choose = [&](size_t i) -> Values {
    if (i == ways.size())
      return single();
    return b.ifElse(
        ways[i].first, types, [&] { return body(ways[i].second); },
        [&] { return choose(i + 1); });
  };
  return choose(0);
}

Value StepMemory::stateElement(const StatePlace &place, const StateSplit &split,
                               int64_t i, int64_t j, Access access) {
  const int64_t K = split.keys, V = split.columns.length;
  Value row = firstRow(split), column = this->column(split.columns, 0);
  int64_t rowMore = i, columnMore = j;
  // Groups of four are inside or outside as a whole.
  if (split.hasPadding()) {
    row = b.minimum(b.add(row, i), b.i32(K - access.down()));
    rowMore = 0;
  }
  if (hasColumn(split.columns, j)) {
    column = b.minimum(b.add(column, j), b.i32(V - access.across()));
    columnMore = 0;
  }
  if (access.four == Access::No) {
    Value bytes =
        b.add(b.mul(b.toI64(b.add(row, rowMore)), place.row),
              b.mul(b.toI64(b.add(column, columnMore)), place.column));
    return b.global(b.add(place.base, bytes));
  }
  // Dense: constants that fit into instructions.
  const bool isKV = access.four == Access::AlongColumns;
  const int64_t rowBytes = (isKV ? V : 1) * access.bytes();
  const int64_t columnBytes = (isKV ? 1 : K) * access.bytes();
  Value bytes = b.add(b.mul(row, rowBytes), b.mul(column, columnBytes));
  return b.at(b.at(b.global(place.base), bytes),
              rowMore * rowBytes + columnMore * columnBytes);
}

/// Null: always.
Value StepMemory::hasElement(const StateSplit &split, int64_t i, int64_t j) {
  Value row = hasRow(split, i), column = hasColumn(split.columns, j);
  return row && column ? b.both(row, column) : row ? row : column;
}

/// Four elements, or one.
Values StepMemory::loadElements(Value pointer, Access access) {
  if (access.four == Access::No)
    return {access.isF32 ? b.load(b.getF32Type(), pointer)
                         : b.loadHalf(pointer, /*bf16=*/true)};
  if (access.isF32) {
    Value four = b.load(b.vec(b.getF32Type(), 4), pointer);
    return {b.element(four, 0), b.element(four, 1), b.element(four, 2),
            b.element(four, 3)};
  }
  Value pairs = b.load(b.vec(b.getI32Type(), 2), pointer);
  Value first = b.element(pairs, 0), second = b.element(pairs, 1);
  return {b.low(first), b.high(first), b.low(second), b.high(second)};
}

void StepMemory::storeElements(ArrayRef<Value> values, Value pointer,
                               Access access) {
  if (access.four == Access::No && !access.isF32)
    return b.storeHalf(values[0], pointer, /*bf16=*/true);
  if (access.four == Access::No)
    return b.store(values[0], pointer);
  if (access.isF32)
    return b.store(b.vector(values), pointer);
  b.store(
      b.vector({b.pack(values[0], values[1]), b.pack(values[2], values[3])}),
      pointer);
}

Value StepMemory::isThere(int64_t tensor) {
  return b.cmp(arith::CmpIPredicate::ne,
               PLUM_FIELD(tensor, data, b.getI64Type()), b.i64(0));
}

Values StepMemory::loadState(int64_t tensor, const StateSplit &split) {
  const int64_t P = split.rows, C = split.columns.each;
  SmallVector<Type> types(P * C, b.getF32Type());
  StatePlace place = statePlace(tensor);
  auto load = [&](Access access) {
    Values values(P * C);
    for (int64_t i = 0; i < P; i += access.down())
      for (int64_t j = 0; j < C; j += access.across()) {
        Values some =
            loadElements(stateElement(place, split, i, j, access), access);
        Value has = hasElement(split, i, j);
        for (auto [n, value] : llvm::enumerate(some))
          values[access.down() == 4 ? (i + n) * C + j : i * C + j + n] =
              masked(value, has);
      }
    return values;
  };
  return b.ifElse(
      isThere(tensor), types,
      [&] {
        return withAccess(place, split, types, load, [&] {
          return b.ifElse(
              place.isF32, types, [&] { return load({Access::No, true}); },
              [&] { return load({Access::No, false}); });
        });
      },
      [&] { return Values(P * C, b.f32(0)); });
}

void StepMemory::store(ArrayRef<Value> values, const StatePlace &place,
                       const StateSplit &split) {
  const int64_t P = split.rows, C = split.columns.each;
  auto store = [&](Access access) {
    for (int64_t i = 0; i < P; i += access.down())
      for (int64_t j = 0; j < C; j += access.across())
        onlyIf(hasElement(split, i, j), [&] {
          Values some;
          for (int64_t n = 0; n < access.down() * access.across(); ++n)
            some.push_back(
                values[access.down() == 4 ? (i + n) * C + j : i * C + j + n]);
          Value to = stateElement(place, split, i, j, access);
          if (access.four != Access::No)
            return storeElements(some, to, access);
          // Here, not around all: addresses of 32 elements at once would take
          // more registers than the rest of the kernel.
          b.ifElse(
              place.isF32, {},
              [&] {
                storeElements(some, to, {Access::No, true});
                return Values();
              },
              [&] {
                storeElements(some, to, {Access::No, false});
                return Values();
              });
        });
    return Values();
  };
  withAccess(place, split, {}, store,
             [&] { return store({Access::No, true}); });
}

void StepMemory::storeState(ArrayRef<Value> values, int64_t tensor,
                            const StateSplit &split) {
  StatePlace place = statePlace(tensor);
  b.ifThen(isThere(tensor), [&] { store(values, place, split); });
}

//===----------------------------------------------------------------------===//
// Snapshots
//===----------------------------------------------------------------------===//

/// Of packed sequences, those of the sequences before this one: every lane
/// counts some, the warp adds up.
Value StepMemory::snapshotsBefore() {
  Type i32 = b.getI32Type();
  Value every = PLUM_ARG(snapshot_every, i32);
  Value offsets = PLUM_ARG(cu_seqlens, b.getI64Type());
  auto sum = [&]() -> Values {
    Value before =
        b.loop(b.bitAnd(tid, 31), sequence, 32, ValueRange{b.i32(0)},
               [&](Value i, ValueRange state) -> Values {
                 Value length = b.sub(wide(offsets, b.add(i, 1), PLUM_GPU_CU64),
                                      wide(offsets, i, PLUM_GPU_CU64));
                 Value isUsed = b.ge(slotOf(i), b.i64(0));
                 Value number = b.divu(b.toI32(length), every);
                 return {b.add(state[0], b.select(isUsed, number, b.i32(0)))};
               })[0];
    b.syncWarp();
    for (int64_t delta : {1, 2, 4, 8, 16})
      before = b.add(before, b.shuffleXor(before, delta));
    return {before};
  };
  return b.ifElse(b.both(isPacked, b.lt(b.i32(0), every)), i32, sum,
                  [&] { return Values{b.i32(0)}; })[0];
}

void StepMemory::ifSnapshot(Value index, function_ref<void(Value)> body) {
  Value every = PLUM_ARG(snapshot_every, b.getI32Type());
  b.ifThen(b.lt(b.i32(0), every), [&] {
    Value done = b.add(index, 1), number = b.divu(done, every);
    b.ifThen(b.eq(b.mul(number, every), done),
             [&] { body(b.sub(number, b.i32(1))); });
  });
}

void StepMemory::storeSnapshot(ArrayRef<Value> values, int64_t tensor,
                               int64_t row, const StateSplit &split,
                               Value number) {
  b.ifThen(isThere(tensor), [&] {
    store(values, statePlace(tensor, addressOf(row, number)), split);
  });
}
