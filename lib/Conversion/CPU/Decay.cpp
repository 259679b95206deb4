//===- Decay.cpp - Running products of a chunk's decay ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decay.h"

using namespace mlir;
using namespace plum::cpu;

Value DecayTables::at(KernelBuilder &b, const Buffer &table, Value step,
                      Value column, int64_t lanes) const {
  if (!channel)
    return b.splat(b.loadF32(b.at(table.base, step)), lanes);
  return b.loadVec(b.at(table, step, column), lanes);
}

/// Products of the factors in `wide` (f64 [R, w]) over the steps [begin, begin
/// + count), `shift` rows further on in the table: with `inclusive` the product
/// up to and including a step, else up to the one before. `backward` runs from
/// the last step down.
static void emitProducts(KernelBuilder &b, const Buffer &wide,
                         const Buffer &table, Value begin, int64_t count,
                         bool backward, bool inclusive) {
  b.columns(table.cols, [&](Value column, int64_t lanes) {
    Type f32 = b.vec(lanes), f64 = VectorType::get({lanes}, b.getF64Type());
    Value one = arith::ConstantOp::create(
        b, DenseElementsAttr::get(cast<VectorType>(f64), b.getF64FloatAttr(1)));
    b.loop(b.i64(0), b.i64(count), 1, one, [&](Value i, ValueRange product) {
      Value step =
          backward ? Value(arith::SubIOp::create(b, b.add(begin, count - 1), i))
                   : b.add(begin, i);
      Value at = b.add(b.mul(step, wide.cols), column);
      Value w = b.load(f64, b.atByte(wide.base, b.mul(at, 8)));
      Value next = b.times(product[0], w);
      Value kept = inclusive ? next : product[0];
      b.store(arith::TruncFOp::create(b, f32, kept), b.at(table, step, column));
      return KernelBuilder::Carry{next};
    });
  });
}

/// The factors themselves, in f64 and rounded.
static Buffer emitFactors(KernelBuilder &b, DecayTables &t, const Buffer &decay,
                          bool log) {
  Buffer wide = b.allocate(t.steps, 2 * t.width);
  wide.cols = t.width; // of f64
  t.factor = log ? b.allocate(t.steps, t.width) : decay;
  b.columns(t.steps * t.width, [&](Value i, int64_t lanes) {
    Type f64 = VectorType::get({lanes}, b.getF64Type());
    Value a = b.loadVec(b.at(decay.base, i), lanes);
    Value w = arith::ExtFOp::create(b, f64, a);
    if (log) {
      w = math::ExpOp::create(b, w);
      b.store(arith::TruncFOp::create(b, b.vec(lanes), w),
              b.at(t.factor.base, i));
    }
    b.store(w, b.atByte(wide.base, b.mul(i, 8)));
  });
  return wide;
}

DecayTables plum::cpu::emitDecayTables(KernelBuilder &b, const Buffer &decay,
                                       bool log, int64_t blockSteps,
                                       bool blocks) {
  DecayTables t;
  t.steps = decay.rows;
  t.width = decay.cols;
  t.channel = decay.cols > 1;
  Buffer wide = emitFactors(b, t, decay, log);
  Value zero = b.i64(0);
  // full[0] = 1, full[r + 1] = full[r] w_r: the inclusive product, a row on.
  t.full = b.allocate(t.steps + 1, t.width);
  b.columns(t.width, [&](Value column, int64_t lanes) {
    b.store(b.constant(1, lanes), b.at(t.full, zero, column));
  });
  Buffer shifted = t.full;
  shifted.base = b.at(t.full.base, b.i64(t.width));
  emitProducts(b, wide, shifted, zero, t.steps, /*backward=*/false,
               /*inclusive=*/true);
  t.suffix = b.allocate(t.steps, t.width);
  emitProducts(b, wide, t.suffix, zero, t.steps, /*backward=*/true,
               /*inclusive=*/false);
  if (blocks) {
    t.in = b.allocate(t.steps, t.width);
    t.out = b.allocate(t.steps, t.width);
    b.loop(0, t.steps, blockSteps, [&](Value begin) {
      emitProducts(b, wide, t.in, begin, blockSteps, false, true);
      emitProducts(b, wide, t.out, begin, blockSteps, true, false);
    });
  }
  b.release(wide);
  return t;
}

void plum::cpu::releaseDecayTables(KernelBuilder &b, const DecayTables &t) {
  for (const Buffer *table : {&t.factor, &t.full, &t.suffix, &t.in, &t.out})
    if (table->base)
      b.release(*table);
}
