//===- Elementwise.cpp - arith, math and vector in float64 ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One table of functions, applied to whatever shape the operands have. Storage
// conversions are the identity.
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace plum;
using namespace plum::interpreter;

using Unary = double (*)(double);
using Binary = double (*)(double, double);

/// Null for an op that is not one.
static Unary unaryOf(StringRef name) {
  return llvm::StringSwitch<Unary>(name)
      .Cases({"arith.extf", "arith.truncf"}, [](double x) { return x; })
      .Case("arith.negf", [](double x) { return -x; })
      .Case("math.absf", [](double x) { return std::fabs(x); })
      .Case("math.exp", [](double x) { return std::exp(x); })
      .Case("math.expm1", [](double x) { return std::expm1(x); })
      .Case("math.log", [](double x) { return std::log(x); })
      .Case("math.log1p", [](double x) { return std::log1p(x); })
      .Case("math.sqrt", [](double x) { return std::sqrt(x); })
      .Case("math.rsqrt", [](double x) { return 1 / std::sqrt(x); })
      .Case("math.tanh", [](double x) { return std::tanh(x); })
      .Default(nullptr);
}

/// minimumf and maximumf give NaN when either operand is.
static Binary binaryOf(StringRef name) {
  return llvm::StringSwitch<Binary>(name)
      .Case("arith.addf", [](double x, double y) { return x + y; })
      .Case("arith.subf", [](double x, double y) { return x - y; })
      .Case("arith.mulf", [](double x, double y) { return x * y; })
      .Case("arith.divf", [](double x, double y) { return x / y; })
      .Case("arith.minimumf",
            [](double x, double y) { return std::isnan(x) || x < y ? x : y; })
      .Case("arith.maximumf",
            [](double x, double y) { return std::isnan(x) || x > y ? x : y; })
      .Default(nullptr);
}

static bool compare(arith::CmpFPredicate predicate, double x, double y) {
  using P = arith::CmpFPredicate;
  bool unordered = std::isnan(x) || std::isnan(y);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::AlwaysTrue:
    return true;
  case P::ORD:
    return !unordered;
  case P::UNO:
    return unordered;
  case P::OEQ:
    return x == y;
  case P::OGT:
    return x > y;
  case P::OGE:
    return x >= y;
  case P::OLT:
    return x < y;
  case P::OLE:
    return x <= y;
  case P::ONE:
    return !unordered && x != y;
  case P::UEQ:
    return unordered || x == y;
  case P::UGT:
    return unordered || x > y;
  case P::UGE:
    return unordered || x >= y;
  case P::ULT:
    return unordered || x < y;
  case P::ULE:
    return unordered || x <= y;
  case P::UNE:
    return unordered || x != y;
  }
  llvm_unreachable("covered switch");
}

LogicalResult Evaluator::runConstant(Operation *op) {
  Attribute attr = cast<arith::ConstantOp>(op).getValue();
  Value result = op->getResult(0);
  Array value = Array::filled(shapeOf(result.getType(), head.tokens), 0);
  auto asDouble = [&](APFloat number) {
    return exact(number.convertToDouble());
  };
  if (auto number = dyn_cast<FloatAttr>(attr)) {
    value.data.front() = asDouble(number.getValue());
  } else if (auto number = dyn_cast<IntegerAttr>(attr)) {
    // Of one bit, true is -1 when it has a sign.
    bool isBool = number.getType().isInteger(1);
    value.data.front() = isBool ? double(number.getValue().getBoolValue())
                                : double(number.getInt());
  } else if (auto numbers = dyn_cast<DenseFPElementsAttr>(attr)) {
    for (auto [to, from] : llvm::zip(value.data, numbers.getValues<APFloat>()))
      to = asDouble(from);
  } else {
    return fail(op, "of this type is not interpreted");
  }
  return set(result, std::move(value));
}

