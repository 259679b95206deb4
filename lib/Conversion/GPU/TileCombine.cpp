//===- TileCombine.cpp - The states that enter the segments -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For each sequence and head, plum_gpu_args.segment_states has one piece for
// each of the P segments:
//
//   M^T [K, K]   row k': what a state's row k' adds to every row, by the
//   segment X^T [V, K]   first B of the segment, then S, the state at the
//   segment's end
//
// all f32. `summary` writes them, but for M of segment 0, whose B starts from
// the initial state, and for the last segment, which nothing follows; its X is
// a copy of the initial state, which the last segment's scan may overwrite
// while the first reads it. The kernel here goes through the segments in order,
//
//   S_0 = B_0      S_s = M_s S_(s-1) + B_s
//
// and leaves each S_s where B_s was, for the scan of segment s + 1 to start
// from. Columns of S do not meet: a CTA has 8 of them. A thread has 4 rows k
// and an eighth of the sum over k', for all 8 columns; the eighths meet in
// shared memory. While one M is multiplied with, the next is on its way.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include "plum/ABI/GpuABI.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

int64_t plum::gpu::segmentBytes(int64_t K, int64_t V) {
  return (K * K + V * K) * 4;
}

/// Address (i64) of a segment's piece; `row` is the sequence's number.
Value plum::gpu::segmentAddress(Ptx &p, int64_t K, int64_t V, Value row,
                                Value head, Value segment) {
  Value heads = p.argument(ARG(heads), p.getI32Type());
  Value segments = p.argument(ARG(segments), p.getI32Type());
  Value pair = p.add(p.mul(p.toI64(row), p.toI64(heads)), p.toI64(head));
  Value piece = p.add(p.mul(pair, p.toI64(segments)), p.toI64(segment));
  return p.add(p.argument(ARG(segment_states), p.getI64Type()),
               p.mul(piece, p.i64(segmentBytes(K, V))));
}

KernelShape plum::gpu::emitCombine(Ptx &p, int64_t K, int64_t V) {
  const int64_t columns = kCombineColumns, eighth = K / 8;
  // Shared memory: S^T [8, K], then the eighths [8][8, K].
  const int64_t sums = columns * K * 4;
  const int64_t pitch = K * 4; // Of every matrix here.
  const int64_t wide = eighth % 4 == 0 ? 4 : 2;
  KernelShape shape;
  shape.threads = 2 * K;
  shape.sharedBytes = sums + 8 * columns * pitch;
  shape.ctasPerSM = p.chip.hopper() ? 2 : 1;

  Type i32 = p.getI32Type(), f32 = p.getF32Type(), four = p.vec(f32, 4);
  Value tid = p.tid();
  Value heads = p.argument(ARG(heads), i32);
  Value id = p.ctaid();
  Value column = p.mul(p.remu(id, V / columns), columns);
  Value pair = p.divu(id, V / columns);
  Value head = p.remu(pair, heads), row = p.divu(pair, heads);
  Value segments = p.argument(ARG(segments), i32);
  // With two segments S_0 = B_0 is all there is.
  Value wanted =
      p.both(p.lt(p.i32(2), segments), p.ge(slotOf(p, row), p.i32(0)));
  p.ifThen(wanted, [&] {
    // Rows 4 group ... of M; as an eighth of the sum and, later, as a column.
    Value group = p.remu(tid, K / 4), part = p.divu(tid, K / 4);
    Value groupBytes = p.shl(group, 4);
    Value base = segmentAddress(p, K, V, row, head, p.i32(0));
    const int64_t step = segmentBytes(K, V);
    Value mine = p.global(
        p.add(p.add(base, K * pitch),
              p.toI64(p.add(p.mul(p.add(column, part), pitch), groupBytes))));
    Value matrix = p.global(
        p.add(p.add(base, step),
              p.toI64(p.add(p.mul(part, eighth * pitch), groupBytes))));
    auto numbers = [&](Value vector) -> Values {
      return {p.element(vector, 0), p.element(vector, 1), p.element(vector, 2),
              p.element(vector, 3)};
    };
    auto loadMatrix = [&](Value at) {
      Values out;
      for (int64_t i = 0; i < eighth; ++i)
        out.append(numbers(p.load(four, p.at(at, i * pitch))));
      return out;
    };
    Value place = p.at(p.shared(), p.add(p.mul(part, pitch), groupBytes));
    p.store(p.load(four, mine), place);
    p.barrier(0, shape.threads);

    Value last = p.sub(segments, p.i32(2));
    p.loop(
        p.i32(1), p.add(last, 1), 1, loadMatrix(matrix),
        [&](Value s, ValueRange m) -> Values {
          Value offset = p.mul(p.toI64(s), p.i64(step));
          SmallVector<Type> types(m.size(), f32);
          Values next = p.ifElse(
              p.lt(s, last), types,
              [&] { return loadMatrix(p.at(matrix, offset)); },
              [&] { return Values(m); });
          Value to = p.at(mine, offset);
          Value end = p.load(four, to); // B.
          SmallVector<Values> sum(columns, Values(4, p.f32(0)));
          Value state = p.at(p.shared(), p.mul(part, eighth * 4));
          for (int64_t i = 0; i < eighth; i += wide)
            for (int64_t c = 0; c < columns; ++c) {
              Value few =
                  p.load(p.vec(f32, wide), p.at(state, c * pitch + i * 4));
              for (int64_t j = 0; j < wide; ++j)
                for (int64_t k = 0; k < 4; ++k)
                  sum[c][k] =
                      p.fma(m[4 * (i + j) + k], p.element(few, j), sum[c][k]);
            }
          Value mySums = p.at(p.shared(sums),
                              p.add(p.mul(part, columns * pitch), groupBytes));
          for (int64_t c = 0; c < columns; ++c)
            p.store(p.vector(sum[c]), p.at(mySums, c * pitch));
          p.barrier(0, shape.threads);
          Values total = numbers(end);
          Value allSums =
              p.at(p.shared(sums), p.add(p.mul(part, pitch), groupBytes));
          for (int64_t e = 0; e < 8; ++e)
            for (auto [t, v] : llvm::zip(
                     total,
                     numbers(p.load(four, p.at(allSums, e * columns * pitch)))))
              t = p.fadd(t, v);
          Value whole = p.vector(total);
          p.store(whole, to);
          p.store(whole, place);
          p.barrier(0, shape.threads);
          return next;
        });
  });
  return shape;
}
