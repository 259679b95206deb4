//===- Matmul.cpp - The matrix product of the CPU kernels -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Matmul.h"

using namespace mlir;
using namespace plum::cpu;

namespace {

/// A stripe of columns: `vectors` registers of `lanes` lanes.
struct Stripe {
  int64_t lanes, vectors;
  int64_t width() const { return lanes * vectors; }
};

class MatmulEmitter {
public:
  MatmulEmitter(KernelBuilder &b, const Matmul &p) : b(b), p(p) {}

  void run() {
    if (p.nEnd) {
      Stripe stripe{std::min(p.columnStep, b.machine.lanes), 1};
      b.loop(b.i64(0), p.nEnd, stripe.width(),
             [&](Value n0) { emitStripe(n0, stripe); });
      return;
    }
    int64_t n0 = 0;
    while (n0 < p.n) {
      Stripe stripe = stripeFor(p.n - n0);
      int64_t count = (p.n - n0) / stripe.width();
      b.loop(n0, n0 + count * stripe.width(), stripe.width(),
             [&](Value n) { emitStripe(n, stripe); });
      n0 += count * stripe.width();
    }
  }

private:
  /// The widest stripe of at most `left` columns.
  Stripe stripeFor(int64_t left) const {
    int64_t most = b.machine.registers >= 32 ? 4 : 2;
    for (int64_t vectors = most; vectors >= 1; --vectors)
      if (left >= vectors * b.machine.lanes)
        return {b.machine.lanes, vectors};
    int64_t lanes = b.machine.lanes;
    while (lanes > left)
      lanes /= 2;
    return {lanes, 1};
  }

  /// Rows of a tile: half the registers are accumulators.
  int64_t rowsFor(const Stripe &stripe) const {
    int64_t rows =
        std::max<int64_t>(b.machine.registers / 2 / stripe.vectors, 1);
    rows = std::min<int64_t>(llvm::bit_floor(uint64_t(rows)), 16);
    while (rows > p.m)
      rows /= 2;
    return rows;
  }

  void emitStripe(Value n0, const Stripe &stripe) {
    int64_t rows = rowsFor(stripe);
    int64_t full = p.m / rows * rows;
    b.loop(0, full, rows, [&](Value m0) { emitTile(m0, rows, n0, stripe); });
    for (int64_t m0 = full; m0 < p.m;) {
      int64_t left = llvm::bit_floor(uint64_t(p.m - m0));
      emitTile(b.i64(m0), left, n0, stripe);
      m0 += left;
    }
  }

  void emitTile(Value m0, int64_t rows, Value n0, const Stripe &stripe) {
    SmallVector<Value> acc, cPointers, aPointers;
    for (int64_t r = 0; r < rows; ++r) {
      Value row = b.add(m0, r);
      aPointers.push_back(b.at(p.a, b.mul(row, p.aRow)));
      Value scale;
      if (p.accumulate && p.rowScale)
        scale = b.splat(p.rowScale(row), stripe.lanes);
      for (int64_t v = 0; v < stripe.vectors; ++v) {
        Value pointer =
            b.at(p.c, b.add(b.add(b.mul(row, p.cRow), n0), v * stripe.lanes));
        cPointers.push_back(pointer);
        Value start = p.accumulate ? b.loadVec(pointer, stripe.lanes)
                                   : b.constant(0, stripe.lanes);
        acc.push_back(scale ? b.times(scale, start) : start);
      }
    }
    Value kEnd = p.kEnd ? p.kEnd(m0, rows) : b.i64(p.k);
    Value bBase = b.at(p.b, n0);
    acc = b.loop(b.i64(0), kEnd, 1, acc, [&](Value k, ValueRange sums) {
      SmallVector<Value> bRow;
      for (int64_t v = 0; v < stripe.vectors; ++v)
        bRow.push_back(
            b.loadVec(b.at(bBase, b.add(b.mul(k, p.bRow), v * stripe.lanes)),
                      stripe.lanes));
      KernelBuilder::Carry next;
      for (int64_t r = 0; r < rows; ++r) {
        Value a = b.splat(b.loadF32(b.at(aPointers[r], b.mul(k, p.aCol))),
                          stripe.lanes);
        for (int64_t v = 0; v < stripe.vectors; ++v)
          next.push_back(b.fma(a, bRow[v], sums[next.size()]));
      }
      return next;
    });
    for (auto [value, pointer] : llvm::zip(acc, cPointers))
      b.store(value, pointer);
  }

  KernelBuilder &b;
  const Matmul &p;
};

} // namespace

void plum::cpu::emitMatmul(KernelBuilder &b, const Matmul &product) {
  MatmulEmitter(b, product).run();
}

/// Transposes `lanes` registers of `lanes` lanes: log2(lanes) rounds, each of
/// which swaps the off-diagonal blocks of half the last size.
static void transposeRegisters(KernelBuilder &b, SmallVectorImpl<Value> &rows,
                               int64_t lanes) {
  for (int64_t half = lanes / 2; half >= 1; half /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < lanes; ++i) {
      bool upper = i & half;
      low.push_back(upper ? lanes + i - half : i);
      high.push_back(upper ? lanes + i : i + half);
    }
    for (int64_t r = 0; r < lanes; ++r) {
      if (r & half)
        continue;
      Value x = rows[r], y = rows[r + half];
      rows[r] = vector::ShuffleOp::create(b, x, y, low);
      rows[r + half] = vector::ShuffleOp::create(b, x, y, high);
    }
  }
}

void plum::cpu::emitTranspose(KernelBuilder &b, Value from, int64_t fromRow,
                              int64_t rows, int64_t cols, Value to,
                              int64_t toRow) {
  int64_t lanes = b.machine.lanes;
  if (rows % lanes || cols % lanes) {
    b.loop(0, rows, 1, [&](Value r) {
      b.loop(0, cols, 1, [&](Value c) {
        Value x = b.loadF32(b.at(from, b.add(b.mul(r, fromRow), c)));
        b.store(x, b.at(to, b.add(b.mul(c, toRow), r)));
      });
    });
    return;
  }
  b.loop(0, rows, lanes, [&](Value r0) {
    b.loop(0, cols, lanes, [&](Value c0) {
      SmallVector<Value> registers;
      for (int64_t r = 0; r < lanes; ++r)
        registers.push_back(b.loadVec(
            b.at(from, b.add(b.mul(b.add(r0, r), fromRow), c0)), lanes));
      transposeRegisters(b, registers, lanes);
      for (int64_t c = 0; c < lanes; ++c)
        b.store(registers[c], b.at(to, b.add(b.mul(b.add(c0, c), toRow), r0)));
    });
  });
}
