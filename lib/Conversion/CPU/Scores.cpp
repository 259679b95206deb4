//===- Scores.cpp - M_xy of a chunk -----------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scores.h"

#include "Matmul.h"

using namespace mlir;
using namespace plum::cpu;
using plum::chunk::AtAttr;
using plum::chunk::Moment;

namespace {

void emitZero(KernelBuilder &b, const Buffer &buffer) {
  b.columns(buffer.rows * buffer.cols, [&](Value i, int64_t lanes) {
    b.store(b.constant(0, lanes), b.at(buffer.base, i));
  });
}

class ScoresEmitter {
public:
  ScoresEmitter(KernelBuilder &b, ArrayRef<ScoresJob> jobs, const Buffer &y,
                const RowPlaces &yRows, const DecayTables *decay, int64_t chunk,
                int64_t steps)
      : b(b), jobs(jobs), y(y), yRows(yRows), decay(decay), chunk(chunk),
        steps(steps), py(yRows.size()), keyDim(y.cols) {}

  void run() {
    yt = b.allocate(keyDim, y.rows);
    if (decay && decay->channel)
      runPerChannel();
    else
      runPerStep();
    b.release(yt);
  }

private:
  void runPerStep();
  void emitMask(const ScoresJob &job, const Buffer &d);
  void runPerChannel();
  void emitOffDiagonal(const ScoresJob &job, const Buffer &scaled, Value block);
  void emitDiagonal(const ScoresJob &job, Value block);
  void emitAdvance(Value block, const Buffer &scaledY);

  KernelBuilder &b;
  ArrayRef<ScoresJob> jobs;
  const Buffer &y;
  const RowPlaces &yRows;
  const DecayTables *decay;
  int64_t chunk, steps, py, keyDim;
  Buffer yt; ///< [K, Y]: y transposed, scaled as the method needs.
};

//===----------------------------------------------------------------------===//
// One factor per step
//===----------------------------------------------------------------------===//

void ScoresEmitter::runPerStep() {
  emitTranspose(
      b, [&](Value r) { return b.at(y, r); }, y.rows, keyDim, yt.base, y.rows);
  int64_t lanes = b.machine.lanes;
  for (const ScoresJob &job : jobs) {
    int64_t px = job.xRows.size();
    Matmul product{job.x.base, keyDim,          1,      yt.base,
                   y.rows,     job.result.base, y.rows, job.x.rows,
                   y.rows,     keyDim,          {},     {},
                   0,          false,           {}};
    // Columns of later tokens are zero: leave them to the mask.
    if (y.rows % lanes == 0 && job.x.rows % 8 == 0 && y.rows > lanes) {
      b.loop(0, job.x.rows, 8, [&](Value m0) {
        Value token = arith::DivSIOp::create(b, b.add(m0, 7), b.i64(px));
        Value end = b.mul(b.add(token, 1), py);
        Value rounded = b.mul(
            arith::DivSIOp::create(b, b.add(end, lanes - 1), b.i64(lanes)),
            lanes);
        Matmul part = product;
        part.a = b.at(job.x.base, b.mul(m0, keyDim));
        part.c = b.at(job.result.base, b.mul(m0, y.rows));
        part.m = 8;
        part.nEnd = rounded;
        part.columnStep = lanes;
        emitMatmul(b, part);
      });
    } else {
      emitMatmul(b, product);
    }
  }

  // D[r, j] = product of the factors of the steps after j's and before r, 0
  // where j's step is r or later. Row 0 is empty.
  Buffer d = b.allocate(chunk * steps + 1, y.rows);
  emitZero(b, Buffer{d.base, 1, y.rows, -1});
  b.loop(0, chunk, 1, [&](Value token) {
    for (int64_t s = 0; s < steps; ++s) {
      Value step = b.add(b.mul(token, steps), s);
      Value w = decay ? b.loadF32(b.at(decay->factor.base, step)) : b.f32(1);
      Value from = b.at(d, step), to = b.at(d, b.add(step, 1));
      b.columns(y.rows, [&](Value j, int64_t lanes) {
        Value row = b.loadVec(b.at(from, j), lanes);
        b.store(b.times(row, b.splat(w, lanes)), b.at(to, j));
      });
      for (int64_t slot = 0; slot < py; ++slot)
        if (yRows[slot].getStep() == s)
          b.store(b.f32(1), b.at(to, b.add(b.mul(token, py), slot)));
    }
  });
  for (const ScoresJob &job : jobs)
    emitMask(job, d);
  b.release(d);
}

/// M[i, :] *= what lies between each column and row i.
void ScoresEmitter::emitMask(const ScoresJob &job, const Buffer &d) {
  int64_t px = job.xRows.size();
  b.loop(0, chunk, 1, [&](Value token) {
    for (int64_t slot = 0; slot < px; ++slot) {
      AtAttr at = job.xRows[slot];
      Value step = b.add(b.mul(token, steps), at.getStep());
      Value row = at.getMoment() == Moment::After ? b.add(step, 1) : step;
      Value w;
      if (at.getMoment() == Moment::Decayed && decay)
        w = b.loadF32(b.at(decay->factor.base, step));
      Value factors = b.at(d, row);
      Value scores = b.at(job.result, b.add(b.mul(token, px), slot));
      b.columns(y.rows, [&](Value j, int64_t lanes) {
        Value factor = b.loadVec(b.at(factors, j), lanes);
        if (w)
          factor = b.times(factor, b.splat(w, lanes));
        // Where the factor is zero the product was never formed.
        Value pointer = b.at(scores, j);
        Value zero = b.constant(0, lanes);
        Value empty =
            arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor, zero);
        Value scaled = b.times(b.loadVec(pointer, lanes), factor);
        b.store(arith::SelectOp::create(b, empty, zero, scaled), pointer);
      });
    }
  });
}

