//===- AssocOps.cpp - Updates of a memory in float64 ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The formulas of AssocOps.td, letter by letter.
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace plum;
using namespace plum::assoc;
using namespace plum::interpreter;

/// diag(w) S; one w for all channels when `decay` is a scalar.
static Array decayed(Array S, Domain domain, const Array &decay) {
  for (int64_t c = 0; c < S.rows(); ++c) {
    double a = decay.data[decay.shape.empty() ? 0 : size_t(c)];
    double w = domain == Domain::Log ? std::exp(a) : a;
    for (int64_t j = 0; j < S.cols(); ++j)
      S.row(c)[j] *= w;
  }
  return S;
}

/// q S.
static Array readAt(const Array &S, const Array &q) {
  Array o = Array::filled({S.cols()}, 0);
  for (int64_t c = 0; c < S.rows(); ++c)
    for (int64_t j = 0; j < S.cols(); ++j)
      o.data[size_t(j)] += q.data[size_t(c)] * S.row(c)[j];
  return o;
}

/// S += scale k^T v.
static void write(Array &S, const Array &k, const Array &v, double scale = 1) {
  for (int64_t c = 0; c < S.rows(); ++c)
    for (int64_t j = 0; j < S.cols(); ++j)
      S.row(c)[j] += scale * k.data[size_t(c)] * v.data[size_t(j)];
}

Array interpreter::attend(ArrayRef<Array> queries, ArrayRef<const Array *> keys,
                          const Array &values, int64_t rows) {
  Array o = Array::filled({values.cols()}, 0);
  if (rows == 0)
    return o;
  std::vector<double> scores(size_t(rows), 0);
  for (auto [q, list] : llvm::zip_equal(queries, keys))
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t c = 0; c < list->cols(); ++c)
        scores[size_t(j)] += q.data[size_t(c)] * list->row(j)[c];
  double largest = *std::max_element(scores.begin(), scores.end()), sum = 0;
  for (double &score : scores)
    sum += score = std::exp(score - largest);
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t c = 0; c < values.cols(); ++c)
      o.data[size_t(c)] += scores[size_t(j)] / sum * values.row(j)[c];
  return o;
}

LogicalResult Evaluator::runMap(assoc::MapOp op) {
  Array next = get(op.getState());
  for (int64_t c = 0; c < next.rows(); ++c) {
    Arrays arguments;
    for (Value source : op.getSources())
      arguments.push_back(get(source).copyOfRow(c));
    for (Value column : op.getColumns())
      arguments.push_back(get(column).copyOfRow(c));
    FailureOr<Arrays> row =
        runBlock(op.getBody().front(), std::move(arguments));
    if (failed(row))
      return failure();
    std::copy(row->front().data.begin(), row->front().data.end(), next.row(c));
  }
  return set(op.getResult(), std::move(next));
}

LogicalResult Evaluator::runAssoc(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case<GateOp, DecayOp>([&](auto op) {
        return set(op.getResult(), decayed(get(op.getState()), op.getDomain(),
                                           get(op.getDecay())));
      })
      .Case([&](AddOp op) {
        Array S = get(op.getState());
        write(S, get(op.getKey()), get(op.getValue()));
        return set(op.getResult(), std::move(S));
      })
      .Case([&](DeltaOp op) {
        Array S = get(op.getState()), error = get(op.getValue());
        Array held = readAt(S, get(op.getKey()));
        for (auto [v, y] : llvm::zip_equal(error.data, held.data))
          v -= y;
        write(S, get(op.getKey()), error, number(op.getBeta()));
        return set(op.getResult(), std::move(S));
      })
      .Case([&](EraseOp op) {
        Array S = get(op.getState());
        write(S, get(op.getAlong()), readAt(get(op.getOf()), get(op.getAt())),
              number(op.getBy()));
        return set(op.getResult(), std::move(S));
      })
      .Case([&](assoc::ReadOp op) {
        return set(op.getResult(),
                   readAt(get(op.getState()), get(op.getKey())));
      })
      .Case([&](WholeOp op) {
        Array h = get(op.getState());
        h.shape.pop_back();
        return set(op.getResult(), std::move(h));
      })
      .Case([&](AppendOp op) {
        Array list = get(op.getList());
        const Array &row = get(op.getRow());
        list.data.insert(list.data.end(), row.data.begin(), row.data.end());
        ++list.shape[0];
        return set(op.getResult(), std::move(list));
      })
      .Case([&](AttendOp op) {
        Arrays queries;
        SmallVector<const Array *> keys;
        for (Value query : op.getQueries())
          queries.push_back(get(query));
        for (Value list : op.getKeys())
          keys.push_back(&get(list));
        const Array &values = get(op.getValues());
        return set(op.getResult(),
                   attend(queries, keys, values, values.rows()));
      })
      .Case([&](assoc::MapOp op) { return runMap(op); })
      .Case([&](StepOp op) {
        Array start = get(op.getState());
        if (op.getDecay())
          start =
              decayed(std::move(start), *op.getDomain(), get(op.getDecay()));
        Array S = start;
        for (unsigned i = 0; i < op.getAlong().size(); ++i) {
          const Array &P = op.getDecayed()[i] ? start : get(op.getOf()[i]);
          write(S, get(op.getAlong()[i]), readAt(P, get(op.getAt()[i])),
                number(op.getBy()[i]));
        }
        for (auto [k, u] : llvm::zip_equal(op.getKeys(), op.getValues()))
          write(S, get(k), get(u));
        return set(op.getResult(), std::move(S));
      })
      .Default([&](Operation *op) { return fail(op, "is not interpreted"); });
}
