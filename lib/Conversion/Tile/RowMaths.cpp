//===- RowMaths.cpp - A token's maths on a tile of tokens -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowMaths.h"
#include "StepRows.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;

//===----------------------------------------------------------------------===//
// TileBuilder
//===----------------------------------------------------------------------===//

RankedTensorType TileBuilder::tensor(ArrayRef<int64_t> shape, bool half) {
  return RankedTensorType::get(shape,
                               half ? Type(getBF16Type()) : Type(getF32Type()));
}
tile::SharedType TileBuilder::shared(int64_t rows, int64_t cols, bool half) {
  return tile::SharedType::get(getContext(), rows, cols,
                               half ? Type(getBF16Type()) : Type(getF32Type()));
}
Value TileBuilder::constant(double value, Type type) {
  TypedAttr attr = getF32FloatAttr(static_cast<float>(value));
  if (auto shaped = dyn_cast<RankedTensorType>(type))
    attr = DenseElementsAttr::get(shaped, Attribute(attr));
  return arith::ConstantOp::create(*this, attr);
}
Value TileBuilder::fit(Value value, RankedTensorType type) {
  auto from = dyn_cast<RankedTensorType>(value.getType());
  if (from && from.getShape() == type.getShape())
    return value; // Of numbers, or of the truth of a comparison.
  FloatAttr number;
  if (matchPattern(value, m_Constant(&number)))
    return constant(number.getValueAsDouble(), type);
  bool row = from && from.getRank() == 1 && type.getRank() == 2 &&
             from.getDimSize(0) == type.getDimSize(1) &&
             from.getDimSize(0) != type.getDimSize(0);
  return tile::BroadcastOp::create(*this, type, value, row);
}
static RankedTensorType wider(Value a, Value b) {
  auto ta = dyn_cast<RankedTensorType>(a.getType());
  auto tb = dyn_cast<RankedTensorType>(b.getType());
  if (!ta || !tb)
    return ta ? ta : tb;
  return ta.getRank() >= tb.getRank() ? ta : tb;
}
template <typename Op> static Value binary(TileBuilder &b, Value x, Value y) {
  if (RankedTensorType type = wider(x, y)) {
    x = b.fit(x, type);
    y = b.fit(y, type);
  }
  return Op::create(b, x, y);
}
Value TileBuilder::mul(Value a, Value c) {
  return binary<arith::MulFOp>(*this, a, c);
}
Value TileBuilder::add(Value a, Value c) {
  return binary<arith::AddFOp>(*this, a, c);
}
Value TileBuilder::sub(Value a, Value c) {
  return binary<arith::SubFOp>(*this, a, c);
}
Value TileBuilder::exp2(Value a) { return math::Exp2Op::create(*this, a); }
Value TileBuilder::narrow(Value a) {
  auto type = cast<RankedTensorType>(a.getType());
  return arith::TruncFOp::create(*this, tensor(type.getShape(), true), a);
}
Value TileBuilder::widen(Value a) {
  auto type = cast<RankedTensorType>(a.getType());
  return arith::ExtFOp::create(*this, tensor(type.getShape()), a);
}
Terms TileBuilder::terms(Value a, int64_t count) {
  Terms out{narrow(a)};
  for (; int64_t(out.size()) < count; out.push_back(narrow(a)))
    a = sub(a, widen(out.back()));
  return out;
}
Value TileBuilder::wide(ArrayRef<Value> terms) {
  Value sum = widen(terms.front());
  for (Value term : terms.drop_front())
    sum = add(sum, widen(term));
  return sum;
}
Value TileBuilder::alloc(tile::SharedType type) {
  return tile::AllocOp::create(*this, type, IntegerAttr());
}
Value TileBuilder::load(Value tile, RankedTensorType type, Value strip) {
  return tile::LoadOp::create(*this, type, tile, strip, false, false,
                              IntegerAttr());
}
void TileBuilder::store(Value value, Value tile, Value strip) {
  tile::StoreOp::create(*this, value, tile, strip, false, false, IntegerAttr());
}

SmallVector<Value> TileBuilder::sumTeams(ArrayRef<Value> values,
                                         int64_t teams) {
  if (teams == 1)
    return SmallVector<Value>(values);
  auto type = cast<RankedTensorType>(values[0].getType());
  auto [m, n] = tile::SumTeamsOp::scratch(type, values.size(), teams);
  auto op =
      tile::SumTeamsOp::create(*this, SmallVector<Type>(values.size(), type),
                               values, alloc(shared(m, n, /*half=*/false)));
  return SmallVector<Value>(op.getResults());
}

//===----------------------------------------------------------------------===//
// RowMaths
//===----------------------------------------------------------------------===//

/// Does `value` depend on the token, that is on a map's block argument?
static bool perToken(const Graph &graph, Value value) {
  if (const Argument *argument = graph.argument(value))
    return argument->role == "input" || argument->role == kStepRole;
  Operation *op = value.getDefiningOp();
  return op && llvm::any_of(op->getOperands(),
                            [&](Value v) { return perToken(graph, v); });
}

