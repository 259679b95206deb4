//===- Attend.cpp - Softmax over the rows of growing states -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attend.h"

#include "Matmul.h"

using namespace mlir;
using namespace plum::cpu;

namespace {

/// Rows of the lists in one block.
constexpr int64_t kBlock = 64;
/// Below every score, and yet finite: exp(kLowest - kLowest) is 1, not NaN.
constexpr double kLowest = -3.0e38;

class AttendEmitter {
public:
  AttendEmitter(KernelBuilder &b, const AttendJob &job)
      : b(b), job(job), rows(job.out.rows) {}

  void run();

private:
  void scoresByDots(Value first, Value count);
  void scoresByProducts(Value first, Value count);
  void softmax(Value first, Value row);
  void addByRows(Value first, Value count);
  void addByProducts(Value first, Value count);
  /// Rows of the lists that row i of the queries sees.
  Value seenBy(Value i) {
    return b.add(b.rowsBefore(b.add(job.row, i)), job.own);
  }

  KernelBuilder &b;
  const AttendJob &job;
  int64_t rows;
  Buffer scores;                 ///< [R, kBlock], then the weights.
  Buffer largest, total, factor; ///< [R]: m, l, exp(m - m').
};

void AttendEmitter::scoresByDots(Value first, Value count) {
  for (auto [p, pair] : llvm::enumerate(job.pairs))
    b.loop(b.i64(0), count, 1, [&, p = p, &pair = pair](Value j) {
      Value key = pair.keys.at(b, arith::AddIOp::create(b, first, j));
      Value dot = p ? b.loadF32(b.at(scores.base, j)) : b.f32(0);
      int64_t width = pair.keys.width;
      int64_t full = width / b.machine.lanes * b.machine.lanes;
      auto product = [&](Value c, int64_t lanes, Value onto) {
        return b.fma(b.loadVec(b.at(pair.queries.base, c), lanes),
                     b.loadVec(b.at(key, c), lanes), onto);
      };
      if (full) {
        Value sum = b.loop(
            b.i64(0), b.i64(full), b.machine.lanes,
            b.constant(0, b.machine.lanes), [&](Value c, ValueRange acc) {
              return KernelBuilder::Carry{product(c, b.machine.lanes, acc[0])};
            })[0];
        dot = arith::AddFOp::create(b, dot, b.sum(sum));
      }
      for (int64_t c = full; c < width;) {
        int64_t lanes = llvm::bit_floor(uint64_t(width - c));
        Value sum = b.sum(product(b.i64(c), lanes, b.constant(0, lanes)));
        dot = arith::AddFOp::create(b, dot, sum);
        c += lanes;
      }
      b.store(dot, b.at(scores.base, j));
    });
}

void AttendEmitter::scoresByProducts(Value first, Value count) {
  Value last = b.add(count, -1);
  for (auto [p, pair] : llvm::enumerate(job.pairs)) {
    int64_t width = pair.keys.width;
    Buffer keys = b.allocate(width, kBlock);
    // Behind the end the last row once more: nobody sees those scores.
    emitTranspose(
        b,
        [&](Value j) {
          return pair.keys.at(b, b.add(first, b.minimum(j, last)));
        },
        kBlock, width, keys.base, kBlock);
    Matmul product{pair.queries.base,
                   width,
                   1,
                   keys.base,
                   kBlock,
                   scores.base,
                   kBlock,
                   rows,
                   kBlock,
                   width,
                   {},
                   {},
                   0,
                   /*accumulate=*/p > 0,
                   {}};
    product.mEnd = job.count;
    emitMatmul(b, product);
    b.release(keys);
  }
}

/// Scores of one row to weights; m, l and the factor follow.
void AttendEmitter::softmax(Value first, Value row) {
  int64_t lanes = std::min(b.machine.lanes, kBlock);
  Value line = b.at(scores, row);
  // Of this block, the row sees the first `seen` columns.
  Value seen = arith::SubIOp::create(b, seenBy(row), first);
  auto wide = [&](Value number) {
    auto type = VectorType::get({lanes}, b.getI64Type());
    return vector::BroadcastOp::create(b, type, number).getResult();
  };
  SmallVector<int64_t> counted(lanes);
  for (int64_t i = 0; i < lanes; ++i)
    counted[i] = i;
  auto type = VectorType::get({lanes}, b.getI64Type());
  Value lane = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, ArrayRef(counted)));
  auto masked = [&](Value c, Value x, double hidden) {
    Value column = arith::AddIOp::create(b, wide(c), lane);
    Value visible =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, column, wide(seen));
    return arith::SelectOp::create(b, visible, x, b.constant(hidden, lanes))
        .getResult();
  };
  Value most = b.loop(b.i64(0), b.i64(kBlock), lanes,
                      b.constant(kLowest, lanes), [&](Value c, ValueRange acc) {
                        Value x = b.loadVec(b.at(line, c), lanes);
                        return KernelBuilder::Carry{
                            b.maximum(acc[0], masked(c, x, kLowest))};
                      })[0];
  Value before = b.loadF32(b.at(largest.base, row));
  Value now = vector::ReductionOp::create(b, vector::CombiningKind::MAXIMUMF,
                                          most, before);
  b.store(now, b.at(largest.base, row));
  Value shrink = math::ExpOp::create(b, arith::SubFOp::create(b, before, now));
  b.store(shrink, b.at(factor.base, row));
  Value sums = b.loop(
      b.i64(0), b.i64(kBlock), lanes, b.constant(0, lanes),
      [&](Value c, ValueRange acc) {
        Value place = b.at(line, c);
        Value x = masked(c, b.loadVec(place, lanes), kLowest);
        Value weight = math::ExpOp::create(
            b, arith::SubFOp::create(b, x, b.splat(now, lanes)));
        weight = masked(c, weight, 0);
        b.store(weight, place);
        return KernelBuilder::Carry{arith::AddFOp::create(b, acc[0], weight)};
      })[0];
  Value place = b.at(total.base, row);
  b.store(b.fma(b.loadF32(place), shrink, b.sum(sums)), place);
}

