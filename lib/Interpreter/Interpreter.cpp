//===- Interpreter.cpp - Run the IR of a phase in float64 -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Heads in and out, blocks and loops. What single ops mean is in
// Elementwise.cpp, AssocOps.cpp and ChunkOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "plum/Interpreter/Interpreter.h"

#include "Evaluator.h"
#include "plum/Transforms/Passes.h"

#include <limits>

using namespace mlir;
using namespace plum;
using namespace plum::interpreter;

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

Array Array::filled(ArrayRef<int64_t> shape, double value) {
  Array array;
  array.shape.assign(shape.begin(), shape.end());
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  array.data.assign(size_t(count), value);
  return array;
}

Array Array::copyOfRow(int64_t i) const {
  Array copy;
  copy.shape.assign(shape.begin() + 1, shape.end());
  copy.data.assign(row(i), row(i) + cols());
  return copy;
}

SmallVector<int64_t, 2> interpreter::shapeOf(Type type, int64_t tokens) {
  if (auto state = dyn_cast<assoc::StateType>(type))
    return {state.getKeyDim(), state.getValueDim()};
  SmallVector<int64_t, 2> shape;
  if (auto shaped = dyn_cast<ShapedType>(type))
    for (int64_t extent : shaped.getShape())
      shape.push_back(ShapedType::isDynamic(extent) ? tokens : extent);
  return shape;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Evaluator::Evaluator(reference::Head &head, ArrayRef<double> exact)
    : head(head) {
  for (double value : exact)
    constants[float(std::fabs(value))] = std::fabs(value);
}

/// The constant that an f32 one is the rounding of; signs are kept, as passes
/// fold those (exactly).
double Evaluator::exact(double constant) const {
  auto found = constants.find(float(std::fabs(constant)));
  return found == constants.end() ? constant
                                  : std::copysign(found->second, constant);
}

LogicalResult Evaluator::fail(Operation *op, const Twine &message) {
  if (!error)
    error = Error{
        "", ("'" + op->getName().getStringRef() + "' " + message).str(), {}};
  return failure();
}

LogicalResult Evaluator::set(Value value, Array array) {
  // The one check of every op's shape rule.
  auto list = dyn_cast<assoc::ListType>(value.getType());
  if (list ? array.cols() != list.getWidth()
           : array.shape != shapeOf(value.getType(), head.tokens))
    return fail(value.getDefiningOp() ? value.getDefiningOp()
                                      : value.getParentBlock()->getParentOp(),
                "has a value of another shape than its type");
  values[value.getAsOpaquePointer()] = std::move(array);
  return success();
}

Status Evaluator::status(LogicalResult result) const {
  return succeeded(result) ? Status::ok() : Status(*error);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

FailureOr<Arrays> Evaluator::runBlock(Block &block, Arrays arguments) {
  for (auto [argument, value] :
       llvm::zip_equal(block.getArguments(), arguments))
    if (failed(set(argument, std::move(value))))
      return failure();
  for (Operation &op : block.without_terminator())
    if (failed(run(&op)))
      return failure();
  Arrays yielded;
  for (Value value : block.getTerminator()->getOperands())
    yielded.push_back(get(value));
  return yielded;
}

LogicalResult Evaluator::run(Operation *op) {
  if (isa<assoc::AssocDialect>(op->getDialect()))
    return runAssoc(op);
  if (isa<chunk::ChunkDialect>(op->getDialect()))
    return runChunk(op);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return runFor(loop);
  return runElementwise(op);
}

LogicalResult Evaluator::runFor(scf::ForOp op) {
  Arrays carried;
  for (Value init : op.getInitArgs())
    carried.push_back(get(init));
  double upper = number(op.getUpperBound()), step = number(op.getStep());
  for (double i = number(op.getLowerBound()); i < upper; i += step) {
    carried.insert(carried.begin(), Array::scalar(i));
    FailureOr<Arrays> yielded = runBlock(*op.getBody(), std::move(carried));
    if (failed(yielded))
      return failure();
    carried = std::move(*yielded);
  }
  for (auto [result, value] : llvm::zip_equal(op.getResults(), carried))
    if (failed(set(result, std::move(value))))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Heads
//===----------------------------------------------------------------------===//

/// Argument `index` of its role; a row of the head's input when `token` >= 0.
FailureOr<Array> Evaluator::argument(Operation *op, Type type, StringRef role,
                                     unsigned index, int64_t token) {
  if (role == "tokens")
    return Array::scalar(double(head.tokens));
  if (auto list = dyn_cast<assoc::ListType>(type)) {
    // The rows before this token; those behind them are yet to come.
    int64_t rows = head.past + std::max<int64_t>(token, 0);
    Array value = Array::filled({rows, list.getWidth()}, 0);
    if (index >= head.states.size() ||
        head.states[index].size() < value.data.size())
      return fail(op, "expects " + Twine(value.data.size()) +
                          " values of list " + Twine(index));
    std::copy_n(head.states[index].begin(), value.data.size(),
                value.data.begin());
    return value;
  }
  Array value = Array::filled(shapeOf(type, head.tokens),
                              std::numeric_limits<double>::quiet_NaN());
  if (role == "output")
    return value;
  std::span<const double> from;
  if (role == "param" && index < head.params.size())
    from = head.params[index];
  else if (role == "input" && index < head.inputs.size())
    from = head.inputs[index];
  else if (role == "state" && index < head.states.size())
    from = head.states[index];
  else
    return fail(op, "has more arguments than the head: " + role + " " +
                        Twine(index));
  size_t count = value.data.size(), rows = token < 0 ? 1 : size_t(head.tokens);
  if (role != "input")
    token = 0, rows = 1;
  if (from.size() != count * rows)
    return fail(op, "expects " + Twine(count * rows) + " values of " + role +
                        " " + Twine(index) + ", got " + Twine(from.size()));
  size_t begin = token < 0 ? 0 : size_t(token) * count;
  value.data.assign(from.begin() + begin, from.begin() + begin + count);
  return value;
}

/// Puts a value back, at the row of `token` when that is >= 0.
LogicalResult Evaluator::store(Operation *op, const Array &value,
                               ArrayRef<std::span<double>> to, unsigned index,
                               int64_t token) {
  size_t count = value.data.size(),
         begin = token < 0 ? 0 : size_t(token) * count;
  if (index >= to.size() || to[index].size() < begin + count)
    return fail(op, "has more results than the head");
  std::copy(value.data.begin(), value.data.end(), to[index].begin() + begin);
  return success();
}

Status Evaluator::runLayer(assoc::LayerOp layer) {
  Block &body = layer.getBlock();
  unsigned numOutputs = layer.yieldedOutputs().size();
  for (int64_t token = 0; token < head.tokens; ++token) {
    Arrays arguments;
    std::map<assoc::Role, unsigned> next;
    for (auto [argument, attr] :
         llvm::zip_equal(body.getArguments(),
                         layer.getArgs().getAsRange<assoc::ArgAttr>())) {
      assoc::Role role = attr.getRole();
      FailureOr<Array> value = this->argument(
          layer, argument.getType(), stringifyRole(role), next[role]++, token);
      if (failed(value))
        return status(failure());
      arguments.push_back(std::move(*value));
    }
    FailureOr<Arrays> yielded = runBlock(body, std::move(arguments));
    if (failed(yielded))
      return status(failure());
    for (unsigned i = 0; i < yielded->size(); ++i) {
      bool isOutput = i < numOutputs;
      if (failed(isOutput ? store(layer, (*yielded)[i], head.outputs, i, token)
                          : store(layer, (*yielded)[i], head.states,
                                  i - numOutputs, -1)))
        return status(failure());
    }
  }
  return Status::ok();
}

Status Evaluator::runFunction(func::FuncOp function) {
  Arrays arguments;
  std::map<StringRef, unsigned> next;
  for (BlockArgument argument : function.getArguments()) {
    auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                      kRoleAttr);
    if (!role)
      return status(
          fail(function, "expects arguments with roles (" + kRoleAttr + ")"));
    FailureOr<Array> value =
        this->argument(function, argument.getType(), role.getValue(),
                       next[role.getValue()]++, -1);
    if (failed(value))
      return status(failure());
    arguments.push_back(std::move(*value));
  }
  FailureOr<Arrays> results = runBlock(function.front(), std::move(arguments));
  if (failed(results))
    return status(failure());
  unsigned numStates = next["state"];
  for (unsigned i = 0; i < results->size(); ++i)
    if (failed(i < numStates
                   ? store(function, (*results)[i], head.states, i, -1)
                   : store(function, (*results)[i], head.outputs, i - numStates,
                           -1)))
      return status(failure());
  return Status::ok();
}

Status interpreter::interpret(ModuleOp module, StringRef entry,
                              reference::Head &head,
                              ArrayRef<double> constants) {
  Evaluator evaluator(head, constants);
  // Not lookupSymbol: several threads may ask at once, and it makes attributes.
  for (Operation &op : module.getOps()) {
    if (auto layer = dyn_cast<assoc::LayerOp>(op);
        layer && layer.getSymName() == entry)
      return evaluator.runLayer(layer);
    if (auto function = dyn_cast<func::FuncOp>(op);
        function && function.getSymName() == entry && !function.isExternal())
      return evaluator.runFunction(function);
  }
  return Error{"",
               "the module has no layer or chunk function '" + entry.str() +
                   "'",
               {}};
}
