//===- StepExchange.cpp - What threads tell each other ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums and rows through shared memory: send() in one round, receive in the
// next. Sums go over a warp's lanes by shuffles first, so that a warp leaves
// one partial sum; all threads then add the partial sums in the same order.
//
//===----------------------------------------------------------------------===//

#include "StepEmitter.h"

#include <limits>

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using vector::CombiningKind;

Value StepEmitter::combine(CombiningKind kind, Value x, Value y) {
  switch (kind) {
  case CombiningKind::MUL:
    return b.fmul(x, y);
  case CombiningKind::MINIMUMF:
    return b.fmin(x, y);
  case CombiningKind::MAXIMUMF:
    return b.fmax(x, y);
  default:
    return b.fadd(x, y);
  }
}

static double neutral(CombiningKind kind) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return kind == CombiningKind::MUL        ? 1
         : kind == CombiningKind::MINIMUMF ? infinity
         : kind == CombiningKind::MAXIMUMF ? -infinity
                                           : 0;
}

void StepEmitter::sendSum(Index index, vector::ReductionOp op) {
  int64_t length = lengthOf(op.getVector());
  CombiningKind kind = op.getKind();
  Value sum;
  for (int64_t i = 0; i < memory.fullCount(length); ++i) {
    Value next = element(graph.nodes[index].operands[0], i);
    if (Value has = memory.hasFull(length, i))
      next = b.select(has, next, b.f32(neutral(kind)));
    sum = sum ? combine(kind, sum, next) : next;
  }
  for (int64_t mask = 1; mask < 32; mask *= 2)
    sum = combine(kind, sum, b.shuffleXor(sum, mask));
  b.ifThen(b.eq(b.lane(), b.i32(0)),
           [&] { b.store(sum, b.at(place(index), b.mul(b.warp(), 4))); });
}

Values StepEmitter::receiveSum(Index index, vector::ReductionOp op) {
  Value from = received(index), sum;
  int64_t warps = shape.threads / 32;
  auto take = [&](Value next) {
    sum = sum ? combine(op.getKind(), sum, next) : next;
  };
  const int64_t together = std::min<int64_t>(warps, 4);
  for (int64_t i = 0; i < warps; i += together) {
    if (together == 1) {
      take(b.load(b.getF32Type(), b.at(from, i * 4)));
      continue;
    }
    Value some = b.load(b.vec(b.getF32Type(), together), b.at(from, i * 4));
    for (int64_t n = 0; n < together; ++n)
      take(b.element(some, n));
  }
  if (graph.nodes[index].operands.size() > 1)
    take(element(graph.nodes[index].operands[1], 0));
  return {sum};
}

void StepEmitter::sendShared(Index index) {
  const StepNode &node = graph.nodes[index];
  Index source = node.operands.front();
  int64_t length = lengthOf(node.value);
  auto put = [&](Value has, int64_t i, Value at) {
    auto store = [&] {
      b.store(element(source, i), b.at(place(index), b.mul(at, 4)));
    };
    if (has)
      b.ifThen(has, store);
    else
      store();
  };
  switch (graph.nodes[source].form) {
  case Form::State: { // of one column: a thread for each run
    StateSplit split = splitOf(graph.nodes[source]);
    for (int64_t i = 0; i < split.rows; ++i)
      put(memory.hasRow(split, i), i, b.add(memory.firstRow(split), i));
    return;
  }
  case Form::Dot: { // whole, as there are no slices
    ColumnSplit split = splitOf(graph.nodes[source]).columns;
    b.ifThen(memory.isFirstRun(split), [&] {
      for (int64_t j = 0; j < split.each; ++j)
        put(memory.hasColumn(split, j), j, memory.column(split, j));
    });
    return;
  }
  default:
    for (int64_t i = 0; i < memory.fullCount(length); ++i)
      put(memory.hasFull(length, i), i, memory.fullIndex(i));
  }
}

