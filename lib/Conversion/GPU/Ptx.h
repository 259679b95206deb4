//===- Ptx.h - The instructions that GPU kernels are made of ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread's view of a kernel: a builder whose methods are the PTX
// instructions we use, each in one fixed spelling (an llvm or nvvm op, or an
// inline assembly template). Everything that writes GPU code goes through it,
// so the set of spellings is closed, and lib/Emulator can execute all of them
// on a CPU.
//
// Types: i32, i64, i1, f32; a pair of bf16 is an i32 (low half first). Shared
// memory is one external array, aligned to 1024 bytes, reached through
// !llvm.ptr<3>; global memory through !llvm.ptr<1>. Offsets are bytes. Control
// flow is scf.for (i32 bounds), scf.if and scf.while.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_CONVERSION_GPU_PTX_H
#define PLUM_LIB_CONVERSION_GPU_PTX_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace plum::gpu {

using mlir::Value;
using Values = llvm::SmallVector<Value>;

/// What the chip offers beyond sm_80.
struct Chip {
  int64_t sm = 80;                         ///< 80 or 90.
  bool hopper() const { return sm >= 90; } ///< wgmma, bulk copies, setmaxnreg.
};

/// The kernel's `llvm.func` and how it is launched.
struct KernelShape {
  int64_t threads = 128;
  int64_t registers = 0;   ///< Cap per thread at launch; 0: none.
  int64_t sharedBytes = 0; ///< Dynamic shared memory.
  int64_t ctasPerSM = 1;   ///< Wanted residency, a hint for ptxas.
};

class Ptx : public mlir::ImplicitLocOpBuilder {
public:
  /// Makes `llvm.func @name(%args: plum_gpu_args by value)` at the end of
  /// `module`, with the nvvm attributes of a kernel, and builds into it. Call
  /// finish() last; the shape may change until then.
  Ptx(mlir::ModuleOp module, llvm::StringRef name, Chip chip);
  void finish(const KernelShape &shape);

  const Chip chip;

