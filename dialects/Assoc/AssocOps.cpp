//===- AssocOps.cpp - Verifiers and assembly of assoc ops -------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constraints carry the number they have in AssocOps.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Assoc/Assoc.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace plum::assoc;

#define GET_OP_CLASSES
#include "dialects/Assoc/AssocOps.cpp.inc"

//===----------------------------------------------------------------------===//
// LayerOp
//===----------------------------------------------------------------------===//

static ArgAttr argAt(LayerOp layer, unsigned i) {
  return cast<ArgAttr>(layer.getArgs()[i]);
}

void LayerOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn setName) {
  for (BlockArgument arg : region.getArguments())
    if (arg.getArgNumber() < getArgs().size())
      setName(arg, argAt(*this, arg.getArgNumber()).getName());
}

SmallVector<BlockArgument> LayerOp::argumentsOf(Role role) {
  SmallVector<BlockArgument> found;
  for (BlockArgument arg : getBody().getArguments())
    if (argAt(*this, arg.getArgNumber()).getRole() == role)
      found.push_back(arg);
  return found;
}

SmallVector<StringRef> LayerOp::namesOf(Role role) {
  SmallVector<StringRef> found;
  for (ArgAttr arg : getArgs().getAsRange<ArgAttr>())
    if (arg.getRole() == role)
      found.push_back(arg.getName());
  return found;
}

YieldOp LayerOp::getYield() {
  return cast<YieldOp>(getBlock().getTerminator());
}

OperandRange LayerOp::yieldedOutputs() {
  return getYield().getValues().take_front(getOutputs().size());
}

OperandRange LayerOp::yieldedStates() {
  return getYield().getValues().drop_front(getOutputs().size());
}

/// A scalar or a row of a storage type.
static bool isStored(Type type) {
  if (auto row = dyn_cast<VectorType>(type)) {
    if (row.getRank() != 1 || row.isScalable())
      return false;
    type = row.getElementType();
  }
  return type.isF32() || type.isF16() || type.isBF16();
}

/// The op that makes the next state out of `state`; an update takes the state
/// that it changes as its first operand. Fails when there are two.
static FailureOr<Operation *> updateOf(Value state) {
  Operation *update = nullptr;
  for (OpOperand &use : state.getUses()) {
    Operation *user = use.getOwner();
    if (use.getOperandNumber() != 0 || user->getNumResults() != 1 ||
        !isa<StateType, ListType>(user->getResult(0).getType()))
      continue;
    if (update) {
      if (user->getBlock() == update->getBlock() &&
          user->isBeforeInBlock(update))
        std::swap(user, update);
      InFlightDiagnostic diag = user->emitOpError()
                                << "updates a state that is updated already";
      diag.attachNote(update->getLoc()) << "the first update is here";
      return failure();
    }
    update = user;
  }
  return update;
}

