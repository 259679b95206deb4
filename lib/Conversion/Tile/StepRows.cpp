//===- StepRows.cpp - Several updates a token as rows -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepRows.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

namespace {

class Joiner {
public:
  Joiner(chunk::MapOp map, llvm::StringMap<Value> &inputs)
      : map(map), body(map.getBody().front()), inputs(inputs),
        b(body.getTerminator()) {}
  /// One value for those of the steps; null when there is none.
  Value join(ArrayRef<Value> values);

private:
  Value joinInputs(ArrayRef<Value> values);
  Value joinOps(ArrayRef<Value> values);
  Value choose(ArrayRef<Value> values);
  /// The map's argument for an argument of the function that is new.
  Value newInput(StringRef name, StringRef role, Type tensor, Type perToken);

  chunk::MapOp map;
  Block &body;
  llvm::StringMap<Value> &inputs; ///< New arguments of the function, by name.
  llvm::StringMap<Value> mine;    ///< Those that the map has.
  SmallVector<std::pair<SmallVector<Value>, Value>> known;
  OpBuilder b;
};

} // namespace

static bool areSame(Value a, Value b) {
  if (a == b)
    return true;
  Attribute x, y;
  return matchPattern(a, m_Constant(&x)) && matchPattern(b, m_Constant(&y)) &&
         x == y;
}

Value Joiner::newInput(StringRef name, StringRef role, Type tensor,
                       Type perToken) {
  Value &own = mine[name];
  if (own)
    return own;
  Value &argument = inputs[name];
  if (!argument) {
    auto function = map->getParentOfType<func::FuncOp>();
    unsigned number = function.getNumArguments();
    auto attrs =
        b.getDictionaryAttr({b.getNamedAttr(kNameAttr, b.getStringAttr(name)),
                             b.getNamedAttr(kRoleAttr, b.getStringAttr(role))});
    if (failed(function.insertArgument(number, tensor, attrs, map.getLoc())))
      return Value();
    argument = function.getArgument(number);
  }
  map.getInsMutable().append(argument);
  return own = body.addArgument(perToken, map.getLoc());
}

Value Joiner::joinInputs(ArrayRef<Value> values) {
  auto function = map->getParentOfType<func::FuncOp>();
  std::string name;
  Type tensor;
  for (Value value : values) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &body)
      return Value();
    auto input = dyn_cast<BlockArgument>(map.getIns()[argument.getArgNumber()]);
    if (!input || input.getOwner()->getParentOp() != function ||
        (tensor && tensor != input.getType()))
      return Value();
    tensor = input.getType();
    auto own =
        function.getArgAttrOfType<StringAttr>(input.getArgNumber(), kNameAttr);
    name += (name.empty() ? "" : ",") + own.str();
  }
  return newInput(name, "input", tensor, values[0].getType());
}

Value Joiner::joinOps(ArrayRef<Value> values) {
  Operation *first = values[0].getDefiningOp();
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getName() != first->getName() ||
        op->getAttrDictionary() != first->getAttrDictionary() ||
        op->getNumOperands() != first->getNumOperands() ||
        op->getNumOperands() == 0 || op->getNumResults() != 1 ||
        op->getNumRegions() || value.getType() != values[0].getType())
      return Value();
  }
  SmallVector<Value> operands;
  for (unsigned i = 0; i < first->getNumOperands(); ++i) {
    SmallVector<Value> each;
    for (Value value : values)
      each.push_back(value.getDefiningOp()->getOperand(i));
    if (llvm::any_of(each,
                     [&](Value v) { return v.getType() != each[0].getType(); }))
      return Value();
    operands.push_back(join(each));
    if (!operands.back())
      return Value();
  }
  Operation *op = b.clone(*first);
  op->setOperands(operands);
  return op->getResult(0);
}

Value Joiner::choose(ArrayRef<Value> values) {
  Type type = values[0].getType();
  if (!getElementTypeOrSelf(type).isF32())
    return Value();
  Location loc = map.getLoc();
  Type number = b.getF32Type();
  Value step =
      newInput("step", kStepRole,
               RankedTensorType::get({ShapedType::kDynamic}, number), number);
  if (step && isa<VectorType>(type))
    step = vector::BroadcastOp::create(b, loc, type, step);
  Value out = values[0];
  for (size_t s = 1; step && s < values.size(); ++s) {
    TypedAttr attr = b.getF32FloatAttr(float(s));
    if (auto shaped = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(shaped, Attribute(attr));
    Value mine = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, step,
                                       arith::ConstantOp::create(b, loc, attr));
    out = arith::SelectOp::create(b, loc, mine, values[s], out);
  }
  return step ? out : Value();
}