  //===--- Constants and integers (i32 unless said otherwise) -------------===//
  Value i32(int64_t v);
  Value i64(int64_t v);
  Value f32(double v);
  Value boolean(bool v);
  Value add(Value a, Value b);
  Value add(Value a, int64_t b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value mul(Value a, int64_t b);
  Value mulHigh(Value a, Value b); ///< Of unsigned i32: bits 32 to 63.
  Value divu(Value a, Value b);    ///< Unsigned.
  Value remu(Value a, Value b);
  Value divu(Value a, int64_t b);
  Value remu(Value a, int64_t b);
  Value shl(Value a, int64_t bits);
  Value shr(Value a, int64_t bits); ///< Logical.
  Value bitAnd(Value a, int64_t mask);
  Value bitXor(Value a, Value b);
  Value bitOr(Value a, Value b);
  Value minimum(Value a, Value b); ///< Signed.
  Value maximum(Value a, Value b);
  Value cmp(mlir::arith::CmpIPredicate p, Value a, Value b);
  Value eq(Value a, Value b) {
    return cmp(mlir::arith::CmpIPredicate::eq, a, b);
  }
  Value lt(Value a, Value b) {
    return cmp(mlir::arith::CmpIPredicate::slt, a, b);
  }
  Value ge(Value a, Value b) {
    return cmp(mlir::arith::CmpIPredicate::sge, a, b);
  }
  Value both(Value a, Value b); ///< i1 and i1.
  Value select(Value condition, Value a, Value b);
  Value toI64(Value a); ///< Sign extended.
  Value toU64(Value a); ///< Zero extended: half the product of what is >= 0.
  Value toI32(Value a); ///< Truncated.

  //===--- Threads --------------------------------------------------------===//
  Value tid();   ///< %tid.x
  Value ctaid(); ///< %ctaid.x
  Value lane();  ///< tid & 31
  Value warp();  ///< tid >> 5

  //===--- Floating point, f32 --------------------------------------------===//
  Value fadd(Value a, Value b);
  Value fsub(Value a, Value b);
  Value fmul(Value a, Value b);
  Value fma(Value a, Value b, Value c);
  Value fmax(Value a, Value b);
  Value fmin(Value a, Value b);
  Value fneg(Value a);
  Value fabs(Value a);
  Value fcmp(mlir::arith::CmpFPredicate p, Value a, Value b);
  Value ex2(Value x);   ///< 2^x, 2 ulp; flushes below 2^-126.
  Value lg2(Value x);   ///< log2 x.
  Value rcp(Value x);   ///< 1 / x, 1 ulp.
  Value rsqrt(Value x); ///< 1 ulp or 2.
  Value sqrt(Value x);
  Value tanh(Value x); ///< From ex2 and rcp: tanh.approx has 2^-11.

  //===--- Pairs of bf16 in an i32 ----------------------------------------===//
  Value pack(Value lo, Value hi); ///< Round to nearest even.
  Value low(Value pair);          ///< As f32.
  Value high(Value pair);
  Value mulPair(Value a, Value b); ///< bf16 products, each rounded once.
  Value bitsOf(Value f);           ///< f32 as i32.
  Value floatOf(Value bits);       ///< i32 as f32.

  //===--- Memory ---------------------------------------------------------===//
  /// The start of dynamic shared memory, plus bytes.
  Value shared(int64_t bytes = 0);
  Value at(Value pointer, Value bytes); ///< bytes: i32 or i64.
  Value at(Value pointer, int64_t bytes);
  Value address(Value sharedPointer); ///< ptr<3> as i32.
  Value global(Value address64);      ///< i64 as ptr<1>.
  /// Types: i32, i64, f32, i16, vectors of 2 or 4 i32 or f32.
  Value load(mlir::Type type, Value pointer);
  void store(Value value, Value pointer);
  /// bf16 or f16 at `pointer` (i16 load), as f32.
  Value loadHalf(Value pointer, bool bf16);
  void storeHalf(Value value, Value pointer, bool bf16);
  mlir::Type vec(mlir::Type element, int64_t n);
  Value element(Value vector, int64_t i);
  Value vector(llvm::ArrayRef<Value> elements);

  /// Fields of plum_gpu_args; the second's offset is an i32.
  Value argument(int64_t offset, mlir::Type type);
  Value argument(Value offset, mlir::Type type);

  //===--- Within a warp --------------------------------------------------===//
  Value shuffleXor(Value v, int64_t mask); ///< i32 or f32.
  Value shuffleIndex(Value v, Value lane);
  /// An undefined f32, where a product starts from zero.
  Value undefined();
  Value shuffleUp(Value v, int64_t delta); ///< Lanes below keep their own.
  /// Four 8x8 tiles of 16-bit elements; lane l gives row l % 8 of tile l / 8.
  Values ldmatrix4(Value pointer, bool transposed);
  /// sm_90; elsewhere callers use stores.
  void stmatrix4(Value pointer, llvm::ArrayRef<Value> tiles, bool transposed);
  /// D = A B + C of m16n8k16, bf16, f32 accumulators.
  Values mma(llvm::ArrayRef<Value> a, Value b0, Value b1,
             llvm::ArrayRef<Value> c);
  void syncWarp();
  Value anyLane(Value condition); ///< vote.any over the warp.

  //===--- Across warps ---------------------------------------------------===//
  /// Named barrier `id` (0 to 15) of `threads` threads; id may be dynamic.
  void barrier(Value id, int64_t threads);
  void barrier(int64_t id, int64_t threads) { barrier(i32(id), threads); }
  /// Arrives at barrier `id`, where others wait, and goes on.
  void barrierArrive(Value id, int64_t threads);
  void barrierInit(Value mbar, int64_t arrivals); ///< mbarrier in shared.
  void fenceBarrierInit();
  void arrive(Value mbar);
  void arriveExpect(Value mbar, Value bytes); ///< sm_90.
  /// Waits until the phase of `parity` (i32) has completed. Gives up after a
  /// few seconds: a wrong answer is found, a hung GPU is not.
  void wait(Value mbar, Value parity);
  void setMaxRegisters(bool increase, int64_t count); ///< sm_90a.

  //===--- Copies ---------------------------------------------------------===//
  /// 16 bytes, of which the last 16 - sourceBytes are zero.
  void copy16(Value sharedPointer, Value globalPointer, Value sourceBytes);
  void copyCommit();
  void copyWait(int64_t groupsLeft);
  void copyArrive(Value mbar); ///< Arrives once this thread's copies are in.
  void bulkLoad(Value sharedPointer, Value globalPointer, int64_t bytes,
                Value mbar);
  void bulkStore(Value globalPointer, Value sharedPointer, int64_t bytes);
  void bulkCommit();
  void bulkWaitRead(int64_t groupsLeft); ///< Sources may be overwritten.
  void bulkWait(int64_t groupsLeft);
  void fenceAsync(); ///< Own shared writes before later bulk copies, wgmma.

  //===--- wgmma (sm_90a) -------------------------------------------------===//
  /// Registers that products read or write next pass through the fence, and
  /// those that a wait makes ready pass through the wait: nothing may move
  /// across. Returns the values to use from there on (i32 or f32).
  Values wgmmaFence(llvm::ArrayRef<Value> values);
  void wgmmaCommit();
  Values wgmmaWait(int64_t groupsLeft, llvm::ArrayRef<Value> values);
  /// Waits for all, no sooner than `first`, a number that is not negative, is
  /// known. ptxas puts off what nobody asks for until products are waited for.
  Values wgmmaWaitAfter(Value first, llvm::ArrayRef<Value> values);
  /// D[64, n] (+)= A[64, 16] B[16, n]: A four i32, `descriptor` i64, D n / 2
  /// accumulators. `zero`: D starts from zero. `transposed`: B is stored
  /// [k][n] (MN-major).
  Values wgmma(int64_t n, llvm::ArrayRef<Value> d, llvm::ArrayRef<Value> a,
               Value descriptor, bool zero, bool transposed);
  /// The same with A in shared memory too, [m][k] (K-major), at `left`.
  Values wgmma(int64_t n, llvm::ArrayRef<Value> d, Value left, Value descriptor,
               bool zero, bool transposed);

  //===--- Control --------------------------------------------------------===//
  void ifThen(Value condition, llvm::function_ref<void()> then);
  Values ifElse(Value condition, mlir::TypeRange types,
                llvm::function_ref<Values()> then,
                llvm::function_ref<Values()> otherwise);
  /// for (i = begin; i < end; i += step), i32.
  void loop(Value begin, Value end, int64_t step,
            llvm::function_ref<void(Value)> body);
  Values loop(Value begin, Value end, int64_t step, mlir::ValueRange init,
              llvm::function_ref<Values(Value, mlir::ValueRange)> body);

  mlir::LLVM::LLVMFuncOp function() { return func; }

private:
  Values through(llvm::StringRef text, llvm::ArrayRef<Value> values);
  Value assembly(llvm::StringRef text, llvm::StringRef constraints,
                 mlir::ValueRange operands, mlir::Type result,
                 bool sideEffects);
  mlir::LLVM::LLVMFuncOp func;
  Value args;
};

} // namespace plum::gpu

#endif // PLUM_LIB_CONVERSION_GPU_PTX_H
