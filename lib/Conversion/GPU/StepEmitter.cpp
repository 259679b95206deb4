//===- StepEmitter.cpp - The thread code of a step --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepEmitter.h"

#include "Elementwise.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;

StepEmitter::StepEmitter(LayerOp layer, const StepGraph &graph,
                         const StepShape &shape, Ptx &b)
    : layer(layer), graph(graph), shape(shape), b(b), memory(b, shape),
      values(graph.nodes.size()) {
  placeShared();
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

int64_t StepEmitter::sharedSize(const StepNode &node) {
  switch (node.form) {
  case Form::Uniform:
    return shape.threads / 32 * 4;
  case Form::Dot: {
    StateSplit split = splitOf(node);
    return split.partials() * split.columns.width * 4;
  }
  default:
    return lengthOf(node.value) * 4;
  }
}

void StepEmitter::placeShared() {
  llvm::MapVector<Index, int64_t> sizes;
  for (auto [index, node] : llvm::enumerate(graph.nodes)) {
    if (node.exchange)
      sizes[index] = sharedSize(node);
    if (node.form != Form::Rows || node.operands.empty())
      continue;
    Index source = node.operands.front(); // read up to the last run's end
    StateSplit split = splitOf(node);
    if (graph.nodes[source].form == Form::Shared)
      sizes[source] = std::max(sizes[source], split.runs * split.rows * 4);
  }
  rowsPlace = sharedTop;
  sharedTop +=
      StepMemory::kRowBytes * (count(Role::Param) + count(Role::Input) +
                               count(Role::State) + graph.outputs.size());
  for (auto [index, size] : sizes) {
    places[index] = sharedTop;
    sharedTop += llvm::alignTo(size, 16);
  }
}

/// Zeros behind rows of K that do not fill the runs: what threads hold of a
/// state there stays zero and adds nothing.
void StepEmitter::clearPadding() {
  llvm::DenseSet<std::pair<Index, int64_t>> done;
  for (const StepNode &node : graph.nodes) {
    if (node.form != Form::Rows || node.operands.empty() ||
        graph.nodes[node.operands.front()].form != Form::Shared)
      continue;
    StateSplit split = splitOf(node);
    Index source = node.operands.front();
    int64_t padding = split.runs * split.rows - split.keys;
    if (!padding || !done.insert({source, padding}).second)
      continue;
    b.ifThen(b.lt(b.tid(), b.i32(padding)), [&] {
      b.store(b.f32(0),
              b.at(b.at(place(source), b.mul(b.tid(), 4)), split.keys * 4));
    });
  }
}

Value StepEmitter::received(Index node) {
  if (graph.nodes[node].round == 1 && round == graph.rounds)
    needsLastBarrier = true;
  return place(node);
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

ArrayRef<Value> StepEmitter::held(Index node) {
  // Rows of K are read where they are first used: registers are for states.
  if (values[node].empty() && graph.nodes[node].form == Form::Rows)
    values[node] = rowsOf(node);
  return values[node];
}

Value StepEmitter::element(Index node, int64_t i) {
  ArrayRef<Value> all = held(node);
  return all[all.size() == 1 ? 0 : i];
}

/// One element of `op`'s result; tells when there is no such op on a GPU.
Value StepEmitter::scalar(Operation *op, ArrayRef<Value> operands) {
  if (Value value = emitScalar(b, op, operands))
    return value;
  if (!failed)
    op->emitOpError("has no step kernel for a GPU");
  failed = true;
  return b.f32(0);
}

Values StepEmitter::argument(const StepNode &node, Value row) {
  Type stored = node.value.getType();
  if (node.form == Form::Uniform)
    return {memory.loadScalar(stored, row)};
  return node.form == Form::Full ? memory.loadFull(stored, row)
                                 : memory.loadSlice(stored, row);
}

Values StepEmitter::elementwise(const StepNode &node) {
  int64_t count = node.form == Form::Uniform ? 1
                  : node.form == Form::Full
                      ? memory.fullCount(lengthOf(node.value))
                      : shape.columns(lengthOf(node.value)).each;
  // Elements that all are the same are computed once.
  bool same = llvm::all_of(node.operands, [&](Index operand) {
    return graph.nodes[operand].form == Form::Uniform;
  });
  Values result;
  for (int64_t i = 0; i < (same ? 1 : count); ++i) {
    Values operands;
    for (Index operand : node.operands)
      operands.push_back(element(operand, i));
    result.push_back(scalar(node.value.getDefiningOp(), operands));
  }
  return result;
}

/// The thread's run of a row of K: from shared memory, four at a time if the
/// runs allow, or of a value that is the same everywhere.
Values StepEmitter::rowsOf(Index index) {
  const StepNode &node = graph.nodes[index];
  StateSplit split = splitOf(node);
  Values result;
  if (node.operands.empty() ||
      graph.nodes[node.operands.front()].form != Form::Shared) {
    Value same = node.operands.empty() ? scalar(node.value.getDefiningOp(), {})
                                       : held(node.operands.front()).front();
    for (int64_t i = 0; i < split.rows; ++i)
      result.push_back(memory.masked(same, memory.hasRow(split, i)));
    return result;
  }
  Value run =
      b.at(received(node.operands.front()), b.mul(memory.firstRow(split), 4));
  int64_t together = split.rows % 4 == 0 ? 4 : split.rows % 2 == 0 ? 2 : 1;
  for (int64_t i = 0; i < split.rows; i += together) {
    if (together == 1) {
      result.push_back(b.load(b.getF32Type(), b.at(run, i * 4)));
      continue;
    }
    Value some = b.load(b.vec(b.getF32Type(), together), b.at(run, i * 4));
    for (int64_t n = 0; n < together; ++n)
      result.push_back(b.element(some, n));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

Values StepEmitter::decayed(const StepNode &node) {
  StateSplit split = splitOf(node);
  operations += split.keys * split.columns.length;
  ArrayRef<Value> state = held(node.operands[0]);
  Values result;
  for (int64_t i = 0; i < split.rows; ++i)
    for (int64_t j = 0; j < split.columns.each; ++j)
      result.push_back(b.fmul(state[i * split.columns.each + j],
                              element(node.operands[1], i)));
  return result;
}

Values StepEmitter::step(const StepNode &node, StepOp op) {
  StateSplit split = splitOf(node);
  const int64_t C = split.columns.each;
  ArrayRef<Index> erases = ArrayRef(node.operands).drop_front();
  ArrayRef<Index> writes = erases.drop_front(3 * op.getAlong().size());
  // What is written, one row of V for each row of K: what is known early first.
  llvm::MapVector<Index, Values> rows;
  for (; !writes.empty(); writes = writes.drop_front(2)) {
    Values &row = rows[writes[0]];
    for (int64_t j = 0; j < C; ++j) {
      Value value = element(writes[1], j);
      if (static_cast<int64_t>(row.size()) <= j)
        row.push_back(value);
      else
        row[j] = b.fadd(row[j], value);
    }
  }
  for (size_t i = 0; i < op.getAlong().size();
       ++i, erases = erases.drop_front(3)) {
    Values &row = rows[erases[0]];
    Value by = element(erases[1], 0);
    for (int64_t j = 0; j < C; ++j) {
      Value product = element(erases[2], j);
      if (static_cast<int64_t>(row.size()) <= j)
        row.push_back(b.fmul(by, product));
      else
        row[j] = b.fma(by, product, row[j]);
    }
  }
  operations += 2 * split.keys * split.columns.length * int64_t(rows.size());
  Values result(held(node.operands[0]));
  for (auto &[key, row] : rows)
    for (int64_t i = 0; i < split.rows; ++i)
      for (int64_t j = 0; j < C; ++j)
        result[i * C + j] = b.fma(element(key, i), row[j], result[i * C + j]);
  return result;
}

Values StepEmitter::map(const StepNode &node, MapOp op) {
  StateSplit split = splitOf(node);
  const int64_t C = split.columns.each;
  Block &body = op.getBody().front();
  const size_t sources = op.getSources().size();
  Values result;
  for (int64_t i = 0; i < split.rows; ++i)
    for (int64_t j = 0; j < C; ++j) {
      DenseMap<Value, Value> local;
      for (BlockArgument arg : body.getArguments()) {
        unsigned n = arg.getArgNumber();
        local[arg] = n < sources ? held(node.operands[n])[i * C + j]
                                 : element(node.operands[n], i);
      }
      unsigned outside = body.getNumArguments();
      auto take = [&](Value operand) {
        return operand.getParentBlock() == &body
                   ? local.lookup(operand)
                   : element(node.operands[outside++], j);
      };
      for (Operation &inner : body.without_terminator()) {
        Values operands;
        for (Value operand : inner.getOperands())
          operands.push_back(take(operand));
        local[inner.getResult(0)] = scalar(&inner, operands);
      }
      Value value = take(body.getTerminator()->getOperand(0));
      result.push_back(memory.masked(value, memory.hasRow(split, i)));
    }
  return result;
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

void StepEmitter::emit(Index index) {
  const StepNode &node = graph.nodes[index];
  Operation *op = node.value.getDefiningOp();
  if (!values[index].empty() || node.form == Form::Rows ||
      node.form == Form::Shared)
    return; // an argument; read on demand; where it is read
  b.setLoc(node.value.getLoc());
  switch (node.form) {
  case Form::Dot:
    values[index] = receiveDot(index);
    return;
  case Form::Decayed:
    values[index] = decayed(node);
    return;
  case Form::State:
    values[index] = isa<StepOp>(op) ? step(node, cast<StepOp>(op))
                                    : map(node, cast<MapOp>(op));
    return;
  default:
    break;
  }
  if (auto sum = dyn_cast<vector::ReductionOp>(op); sum && node.exchange) {
    values[index] = receiveSum(index, sum);
    return;
  }
  if (node.operands.size() == 1 &&
      graph.nodes[node.operands[0]].form == Form::Shared) {
    values[index] = receiveShared(index);
    return;
  }
  // Scalars that are the same as another: rows of one element.
  if (isa<vector::ExtractOp, vector::FromElementsOp, vector::ReductionOp>(op)) {
    Value value = element(node.operands[0], 0);
    if (auto sum = dyn_cast<vector::ReductionOp>(op); sum && sum.getAcc())
      value = combine(sum.getKind(), value, element(node.operands[1], 0));
    values[index] = {value};
    return;
  }
  values[index] = elementwise(node);
}

void StepEmitter::findRows() {
  memory.findRows(count(Role::Param), count(Role::Input), count(Role::State),
                  graph.outputs.size(), rowsPlace);
  int64_t row = count(Role::Param);
  for (BlockArgument input : layer.argumentsOf(Role::Input))
    inputs[input] = row++;
}

void StepEmitter::readParams() {
  int64_t next = 0;
  for (BlockArgument param : layer.argumentsOf(Role::Param)) {
    Value row;
    for (auto [index, node] : llvm::enumerate(graph.nodes)) {
      if (node.value != param || node.exchange || node.form == Form::Rows)
        continue;
      if (!row)
        row = memory.rowOf(next, b.i32(0));
      values[index] = argument(node, row);
    }
    ++next;
  }
}

Values StepEmitter::loadStates() {
  int64_t tensor = count(Role::Param) + count(Role::Input);
  Values all;
  for (BlockArgument state : layer.argumentsOf(Role::State))
    all.append(memory.loadState(tensor++,
                                shape.state(cast<StateType>(state.getType()))));
  return all;
}

Values StepEmitter::token(Value index, ValueRange states) {
  // Values of a token do not outlive it; params and states do.
  SmallVector<Values> outer = values;
  for (auto [i, node] : llvm::enumerate(graph.nodes)) {
    auto arg = dyn_cast<BlockArgument>(node.value);
    if (!arg || node.exchange || node.form == Form::Rows)
      continue;
    b.setLoc(arg.getLoc());
    if (node.form == Form::State) {
      size_t first = 0;
      for (BlockArgument other : layer.argumentsOf(Role::State)) {
        size_t count = shape.state(cast<StateType>(other.getType())).elements();
        if (other == arg)
          values[i] = Values(states.slice(first, count));
        first += count;
      }
    } else if (auto row = inputs.find(arg); row != inputs.end()) {
      values[i] = argument(node, memory.rowOf(row->second, index));
    }
  }
  operations = 0;
  for (round = 0; round <= graph.rounds; ++round) {
    for (auto [i, node] : llvm::enumerate(graph.nodes))
      if (node.round == round)
        emit(i);
    for (auto [i, node] : llvm::enumerate(graph.nodes))
      if (node.exchange && node.round == round + 1)
        send(i);
    if (round < graph.rounds)
      b.barrier(int64_t(0), shape.threads);
  }
  round = graph.rounds;
  finishToken(index);
  keepStates(index);
  Values next;
  for (Index state : graph.states)
    next.append(held(state).begin(), held(state).end());
  values = outer;
  return next;
}

void StepEmitter::finishToken(Value index) {
  const int64_t first = count(Role::Param) + count(Role::Input);
  for (auto [i, output] : llvm::enumerate(layer.yieldedOutputs())) {
    Index node = graph.outputs[i];
    b.setLoc(output.getLoc());
    Value row = memory.rowOf(first + i, index);
    if (isRow(output.getType()))
      memory.storeSlice(held(node), output.getType(), row);
    else
      memory.storeScalar(element(node, 0), output.getType(), row);
  }
  if (needsLastBarrier)
    b.barrier(int64_t(0), shape.threads);
}

/// The states after the token, where the run wants them.
void StepEmitter::keepStates(Value index) {
  auto states = layer.argumentsOf(Role::State);
  const int64_t rows =
      count(Role::Param) + count(Role::Input) + graph.outputs.size();
  memory.ifSnapshot(index, [&](Value number) {
    for (auto [i, state] : llvm::enumerate(states)) {
      StateSplit split = shape.state(cast<StateType>(state.getType()));
      memory.storeSnapshot(held(graph.states[i]), rows + 2 * states.size() + i,
                           rows + i, split, number);
    }
  });
}

LogicalResult StepEmitter::run() {
  memory.place();
  b.ifThen(memory.isUsed(), [&] {
    // The states take longest, so they are asked for first.
    Values states = loadStates();
    clearPadding();
    findRows();
    readParams();
    states = b.loop(
        b.i32(0), memory.tokens(), 1, states,
        [&](Value index, ValueRange carried) { return token(index, carried); });
    int64_t tensor =
        count(Role::Param) + count(Role::Input) + count(Role::State);
    ArrayRef<Value> rest = states;
    for (BlockArgument state : layer.argumentsOf(Role::State)) {
      StateSplit split = shape.state(cast<StateType>(state.getType()));
      memory.storeState(rest.take_front(split.elements()), tensor++, split);
      rest = rest.drop_front(split.elements());
    }
  });
  return failure(failed);
}
