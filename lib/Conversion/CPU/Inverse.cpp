//===- Inverse.cpp - The unit lower triangular system of a chunk *- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of T = (I - diag(c) M)^-1 satisfy T_i = e_i + c_i sum_{j<i} M_ij T_j.
// For a block of 16 rows the part of the sum over earlier blocks is one product
// (the exact merge); the part inside the block is substituted row by row. No
// power of M is ever formed, so identical keys are as safe as random ones.
//
//===----------------------------------------------------------------------===//

#include "Matmul.h"
#include "Scores.h"

using namespace mlir;
using namespace plum::cpu;

void plum::cpu::emitInverse(KernelBuilder &b, const Buffer &m, const Buffer &c,
                            const Buffer &t) {
  int64_t n = m.rows;
  int64_t size = std::min<int64_t>(n & -n, 16);
  int64_t lanes = std::min<int64_t>(size, b.machine.lanes);
  b.columns(n * n, [&](Value i, int64_t lanes) {
    b.store(b.constant(0, lanes), b.at(t.base, i));
  });
  b.loop(0, n, size, [&](Value begin) {
    // Columns of earlier blocks: T[I, <I] = M[I, <I] T[<I, <I].
    Matmul merge{b.at(m, begin),
                 n,
                 1,
                 t.base,
                 n,
                 b.at(t, begin),
                 n,
                 size,
                 0,
                 0,
                 [&](Value, int64_t) { return begin; },
                 begin,
                 size,
                 false,
                 {}};
    emitMatmul(b, merge);
    Value end = b.add(begin, size);
    b.loop(0, size, 1, [&](Value r) {
      Value row = b.add(begin, r);
      Value scale = c.base ? b.loadF32(b.at(c.base, row)) : b.f32(1);
      b.loop(b.i64(0), end, lanes, [&](Value column) {
        Value pointer = b.at(t, row, column);
        Value start = b.loadVec(pointer, lanes);
        Value acc = b.loop(b.i64(0), r, 1, start, [&](Value j, ValueRange sum) {
          Value other = b.add(begin, j);
          Value weight = b.splat(b.loadF32(b.at(m, row, other)), lanes);
          return KernelBuilder::Carry{
              b.fma(weight, b.loadVec(b.at(t, other, column), lanes), sum[0])};
        })[0];
        b.store(b.times(b.splat(scale, lanes), acc), pointer);
      });
      // The identity's part; nothing else has touched T[row, row].
      b.store(b.f32(1), b.at(t, row, row));
    });
  });
}
