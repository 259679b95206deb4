//===- ScanOutputs.cpp - What stands behind the memory -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The maths of outputs, on transposed rows in fp32: of the sums that the scan
// has, of inputs, params and numbers of tokens; and the rows' way out.
//
//===----------------------------------------------------------------------===//

#include "Scan.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;

/// Output maths on transposed rows, with V along the rows; of each value once.
Value Scan::outputValue(Value v, ArrayRef<Value> sums) {
  if (Value known = outputMaths.lookup(v))
    return known;
  Value made = makeOutput(v, sums);
  outputMaths[v] = made;
  return made;
}

Value Scan::makeOutput(Value v, ArrayRef<Value> sums) {
  RankedTensorType type = b.tensor({slice, R});
  if (auto arg = dyn_cast<BlockArgument>(v)) {
    if (arg.getOwner()->getParentOp() == graph.output.getOperation() &&
        sums[arg.getArgNumber()])
      return sums[arg.getArgNumber()];
    const Argument *argument = graph.argument(v);
    if (argument->role == "input") {
      unsigned part = besidePart[argument - graph.arguments.begin()];
      return b.widen(tile::LoadOp::create(b, b.tensor({slice, R}, true),
                                          defers() ? cBefore[part] : a[part],
                                          Value(), true, false, IntegerAttr()));
    }
    if (isa<VectorType>(v.getType())) {
      Value column =
          tile::ParamOp::create(b, b.tensor({slice}), argument->name, Value());
      return tile::BroadcastOp::create(b, type, column, false);
    }
    return tile::ParamOp::create(b, b.getF32Type(), argument->name, Value());
  }
  Operation *op = v.getDefiningOp();
  DenseElementsAttr splat;
  if (matchPattern(v, m_Constant(&splat)) && splat.isSplat())
    return b.constant(splat.getSplatValue<APFloat>().convertToDouble(), type);
  if (isa<arith::ConstantOp>(op))
    return b.clone(*op)->getResult(0);
  // Numbers of tokens lie along the columns here.
  auto fit = [&](Value value, RankedTensorType type) -> Value {
    auto from = dyn_cast<RankedTensorType>(value.getType());
    if (from && from.getRank() == 1 && type.getRank() == 2)
      return tile::BroadcastOp::create(b, type, value, /*rows=*/true);
    return b.fit(value, type);
  };
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op))
    return fit(outputValue(broadcast.getSource(), sums), type);
  if (isa<arith::ExtFOp>(op))
    return outputValue(op->getOperand(0), sums);
  if (isa<vector::ExtractOp>(op)) // Of a read of the vector state.
    return outputValue(op->getOperand(0), sums);
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(outputValue(operand, sums));
  if (isa<vector::ReductionOp>(op))
    return tile::ReduceRowsOp::create(b, b.tensor({R}), fit(operands[0], type),
                                      parts);
  // One number a token: [R].
  const bool isToken = !isa<VectorType>(v.getType()) &&
                       llvm::any_of(operands, [](Value operand) {
                         return isa<RankedTensorType>(operand.getType());
                       });
  if (isToken)
    type = b.tensor({R});
  const bool isTensor = isToken || isa<VectorType>(v.getType());
  OperationState state(b.getLoc(), op->getName());
  for (Value operand : operands)
    state.operands.push_back(isTensor ? fit(operand, type) : operand);
  Type element = getElementTypeOrSelf(v.getType());
  state.addTypes(isTensor
                     ? Type(RankedTensorType::get(type.getShape(), element))
                     : element);
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return b.create(state)->getResult(0);
}

SmallVector<std::pair<StringRef, Value>> Scan::outputs() const {
  SmallVector<std::pair<StringRef, Value>> out;
  auto yield =
      cast<chunk::YieldOp>(graph.output.getBody().front().getTerminator());
  unsigned next = 0;
  for (const Argument &argument : graph.arguments)
    if (argument.role == "output") {
      if (!graph.preparedOutputs[next])
        out.push_back({argument.name, yield.getValues()[next]});
      ++next;
    }
  return out;
}

SmallVector<Value> Scan::outputValues(ArrayRef<Value> sums) {
  SmallVector<Value> values;
  outputMaths.clear();
  for (auto [name, rows] : outputs())
    values.push_back(outputValue(rows, sums));
  for (Value &v : values)
    if (getElementTypeOrSelf(v.getType()).isF32())
      v = b.narrow(v);
  return values;
}

void Scan::writeOutputs(ArrayRef<Value> values, bool previous) {
  for (auto [value, output] : llvm::zip(values, outputs()))
    tile::WriteRowsOp::create(b, value, panel, output.first, previous);
}