bool plum::totile::preservesZero(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return isa<BlockArgument>(value);
  if (isa<arith::MulFOp>(op))
    return preservesZero(op->getOperand(0)) || preservesZero(op->getOperand(1));
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::NegFOp, math::AbsFOp>(op))
    return preservesZero(op->getOperand(0));
  return false;
}

static int64_t lengthOf(Value value) {
  return cast<VectorType>(value.getType()).getDimSize(0);
}

llvm::MapVector<StringRef, int64_t>
RowMaths::vectorInputs(const Graph &graph, ArrayRef<Value> values) {
  llvm::MapVector<StringRef, int64_t> inputs;
  SmallVector<Value> work(values.begin(), values.end());
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    if (const Argument *argument = graph.argument(v)) {
      if (argument->role == "input" && !argument->shape.empty())
        inputs.insert({argument->name, argument->shape[0]});
      continue;
    }
    if (Operation *op = v.getDefiningOp())
      work.append(op->operand_begin(), op->operand_end());
    else if (Value source = graph.source(cast<BlockArgument>(v)))
      work.push_back(source);
  }
  return inputs;
}

void RowMaths::collectReductions(Value value, llvm::SetVector<Value> &out) {
  Operation *op = value.getDefiningOp();
  if (!op) {
    auto arg = cast<BlockArgument>(value);
    if (graph.argument(value))
      return;
    if (Value source = graph.source(arg); source && source != value)
      collectReductions(source, out);
    return;
  }
  for (Value operand : op->getOperands())
    collectReductions(operand, out);
  if (isa<vector::ReductionOp>(op))
    out.insert(value); // After those it depends on.
}

StringRef RowMaths::squaredInput(Value value) {
  auto mul = value.getDefiningOp<arith::MulFOp>();
  auto wide = mul && mul.getLhs() == mul.getRhs()
                  ? mul.getLhs().getDefiningOp<arith::ExtFOp>()
                  : nullptr;
  const Argument *argument = wide ? graph.argument(wide.getIn()) : nullptr;
  return argument && argument->role == "input" && argument->element.isBF16()
             ? StringRef(argument->name)
             : StringRef();
}

bool RowMaths::needsSums(Value value) {
  llvm::SetVector<Value> sums;
  collectReductions(value, sums);
  return !sums.empty();
}

bool RowMaths::prepareReductions(ArrayRef<Value> values,
                                 ArrayRef<Value> factors) {
  llvm::SetVector<Value> wanted;
  for (ArrayRef<Value> list : {values, factors})
    for (Value v : list)
      collectReductions(v, wanted);
  // Sums that depend on no other sum share one pass over the strips.
  SmallVector<Value> left(wanted.begin(), wanted.end());
  left.erase(
      llvm::remove_if(left, [&](Value v) { return scalars.contains(v); }),
      left.end());
  const bool exchange = teams > 1 && !left.empty();
  while (!left.empty()) {
    SmallVector<Value> now, later;
    int64_t length = 0;
    for (Value v : left) {
      llvm::SetVector<Value> needs;
      collectReductions(v.getDefiningOp()->getOperand(0), needs);
      int64_t n = lengthOf(v.getDefiningOp()->getOperand(0));
      bool ready =
          llvm::all_of(needs, [&](Value r) { return scalars.contains(r); });
      if (ready && (!length || n == length)) {
        length = n;
        now.push_back(v);
      } else {
        later.push_back(v);
      }
    }
    // Squares of an input are the diagonal of its product with itself.
    SmallVector<StringRef> squares;
    for (Value v : now)
      squares.push_back(squaredInput(v.getDefiningOp()->getOperand(0)));
    RankedTensorType strip = b.tensor({rows, 16});
    SmallVector<Value> init(now.size(), b.constant(0, strip));
    for (Value v : now)
      prepareScalars(v.getDefiningOp()->getOperand(0));
    auto strips = tile::StripsOp::create(
        b, SmallVector<Type>(now.size(), strip), length / 16 / teams, init);
    {
      OpBuilder::InsertionGuard guard(b);
      Block &body = strips.getBody().emplaceBlock();
      Value index = body.addArgument(b.getIndexType(), b.getLoc());
      b.setInsertionPointToStart(&body);
      newStrips();
      SmallVector<Value> sums;
      for (auto [v, square] : llvm::zip(now, squares)) {
        Value carried = body.addArgument(strip, b.getLoc());
        if (square.empty()) {
          sums.push_back(
              b.add(carried, vector(v.getDefiningOp()->getOperand(0), index)));
          continue;
        }
        Value x = b.load(tiles.lookup(square),
                         b.tensor({rows, 16}, /*half=*/true), index);
        sums.push_back(
            tile::DotDiagOp::create(b, strip, x, x, carried, IntegerAttr()));
      }
      tile::YieldOp::create(b, sums);
    }
    newStrips();
    SmallVector<Value> columns;
    for (auto [sum, square] : llvm::zip(strips.getResults(), squares))
      columns.push_back(
          square.empty()
              ? Value(tile::ReduceOp::create(b, b.tensor({rows}), sum))
              : Value(tile::DiagonalOp::create(b, b.tensor({rows}), sum)));
    columns = b.sumTeams(columns, teams);
    for (auto [v, sum] : llvm::zip(now, columns))
      scalars[v] = sum;
    left = later;
  }
  for (Value v : values)
    prepareScalars(v);
  return exchange;
}

