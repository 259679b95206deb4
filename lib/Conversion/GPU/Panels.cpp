//===- Panels.cpp - Matrices in swizzled panels -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Panels.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

Value gpu::pieceOffset(Ptx &p, Value row, Value piece) {
  return p.add(p.shl(row, 7), p.shl(p.bitXor(piece, p.bitAnd(row, 7)), 4));
}

Value gpu::matrixOffset(Ptx &p, Value lane, Value row, int64_t quarter,
                        bool swap) {
  // Lane l: row l & 15 and 16-byte piece l >> 4, or with `swap` row (l & 7) +
  // 8 (l >> 4) and piece (l >> 3) & 1. Rows are added as multiples of 8, so
  // the swizzle is that of l & 7.
  Value inner = swap ? p.add(p.bitAnd(lane, 7), p.shl(p.shr(lane, 4), 3))
                     : p.bitAnd(lane, 15);
  Value piece = swap ? p.bitAnd(p.shr(lane, 3), 1) : p.shr(lane, 4);
  Value swizzled = p.bitXor(piece, p.bitAnd(lane, 7));
  Value bytes = p.add(p.shl(p.add(row, inner), 7), p.shl(swizzled, 4));
  return quarter ? p.bitXor(bytes, p.i32(quarter * 32)) : bytes;
}

Value gpu::blockAt(Ptx &p, const Panels &tile, Value I, Value J, bool swap) {
  Value offset = p.bitXor(matrixOffset(p, tile.lane, p.shl(I, 4), 0, swap),
                          p.shl(p.bitAnd(J, 3), 5));
  return p.at(p.at(tile.base, offset), p.mul(p.shr(J, 2), tile.panelBytes()));
}

void gpu::storeBlock(Ptx &p, const Panels &tile, Value I, Value J,
                     ArrayRef<Value> four) {
  if (p.chip.hopper())
    return p.stmatrix4(blockAt(p, tile, I, J, false), four, false);
  Value t = p.bitAnd(tile.lane, 3);
  Value row = p.add(p.shl(I, 4), p.shr(tile.lane, 2));
  Value panel = p.mul(p.shr(J, 2), tile.panelBytes());
  for (int64_t i = 0; i < 4; ++i) {
    Value piece = p.add(p.shl(p.bitAnd(J, 3), 1), i / 2);
    Value offset = p.add(p.add(pieceOffset(p, row, piece), p.shl(t, 2)), panel);
    p.store(four[i], p.at(p.at(tile.base, offset), i % 2 * 8 * 128));
  }
}

Values gpu::leftOperand(Ptx &p, const Panels &tile, Value row, int64_t J) {
  Value offset = matrixOffset(p, tile.lane, row, J % 4, false);
  return p.ldmatrix4(p.at(p.at(tile.base, offset), J / 4 * tile.panelBytes()),
                     false);
}

Values gpu::multiply(Ptx &p, ArrayRef<Value> a, const Panels &b, Values acc,
                     bool transposed, Value firstBlock, int64_t firstDepth) {
  const int64_t depth = a.size() * 4, N = acc.size() * 2;
  Value zero = p.i32(0);
  for (int64_t k = 0; k < depth / 16; ++k)
    for (int64_t n = 0; n < N / 16; ++n) {
      // Four 8x8 tiles: b0 and b1 of two blocks of 8 columns.
      Value at;
      if (firstBlock) {
        Value block = p.add(firstBlock, n);
        Value inner = p.bitXor(matrixOffset(p, b.lane, zero, 0, false),
                               p.shl(p.bitAnd(block, 3), 5));
        Value panel = p.mul(p.shr(block, 2), b.panelBytes());
        at = p.at(p.at(p.at(b.base, inner), panel), k * 16 * 128);
      } else if (transposed) {
        at = p.at(p.at(b.base, matrixOffset(p, b.lane, zero, n % 4, false)),
                  n / 4 * b.panelBytes() + k * 16 * 128);
      } else {
        const int64_t J = firstDepth + k;
        at = p.at(p.at(b.base, p.bitXor(matrixOffset(p, b.lane, zero, 0, true),
                                        p.i32(J % 4 * 32))),
                  J / 4 * b.panelBytes() + n * 16 * 128);
      }
      Values f = p.ldmatrix4(at, transposed);
      for (int64_t h : {0, 1}) {
        int64_t to = 4 * (2 * n + h);
        Values d = p.mma(ArrayRef(a).slice(4 * k, 4), f[2 * h], f[2 * h + 1],
                         ArrayRef(acc).slice(to, 4));
        std::copy(d.begin(), d.end(), acc.begin() + to);
      }
    }
  return acc;
}

/// Of a swizzled tile: offsets in bytes, of which the hardware counts 16s.
static Value descriptor(Ptx &p, Value pointer, int64_t leading,
                        int64_t stride) {
  Value start = p.shr(p.bitAnd(p.address(pointer), 0x3ffff), 4);
  Value low = p.createOrFold<arith::ExtUIOp>(p.getI64Type(), start);
  return p.bitOr(low, p.i64((leading >> 4) << 16 | (stride >> 4) << 32 |
                            int64_t(1) << 62));
}

Values gpu::multiplyWide(Ptx &p, ArrayRef<Value> a, const Panels &b, Values acc,
                         bool zero, bool transposed) {
  const int64_t depth = a.size() * 4, N = acc.size() * 2;
  // K-major: rows of 128 bytes are n, 16 columns are 32 bytes further, a
  // panel per 64. MN-major: rows are k, 16 of them 2048 bytes; panels along
  // n.
  Value base = transposed ? descriptor(p, b.base, b.panelBytes(), 1024)
                          : descriptor(p, b.base, 16, 1024);
  for (int64_t k = 0; k < depth / 16; ++k) {
    int64_t offset =
        transposed ? k * 2048 : k / 4 * b.panelBytes() + k % 4 * 32;
    acc = p.wgmma(N, acc, a.slice(4 * k, 4), p.add(base, offset >> 4),
                  zero && k == 0, transposed);
  }
  return acc;
}

Values gpu::multiplyShared(Ptx &p, const Panels &a, Value row, int64_t depth,
                           const Panels &b, Values acc, bool zero) {
  Value left = descriptor(p, p.at(a.base, p.shl(row, 7)), 16, 1024);
  Value right = descriptor(p, b.base, 16, 1024);
  for (int64_t k = 0; k < depth / 16; ++k) {
    auto offset = [&](const Panels &tile) {
      return (k / 4 * tile.panelBytes() + k % 4 * 32) >> 4;
    };
    acc = p.wgmma(acc.size() * 2, acc, p.add(left, offset(a)),
                  p.add(right, offset(b)), zero && k == 0,
                  /*transposed=*/false);
  }
  return acc;
}
