//===- Chunk.cpp - Dialect and verifiers ------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constraints carry the number they have in ChunkOps.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Chunk/Chunk.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum::chunk;

#include "dialects/Chunk/ChunkDialect.cpp.inc"
#include "dialects/Chunk/ChunkEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Chunk/ChunkAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/Chunk/ChunkOps.cpp.inc"

void ChunkDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Chunk/ChunkAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Chunk/ChunkOps.cpp.inc"
      >();
}

static int64_t dim(Value value, unsigned i) {
  return cast<RankedTensorType>(value.getType()).getDimSize(i);
}

//===----------------------------------------------------------------------===//
// Per-token regions
//===----------------------------------------------------------------------===//

/// The row of a tensor [n, d] or [n]: vector<d> or the scalar.
static Type rowType(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  if (type.getRank() == 1)
    return type.getElementType();
  return VectorType::get(type.getShape().drop_front(), type.getElementType());
}

/// C1 of map and output: the region's arguments are the rows of `ins`.
static LogicalResult verifyRowArguments(Operation *op, OperandRange ins,
                                        Block &body, int64_t chunk) {
  if (body.getNumArguments() != ins.size())
    return op->emitOpError() << "expects one region argument per input, got "
                             << body.getNumArguments() << " and " << ins.size();
  for (auto [input, arg] : llvm::zip(ins, body.getArguments())) {
    auto type = cast<RankedTensorType>(input.getType());
    if (type.getRank() < 1 || type.getRank() > 2 ||
        (!type.isDynamicDim(0) && type.getDimSize(0) != chunk))
      return op->emitOpError() << "expects inputs of a whole sequence or of "
                               << chunk << " rows, got " << type;
    if (arg.getType() != rowType(type))
      return op->emitOpError() << "expects a region argument of type "
                               << rowType(type) << ", got " << arg.getType();
  }
  return success();
}

void MapOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (getNames())
    for (auto [result, name] :
         llvm::zip(getResults(), getNames()->getAsValueRange<StringAttr>()))
      setName(result, name);
}

LogicalResult MapOp::verify() {
  int64_t chunk = getChunk();
  Block &block = getBody().front();
  // map_c1
  if (failed(verifyRowArguments(*this, getIns(), block, chunk)))
    return failure();
  // map_c4
  if (getPerToken().size() != getNumResults() ||
      getFill().size() != getNumResults() ||
      (getNames() && getNames()->size() != getNumResults()))
    return emitOpError()
           << "expects one 'per_token' and 'fill' per result, got "
           << getPerToken().size() << " and " << getFill().size() << " for "
           << getNumResults();
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  int64_t expected = 0;
  for (int64_t rows : getPerToken())
    expected += rows;
  // map_c2
  if (!yield || int64_t(yield.getValues().size()) != expected)
    return emitOpError() << "expects " << expected << " yielded rows, got "
                         << (yield ? yield.getValues().size() : 0);
  unsigned next = 0;
  for (auto [result, rows] : llvm::zip(getResults(), getPerToken())) {
    // map_c3
    if (dim(result, 0) != chunk * rows)
      return emitOpError() << "expects a result of " << chunk * rows
                           << " rows, got " << result.getType();
    for (int64_t i = 0; i < rows; ++i, ++next)
      if (yield.getValues()[next].getType() != rowType(result.getType()))
        return yield.emitOpError()
               << "expects a row of type " << rowType(result.getType())
               << ", got " << yield.getValues()[next].getType();
  }
  return success();
}

