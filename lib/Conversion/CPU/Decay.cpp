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

/// Products over the steps [begin, begin + count), `shift` rows further on in
/// the table: with `inclusive` the product up to and including a step, else up
/// to the one before. `backward` runs from the last step down.
static void emitProducts(KernelBuilder &b, const DecayTables &t,
                         const Buffer &table, Value begin, int64_t count,
                         bool backward, bool inclusive) {
  b.columns(t.width, [&](Value column, int64_t lanes) {
    b.loop(b.i64(0), b.i64(count), 1, b.constant(1, lanes),
           [&](Value i, ValueRange product) {
             Value step = backward ? Value(arith::SubIOp::create(
                                         b, b.add(begin, count - 1), i))
                                   : b.add(begin, i);
             Value w = b.loadVec(b.at(t.factor, step, column), lanes);
             Value next = b.times(product[0], w);
             b.store(inclusive ? next : product[0], b.at(table, step, column));
             return KernelBuilder::Carry{next};
           });
  });
}

DecayTables plum::cpu::emitDecayTables(KernelBuilder &b, const Buffer &decay,
                                       bool log, int64_t blockSteps,
                                       bool blocks) {
  DecayTables t;
  t.steps = decay.rows;
  t.width = decay.cols;
  t.channel = decay.cols > 1;
  t.factor = decay;
  if (log) {
    t.factor = b.allocate(t.steps, t.width);
    b.columns(t.steps * t.width, [&](Value i, int64_t lanes) {
      Value a = b.loadVec(b.at(decay.base, i), lanes);
      b.store(math::ExpOp::create(b, a), b.at(t.factor.base, i));
    });
  }
  Value zero = b.i64(0);
  // full[0] = 1, full[r + 1] = full[r] w_r: the inclusive product, a row on.
  t.full = b.allocate(t.steps + 1, t.width);
  b.columns(t.width, [&](Value column, int64_t lanes) {
    b.store(b.constant(1, lanes), b.at(t.full, zero, column));
  });
  Buffer shifted = t.full;
  shifted.base = b.at(t.full.base, b.i64(t.width));
  emitProducts(b, t, shifted, zero, t.steps, /*backward=*/false,
               /*inclusive=*/true);
  t.suffix = b.allocate(t.steps, t.width);
  emitProducts(b, t, t.suffix, zero, t.steps, /*backward=*/true,
               /*inclusive=*/false);
  if (!blocks)
    return t;
  t.in = b.allocate(t.steps, t.width);
  t.out = b.allocate(t.steps, t.width);
  b.loop(0, t.steps, blockSteps, [&](Value begin) {
    emitProducts(b, t, t.in, begin, blockSteps, false, true);
    emitProducts(b, t, t.out, begin, blockSteps, true, false);
  });
  return t;
}

void plum::cpu::releaseDecayTables(KernelBuilder &b, const DecayTables &t) {
  for (const Buffer *table : {&t.factor, &t.full, &t.suffix, &t.in, &t.out})
    if (table->base)
      b.release(*table);
}
