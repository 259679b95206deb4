//===- StepGraph.cpp - What a step kernel computes, and when ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepGraph.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;

bool gpu::isRow(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector && vector.getNumElements() > 1;
}

unsigned StepGraph::add(Form form, Value value, StateType state,
                        const void *extra, ArrayRef<unsigned> operands,
                        bool exchange) {
  StepNode node{form, value,   state, SmallVector<unsigned>(operands),
                0,    exchange};
  for (unsigned operand : operands)
    node.round = std::max(node.round, nodes[operand].round);
  node.round += exchange;
  rounds = std::max(rounds, node.round);
  nodes.push_back(std::move(node));
  return index[{form, value.getAsOpaquePointer(), extra}] = nodes.size() - 1;
}

/// The error is told once; node 0 stands in for what there is none for.
unsigned StepGraph::refuse(Operation *op, StringRef why) {
  if (!failed)
    op->emitOpError(why);
  failed = true;
  return nodes.empty() ? add(Form::Uniform, layer.getBlock().getArgument(0), {},
                             nullptr, {}, false)
                       : 0;
}

static bool isElementwise(Operation *op) {
  return op->getNumResults() == 1 && op->getNumRegions() == 0 &&
         isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

//===----------------------------------------------------------------------===//
// Scalars and rows
//===----------------------------------------------------------------------===//

unsigned StepGraph::uniform(Value value) {
  auto known = index.find({Form::Uniform, value.getAsOpaquePointer(), nullptr});
  if (known != index.end())
    return known->second;
  auto make = [&](ArrayRef<unsigned> operands, bool exchange = false) {
    return add(Form::Uniform, value, {}, nullptr, operands, exchange);
  };
  Operation *op = value.getDefiningOp();
  if (!op)
    return make({});
  return TypeSwitch<Operation *, unsigned>(op)
      .Case([&](vector::ReductionOp op) {
        bool row = isRow(op.getVector().getType());
        SmallVector<unsigned> operands{
            row ? this->row(Form::Full, op.getVector())
                : uniform(op.getVector())};
        if (op.getAcc())
          operands.push_back(uniform(op.getAcc()));
        return make(operands, row);
      })
      .Case([&](vector::ExtractOp op) {
        if (op.getNumIndices() != 1 || op.hasDynamicPosition())
          return refuse(op, "of this shape has no step kernel for a GPU");
        Value source = op.getSource();
        return make(
            {isRow(source.getType()) ? shared(source) : uniform(source)});
      })
      .Case<vector::BroadcastOp, vector::FromElementsOp>(
          [&](Operation *op) { return make({uniform(op->getOperand(0))}); })
      .Case([&](ReadOp op) { return dotOf(op); })
      .Case([&](WholeOp op) { return make({shared(value)}); })
      .Default([&](Operation *op) {
        if (!isElementwise(op))
          return refuse(op, "has no step kernel for a GPU");
        SmallVector<unsigned> operands;
        for (Value operand : op->getOperands())
          operands.push_back(uniform(operand));
        return make(operands);
      });
}

unsigned StepGraph::row(Form form, Value value) {
  if (!isRow(value.getType()))
    return uniform(value);
  auto known = index.find({form, value.getAsOpaquePointer(), nullptr});
  if (known != index.end())
    return known->second;
  auto make = [&](ArrayRef<unsigned> operands) {
    return add(form, value, {}, nullptr, operands, false);
  };
  Operation *op = value.getDefiningOp();
  if (!op)
    return make({});
  return TypeSwitch<Operation *, unsigned>(op)
      .Case([&](ReadOp op) {
        if (form == Form::Slice)
          return dotOf(op);
        wholeRows = true;
        return make({shared(value)});
      })
      .Case([&](WholeOp) { return make({shared(value)}); })
      .Case([&](vector::BroadcastOp op) {
        return make({uniform(op.getSource())});
      })
      .Default([&](Operation *op) {
        if (!isElementwise(op))
          return refuse(op, "has no step kernel for a GPU");
        SmallVector<unsigned> operands;
        for (Value operand : op->getOperands())
          operands.push_back(row(form, operand));
        return make(operands);
      });
}

unsigned StepGraph::shared(Value value) {
  auto known = index.find({Form::Shared, value.getAsOpaquePointer(), nullptr});
  if (known != index.end())
    return known->second;
  unsigned source;
  if (auto read = value.getDefiningOp<ReadOp>()) {
    source = dotOf(read);
    wholeRows = true;
  } else if (auto whole = value.getDefiningOp<WholeOp>()) {
    source = state(whole.getState());
  } else {
    source = row(Form::Full, value);
  }
  return add(Form::Shared, value, {}, nullptr, source, /*exchange=*/true);
}

unsigned StepGraph::rows(Value value, StateType type) {
  auto known = index.find(
      {Form::Rows, value.getAsOpaquePointer(), type.getAsOpaquePointer()});
  if (known != index.end())
    return known->second;
  SmallVector<unsigned> operands;
  if (!isRow(value.getType()))
    operands.push_back(uniform(value));
  else if (auto broadcast = value.getDefiningOp<vector::BroadcastOp>())
    operands.push_back(uniform(broadcast.getSource()));
  else if (!value.getDefiningOp<arith::ConstantOp>())
    operands.push_back(shared(value));
  return add(Form::Rows, value, type, type.getAsOpaquePointer(), operands,
             false);
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

unsigned StepGraph::dot(unsigned state, Value key, StateType type) {
  const void *extra = reinterpret_cast<void *>(uintptr_t(state) * 2 + 1);
  auto known = index.find({Form::Dot, key.getAsOpaquePointer(), extra});
  if (known != index.end())
    return known->second;
  return add(Form::Dot, key, type, extra, {state, rows(key, type)},
             /*exchange=*/true);
}

unsigned StepGraph::dotOf(ReadOp op) {
  return dot(state(op.getState()), op.getKey(),
             cast<StateType>(op.getState().getType()));
}

unsigned StepGraph::state(Value value) {
  auto known = index.find({Form::State, value.getAsOpaquePointer(), nullptr});
  if (known != index.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  if (!op)
    return add(Form::State, value, cast<StateType>(value.getType()), nullptr,
               {}, false);
  if (auto step = dyn_cast<StepOp>(op))
    return this->step(step);
  if (auto map = dyn_cast<MapOp>(op))
    return this->map(map);
  return refuse(op, "is not in normal form");
}

/// Operands: the decayed state; for each erase its row, factor and product; for
/// each write its row and value.
unsigned StepGraph::step(StepOp op) {
  auto type = cast<StateType>(op.getState().getType());
  unsigned decayed = state(op.getState());
  if (Value decay = op.getDecay()) {
    unsigned factor =
        isa<VectorType>(decay.getType()) ? rows(decay, type) : uniform(decay);
    decayed = add(Form::Decayed, op.getResult(), type, nullptr,
                  {decayed, factor}, false);
  }
  SmallVector<unsigned> operands{decayed};
  for (unsigned i = 0; i < op.getAlong().size(); ++i) {
    unsigned of = op.getDecayed()[i] ? decayed : state(op.getOf()[i]);
    operands.append({rows(op.getAlong()[i], type), uniform(op.getBy()[i]),
                     dot(of, op.getAt()[i], type)});
  }
  for (auto [key, value] : llvm::zip(op.getKeys(), op.getValues()))
    operands.append({rows(key, type), row(Form::Slice, value)});
  return add(Form::State, op.getResult(), type, nullptr, operands, false);
}

/// Operands: the sources, the columns, then what the region uses from outside,
/// in the order of a walk.
unsigned StepGraph::map(MapOp op) {
  auto type = cast<StateType>(op.getState().getType());
  SmallVector<unsigned> operands;
  for (Value source : op.getSources()) {
    if (source.getType() != type)
      return refuse(op, "of states of several types has no step kernel for a "
                        "GPU");
    operands.push_back(state(source));
  }
  for (Value column : op.getColumns())
    operands.push_back(rows(column, type));
  for (Operation &inner : op.getBody().front().without_terminator())
    if (!isElementwise(&inner) && !isa<vector::BroadcastOp>(inner))
      return refuse(&inner, "of every row has no step kernel for a GPU");
  op.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (inner != op && operand.getParentBlock() == &layer.getBlock())
        operands.push_back(row(Form::Slice, operand));
  });
  return add(Form::State, op.getResult(), type, nullptr, operands, false);
}

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

FailureOr<StepGraph> StepGraph::read(LayerOp layer) {
  StepGraph graph(layer);
  for (Value output : layer.yieldedOutputs())
    graph.outputs.push_back(graph.row(Form::Slice, output));
  for (Value state : layer.yieldedStates())
    graph.states.push_back(graph.state(state));
  for (BlockArgument state : layer.argumentsOf(Role::State))
    graph.wholeRows |= cast<StateType>(state.getType()).getValueDim() == 1;
  if (graph.failed)
    return failure();
  return graph;
}
