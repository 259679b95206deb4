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

/// Elements of B to work on at a time: 16 KiB. Rows of B lie a power of two
/// apart and share few cache sets, so half of a 32 KiB cache is all there is.
constexpr int64_t kCachedElements = 4096;

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
    // A block of k rows of the stripe stays in the first-level cache while all
    // tiles of C pass over it.
    int64_t block = std::max<int64_t>(kCachedElements / stripe.width(), 16);
    if (p.kEnd || p.k <= block)
      return emitTiles(n0, stripe, b.i64(0), p.k, /*first=*/true);
    emitTiles(n0, stripe, b.i64(0), block, /*first=*/true);
    int64_t full = p.k / block * block;
    b.loop(block, full, block, [&](Value k0) {
      emitTiles(n0, stripe, k0, block, /*first=*/false);
    });
    if (full < p.k)
      emitTiles(n0, stripe, b.i64(full), p.k - full, /*first=*/false);
  }

  /// All rows of C in one stripe, for `count` values of k from `k0`.
  void emitTiles(Value n0, const Stripe &stripe, Value k0, int64_t count,
                 bool first) {
    int64_t rows = rowsFor(stripe);
    int64_t full = p.m / rows * rows;
    auto tile = [&](Value m0, int64_t height) {
      Value end = p.kEnd ? p.kEnd(m0, height) : b.add(k0, count);
      emitTile(m0, height, n0, stripe, k0, end, first);
    };
    if (p.mEnd && full == p.m)
      return b.loop(b.i64(0), p.mEnd, rows, [&](Value m0) { tile(m0, rows); });
    b.loop(0, full, rows, [&](Value m0) { tile(m0, rows); });
    for (int64_t m0 = full; m0 < p.m;) {
      int64_t left = llvm::bit_floor(uint64_t(p.m - m0));
      tile(b.i64(m0), left);
      m0 += left;
    }
  }

  /// Where a tile starts: at zero, or at what C holds (times a row's factor).
  Value startOf(Value pointer, int64_t lanes, Value scale, bool first) {
    if (first && !p.accumulate)
      return b.constant(0, lanes);
    Value held = b.loadVec(pointer, lanes);
    return scale ? b.times(b.splat(scale, lanes), held) : held;
  }

  void emitTile(Value m0, int64_t rows, Value n0, const Stripe &stripe,
                Value kBegin, Value kEnd, bool first) {
    SmallVector<Value> acc, cPointers, aPointers;
    for (int64_t r = 0; r < rows; ++r) {
      Value row = b.add(m0, r);
      aPointers.push_back(b.at(p.a, b.mul(row, p.aRow)));
      Value scale;
      if (first && p.accumulate && p.rowScale)
        scale = p.rowScale(row);
      for (int64_t v = 0; v < stripe.vectors; ++v) {
        Value pointer =
            b.at(p.c, b.add(b.add(b.mul(row, p.cRow), n0), v * stripe.lanes));
        cPointers.push_back(pointer);
        acc.push_back(startOf(pointer, stripe.lanes, scale, first));
      }
    }
    auto bAt = [&](Value k, int64_t v) {
      if (p.bAt)
        return b.at(p.bAt(k), b.add(n0, v * stripe.lanes));
      return b.at(b.at(p.b, n0), b.add(b.mul(k, p.bRow), v * stripe.lanes));
    };
    acc = b.loop(kBegin, kEnd, 1, acc, [&](Value k, ValueRange sums) {
      SmallVector<Value> bRow;
      for (int64_t v = 0; v < stripe.vectors; ++v)
        bRow.push_back(b.loadVec(bAt(k, v), stripe.lanes));
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

void plum::cpu::emitTranspose(KernelBuilder &b,
                              llvm::function_ref<Value(Value)> from,
                              int64_t rows, int64_t cols, Value to,
                              int64_t toRow) {
  int64_t lanes = b.machine.lanes;
  int64_t whole = rows % lanes ? 0 : cols / lanes * lanes;
  b.loop(0, whole ? rows : 0, lanes, [&](Value r0) {
    SmallVector<Value> lines;
    for (int64_t r = 0; r < lanes; ++r)
      lines.push_back(from(b.add(r0, r)));
    b.loop(0, whole, lanes, [&](Value c0) {
      SmallVector<Value> registers;
      for (Value line : lines)
        registers.push_back(b.loadVec(b.at(line, c0), lanes));
      transposeRegisters(b, registers, lanes);
      for (int64_t c = 0; c < lanes; ++c)
        b.store(registers[c], b.at(to, b.add(b.mul(b.add(c0, c), toRow), r0)));
    });
  });
  if (whole == cols)
    return;
  b.loop(0, rows, 1, [&](Value r) {
    Value line = from(r);
    b.loop(whole, cols, 1, [&](Value c) {
      b.store(b.loadF32(b.at(line, c)), b.at(to, b.add(b.mul(c, toRow), r)));
    });
  });
}
