//===- ChunkOps.cpp - The chunkwise form in float64 -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The formulas of ChunkOps.td, letter by letter. G is kept as the factors w of
// the steps; G(row) is a number of steps, "how many decays this row has seen",
// and exp(G(i) - G(j)) the product of the factors from G(j) up to G(i):
//
//   moment    before   decayed   after
//   G(row)    s        s + 1     s + 1       s the row's step in the chunk
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace plum;
using namespace plum::chunk;
using namespace plum::interpreter;

namespace {

/// Where the rows of a matrix stand.
struct Places {
  SmallVector<AtAttr> rows;
  int64_t steps; ///< Of a token.

  Places(Attribute rows, int64_t steps) : steps(steps) {
    for (AtAttr at : cast<ArrayAttr>(rows).getAsRange<AtAttr>())
      this->rows.push_back(at);
  }
  AtAttr at(int64_t row) const { return rows[size_t(row) % rows.size()]; }
  int64_t step(int64_t row) const {
    return row / int64_t(rows.size()) * steps + at(row).getStep();
  }
  /// How many steps' decays the row has seen.
  int64_t seen(int64_t row) const {
    return step(row) + (at(row).getMoment() == Moment::Before ? 0 : 1);
  }
};

/// The factors of the steps, [R, K] or [R]; none is all ones.
struct Decay {
  const Array *factors;

  /// row[c] *= w_step[c].
  void apply(int64_t step, MutableArrayRef<double> row) const {
    if (!factors)
      return;
    bool perChannel = factors->shape.size() == 2;
    for (auto [c, x] : llvm::enumerate(row))
      x *= factors->row(step)[perChannel ? c : 0];
  }
};

/// x[i] exp(G(i)): the decay from the start of the chunk.
std::vector<double> sinceStart(const Array &x, int64_t i, const Places &places,
                               const Decay &decay) {
  std::vector<double> row(x.row(i), x.row(i) + x.cols());
  for (int64_t step = 0; step < places.seen(i); ++step)
    decay.apply(step, row);
  return row;
}

/// k[j] exp(G_C - G(j)): the decay up to the end of the chunk.
std::vector<double> untilEnd(const Array &k, int64_t j, const Places &places,
                             const Decay &decay) {
  std::vector<double> row(k.row(j), k.row(j) + k.cols());
  for (int64_t step = places.seen(j);
       decay.factors && step < decay.factors->rows(); ++step)
    decay.apply(step, row);
  return row;
}

/// onto[j] += sum_c x[c] S[c, j].
void addRowTimes(double *onto, ArrayRef<double> x, const Array &S) {
  for (int64_t c = 0; c < S.rows(); ++c)
    for (int64_t j = 0; j < S.cols(); ++j)
      onto[j] += x[size_t(c)] * S.row(c)[j];
}

Array scores(const Array &x, const Places &xs, const Array &y, const Places &ys,
             const Decay &decay) {
  Array M = Array::filled({x.rows(), y.rows()}, 0);
  for (int64_t i = 0; i < x.rows(); ++i) {
    // Walking down from row i, `row` is x_i times the decay since then.
    std::vector<double> row(x.row(i), x.row(i) + x.cols());
    int64_t at = xs.seen(i);
    bool seesOwn = xs.at(i).getMoment() == Moment::After;
    for (int64_t j = y.rows() - 1; j >= 0; --j) {
      bool written =
          ys.step(j) < xs.step(i) || (seesOwn && ys.step(j) == xs.step(i));
      if (!written)
        continue;
      if (ys.seen(j) > at) { // Rows of one token may stand in any order.
        row.assign(x.row(i), x.row(i) + x.cols());
        at = xs.seen(i);
      }
      while (at > ys.seen(j))
        decay.apply(--at, row);
      for (int64_t c = 0; c < y.cols(); ++c)
        M.row(i)[j] += row[size_t(c)] * y.row(j)[c];
    }
  }
  return M;
}

/// Forward substitution on the identity.
Array inverse(const Array &M, const Array *scale) {
  Array T = Array::filled(M.shape, 0);
  for (int64_t i = 0; i < M.rows(); ++i) {
    double c = scale ? scale->data[size_t(i)] : 1;
    T.row(i)[i] = 1;
    for (int64_t j = 0; j < i; ++j)
      for (int64_t n = 0; n <= j; ++n)
        T.row(i)[n] += c * M.row(i)[j] * T.row(j)[n];
  }
  return T;
}

} // namespace

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

