//===- StepMemory.h - What a step kernel reads and writes -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Global memory from one CTA's view: which sequence, head and slice it is, and
// its threads' elements of rows and states, as StepShape.h shares them.
//
// Elements that a thread has only because sizes are rounded up are read from
// the row's end and replaced by zero, so that loads need no branches; they are
// never written.
//
// Files: StepMemory (places and rows), StepStates (states and snapshots).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_STEPMEMORY_H
#define PLUM_LIB_CONVERSION_GPU_STEPMEMORY_H

#include "Ptx.h"
#include "StepShape.h"

namespace plum::gpu {

class StepMemory {
public:
  StepMemory(Ptx &b, const StepShape &shape) : b(b), shape(shape) {}

  /// Splits the CTA's index and looks up the sequence's slot and tokens.
  void place();
  /// False for a row of padding in a batch: slot -1.
  Value isUsed();

  //===--- Threads --------------------------------------------------------===//
  Value group(const ColumnSplit &split) {
    return b.bitAnd(tid, split.groups - 1);
  }
  Value run(const ColumnSplit &split);
  /// First of the run's rows of K.
  Value firstRow(const StateSplit &split);
  /// One thread of those that hold the same columns.
  Value isFirstRun(const ColumnSplit &split) {
    return b.lt(tid, b.i32(split.groups));
  }
  Value isFirstThread();
  /// Element i of a Full row, and whether the row has it; null: always.
  Value fullIndex(int64_t i) { return b.add(tid, shape.threads * i); }
  Value hasFull(int64_t length, int64_t i);
  int64_t fullCount(int64_t length);
  /// The same for column j of the thread's and row i of its run.
  Value column(const ColumnSplit &split, int64_t j);
  Value hasColumn(const ColumnSplit &split, int64_t j);
  Value hasRow(const StateSplit &split, int64_t i);
  /// `value`, or zero where `has` is false.
  Value masked(Value value, Value has) {
    return has ? b.select(has, value, b.f32(0)) : value;
  }
  Value tokens() { return tokenCount; }

  //===--- Rows -----------------------------------------------------------===//
  /// Finds this head's rows of params, inputs, outputs and snapshots, a thread
  /// for each tensor, and leaves their places in shared memory, from `place`
  /// on, kRowBytes each: in registers all of them would cost as much as a
  /// state.
  void findRows(int64_t params, int64_t inputs, int64_t states, int64_t outputs,
                int64_t place);
  static constexpr int64_t kRowBytes = 16;
  /// The row of a token; `row` counts params, inputs and outputs.
  Value rowOf(int64_t row, Value token) {
    return b.global(addressOf(row, token));
  }
  Value loadScalar(mlir::Type stored, Value row);
  Values loadFull(mlir::Type stored, Value row);
  Values loadSlice(mlir::Type stored, Value row);
  void storeScalar(Value value, mlir::Type stored, Value row);
  void storeSlice(llvm::ArrayRef<Value> values, mlir::Type stored, Value row);

  //===--- States ---------------------------------------------------------===//
  /// Zeros when there is no such tensor. Element (i, j) is i * each + j.
  Values loadState(int64_t tensor, const StateSplit &split);
  void storeState(llvm::ArrayRef<Value> values, int64_t tensor,
                  const StateSplit &split);
  /// Runs `body` with the number of the snapshot after token `index`, if the
  /// run wants one there. `row` counts on behind the outputs.
  void ifSnapshot(Value index, llvm::function_ref<void(Value)> body);
  void storeSnapshot(llvm::ArrayRef<Value> values, int64_t tensor, int64_t row,
                     const StateSplit &split, Value number);

private:
  struct StatePlace {
    Value base, row, column, isF32;
  };
  Value field(int64_t tensor, int64_t offset, mlir::Type type);
  Value slotOf(Value row);
  Value addressOf(int64_t row, Value token);
  Value snapshotsBefore();
  Value wide(Value array, Value index, uint32_t flag);
  Value element(mlir::Type stored, Value row, Value index);
  void storeElement(Value value, mlir::Type stored, Value row, Value index);
  Value within(Value index, int64_t length, bool always);

  /// How a state is reached: four elements at a time if its strides allow.
  struct Access {
    enum Four { AlongColumns, AlongRows, No } four;
    bool isF32;
    int64_t bytes() const { return isF32 ? 4 : 2; }
    int64_t down() const { return four == AlongRows ? 4 : 1; }
    int64_t across() const { return four == AlongColumns ? 4 : 1; }
  };
  /// Of the sequence's state, and at an address.
  StatePlace statePlace(int64_t tensor);
  StatePlace statePlace(int64_t tensor, Value base);
  Values withAccess(const StatePlace &place, const StateSplit &split,
                    mlir::TypeRange types,
                    llvm::function_ref<Values(Access)> body,
                    llvm::function_ref<Values()> single);
  /// Address of element (i, j), or of one of the run's end.
  Value stateElement(const StatePlace &place, const StateSplit &split,
                     int64_t i, int64_t j, Access access);
  Value hasElement(const StateSplit &split, int64_t i, int64_t j);
  Value isThere(int64_t tensor);
  void store(llvm::ArrayRef<Value> values, const StatePlace &place,
             const StateSplit &split);
  Values loadElements(Value pointer, Access access);
  void storeElements(llvm::ArrayRef<Value> values, Value pointer,
                     Access access);
  void onlyIf(Value condition, llvm::function_ref<void()> body);

  Ptx &b;
  const StepShape &shape;
  Value tid, slice, sequence, head, slot, firstToken, tokenCount, isPacked;
  int64_t rowsPlace = 0; ///< In shared memory.
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_STEPMEMORY_H
