//===- TileCombine.cpp - The states that enter the segments -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For each sequence and head, plum_gpu_args.segment_states has one piece for
// each of the P segments:
//
//   M^T [K, K]   row k': what a state's row k' adds to every row, by the
//                segment; where nothing is erased, the diagonal alone, [K]
//   X^T [V, K]   first B of the segment, then S, the state at the segment's
//   end;
//                each vector state [K] is one row more
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
// shared memory. While one M is multiplied with, the next is on its way, if K
// is at most 128: more of it does not fit into the registers, and is loaded
// where it is used. With a diagonal there is no sum: a thread has 4 rows k of
// one column.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include "plum/ABI/GpuABI.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

/// Address (i64) of a segment's piece; `row` is the sequence's number.
Value Segment::address(Ptx &p, Value row, Value head, Value segment) const {
  Value heads = p.argument(ARG(heads), p.getI32Type());
  Value segments = p.argument(ARG(segments), p.getI32Type());
  Value pair = p.add(p.mul(p.toI64(row), p.toI64(heads)), p.toI64(head));
  Value piece = p.add(p.mul(pair, p.toI64(segments)), p.toI64(segment));
  return p.add(p.argument(ARG(segment_states), p.getI64Type()),
               p.mul(piece, p.i64(bytes())));
}

/// Where this thread's part of the pieces is.
namespace {
struct Place {
  Value column, pair;   ///< First of the CTA's columns; sequence and head.
  Value part;           ///< 0 to 7.
  Value groupBytes;     ///< Of its four numbers in a row of K.
  Value base, segments; ///< Address (i64) of the first piece; P.
};
} // namespace

/// Runs `body` where there is something to combine: with two segments S_0 = B_0
/// is all there is.
static void forWork(Ptx &p, const Segment &segment,
                    function_ref<void(const Place &)> body) {
  Type i32 = p.getI32Type();
  Value tid = p.tid(), id = p.ctaid(), heads = p.argument(ARG(heads), i32);
  Place at;
  at.column = p.mul(p.remu(id, combineSlices(segment)), kCombineColumns);
  at.pair = p.divu(id, combineSlices(segment));
  Value head = p.remu(at.pair, heads), row = p.divu(at.pair, heads);
  at.segments = p.argument(ARG(segments), i32);
  Value wanted =
      p.both(p.lt(p.i32(2), at.segments), p.ge(slotOf(p, row), p.i32(0)));
  p.ifThen(wanted, [&] {
    at.part = p.divu(tid, segment.K / 4);
    at.groupBytes = p.shl(p.remu(tid, segment.K / 4), 4);
    at.base = segment.address(p, row, head, p.i32(0));
    body(at);
  });
}

static KernelShape emitDiagonal(Ptx &p, const Segment &segment) {
  KernelShape shape;
  shape.threads = 2 * segment.K;
  Type four = p.vec(p.getF32Type(), 4);
  forWork(p, segment, [&](const Place &at) {
    Value row = p.add(at.column, at.part);
    p.ifThen(p.lt(row, p.i32(segment.rows())), [&] {
      Value decays = p.global(p.add(at.base, p.toI64(at.groupBytes)));
      Value mine =
          p.at(p.at(decays, segment.matrixBytes()), p.mul(row, segment.K * 4));
      auto numbers = [&](Value pointer) -> Values {
        Value v = p.load(four, pointer);
        return {p.element(v, 0), p.element(v, 1), p.element(v, 2),
                p.element(v, 3)};
      };
      p.loop(p.i32(1), p.sub(at.segments, p.i32(1)), 1, numbers(mine),
             [&](Value s, ValueRange state) -> Values {
               Value offset = p.mul(p.toI64(s), p.i64(segment.bytes()));
               Value to = p.at(mine, offset);
               Values d = numbers(p.at(decays, offset)), next = numbers(to);
               for (auto [n, f, v] : llvm::zip(next, d, state))
                 n = p.fma(f, v, n);
               p.store(p.vector(next), to);
               return next;
             });
    });
  });
  return shape;
}

KernelShape plum::gpu::emitCombine(Ptx &p, const Segment &segment) {
  if (segment.diagonal)
    return emitDiagonal(p, segment);
  const int64_t K = segment.K;
  const int64_t columns = kCombineColumns, eighth = K / 8;
  // Shared memory: S^T [8, K], then the eighths [8][8, K].
  const int64_t sums = columns * K * 4;
  const int64_t pitch = K * 4; // Of every matrix here.
  const int64_t wide = eighth % 4 == 0 ? 4 : 2;
  KernelShape shape;
  shape.threads = 2 * K;
  shape.sharedBytes = sums + 8 * columns * pitch;
  const bool ahead = K <= 128;
  shape.ctasPerSM = p.chip.hopper() && ahead ? 2 : 1;

  Type f32 = p.getF32Type(), four = p.vec(f32, 4);
  // Rows 4 group ... of M; as an eighth of the sum and, later, as a column.
  forWork(p, segment, [&](const Place &at) {
    auto [column, pair, part, groupBytes, base, segments] = at;
    const int64_t step = segment.bytes();
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
        p.i32(1), p.add(last, 1), 1, ahead ? loadMatrix(matrix) : Values(),
        [&](Value s, ValueRange m) -> Values {
          Value offset = p.mul(p.toI64(s), p.i64(step));
          SmallVector<Type> types(m.size(), f32);
          Values next;
          if (ahead)
            next = p.ifElse(
                p.lt(s, last), types,
                [&] { return loadMatrix(p.at(matrix, offset)); },
                [&] { return Values(m); });
          auto row = [&](int64_t i) -> Values {
            if (ahead)
              return Values(m.slice(4 * i, 4));
            Value current = p.at(p.at(matrix, offset), i * pitch - step);
            return numbers(p.load(four, current));
          };
          Value to = p.at(mine, offset);
          Value end = p.load(four, to); // B.
          SmallVector<Values> sum(columns, Values(4, p.f32(0)));
          Value state = p.at(p.shared(), p.mul(part, eighth * 4));
          for (int64_t i = 0; i < eighth; i += wide) {
            SmallVector<Values> rows;
            for (int64_t j = 0; j < wide; ++j)
              rows.push_back(row(i + j));
            for (int64_t c = 0; c < columns; ++c) {
              Value few =
                  p.load(p.vec(f32, wide), p.at(state, c * pitch + i * 4));
              for (int64_t j = 0; j < wide; ++j)
                for (int64_t k = 0; k < 4; ++k)
                  sum[c][k] = p.fma(rows[j][k], p.element(few, j), sum[c][k]);
            }
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