/// Of a row that another form holds: an element, or the thread's elements.
Values StepEmitter::receiveShared(Index index) {
  const StepNode &node = graph.nodes[index];
  Value from = received(node.operands.front());
  auto at = [&](Value i) {
    return b.load(b.getF32Type(), b.at(from, b.mul(i, 4)));
  };
  if (node.form == Form::Uniform) {
    auto extract = node.value.getDefiningOp<vector::ExtractOp>();
    return {at(b.i32(extract ? extract.getStaticPosition()[0] : 0))};
  }
  const int64_t length = lengthOf(node.value);
  auto within = [&](Value i, Value has) {
    return at(has ? b.minimum(i, b.i32(length - 1)) : i);
  };
  Values result;
  if (node.form == Form::Full) {
    for (int64_t i = 0; i < memory.fullCount(length); ++i)
      result.push_back(within(memory.fullIndex(i), memory.hasFull(length, i)));
    return result;
  }
  ColumnSplit split = shape.columns(length);
  for (int64_t j = 0; j < split.each; ++j)
    result.push_back(
        within(memory.column(split, j), memory.hasColumn(split, j)));
  return result;
}

/// Sums over the thread's run, then over the runs of its warp.
void StepEmitter::sendDot(Index index) {
  const StepNode &node = graph.nodes[index];
  StateSplit split = splitOf(node);
  const ColumnSplit &columns = split.columns;
  operations += 2 * split.keys * columns.length;
  Values sums(columns.each);
  for (int64_t i = 0; i < split.rows; ++i)
    for (int64_t j = 0; j < columns.each; ++j) {
      Value key = element(node.operands[1], i);
      Value state = held(node.operands[0])[i * columns.each + j];
      sums[j] = i ? b.fma(key, state, sums[j]) : b.fmul(key, state);
    }
  for (int64_t mask = columns.groups; mask < 32; mask *= 2)
    for (Value &sum : sums)
      sum = b.fadd(sum, b.shuffleXor(sum, mask));
  auto store = [&](Value partial) {
    Value to = b.at(place(index),
                    b.mul(b.add(b.mul(partial, columns.width),
                                b.mul(memory.group(columns), columns.each)),
                          4));
    if (columns.each == 1)
      return b.store(sums[0], to);
    for (int64_t j = 0; j < columns.each; j += 4)
      b.store(b.vector(ArrayRef(sums).slice(j, 4)), b.at(to, j * 4));
  };
  if (columns.groups >= 32)
    return store(memory.run(columns));
  b.ifThen(b.lt(b.lane(), b.i32(columns.groups)), [&] { store(b.warp()); });
}

Values StepEmitter::receiveDot(Index index) {
  StateSplit split = splitOf(graph.nodes[index]);
  const ColumnSplit &columns = split.columns;
  Value from =
      b.at(received(index), b.mul(memory.group(columns), columns.each * 4));
  Values sums(columns.each);
  auto take = [&](int64_t j, Value next) {
    sums[j] = sums[j] ? b.fadd(sums[j], next) : next;
  };
  for (int64_t p = 0; p < split.partials(); ++p) {
    Value partial = b.at(from, p * columns.width * 4);
    if (columns.each == 1) {
      take(0, b.load(b.getF32Type(), partial));
      continue;
    }
    for (int64_t j = 0; j < columns.each; j += 4) {
      Value four = b.load(b.vec(b.getF32Type(), 4), b.at(partial, j * 4));
      for (int64_t n = 0; n < 4; ++n)
        take(j + n, b.element(four, n));
    }
  }
  return sums;
}

void StepEmitter::send(Index index) {
  const StepNode &node = graph.nodes[index];
  b.setLoc(node.value.getLoc());
  if (node.form == Form::Shared)
    return sendShared(index);
  if (node.form == Form::Dot)
    return sendDot(index);
  sendSum(index, node.value.getDefiningOp<vector::ReductionOp>());
}