void AttendEmitter::addByRows(Value first, Value count) {
  Value shrink = b.loadF32(factor.base);
  b.columns(job.out.cols, [&](Value c, int64_t lanes) {
    Value place = b.at(job.out.base, c);
    Value start = b.times(b.loadVec(place, lanes), b.splat(shrink, lanes));
    Value sum = b.loop(b.i64(0), count, 1, start, [&](Value j, ValueRange acc) {
      Value value = job.values.at(b, arith::AddIOp::create(b, first, j));
      Value weight = b.splat(b.loadF32(b.at(scores.base, j)), lanes);
      return KernelBuilder::Carry{
          b.fma(weight, b.loadVec(b.at(value, c), lanes), acc[0])};
    })[0];
    b.store(sum, place);
  });
}

void AttendEmitter::addByProducts(Value first, Value count) {
  Matmul product{
      scores.base,         kBlock, 1,  {}, 0, job.out.base, job.out.cols, rows,
      job.out.cols,        kBlock, {}, {}, 0,
      /*accumulate=*/true, {}};
  product.mEnd = job.count;
  product.kEnd = [&](Value, int64_t) { return count; };
  product.bAt = [&](Value j) {
    return job.values.at(b, arith::AddIOp::create(b, first, j));
  };
  product.rowScale = [&](Value row) {
    return b.loadF32(b.at(factor.base, row));
  };
  emitMatmul(b, product);
}

void AttendEmitter::run() {
  scores = b.allocate(rows, kBlock);
  largest = b.allocate(rows, 1);
  total = b.allocate(rows, 1);
  factor = b.allocate(rows, 1);
  auto fill = [&](const Buffer &buffer, double value) {
    b.columns(buffer.rows * buffer.cols, [&](Value i, int64_t lanes) {
      b.store(b.constant(value, lanes), b.at(buffer.base, i));
    });
  };
  fill(largest, kLowest);
  fill(total, 0);
  fill(job.out, 0);
  Value end = seenBy(b.add(job.count, -1));
  b.loop(b.i64(0), end, kBlock, [&](Value first) {
    Value count =
        b.minimum(b.i64(kBlock), arith::SubIOp::create(b, end, first));
    rows == 1 ? scoresByDots(first, count) : scoresByProducts(first, count);
    b.loop(b.i64(0), job.count, 1, [&](Value row) { softmax(first, row); });
    rows == 1 ? addByRows(first, count) : addByProducts(first, count);
  });
  auto scale = [&](Value row, llvm::function_ref<Value(Value, int64_t)> by) {
    Value line = b.at(job.out, row);
    b.columns(job.out.cols, [&](Value c, int64_t lanes) {
      Value place = b.at(line, c);
      b.store(by(place, lanes), place);
    });
  };
  b.loop(b.i64(0), job.count, 1, [&](Value row) {
    Value sum = b.loadF32(b.at(total.base, row));
    // Without a row to see, 0; a NaN stays one.
    Value none =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, b.f32(0));
    Value by = arith::DivFOp::create(b, b.f32(1), sum);
    by = arith::SelectOp::create(b, none, b.f32(0), by);
    scale(row, [&](Value place, int64_t lanes) {
      return b.times(b.loadVec(place, lanes), b.splat(by, lanes));
    });
  });
  b.loop(job.count, b.i64(rows), 1, [&](Value row) {
    scale(row, [&](Value, int64_t lanes) { return b.constant(0, lanes); });
  });
  for (const Buffer &buffer : {scores, largest, total, factor})
    b.release(buffer);
}

} // namespace

Value GrowingRows::at(KernelBuilder &b, Value row) const {
  return b.atByte(rows.data, arith::MulIOp::create(b, row, rows.stride));
}

void plum::cpu::emitAttend(KernelBuilder &b, const AttendJob &job) {
  AttendEmitter(b, job).run();
}
