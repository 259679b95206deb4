//===- KernelBuilder.h - Loops, vectors and buffers of a kernel -*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every CPU lowering needs to write a kernel down: i64 loops, f32 vectors
// of any length, and buffers in the caller's workspace. A buffer is a row-major
// f32 matrix at a constant offset of the workspace (or in the caller's memory,
// for states). Offsets are handed out by an arena while the kernel is built,
// so buffers whose lives do not overlap share memory and nothing is allocated
// at run time.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_CPU_KERNELBUILDER_H
#define PLUM_LIB_CONVERSION_CPU_KERNELBUILDER_H

#include "plum/Conversion/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <functional>

namespace plum::cpu {

/// What the lowering needs to know of the machine.
struct Machine {
  int64_t lanes;     ///< f32 lanes of a vector register.
  int64_t registers; ///< Vector registers.
  bool x86;          ///< Has MXCSR.
};

/// First-fit allocator of workspace ranges, in f32 elements; build time only.
class Arena {
public:
  int64_t take(int64_t elements);
  void give(int64_t offset);
  int64_t bytes() const { return top * 4; }

private:
  struct Piece {
    int64_t begin, end;
  };
  llvm::SmallVector<Piece> used; ///< Sorted by begin.
  int64_t top = 0;
};

/// A row-major f32 matrix in memory.
struct Buffer {
  mlir::Value base; ///< !llvm.ptr
  int64_t rows = 0, cols = 0;
  int64_t offset = -1; ///< In the arena; -1 when it is not ours to free.
};

class KernelBuilder : public mlir::ImplicitLocOpBuilder {
public:
  /// Builds into `function`, whose one argument is the plum_kernel_args.
  /// Subnormal numbers are zero while the kernel runs: decays end in them, and
  /// an operation on one costs a hundred others on many CPUs.
  KernelBuilder(mlir::func::FuncOp function, Machine machine);

  const Machine machine;

  //===--- Scalars --------------------------------------------------------===//
  mlir::Value i64(int64_t value);
  mlir::Value f32(double value);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value add(mlir::Value a, int64_t b) { return b ? add(a, i64(b)) : a; }
  mlir::Value mul(mlir::Value a, int64_t b);
  mlir::Value minimum(mlir::Value a, mlir::Value b);

  //===--- Loops ----------------------------------------------------------===//
  using Body = llvm::function_ref<void(mlir::Value)>;
  using Carry = llvm::SmallVector<mlir::Value>;
  using CarryBody = llvm::function_ref<Carry(mlir::Value, mlir::ValueRange)>;
  void loop(mlir::Value begin, mlir::Value end, int64_t step, Body body);
  void loop(int64_t begin, int64_t end, int64_t step, Body body);
  Carry loop(mlir::Value begin, mlir::Value end, int64_t step,
             mlir::ValueRange init, CarryBody body);
  /// Runs `body(column, lanes)` over `n` columns, in full registers first.
  void columns(int64_t n, llvm::function_ref<void(mlir::Value, int64_t)> body);

  //===--- Vectors --------------------------------------------------------===//
  mlir::VectorType vec(int64_t lanes) {
    return mlir::VectorType::get({lanes}, getF32Type());
  }
  /// The larger, NaN where either is.
  mlir::Value maximum(mlir::Value a, mlir::Value b);
  mlir::Value splat(mlir::Value scalar, int64_t lanes);
  mlir::Value constant(double value, int64_t lanes);
  mlir::Value times(mlir::Value a, mlir::Value b);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c);
  /// Sum of the lanes.
  mlir::Value sum(mlir::Value vector);

  //===--- Memory ---------------------------------------------------------===//
  mlir::Value load(mlir::Type type, mlir::Value pointer);
  void store(mlir::Value value, mlir::Value pointer);
  /// Pointer `elements` f32 past `base`.
  mlir::Value at(mlir::Value base, mlir::Value elements);
  mlir::Value at(const Buffer &buffer, mlir::Value row, mlir::Value col);
  mlir::Value at(const Buffer &buffer, mlir::Value row) {
    return at(buffer.base, mul(row, buffer.cols));
  }
  /// Pointer `bytes` past `base`.
  mlir::Value atByte(mlir::Value base, mlir::Value bytes);
  mlir::Value loadVec(mlir::Value pointer, int64_t lanes) {
    return load(vec(lanes), pointer);
  }
  mlir::Value loadF32(mlir::Value pointer) {
    return load(getF32Type(), pointer);
  }

  Buffer allocate(int64_t rows, int64_t cols);
  void release(const Buffer &buffer);
  int64_t workspaceBytes() const { return arena.bytes(); }

  //===--- The kernel's arguments -----------------------------------------===//
  mlir::Value tokens() { return tokenCount; }
  struct Rows {
    mlir::Value data, stride; ///< Address of row 0, bytes between rows.
  };
  Rows input(unsigned i) { return rowsAt(inputs, i); }
  Rows output(unsigned i) { return rowsAt(outputs, i); }
  mlir::Value param(unsigned i) { return pointerAt(params, i); }
  mlir::Value state(unsigned i) { return pointerAt(states, i); }
  /// A growing state, and the rows that each holds before the call.
  Rows growing(unsigned i) { return rowsAt(lists, i); }
  mlir::Value past() { return pastRows; }
  /// Rows that each growing state has for row `row` of the call and before it,
  /// without that of its own token.
  mlir::Value rowsBefore(mlir::Value row);
  /// How many of `rows` rows the call has to append: none of lists that heads
  /// share.
  mlir::Value appended(mlir::Value rows);

private:
  void flushSubnormals(mlir::Operation *end);
  Rows rowsAt(mlir::Value array, unsigned i);
  mlir::Value pointerAt(mlir::Value array, unsigned i);

  Arena arena;
  mlir::Operation *entryEnd = nullptr; ///< Workspace pointers go before it.
  mlir::Value tokenCount, workspace, inputs, params, states, outputs, lists,
      pastRows, sharing;
  llvm::DenseMap<int64_t, mlir::Value> bases; ///< Workspace pointer by offset.
};

} // namespace plum::cpu

#endif // PLUM_LIB_CONVERSION_CPU_KERNELBUILDER_H