Arrays Evaluator::rowsOf(ValueRange ins, int64_t token, int64_t index) {
  Arrays rows;
  for (Value in : ins) {
    bool isSequence = cast<RankedTensorType>(in.getType()).isDynamicDim(0);
    rows.push_back(get(in).copyOfRow(isSequence ? token + index : index));
  }
  return rows;
}

LogicalResult Evaluator::runTokens(chunk::MapOp op) {
  int64_t token = int64_t(number(op.getToken())),
          tokens = int64_t(number(op.getTokens()));
  Arrays results;
  for (auto [result, fill] : llvm::zip_equal(op.getResults(), op.getFill()))
    results.push_back(Array::filled(shapeOf(result.getType(), tokens), fill));
  for (int64_t i = 0; i < int64_t(op.getChunk()) && token + i < tokens; ++i) {
    FailureOr<Arrays> rows =
        runBlock(op.getBody().front(), rowsOf(op.getIns(), token, i));
    if (failed(rows))
      return failure();
    auto next = rows->begin();
    for (auto [result, perToken] : llvm::zip_equal(results, op.getPerToken()))
      for (int64_t p = 0; p < perToken; ++p, ++next)
        std::copy(next->data.begin(), next->data.end(),
                  result.row(i * perToken + p));
  }
  for (auto [result, value] : llvm::zip_equal(op.getResults(), results))
    if (failed(set(result, std::move(value))))
      return failure();
  return success();
}

LogicalResult Evaluator::runOutput(chunk::OutputOp op) {
  int64_t token = int64_t(number(op.getToken())),
          tokens = int64_t(number(op.getTokens()));
  Arrays results;
  for (Value out : op.getOuts())
    results.push_back(get(out));
  for (int64_t i = 0; i < int64_t(op.getChunk()) && token + i < tokens; ++i) {
    FailureOr<Arrays> rows =
        runBlock(op.getBody().front(), rowsOf(op.getIns(), token, i));
    if (failed(rows))
      return failure();
    for (auto [result, row] : llvm::zip_equal(results, *rows))
      std::copy(row.data.begin(), row.data.end(), result.row(token + i));
  }
  for (auto [result, value] : llvm::zip_equal(op.getResults(), results))
    if (failed(set(result, std::move(value))))
      return failure();
  return success();
}