/// Makes the scalars that a vector's strips use, outside of them.
void RowMaths::prepareScalars(Value value) {
  if (auto arg = dyn_cast<BlockArgument>(value)) {
    if (!graph.argument(value))
      if (Value source = graph.source(arg))
        prepareScalars(source);
    return;
  }
  if (value.getType().isF32())
    return static_cast<void>(scalar(value));
  for (Value operand : value.getDefiningOp()->getOperands())
    prepareScalars(operand);
}

/// Clones an elementwise op for operands of `type` (null: f32 numbers).
Value RowMaths::elementwise(Operation *op, RankedTensorType type, Value strip) {
  OperationState state(b.getLoc(), op->getName());
  for (Value operand : op->getOperands()) {
    Value v = isa<VectorType>(operand.getType()) ? vector(operand, strip)
                                                 : scalar(operand);
    state.operands.push_back(type ? b.fit(v, type) : v);
  }
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  state.addTypes(type ? Type(RankedTensorType::get(type.getShape(), element))
                      : element);
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return b.create(state)->getResult(0);
}

Value RowMaths::vector(Value value, Value strip) {
  if (Value known = vectors.lookup(value))
    return known;
  RankedTensorType type = b.tensor({rows, 16});
  Value out;
  DenseElementsAttr splat;
  if (const Argument *argument = graph.argument(value)) {
    if (argument->role == "input") {
      Value tile = tiles.lookup(argument->name);
      out = b.widen(b.load(tile, b.tensor({rows, 16}, true), strip));
    } else {
      Value row =
          tile::ParamOp::create(b, b.tensor({16}), argument->name, strip);
      out = tile::BroadcastOp::create(b, type, row, /*rows=*/true);
    }
  } else if (auto arg = dyn_cast<BlockArgument>(value)) {
    out = vector(graph.source(arg), strip);
  } else if (matchPattern(value, m_Constant(&splat)) && splat.isSplat()) {
    out = b.constant(splat.getSplatValue<APFloat>().convertToDouble(), type);
  } else if (auto broadcast = value.getDefiningOp<vector::BroadcastOp>()) {
    Value source = broadcast.getSource();
    out = isa<VectorType>(source.getType()) ? vector(source, strip)
                                            : b.fit(scalar(source), type);
  } else if (auto extension = value.getDefiningOp<arith::ExtFOp>()) {
    out = vector(extension.getIn(), strip); // Loads widen.
  } else {
    out = elementwise(value.getDefiningOp(), type, strip);
  }
  return vectors[value] = out;
}

Value RowMaths::vector(const Rows &row, Value strip) {
  if (!row.raw)
    return vector(row.value, strip);
  // The extension of a map's argument: any value of the map that is it would
  // do, so it is known under the argument's name.
  const Argument &argument = graph.arguments[*row.raw];
  Value &known = raws[argument.name];
  if (!known)
    known = b.widen(
        b.load(tiles.lookup(argument.name), b.tensor({rows, 16}, true), strip));
  return known;
}

Value RowMaths::scalar(Value value) {
  if (Value known = scalars.lookup(value))
    return known;
  FloatAttr number;
  Value out;
  if (const Argument *argument = graph.argument(value)) {
    if (argument->role == kStepRole)
      out = tile::StepOp::create(b, b.tensor({rows}));
    else if (argument->role == "input")
      out = tile::ColumnOp::create(b, b.tensor({rows}), argument->name);
    else
      out = tile::ParamOp::create(b, b.getF32Type(), argument->name, Value());
  } else if (auto arg = dyn_cast<BlockArgument>(value)) {
    out = scalar(graph.source(arg));
  } else if (matchPattern(value, m_Constant(&number))) {
    return b.constant(number.getValueAsDouble(), b.getF32Type());
  } else if (auto extension = value.getDefiningOp<arith::ExtFOp>()) {
    out = scalar(extension.getIn());
  } else {
    out = elementwise(value.getDefiningOp(),
                      perToken(graph, value) ? b.tensor({rows})
                                             : RankedTensorType(),
                      Value());
  }
  return scalars[value] = out;
}

Value RowMaths::scaleColumn(const Scale &scale) {
  Value out;
  for (Value factor : scale.factors) {
    Value f = scalar(factor);
    out = out ? b.mul(out, f) : f;
  }
  if (scale.constant != 1) {
    Value c = b.constant(scale.constant, b.getF32Type());
    out = out ? b.mul(out, c) : c;
  }
  return out;
}

Value RowMaths::scaled(Value rows, const Scale &scale) {
  Value column = scaleColumn(scale);
  return column ? b.mul(rows, column) : rows;
}