Value Joiner::join(ArrayRef<Value> values) {
  if (llvm::all_of(values, [&](Value v) { return areSame(v, values[0]); }))
    return values[0];
  for (auto &[list, value] : known)
    if (ArrayRef(list) == values)
      return value;
  Value out = joinInputs(values);
  if (!out)
    out = joinOps(values);
  if (!out)
    out = choose(values);
  known.push_back({SmallVector<Value>(values), out});
  return out;
}

/// Does a factor leave everything as it is?
static bool isNeutral(Value decay, assoc::Domain domain) {
  const double neutral = domain == assoc::Domain::Linear ? 1 : 0;
  FloatAttr number;
  DenseElementsAttr splat;
  if (matchPattern(decay, m_Constant(&number)))
    return number.getValueAsDouble() == neutral;
  return matchPattern(decay, m_Constant(&splat)) && splat.isSplat() &&
         splat.getSplatValue<APFloat>().convertToDouble() == neutral;
}

static ArrayRef<Value> rowsOf(chunk::MapOp map, unsigned result,
                              ArrayRef<Value> yielded) {
  ArrayRef<int64_t> perToken = map.getPerToken();
  int64_t first = 0;
  for (unsigned i = 0; i < result; ++i)
    first += perToken[i];
  return yielded.slice(first, perToken[result]);
}

FailureOr<StepRows> plum::totile::joinSteps(func::FuncOp function) {
  StepRows out;
  function.walk([&](chunk::CarryOp carry) {
    out.steps = std::max<int64_t>(out.steps, carry.getSteps());
  });
  out.decays.assign(out.steps, false);
  if (out.steps == 1)
    return out;
  auto yieldOf = [](chunk::MapOp map) {
    return cast<chunk::YieldOp>(map.getBody().front().getTerminator());
  };
  function.walk([&](chunk::CumsumOp cumsum) {
    Value decay = cumsum.getDecay();
    auto map = decay.getDefiningOp<chunk::MapOp>();
    if (!map) {
      out.decays.assign(out.steps, true);
      return;
    }
    SmallVector<Value> yielded(yieldOf(map).getValues());
    for (auto [step, value] : llvm::enumerate(
             rowsOf(map, cast<OpResult>(decay).getResultNumber(), yielded)))
      if (!isNeutral(value, cumsum.getDomain()))
        out.decays[step] = true;
  });
  llvm::StringMap<Value> inputs;
  WalkResult result = function.walk([&](chunk::MapOp map) {
    Joiner joiner(map, inputs);
    chunk::YieldOp yield = yieldOf(map);
    SmallVector<Value> yielded(yield.getValues()), joined;
    for (unsigned i = 0; i < map.getNumResults(); ++i) {
      ArrayRef<Value> rows = rowsOf(map, i, yielded);
      if (rows.size() != 1 && int64_t(rows.size()) != out.steps)
        return WalkResult::interrupt();
      joined.push_back(joiner.join(rows));
      if (!joined.back())
        return WalkResult::interrupt();
    }
    yield->setOperands(joined);
    map.setPerToken(SmallVector<int64_t>(map.getNumResults(), 1));
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return out;
}

std::optional<Moment> plum::totile::momentOf(ArrayAttr at,
                                             const StepRows &rows) {
  auto each = at.getAsRange<chunk::AtAttr>();
  if (at.size() == 1) {
    chunk::AtAttr only = *each.begin();
    if (only.getStep() == 0 && rows.steps == 1)
      return only.getMoment();
    if (only.getStep() == rows.steps - 1 && only.getMoment() == Moment::After)
      return Moment::After;
    return std::nullopt;
  }
  if (int64_t(at.size()) != rows.steps)
    return std::nullopt;
  // After a step is before the next; before and after a decay are one where
  // there is none.
  std::optional<Moment> sure, likely;
  for (auto [step, row] : llvm::enumerate(each)) {
    Moment moment = row.getMoment();
    if (row.getStep() + 1 == int64_t(step) && moment == Moment::After)
      moment = Moment::Before;
    else if (row.getStep() != int64_t(step))
      return std::nullopt;
    if (moment != Moment::After && !rows.decays[step]) {
      likely = moment;
      continue;
    }
    if (sure && *sure != moment)
      return std::nullopt;
    sure = moment;
  }
  if (sure && *sure == Moment::After && likely)
    return std::nullopt;
  return sure ? sure : likely;
}
