//===- StepMemory.cpp - What a step kernel reads and writes -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepMemory.h"
#include "Place.h"

#include "plum/ABI/GpuABI.h"

#include "llvm/Support/MathExtras.h"

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

/// The state pool's slot, i64; negative for a row of padding.
Value StepMemory::slotOf(Value row) {
  Value slots = PLUM_ARG(slots, b.getI64Type());
  return b.ifElse(
      b.eq(slots, b.i64(0)), b.getI64Type(),
      [&] { return Values{b.toI64(row)}; },
      [&] { return Values{wide(slots, row, PLUM_GPU_SLOTS64)}; })[0];
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

  slot = slotOf(sequence);
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

void StepMemory::findRows(int64_t params, int64_t inputs, int64_t states,
                          int64_t outputs, int64_t place) {
  rowsPlace = place;
  const int64_t rows = params + inputs + outputs, count = rows + states;
  if (!count)
    return;
  Value firstSnapshot = b.toI64(snapshotsBefore());
  b.ifThen(b.lt(tid, b.i32(count)), [&] {
    Value tensor = b.select(b.lt(tid, b.i32(params + inputs)), tid,
                            b.add(tid, 2 * states));
    Value entry = b.mul(tensor, sizeof(plum_gpu_tensor));
    auto field = [&](int64_t offset, Type type) {
      return b.argument(b.add(entry, offsetof(plum_gpu_args, tensors) + offset),
                        type);
    };
    Type i64 = b.getI64Type();
    Value own = ownHead(
        b, head, field(offsetof(plum_gpu_tensor, share), b.getI32Type()));
    Value token = field(offsetof(plum_gpu_tensor, token), i64);
    Value data =
        b.add(field(offsetof(plum_gpu_tensor, data), i64),
              b.mul(b.toU64(own), field(offsetof(plum_gpu_tensor, head), i64)));
    // A packed batch is one sequence that begins elsewhere for each.
    Value stride = b.select(isPacked, token,
                            field(offsetof(plum_gpu_tensor, sequence), i64));
    Value begin = b.select(b.lt(tid, b.i32(rows)), firstToken, firstSnapshot);
    Value first = b.mul(b.select(isPacked, begin, b.toI64(sequence)), stride);
    if (params)
      first = b.select(b.lt(tid, b.i32(params)), b.i64(0), first);
    Value to = b.at(b.shared(rowsPlace), b.mul(tid, kRowBytes));
    b.store(b.add(data, first), to);
    b.store(token, b.at(to, 8));
  });
  b.barrier(int64_t(0), shape.threads);
}

Value StepMemory::addressOf(int64_t row, Value token) {
  Value from = b.shared(rowsPlace + row * kRowBytes);
  Value data = b.load(b.getI64Type(), from);
  Value stride = b.load(b.getI64Type(), b.at(from, 8));
  return b.add(data, b.mul(b.toI64(token), stride));
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
