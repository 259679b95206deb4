//===- StepMemory.cpp - What a step kernel reads and writes -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepMemory.h"

#include "plum/ABI/GpuABI.h"

#include "llvm/Support/MathExtras.h"

#include <functional>

using namespace mlir;
using namespace plum::gpu;

//===----------------------------------------------------------------------===//
// Which CTA
//===----------------------------------------------------------------------===//

#define PLUM_ARG(FIELD, TYPE) b.argument(offsetof(plum_gpu_args, FIELD), TYPE)
#define PLUM_FIELD(TENSOR, FIELD, TYPE)                                        \
  field(TENSOR, offsetof(plum_gpu_tensor, FIELD), TYPE)

Value StepMemory::field(int64_t tensor, int64_t offset, Type type) {
  return b.argument(offsetof(plum_gpu_args, tensors) +
                        tensor * sizeof(plum_gpu_tensor) + offset,
                    type);
}

/// An element of an array of int64 or, without the flag, int32; as i64.
Value StepMemory::wide(Value array, Value index, uint32_t flag) {
  Value flags = PLUM_ARG(flags, b.getI32Type());
  Value is64 = b.cmp(arith::CmpIPredicate::ne, b.bitAnd(flags, flag), b.i32(0));
  auto at = [&](int64_t bytes) {
    return b.global(b.add(array, b.mul(b.toI64(index), bytes)));
  };
  return b.ifElse(
      is64, b.getI64Type(),
      [&] { return Values{b.load(b.getI64Type(), at(8))}; },
      [&] { return Values{b.toI64(b.load(b.getI32Type(), at(4)))}; })[0];
}

void StepMemory::place() {
  tid = b.tid();
  // The slices of a head follow each other: their rows of K are the same.
  Value cta = b.ctaid();
  Value heads = PLUM_ARG(heads, b.getI32Type());
  slice = b.remu(cta, shape.slices);
  Value sequenceHead = b.divu(cta, shape.slices);
  sequence = b.divu(sequenceHead, heads);
  head = b.sub(sequenceHead, b.mul(sequence, heads));

  Value slots = PLUM_ARG(slots, b.getI64Type());
  slot = b.ifElse(
      b.eq(slots, b.i64(0)), b.getI64Type(),
      [&] { return Values{b.toI64(sequence)}; },
      [&] { return Values{wide(slots, sequence, PLUM_GPU_SLOTS64)}; })[0];

  Value offsets = PLUM_ARG(cu_seqlens, b.getI64Type());
  isPacked = b.cmp(arith::CmpIPredicate::ne, offsets, b.i64(0));
  Values range = b.ifElse(
      isPacked, {b.getI64Type(), b.getI32Type()},
      [&] {
        Value begin = wide(offsets, sequence, PLUM_GPU_CU64);
        Value end = wide(offsets, b.add(sequence, 1), PLUM_GPU_CU64);
        return Values{begin, b.toI32(b.sub(end, begin))};
      },
      [&] { return Values{b.i64(0), PLUM_ARG(tokens, b.getI32Type())}; });
  firstToken = range[0];
  tokenCount = range[1];
}

Value StepMemory::isUsed() { return b.ge(slot, b.i64(0)); }

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

Value StepMemory::run(const ColumnSplit &split) {
  return b.shr(tid, llvm::Log2_64(split.groups));
}
Value StepMemory::firstRow(const StateSplit &split) {
  return b.mul(run(split.columns), split.rows);
}
Value StepMemory::isFirstThread() {
  return b.both(b.eq(tid, b.i32(0)), b.eq(slice, b.i32(0)));
}
int64_t StepMemory::fullCount(int64_t length) {
  return llvm::divideCeil(length, shape.threads);
}
Value StepMemory::hasFull(int64_t length, int64_t i) {
  return shape.threads * (i + 1) <= length ? Value()
                                           : b.lt(fullIndex(i), b.i32(length));
}
Value StepMemory::column(const ColumnSplit &split, int64_t j) {
  Value first =
      b.add(b.mul(slice, split.width), b.mul(group(split), split.each));
  return b.add(first, j);
}
Value StepMemory::hasColumn(const ColumnSplit &split, int64_t j) {
  return shape.slices * split.width == split.length
             ? Value()
             : b.lt(column(split, j), b.i32(split.length));
}
Value StepMemory::hasRow(const StateSplit &split, int64_t i) {
  return split.hasPadding() ? b.lt(b.add(firstRow(split), i), b.i32(split.keys))
                            : Value();
}