LogicalResult LayerOp::verify() {
  Block &block = getBlock();
  // layer_c1
  if (getArgs().size() != block.getNumArguments())
    return emitOpError() << "expects one entry of 'args' per argument, got "
                         << getArgs().size() << " and "
                         << block.getNumArguments();
  llvm::StringSet<> names;
  SmallVector<Type> states;
  for (BlockArgument arg : block.getArguments()) {
    ArgAttr attr = argAt(*this, arg.getArgNumber());
    bool isState = isa<StateType, ListType>(arg.getType());
    // layer_c2
    if (isState != (attr.getRole() == Role::State))
      return emitOpError() << "expects '" << attr.getName()
                           << "' to be a state exactly when its role is, got "
                           << stringifyRole(attr.getRole()) << " of type "
                           << arg.getType();
    // layer_c3
    if (!isState && !isStored(arg.getType()))
      return emitOpError()
             << "expects '" << attr.getName()
             << "' to be a scalar or row of f32, f16 or bf16, got "
             << arg.getType();
    if (isState)
      states.push_back(arg.getType());
    // layer_c6
    if (!names.insert(attr.getName()).second)
      return emitOpError() << "expects distinct names, got '" << attr.getName()
                           << "' twice";
  }
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield)
    return emitOpError() << "expects 'assoc.yield' as its terminator";
  size_t outputs = getOutputs().size();
  // layer_c5
  if (yield.getValues().size() != outputs + states.size())
    return yield.emitOpError()
           << "expects " << outputs << " outputs and " << states.size()
           << " states, got " << yield.getValues().size() << " values";
  for (auto [i, value] : llvm::enumerate(yield.getValues())) {
    Type type = value.getType();
    if (i < outputs) {
      StringRef name = cast<StringAttr>(getOutputs()[i]).getValue();
      // layer_c3
      if (!isStored(type))
        return yield.emitOpError()
               << "expects output '" << name
               << "' to be a scalar or row of f32, f16 or bf16, got " << type;
      // layer_c6
      if (!names.insert(name).second)
        return emitOpError()
               << "expects distinct names, got '" << name << "' twice";
    } else if (type != states[i - outputs]) {
      // layer_c4
      return yield.emitOpError()
             << "expects state " << i - outputs << " of type "
             << states[i - outputs] << ", got " << type;
    }
  }
  // layer_c7
  for (auto [state, yielded] :
       llvm::zip(argumentsOf(Role::State), yieldedStates())) {
    Value last = state;
    int64_t updates = 0;
    while (true) {
      FailureOr<Operation *> update = updateOf(last);
      if (failed(update))
        return failure();
      if (!*update)
        break;
      last = (*update)->getResult(0);
      ++updates;
    }
    // layer_c8
    if (isa<ListType>(state.getType()) && updates != 1)
      return emitOpError() << "expects one append to list '"
                           << argAt(*this, state.getArgNumber()).getName()
                           << "', got " << updates;
    if (yielded != last) {
      InFlightDiagnostic diag = yield.emitOpError()
                                << "expects the last state made of '"
                                << argAt(*this, state.getArgNumber()).getName()
                                << "' in its place";
      diag.attachNote(last.getLoc()) << "which is made here";
      return diag;
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// AttendOp, WholeOp
//===----------------------------------------------------------------------===//

/// attend_c4. Values are the last operand, however many pairs there are.
LogicalResult AttendOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                         ValueRange operands, DictionaryAttr,
                                         OpaqueProperties, RegionRange,
                                         SmallVectorImpl<Type> &inferred) {
  if (operands.empty())
    return failure();
  auto values = dyn_cast<ListType>(operands.back().getType());
  if (!values)
    return failure();
  inferred.assign({values.getRowType()});
  return success();
}

LogicalResult AttendOp::verify() {
  // attend_c1
  if (getQueries().empty() || getQueries().size() != getKeys().size())
    return emitOpError() << "expects a query for each of the keys, got "
                         << getQueries().size() << " and " << getKeys().size();
  for (auto [i, query, keys] : llvm::enumerate(getQueries(), getKeys())) {
    Type row = cast<ListType>(keys.getType()).getRowType();
    // attend_c2
    if (query.getType() != row)
      return emitOpError() << "expects query " << i << " of type " << row
                           << ", got " << query.getType();
    // attend_c3
    if (bool(keys.getDefiningOp<AppendOp>()) != seesOwn())
      return emitOpError() << "expects lists of one length, got keys " << i
                           << (seesOwn() ? " without" : " with")
                           << " this token's row and values"
                           << (seesOwn() ? " with" : " without") << " it";
  }
  return success();
}

LogicalResult WholeOp::verify() {
  // whole_c1
  int64_t valueDim = cast<StateType>(getState().getType()).getValueDim();
  if (valueDim != 1)
    return emitOpError()
           << "expects a vector state (value dim 1), got value dim "
           << valueDim;
  return success();
}

//===----------------------------------------------------------------------===//
// MapOp
//===----------------------------------------------------------------------===//

LogicalResult MapOp::verify() {
  auto type = cast<StateType>(getState().getType());
  SmallVector<Type> expected;
  for (Value source : getSources()) {
    auto sourceType = cast<StateType>(source.getType());
    // map_c1
    if (sourceType.getKeyDim() != type.getKeyDim())
      return emitOpError() << "expects states of one key dim, got "
                           << type.getKeyDim() << " and "
                           << sourceType.getKeyDim();
    expected.push_back(sourceType.getValueRowType());
  }
  for (Value column : getColumns()) {
    // map_c2
    if (column.getType() != type.getKeyRowType())
      return emitOpError() << "expects columns of type " << type.getKeyRowType()
                           << ", got " << column.getType();
    expected.push_back(Float32Type::get(getContext()));
  }
  Block &block = getBody().front();
  // map_c3
  if (block.getArgumentTypes() != TypeRange(expected))
    return emitOpError() << "expects region arguments of types " << expected
                         << ", got " << block.getArgumentTypes();
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  // map_c4
  if (!yield ||
      yield.getValues().getTypes() != TypeRange(type.getValueRowType()))
    return emitOpError() << "expects to yield one row of type "
                         << type.getValueRowType();
  return success();
}

//===----------------------------------------------------------------------===//
// StepOp
//===----------------------------------------------------------------------===//

LogicalResult StepOp::verify() {
  auto type = cast<StateType>(getState().getType());
  size_t erases = getAlong().size();
  // step_c1
  if (getBy().size() != erases || getAt().size() != erases ||
      getOf().size() != erases || getDecayed().size() != erases)
    return emitOpError()
           << "expects 'along', 'by', 'at', 'of' and 'decayed' of "
              "equal length, got "
           << erases << ", " << getBy().size() << ", " << getAt().size() << ", "
           << getOf().size() << " and " << getDecayed().size();
  // step_c2
  if (getKeys().size() != getValues().size())
    return emitOpError() << "expects as many 'keys' as 'values', got "
                         << getKeys().size() << " and " << getValues().size();
  // step_c3
  for (OperandRange rows : {getAlong(), getAt(), getKeys()})
    for (Value row : rows)
      if (row.getType() != type.getKeyRowType())
        return emitOpError()
               << "expects key rows of type " << type.getKeyRowType()
               << ", got " << row.getType();
  for (Value row : getValues())
    if (row.getType() != type.getValueRowType())
      return emitOpError() << "expects value rows of type "
                           << type.getValueRowType() << ", got "
                           << row.getType();
  // step_c4
  if (Value decay = getDecay()) {
    if (!decay.getType().isF32() && decay.getType() != type.getKeyRowType())
      return emitOpError() << "expects a decay of type f32 or "
                           << type.getKeyRowType() << ", got "
                           << decay.getType();
    if (!getDomain())
      return emitOpError() << "expects the domain of its decay";
  }
  // step_c5
  for (Value state : getOf())
    if (state.getType() != type)
      return emitOpError() << "expects to read states of type " << type
                           << ", got " << state.getType();
  return success();
}

using Operand = OpAsmParser::UnresolvedOperand;

/// word ( %a, %b )
static ParseResult parseGroup(OpAsmParser &parser, StringRef word,
                              SmallVectorImpl<Operand> &operands) {
  return failure(
      parser.parseKeyword(word) ||
      parser.parseOperandList(operands, OpAsmParser::Delimiter::Paren));
}

ParseResult StepOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  Operand state, decay;
  SmallVector<Operand> along, by, at, of, keys, values;
  SmallVector<bool> decayed;
  Type decayType;
  StateType type;
  bool hasDecay = false;
  if (parser.parseOperand(state))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("decay"))) {
    hasDecay = true;
    DomainAttr domain;
    if (parseDomain(parser, domain) || parser.parseLParen() ||
        parser.parseOperand(decay) || parser.parseColonType(decayType) ||
        parser.parseRParen())
      return failure();
    result.addAttribute("domain", domain);
    if (succeeded(parser.parseOptionalKeyword("in"))) {
      Attribute bounds = BoundsAttr::parse(parser, {});
      if (!bounds)
        return failure();
      result.addAttribute("bounds", bounds);
    }
  }
  if (succeeded(parser.parseOptionalKeyword("erase"))) {
    if (parseGroup(parser, "along", along) || parseGroup(parser, "by", by) ||
        parseGroup(parser, "at", at) || parseGroup(parser, "of", of) ||
        parser.parseKeyword("decayed"))
      return failure();
    auto parseBool = [&]() -> ParseResult {
      SMLoc loc = parser.getCurrentLocation();
      StringRef word;
      if (parser.parseKeyword(&word))
        return failure();
      if (word != "true" && word != "false")
        return parser.emitError(loc)
               << "expects 'true' or 'false', got '" << word << "'";
      decayed.push_back(word == "true");
      return success();
    };
    if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square,
                                       parseBool))
      return failure();
  }
  if (succeeded(parser.parseOptionalKeyword("write")))
    if (parseGroup(parser, "keys", keys) ||
        parseGroup(parser, "values", values))
      return failure();
  if (parser.parseOptionalAttrDict(result.attributes) ||
      parser.parseColonType(type))
    return failure();
  result.addAttribute("decayed", b.getDenseBoolArrayAttr(decayed));
  result.addAttribute(
      "operandSegmentSizes",
      b.getDenseI32ArrayAttr({1, hasDecay ? 1 : 0, int32_t(along.size()),
                              int32_t(by.size()), int32_t(at.size()),
                              int32_t(of.size()), int32_t(keys.size()),
                              int32_t(values.size())}));
  result.addTypes(type);
  Type key = type.getKeyRowType(), value = type.getValueRowType();
  auto resolve = [&](ArrayRef<Operand> operands, Type operandType) {
    return parser.resolveOperands(operands, operandType, result.operands);
  };
  return failure(
      resolve(state, type) || (hasDecay && resolve(decay, decayType)) ||
      resolve(along, key) || resolve(by, b.getF32Type()) || resolve(at, key) ||
      resolve(of, type) || resolve(keys, key) || resolve(values, value));
}

void StepOp::print(OpAsmPrinter &p) {
  p << " " << getState();
  if (Value decay = getDecay()) {
    p << " decay " << stringifyDomain(*getDomain()) << "(" << decay << " : "
      << decay.getType() << ")";
    if (BoundsAttr bounds = getBoundsAttr()) {
      p << " in ";
      bounds.print(p);
    }
  }
  if (!getAlong().empty()) {
    p << " erase along(" << getAlong() << ") by(" << getBy() << ") at("
      << getAt() << ") of(" << getOf() << ") decayed [";
    llvm::interleaveComma(getDecayed(), p,
                          [&](bool yes) { p << (yes ? "true" : "false"); });
    p << "]";
  }
  if (!getKeys().empty())
    p << " write keys(" << getKeys() << ") values(" << getValues() << ")";
  p.printOptionalAttrDict((*this)->getAttrs(), {"domain", "bounds", "decayed",
                                                "operandSegmentSizes"});
  p << " : " << getState().getType();
}