LogicalResult OutputOp::verify() {
  Block &block = getBody().front();
  // output_c1
  if (failed(verifyRowArguments(*this, getIns(), block, getChunk())))
    return failure();
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  // output_c2
  if (!yield || yield.getValues().size() != getOuts().size())
    return emitOpError() << "expects one yielded row per output, got "
                         << (yield ? yield.getValues().size() : 0) << " and "
                         << getOuts().size();
  for (auto [row, out] : llvm::zip(yield.getValues(), getOuts()))
    if (row.getType() != rowType(out.getType()))
      return yield.emitOpError()
             << "expects a row of type " << rowType(out.getType()) << ", got "
             << row.getType();
  // output_c3
  if (getResultTypes() != getOuts().getTypes())
    return emitOpError() << "expects results of the types of its outputs";
  return success();
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

/// Every row stands in a step of its token.
static LogicalResult verifyPlaces(Operation *op, ArrayAttr places,
                                  int64_t steps) {
  for (AtAttr at : places.getAsRange<AtAttr>())
    if (at.getStep() < 0 || at.getStep() >= steps)
      return op->emitOpError() << "expects rows in steps 0 to " << steps - 1
                               << " of a token, got step " << at.getStep();
  return success();
}

/// The decay has one row per step of as many tokens as `rows` rows make with
/// the places of a token's rows.
static LogicalResult verifyDecay(Operation *op, Value decay, int64_t rows,
                                 ArrayAttr places, int64_t steps,
                                 int64_t keyDim) {
  int64_t perToken = places.size();
  if (failed(verifyPlaces(op, places, steps)))
    return failure();
  if (perToken < 1 || rows % perToken)
    return op->emitOpError()
           << "expects a multiple of " << perToken << " rows, got " << rows;
  if (!decay)
    return success();
  auto type = cast<RankedTensorType>(decay.getType());
  int64_t expected = rows / perToken * steps;
  if (type.getDimSize(0) != expected ||
      (type.getRank() == 2 && type.getDimSize(1) != keyDim))
    return op->emitOpError()
           << "expects a decay of " << expected << " steps and key dim "
           << keyDim << ", got " << type;
  return success();
}

LogicalResult ScoresOp::verify() {
  int64_t x = dim(getX(), 0), y = dim(getY(), 0);
  int64_t px = getXRows().size(), py = getYRows().size();
  // scores_c1
  if (dim(getX(), 1) != dim(getY(), 1))
    return emitOpError() << "expects rows of one key dim, got "
                         << dim(getX(), 1) << " and " << dim(getY(), 1);
  // scores_c3
  if (failed(verifyDecay(*this, getDecay(), x, getXRows(), getSteps(),
                         dim(getX(), 1))))
    return failure();
  // scores_c5
  if (failed(verifyPlaces(*this, getYRows(), getSteps())))
    return failure();
  // scores_c2
  if (py < 1 || y % py || x / px != y / py)
    return emitOpError() << "expects rows of the same tokens, got " << x
                         << " by " << px << " and " << y << " by " << py;
  // scores_c4
  if (dim(getResult(), 0) != x || dim(getResult(), 1) != y)
    return emitOpError() << "expects a result of [" << x << ", " << y
                         << "], got " << getResult().getType();
  return success();
}

LogicalResult InverseOp::verify() {
  int64_t rows = dim(getScores(), 0);
  // inverse_c1
  if (dim(getScores(), 1) != rows)
    return emitOpError() << "expects a square matrix, got "
                         << getScores().getType();
  // inverse_c2
  if (getScale() && dim(getScale(), 0) != rows)
    return emitOpError() << "expects " << rows << " factors, got "
                         << dim(getScale(), 0);
  return success();
}

LogicalResult ReadOp::verify() {
  int64_t x = dim(getX(), 0), keyDim = dim(getState(), 0);
  // read_c1
  if (dim(getX(), 1) != keyDim)
    return emitOpError() << "expects rows of the state's key dim " << keyDim
                         << ", got " << dim(getX(), 1);
  // read_c2
  if (failed(verifyDecay(*this, getDecay(), x, getRows(), getSteps(), keyDim)))
    return failure();
  // read_c3
  if (dim(getResult(), 0) != x || dim(getResult(), 1) != dim(getState(), 1))
    return emitOpError() << "expects a result of [" << x << ", "
                         << dim(getState(), 1) << "], got "
                         << getResult().getType();
  return success();
}

LogicalResult ScaleOp::verify() {
  // scale_c1
  if (dim(getBy(), 0) != dim(getRows(), 0))
    return emitOpError() << "expects " << dim(getRows(), 0) << " factors, got "
                         << dim(getBy(), 0);
  return success();
}

LogicalResult MatmulOp::verify() {
  // matmul_c1
  if (dim(getMatrix(), 1) != dim(getRows(), 0))
    return emitOpError() << "expects " << dim(getMatrix(), 1)
                         << " rows to multiply, got " << dim(getRows(), 0);
  // matmul_c2
  if (dim(getResult(), 0) != dim(getMatrix(), 0) ||
      dim(getResult(), 1) != dim(getRows(), 1))
    return emitOpError() << "expects a result of [" << dim(getMatrix(), 0)
                         << ", " << dim(getRows(), 1) << "], got "
                         << getResult().getType();
  // matmul_c3
  if (getOnto() && getOnto().getType() != getResult().getType())
    return emitOpError() << "expects to add onto " << getResult().getType()
                         << ", got " << getOnto().getType();
  return success();
}

LogicalResult CarryOp::verify() {
  // carry_c1
  if (getKeys().size() != getValues().size() ||
      getKeys().size() != getKeyRows().size())
    return emitOpError() << "expects as many keys as values and row lists, got "
                         << getKeys().size() << ", " << getValues().size()
                         << " and " << getKeyRows().size();
  for (auto [key, value, rows] :
       llvm::zip(getKeys(), getValues(), getKeyRows())) {
    auto list = dyn_cast<ArrayAttr>(rows);
    // carry_c2
    if (!list || dim(key, 0) != dim(value, 0) ||
        dim(key, 1) != dim(getState(), 0) ||
        dim(value, 1) != dim(getState(), 1))
      return emitOpError() << "expects keys [Y, " << dim(getState(), 0)
                           << "] and values [Y, " << dim(getState(), 1)
                           << "], got " << key.getType() << " and "
                           << value.getType();
    // carry_c3
    if (failed(verifyDecay(*this, getDecay(), dim(key, 0), list, getSteps(),
                           dim(getState(), 0))))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// AppendOp, AttendOp
//===----------------------------------------------------------------------===//

static int64_t widthOf(Value list) {
  return cast<plum::assoc::ListType>(list.getType()).getWidth();
}

LogicalResult AppendOp::verify() {
  // append_c1
  if (dim(getRows(), 1) != widthOf(getList()))
    return emitOpError() << "expects rows of " << widthOf(getList()) << ", got "
                         << getRows().getType();
  return success();
}

LogicalResult AttendOp::verify() {
  // attend_c1
  if (getQueries().empty() || getQueries().size() != getKeys().size())
    return emitOpError() << "expects a query for each of the keys, got "
                         << getQueries().size() << " and " << getKeys().size();
  for (auto [query, keys] : llvm::zip(getQueries(), getKeys())) {
    // attend_c1, attend_c2
    if (dim(query, 1) != widthOf(keys) || dim(query, 0) != dim(getResult(), 0))
      return emitOpError() << "expects queries [" << dim(getResult(), 0) << ", "
                           << widthOf(keys) << "], got " << query.getType();
  }
  // attend_c3
  if (dim(getResult(), 1) != widthOf(getValues()))
    return emitOpError() << "expects a result with rows of "
                         << widthOf(getValues()) << ", got "
                         << getResult().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// StageOp
//===----------------------------------------------------------------------===//

/// A stage's results print under the names they have inside.
void StageOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  Operation *yield = getBody().front().getTerminator();
  for (auto [result, value] : llvm::zip(getResults(), yield->getOperands())) {
    if (auto named = dyn_cast<NameLoc>(value.getLoc())) {
      setName(result, named.getName());
      continue;
    }
    if (auto op = dyn_cast_or_null<OpAsmOpInterface>(value.getDefiningOp()))
      op.getAsmResultNames(
          [&, result = result, value = value](Value v, StringRef name) {
            if (v == value)
              setName(result, name);
          });
  }
}

LogicalResult StageOp::verify() {
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  // stage_c1
  if (!yield || yield.getValues().getTypes() != getResultTypes())
    return emitOpError() << "expects to yield its results";
  if (getStage() != Stage::Prepare)
    return success();
  // stage_c2
  WalkResult result = getBody().walk([&](Operation *op) {
    for (Value operand : op->getOperands()) {
      auto source = operand.getDefiningOp<StageOp>();
      if (source && source.getStage() == Stage::Scan) {
        InFlightDiagnostic diag = op->emitOpError()
                                  << "in 'prepare' uses a value of 'scan'";
        diag.attachNote(source.getLoc()) << "'scan' is here";
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