//===----------------------------------------------------------------------===//
// One factor per channel
//===----------------------------------------------------------------------===//

void ScoresEmitter::runPerChannel() {
  int64_t tokens = subBlock(chunk);
  for (const ScoresJob &job : jobs)
    emitZero(b, job.result);
  int64_t most = 0;
  for (const ScoresJob &job : jobs)
    most = std::max<int64_t>(most, job.xRows.size());
  Buffer scaledX = b.allocate(tokens * most, keyDim);
  Buffer scaledY = b.allocate(tokens * py, keyDim);
  b.loop(0, chunk / tokens, 1, [&](Value block) {
    for (const ScoresJob &job : jobs) {
      emitOffDiagonal(job, scaledX, block);
      emitDiagonal(job, block);
    }
    emitAdvance(block, scaledY);
  });
  b.release(scaledX);
  b.release(scaledY);
}

/// Row block `block` against all columns before it.
void ScoresEmitter::emitOffDiagonal(const ScoresJob &job, const Buffer &scaled,
                                    Value block) {
  int64_t tokens = subBlock(chunk), px = job.xRows.size();
  b.loop(0, tokens, 1, [&](Value t) {
    Value token = b.add(b.mul(block, tokens), t);
    for (int64_t slot = 0; slot < px; ++slot) {
      AtAttr at = job.xRows[slot];
      Value from = b.at(job.x, b.add(b.mul(token, px), slot));
      Value to = b.at(scaled, b.add(b.mul(t, px), slot));
      // exp(G(i) - G of the step before the block): in[s], or in[s - 1] before
      // the decay, which is 1 at the first step.
      Value row = b.add(b.mul(token, steps), at.getStep());
      bool before = at.getMoment() == Moment::Before;
      Value first;
      if (before) {
        if (at.getStep() == 0)
          first =
              arith::CmpIOp::create(b, arith::CmpIPredicate::eq, t, b.i64(0));
        Value zero = b.i64(0);
        Value last = arith::MaxSIOp::create(b, b.add(row, -1), zero);
        row = last;
      }
      b.columns(keyDim, [&](Value c, int64_t lanes) {
        Value factor = decay->at(b, decay->in, row, c, lanes);
        if (first)
          factor =
              arith::SelectOp::create(b, first, b.constant(1, lanes), factor);
        b.store(b.times(b.loadVec(b.at(from, c), lanes), factor), b.at(to, c));
      });
    }
  });
  int64_t rows = tokens * px, columns = tokens * py;
  Matmul product{scaled.base,
                 keyDim,
                 1,
                 yt.base,
                 y.rows,
                 b.at(job.result, b.mul(block, rows)),
                 y.rows,
                 rows,
                 0,
                 keyDim,
                 {},
                 b.mul(block, columns),
                 int64_t(columns & -columns),
                 false,
                 {}};
  emitMatmul(b, product);
}