/// Sums and extremes over a row, in order.
static FailureOr<double> reduce(vector::CombiningKind kind,
                                ArrayRef<double> row,
                                std::optional<double> start) {
  StringRef name;
  switch (kind) {
  case vector::CombiningKind::ADD:
    name = "arith.addf";
    break;
  case vector::CombiningKind::MUL:
    name = "arith.mulf";
    break;
  case vector::CombiningKind::MINIMUMF:
    name = "arith.minimumf";
    break;
  case vector::CombiningKind::MAXIMUMF:
    name = "arith.maximumf";
    break;
  default:
    return failure();
  }
  for (double x : row)
    start = start ? binaryOf(name)(*start, x) : x;
  return *start;
}

LogicalResult Evaluator::runVector(Operation *op) {
  Value result = op->getResult(0);
  SmallVector<int64_t, 2> shape = shapeOf(result.getType(), head.tokens);
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](vector::BroadcastOp op) {
        const Array &from = get(op.getSource());
        if (from.data.size() != 1 && from.shape != shape)
          return fail(op, "of this shape is not interpreted");
        return set(result, from.data.size() == 1
                               ? Array::filled(shape, from.data.front())
                               : from);
      })
      .Case([&](vector::ExtractOp op) {
        ArrayRef<int64_t> position = op.getStaticPosition();
        const Array &from = get(op.getSource());
        if (position.size() != 1 || from.shape.size() != 1 ||
            !op.getDynamicPosition().empty())
          return fail(op, "of this shape is not interpreted");
        return set(result, Array::scalar(from.data[size_t(position.front())]));
      })
      .Case([&](vector::FromElementsOp op) {
        Array value = Array::filled(shape, 0);
        for (auto [to, element] : llvm::zip_equal(value.data, op.getElements()))
          to = number(element);
        return set(result, std::move(value));
      })
      .Case([&](vector::ReductionOp op) {
        std::optional<double> start;
        if (op.getAcc())
          start = number(op.getAcc());
        FailureOr<double> value =
            reduce(op.getKind(), get(op.getVector()).data, start);
        if (failed(value))
          return fail(op, "of this kind is not interpreted");
        return set(result, Array::scalar(*value));
      })
      .Default([&](Operation *op) { return fail(op, "is not interpreted"); });
}

LogicalResult Evaluator::runElementwise(Operation *op) {
  for (Value operand : op->getOperands())
    if (get(operand).isDecay)
      return fail(op,
                  "uses a cumulative decay other than through exp(G_i - G_j)");
  if (isa<arith::ConstantOp>(op))
    return runConstant(op);
  if (isa<vector::VectorDialect>(op->getDialect()))
    return runVector(op);
  auto operand = [&](unsigned i) -> const Array & {
    return get(op->getOperand(i));
  };
  StringRef name = op->getName().getStringRef();
  if (Unary function = unaryOf(name)) {
    Array value = operand(0);
    for (double &x : value.data)
      x = function(x);
    return set(op->getResult(0), std::move(value));
  }
  if (Binary function = binaryOf(name)) {
    Array value = operand(0);
    for (auto [x, y] : llvm::zip_equal(value.data, operand(1).data))
      x = function(x, y);
    return set(op->getResult(0), std::move(value));
  }
  if (auto cmp = dyn_cast<arith::CmpFOp>(op)) {
    Array value = operand(0);
    for (auto [x, y] : llvm::zip_equal(value.data, operand(1).data))
      x = compare(cmp.getPredicate(), x, y);
    return set(op->getResult(0), std::move(value));
  }
  if (isa<arith::SelectOp>(op)) {
    const Array &condition = operand(0);
    Array value = operand(2);
    for (size_t i = 0; i < value.data.size(); ++i)
      if (condition.data[condition.shape.empty() ? 0 : i] != 0)
        value.data[i] = operand(1).data[i];
    return set(op->getResult(0), std::move(value));
  }
  return fail(op, "is not interpreted");
}