void StepMemory::onlyIf(Value condition, function_ref<void()> body) {
  if (condition)
    b.ifThen(condition, body);
  else
    body();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// a / n for a below 2^20, in 8 instructions instead of 20: every tensor has
/// one. Floats that are the integers come from their bits, 2^23 + a; (a + 1/2)
/// / n is at least 1 / 2n off an integer, which the error of rcp is far below.
static Value quotient(Ptx &b, Value a, Value n) {
  constexpr int64_t bits23 = 0x4b000000;      // 2^23
  constexpr int64_t bits23and22 = 0x4b400000; // 2^23 + 2^22
  constexpr double two23 = 8388608, two22 = two23 / 2;
  auto toFloat = [&](Value i, double more) {
    return b.fadd(b.floatOf(b.bitOr(i, b.i32(bits23))), b.f32(more - two23));
  };
  Value exact = b.fmul(toFloat(a, 0.5), b.rcp(toFloat(n, 0)));
  Value rounded = b.fadd(b.fadd(exact, b.f32(-0.5)), b.f32(two23 + two22));
  return b.sub(b.bitsOf(rounded), b.i32(bits23and22));
}

void StepMemory::findRows(int64_t params, int64_t inputs, int64_t states,
                          int64_t outputs, int64_t place) {
  rowsPlace = place;
  int64_t count = params + inputs + outputs;
  if (!count)
    return;
  b.ifThen(b.lt(tid, b.i32(count)), [&] {
    Value tensor = b.select(b.lt(tid, b.i32(params + inputs)), tid,
                            b.add(tid, 2 * states));
    Value entry = b.mul(tensor, sizeof(plum_gpu_tensor));
    auto field = [&](int64_t offset, Type type) {
      return b.argument(b.add(entry, offsetof(plum_gpu_args, tensors) + offset),
                        type);
    };
    Type i64 = b.getI64Type();
    Value group = field(offsetof(plum_gpu_tensor, group), b.getI32Type());
    Value token = field(offsetof(plum_gpu_tensor, token), i64);
    Value data = b.add(field(offsetof(plum_gpu_tensor, data), i64),
                       b.mul(b.toI64(quotient(b, head, group)),
                             field(offsetof(plum_gpu_tensor, head), i64)));
    // A packed batch is one sequence that begins elsewhere for each.
    Value stride = b.select(isPacked, token,
                            field(offsetof(plum_gpu_tensor, sequence), i64));
    Value first =
        b.mul(b.select(isPacked, firstToken, b.toI64(sequence)), stride);
    if (params)
      first = b.select(b.lt(tid, b.i32(params)), b.i64(0), first);
    Value to = b.at(b.shared(rowsPlace), b.mul(tid, kRowBytes));
    b.store(b.add(data, first), to);
    b.store(token, b.at(to, 8));
  });
  b.barrier(int64_t(0), shape.threads);
}

Value StepMemory::rowOf(int64_t row, Value token) {
  Value from = b.shared(rowsPlace + row * kRowBytes);
  Value data = b.load(b.getI64Type(), from);
  Value stride = b.load(b.getI64Type(), b.at(from, 8));
  return b.global(b.add(data, b.mul(b.toI64(token), stride)));
}

static int64_t bytesOf(Type stored) { return stored.isF32() ? 4 : 2; }

Value StepMemory::element(Type stored, Value row, Value index) {
  Value pointer = b.at(row, b.mul(index, bytesOf(stored)));
  return stored.isF32() ? b.load(stored, pointer)
                        : b.loadHalf(pointer, stored.isBF16());
}
void StepMemory::storeElement(Value value, Type stored, Value row,
                              Value index) {
  Value pointer = b.at(row, b.mul(index, bytesOf(stored)));
  if (stored.isF32())
    b.store(value, pointer);
  else
    b.storeHalf(value, pointer, stored.isBF16());
}

/// `index`, or the last of `length` where it is beyond.
Value StepMemory::within(Value index, int64_t length, bool always) {
  return always ? index : b.minimum(index, b.i32(length - 1));
}

Value StepMemory::loadScalar(Type stored, Value row) {
  return element(getElementTypeOrSelf(stored), row, b.i32(0));
}

Values StepMemory::loadFull(Type stored, Value row) {
  auto vector = cast<VectorType>(stored);
  int64_t length = vector.getNumElements();
  Values values;
  for (int64_t i = 0; i < fullCount(length); ++i) {
    Value has = hasFull(length, i);
    Value index = within(fullIndex(i), length, !has);
    values.push_back(masked(element(vector.getElementType(), row, index), has));
  }
  return values;
}

Values StepMemory::loadSlice(Type stored, Value row) {
  auto vector = cast<VectorType>(stored);
  ColumnSplit split = shape.columns(vector.getNumElements());
  Values values;
  for (int64_t j = 0; j < split.each; ++j) {
    Value has = hasColumn(split, j);
    Value index = within(column(split, j), split.length, !has);
    values.push_back(masked(element(vector.getElementType(), row, index), has));
  }
  return values;
}

void StepMemory::storeScalar(Value value, Type stored, Value row) {
  b.ifThen(isFirstThread(), [&] {
    storeElement(value, getElementTypeOrSelf(stored), row, b.i32(0));
  });
}

void StepMemory::storeSlice(ArrayRef<Value> values, Type stored, Value row) {
  auto vector = cast<VectorType>(stored);
  ColumnSplit split = shape.columns(vector.getNumElements());
  b.ifThen(isFirstRun(split), [&] {
    for (int64_t j = 0; j < split.each; ++j)
      onlyIf(hasColumn(split, j), [&] {
        storeElement(values[values.size() == 1 ? 0 : j],
                     vector.getElementType(), row, column(split, j));
      });
  });
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

StepMemory::StatePlace StepMemory::statePlace(int64_t tensor) {
  Type i64 = b.getI64Type();
  Value base =
      b.add(PLUM_FIELD(tensor, data, i64),
            b.add(b.mul(slot, PLUM_FIELD(tensor, sequence, i64)),
                  b.mul(b.toI64(head), PLUM_FIELD(tensor, head, i64))));
  Value isF32 =
      b.eq(PLUM_FIELD(tensor, dtype, b.getI32Type()), b.i32(PLUM_GPU_F32));
  return {base, PLUM_FIELD(tensor, row, i64), PLUM_FIELD(tensor, column, i64),
          isF32};
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
  Value isThere = b.cmp(arith::CmpIPredicate::ne,
                        PLUM_FIELD(tensor, data, b.getI64Type()), b.i64(0));
  return b.ifElse(
      isThere, types,
      [&] {
        return withAccess(place, split, types, load, [&] {
          return b.ifElse(
              place.isF32, types, [&] { return load({Access::No, true}); },
              [&] { return load({Access::No, false}); });
        });
      },
      [&] { return Values(P * C, b.f32(0)); });
}

void StepMemory::storeState(ArrayRef<Value> values, int64_t tensor,
                            const StateSplit &split) {
  const int64_t P = split.rows, C = split.columns.each;
  StatePlace place = statePlace(tensor);
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
  Value isThere = b.cmp(arith::CmpIPredicate::ne,
                        PLUM_FIELD(tensor, data, b.getI64Type()), b.i64(0));
  b.ifThen(isThere, [&] {
    withAccess(place, split, {}, store,
               [&] { return store({Access::No, true}); });
  });
}