/// The block of `block` with itself.
void ScoresEmitter::emitDiagonal(const ScoresJob &job, Value block) {
  int64_t tokens = subBlock(chunk), px = job.xRows.size();
  auto dot = [&](Value p, Value row, Value token, int64_t slot) {
    Value column = b.add(b.mul(token, py), slot);
    Value rowOfY = b.loadVec(b.at(y, column), keyDim);
    b.store(b.sum(b.times(p, rowOfY)), b.at(job.result, row, column));
  };
  auto factor = [&](Value token, int64_t step) {
    return b.loadVec(b.at(decay->factor, b.add(b.mul(token, steps), step)),
                     keyDim);
  };
  auto columnsOf = [&](Value p, Value row, Value token, int64_t step) {
    for (int64_t slot = 0; slot < py; ++slot)
      if (yRows[slot].getStep() == step)
        dot(p, row, token, slot);
  };
  b.loop(0, tokens, 1, [&](Value t) {
    Value token = b.add(b.mul(block, tokens), t);
    for (int64_t slot = 0; slot < px; ++slot) {
      AtAttr at = job.xRows[slot];
      Value row = b.add(b.mul(token, px), slot);
      Value p = b.loadVec(b.at(job.x, row), keyDim);
      int64_t s = at.getStep();
      // Own token, from the row's own step down.
      if (at.getMoment() == Moment::After)
        columnsOf(p, row, token, s);
      if (at.getMoment() != Moment::Before)
        p = b.times(p, factor(token, s));
      for (int64_t earlier = s - 1; earlier >= 0; --earlier) {
        columnsOf(p, row, token, earlier);
        p = b.times(p, factor(token, earlier));
      }
      // Earlier tokens of the block, backwards.
      b.loop(b.i64(0), t, 1, p, [&](Value i, ValueRange carried) {
        Value other = arith::SubIOp::create(b, b.add(token, -1), i);
        Value q = carried[0];
        for (int64_t step = steps - 1; step >= 0; --step) {
          columnsOf(q, row, other, step);
          q = b.times(q, factor(other, step));
        }
        return KernelBuilder::Carry{q};
      });
    }
  });
}

/// Makes the columns of `block` ready and moves all earlier ones on to the end
/// of it.
void ScoresEmitter::emitAdvance(Value block, const Buffer &scaledY) {
  int64_t tokens = subBlock(chunk), rows = tokens * py;
  Value last = b.add(b.mul(block, tokens * steps), tokens * steps - 1);
  Value done = b.mul(block, rows);
  int64_t lanes = std::min<int64_t>(rows & -rows, b.machine.lanes);
  b.loop(0, keyDim, 1, [&](Value k) {
    Value total = b.splat(b.loadF32(b.at(decay->in, last, k)), lanes);
    Value row = b.at(yt, k);
    b.loop(b.i64(0), done, lanes, [&](Value j) {
      Value pointer = b.at(row, j);
      b.store(b.times(total, b.loadVec(pointer, lanes)), pointer);
    });
  });
  b.loop(0, tokens, 1, [&](Value t) {
    Value token = b.add(b.mul(block, tokens), t);
    for (int64_t slot = 0; slot < py; ++slot) {
      Value from = b.at(y, b.add(b.mul(token, py), slot));
      Value to = b.at(scaledY, b.add(b.mul(t, py), slot));
      Value step = b.add(b.mul(token, steps), yRows[slot].getStep());
      b.columns(keyDim, [&](Value c, int64_t lanes) {
        Value factor = decay->at(b, decay->out, step, c, lanes);
        b.store(b.times(b.loadVec(b.at(from, c), lanes), factor), b.at(to, c));
      });
    }
  });
  emitTranspose(
      b, [&](Value r) { return b.at(scaledY, r); }, rows, keyDim,
      b.at(yt.base, done), y.rows);
}

/// to[i] = x[i] * table[index of row i].
void emitScaledRows(KernelBuilder &b, const Buffer &x, const RowPlaces &rows,
                    const DecayTables &decay, const Buffer &table,
                    int64_t chunk, int64_t steps, const Buffer &to,
                    llvm::function_ref<int64_t(AtAttr)> shift) {
  int64_t p = rows.size();
  b.loop(0, chunk, 1, [&](Value token) {
    for (int64_t slot = 0; slot < p; ++slot) {
      Value row = b.add(b.mul(token, p), slot);
      Value index = b.add(b.mul(token, steps), shift(rows[slot]));
      Value from = b.at(x, row), into = b.at(to, row);
      b.columns(x.cols, [&](Value c, int64_t lanes) {
        Value factor = decay.at(b, table, index, c, lanes);
        b.store(b.times(b.loadVec(b.at(from, c), lanes), factor),
                b.at(into, c));
      });
    }
  });
}

} // namespace

void plum::cpu::emitScores(KernelBuilder &b, ArrayRef<ScoresJob> jobs,
                           const Buffer &y, const RowPlaces &yRows,
                           const DecayTables *decay, int64_t chunk,
                           int64_t steps) {
  ScoresEmitter(b, jobs, y, yRows, decay, chunk, steps).run();
}

void plum::cpu::emitDecayedRows(KernelBuilder &b, const Buffer &x,
                                const RowPlaces &rows, const DecayTables &decay,
                                int64_t chunk, int64_t steps,
                                const Buffer &to) {
  emitScaledRows(
      b, x, rows, decay, decay.full, chunk, steps, to, [](AtAttr at) {
        return at.getStep() + (at.getMoment() == Moment::Before ? 0 : 1);
      });
}

void plum::cpu::emitRowsToEnd(KernelBuilder &b, const Buffer &x,
                              const RowPlaces &rows, const DecayTables &decay,
                              int64_t chunk, int64_t steps, const Buffer &to) {
  emitScaledRows(b, x, rows, decay, decay.suffix, chunk, steps, to,
                 [](AtAttr at) { return at.getStep(); });
}