LogicalResult Evaluator::runStage(chunk::StageOp op) {
  FailureOr<Arrays> yielded = runBlock(op.getBody().front(), {});
  if (failed(yielded))
    return failure();
  for (auto [result, value] : llvm::zip_equal(op.getResults(), *yielded))
    if (failed(set(result, std::move(value))))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

LogicalResult Evaluator::runChunk(Operation *op) {
  auto decayOf = [&](Value decay) {
    return Decay{decay ? &get(decay) : nullptr};
  };
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](chunk::MapOp op) { return runTokens(op); })
      .Case([&](OutputOp op) { return runOutput(op); })
      .Case([&](StageOp op) { return runStage(op); })
      .Case([&](CumsumOp op) {
        Array factors = get(op.getDecay());
        if (op.getDomain() == assoc::Domain::Log)
          for (double &a : factors.data)
            a = std::exp(a);
        factors.isDecay = true;
        return set(op.getResult(), std::move(factors));
      })
      .Case([&](ScoresOp op) {
        Places xs(op.getXRows(), op.getSteps()),
            ys(op.getYRows(), op.getSteps());
        return set(op.getResult(), scores(get(op.getX()), xs, get(op.getY()),
                                          ys, decayOf(op.getDecay())));
      })
      .Case([&](InverseOp op) {
        const Array *scale = op.getScale() ? &get(op.getScale()) : nullptr;
        return set(op.getResult(), inverse(get(op.getScores()), scale));
      })
      .Case([&](chunk::ReadOp op) {
        const Array &x = get(op.getX()), &S = get(op.getState());
        Places places(op.getRows(), op.getSteps());
        Array R = Array::filled({x.rows(), S.cols()}, 0);
        for (int64_t i = 0; i < x.rows(); ++i)
          addRowTimes(R.row(i),
                      sinceStart(x, i, places, decayOf(op.getDecay())), S);
        return set(op.getResult(), std::move(R));
      })
      .Case([&](ScaleOp op) {
        Array Y = get(op.getRows());
        for (int64_t i = 0; i < Y.rows(); ++i)
          for (int64_t j = 0; j < Y.cols(); ++j)
            Y.row(i)[j] *= get(op.getBy()).data[size_t(i)];
        return set(op.getResult(), std::move(Y));
      })
      .Case([&](MatmulOp op) {
        const Array &M = get(op.getMatrix()), &U = get(op.getRows());
        Array P = op.getOnto() ? get(op.getOnto())
                               : Array::filled({M.rows(), U.cols()}, 0);
        for (int64_t i = 0; i < M.rows(); ++i)
          for (int64_t j = 0; j < M.cols(); ++j)
            if (M.row(i)[j] !=
                0) // A zero of the triangle is not read: 0 * NaN.
              for (int64_t v = 0; v < U.cols(); ++v)
                P.row(i)[v] += M.row(i)[j] * U.row(j)[v];
        return set(op.getResult(), std::move(P));
      })
      .Case([&](CarryOp op) {
        Array S = get(op.getState());
        Decay decay = decayOf(op.getDecay());
        for (int64_t step = 0; decay.factors && step < decay.factors->rows();
             ++step)
          for (int64_t c = 0; c < S.rows(); ++c) {
            bool perChannel = decay.factors->shape.size() == 2;
            double w = decay.factors->row(step)[perChannel ? c : 0];
            for (int64_t v = 0; v < S.cols(); ++v)
              S.row(c)[v] *= w;
          }
        for (auto [keys, rows, values] :
             llvm::zip_equal(op.getKeys(), op.getKeyRows(), op.getValues())) {
          const Array &K = get(keys), &U = get(values);
          Places places(rows, op.getSteps());
          for (int64_t j = 0; j < K.rows(); ++j) {
            std::vector<double> k = untilEnd(K, j, places, decay);
            for (int64_t c = 0; c < S.rows(); ++c)
              for (int64_t v = 0; v < S.cols(); ++v)
                S.row(c)[v] += k[size_t(c)] * U.row(j)[v];
          }
        }
        return set(op.getResult(), std::move(S));
      })
      .Case([&](AppendOp op) {
        Array list = get(op.getList());
        const Array &rows = get(op.getRows());
        int64_t count =
            std::min<int64_t>(rows.rows(), int64_t(number(op.getTokens()) -
                                                   number(op.getToken())));
        list.data.insert(list.data.end(), rows.row(0), rows.row(count));
        list.shape[0] += count;
        return set(op.getResult(), std::move(list));
      })
      .Case([&](AttendOp op) {
        const Array &values = get(op.getValues());
        Array O = Array::filled(shapeOf(op.getType(), 0), 0);
        int64_t count = std::min<int64_t>(
            O.rows(), int64_t(number(op.getTokens()) - number(op.getToken())));
        SmallVector<const Array *> keys;
        for (Value list : op.getKeys())
          keys.push_back(&get(list));
        for (int64_t i = 0; i < count; ++i) {
          Arrays queries;
          for (Value query : op.getQueries())
            queries.push_back(get(query).copyOfRow(i));
          int64_t seen = values.rows() - count + i + (op.getOwn() ? 1 : 0);
          Array row = attend(queries, keys, values, seen);
          std::copy(row.data.begin(), row.data.end(), O.row(i));
        }
        return set(op.getResult(), std::move(O));
      })
      .Default([&](Operation *op) { return fail(op, "is not interpreted"); });
}
