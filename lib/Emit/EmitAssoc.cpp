//===- EmitAssoc.cpp - From a checked layer to the assoc dialect *- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A straight walk over the statements. Expressions become arith and math on
// rows; the frontend's affine form of an update becomes gate or decay, then
// delta, add and erase. Every expression node is emitted once, so one source
// value is one SSA value: later passes see that two writes share a key.
//
// Updates that are not affine (step form only) become `assoc.map`, whose
// region computes one row of the matrix expression.
//
//===----------------------------------------------------------------------===//

#include "plum/Emit/EmitAssoc.h"

#include "ScalarMaths.h"
#include "dialects/Assoc/Assoc.h"
#include "plum/Frontend/Affine.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plum;
using namespace plum::frontend;

namespace {

bool isStateRef(const Expr *e) {
  return e->kind == ExprKind::Ref && e->symbol->kind == SymbolKind::State;
}

/// Looks through `^T`.
const Expr *untransposed(const Expr *e) {
  while (e->kind == ExprKind::Transpose)
    e = e->args[0];
  return e;
}

class Emitter {
public:
  Emitter(const Layer &layer, const Source &source, const EmitOptions &options,
          MLIRContext &context)
      : layer(layer), source(source), options(options),
        b(UnknownLoc::get(&context), &context) {}

  OwningOpRef<ModuleOp> run();

private:
  //===--- Places and types -----------------------------------------------===//
  Location placeOf(plum::Range range) {
    Source::Place place = source.place(range.begin);
    return FileLineColLoc::get(b.getContext(), source.name(), place.line,
                               place.column);
  }
  void at(plum::Range range) { b.setLoc(placeOf(range)); }
  void at(plum::Range range, StringRef name) {
    b.setLoc(NameLoc::get(b.getStringAttr(name), placeOf(range)));
  }
  Type elementType(DType dtype) {
    if (options.f32Storage || dtype == DType::F32)
      return b.getF32Type();
    return dtype == DType::F16 ? Type(b.getF16Type()) : b.getBF16Type();
  }
  Type storedType(const Symbol &symbol) {
    Type element = elementType(symbol.dtype);
    if (symbol.shape.kind == Shape::Scalar)
      return element;
    return VectorType::get({symbol.shape.cols}, element);
  }
  Type stateType(const Symbol &symbol) {
    if (symbol.shape.kind == Shape::List)
      return assoc::ListType::get(b.getContext(), symbol.shape.cols,
                                  elementType(symbol.dtype));
    bool isVector = symbol.shape.kind == Shape::Row;
    return assoc::StateType::get(
        b.getContext(), isVector ? symbol.shape.cols : symbol.shape.rows,
        isVector ? 1 : symbol.shape.cols, assoc::Layout::KV,
        elementType(symbol.dtype), b.getF32Type());
  }
  VectorType rowType(int64_t d) { return VectorType::get({d}, b.getF32Type()); }

  //===--- Expressions ----------------------------------------------------===//
  Value emit(const Expr *e);
  Value emitNode(const Expr *e);
  Value emitMatMul(const Expr *e);
  Value emitAttend(const Expr *e);
  Value binary(ExprKind kind, Value lhs, Value rhs);
  Value scalarOrOne(const Expr *e);
  Value asRow(Value value, int64_t d);
  Value stateAt(const Symbol *symbol, unsigned version) {
    return states.lookup({symbol, version});
  }

  //===--- Updates --------------------------------------------------------===//
  void emitUpdate(const Stmt &stmt);
  void emitWrite(const Stmt &stmt, const Write &write, Value decayed,
                 Value &state);
  LogicalResult emitGeneral(const Stmt &stmt);
  Value emitMatrixRow(const Expr *e);
  void collectLeaves(const Expr *e);

  const Layer &layer;
  const Source &source;
  const EmitOptions &options;
  ImplicitLocOpBuilder b;
  DenseMap<const Expr *, Value> values;
  DenseMap<const Symbol *, Value> symbols;
  DenseMap<std::pair<const Symbol *, unsigned>, Value> states, decayedStates;
  /// While a map region is built: rows of states and elements of columns.
  DenseMap<const Expr *, Value> leaves;
  SmallVector<const Expr *> stateLeaves, columnLeaves;
  bool hadError = false;
};

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

Value Emitter::scalarOrOne(const Expr *e) {
  if (e)
    return emit(e);
  return arith::ConstantOp::create(b, b.getF32FloatAttr(1));
}

/// A scalar as a row of length d, for vector states (whose values are scalars
/// in the spec and rows of length 1 here).
Value Emitter::asRow(Value value, int64_t d) {
  if (isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(b, rowType(d), value);
}

Value Emitter::binary(ExprKind kind, Value lhs, Value rhs) {
  unifyShapes(b, lhs, rhs);
  switch (kind) {
  case ExprKind::Add:
    return arith::AddFOp::create(b, lhs, rhs);
  case ExprKind::Sub:
    return arith::SubFOp::create(b, lhs, rhs);
  case ExprKind::Mul:
    return arith::MulFOp::create(b, lhs, rhs);
  default:
    return arith::DivFOp::create(b, lhs, rhs);
  }
}

Value Emitter::emit(const Expr *e) {
  auto found = values.find(e);
  if (found != values.end())
    return found->second;
  // A local keeps the place and the name of its definition.
  Location before = b.getLoc();
  at(e->range);
  Value value = emitNode(e);
  b.setLoc(before);
  values[e] = value;
  return value;
}

Value Emitter::emitNode(const Expr *e) {
  if (auto constant = constantValue(e))
    return arith::ConstantOp::create(b, b.getF32FloatAttr(float(*constant)));
  switch (e->kind) {
  case ExprKind::Number: // every element of a row
    return asRow(
        arith::ConstantOp::create(b, b.getF32FloatAttr(float(e->number))),
        e->shape.cols);
  case ExprKind::Ref: {
    if (e->symbol->kind == SymbolKind::State)
      return assoc::WholeOp::create(b, stateAt(e->symbol, e->version));
    Value &value = symbols[e->symbol];
    if (!value) {
      value = emit(e->symbol->definition);
      value.setLoc(NameLoc::get(b.getStringAttr(e->symbol->name),
                                placeOf(e->symbol->range)));
    }
    return value;
  }
  case ExprKind::Neg:
    return arith::NegFOp::create(b, emit(e->args[0]));
  case ExprKind::Add:
  case ExprKind::Sub:
  case ExprKind::Mul:
  case ExprKind::Div:
    return binary(e->kind, emit(e->args[0]), emit(e->args[1]));
  case ExprKind::MatMul:
    return emitMatMul(e);
  case ExprKind::Pow:
    return powerOf(b, emit(e->args[0]), e->number);
  case ExprKind::Transpose:
  case ExprKind::Diag:
    return emit(e->args[0]); // rows, columns and diagonals are all vectors
  case ExprKind::Call: {
    if (e->func == Func::Attend)
      return emitAttend(e);
    SmallVector<Value> args;
    for (const Expr *arg : e->args)
      args.push_back(emit(arg));
    for (Value &arg : args)
      for (Value &other : args)
        unifyShapes(b, arg, other);
    return callOf(b, e->func, args, e->eps);
  }
  }
  llvm_unreachable("covered switch");
}

/// Products whose value is a row, column or scalar.
Value Emitter::emitMatMul(const Expr *e) {
  const Expr *lhs = e->args[0], *rhs = e->args[1];
  const Expr *left = untransposed(lhs), *right = untransposed(rhs);
  if (isStateRef(right) ||
      (isStateRef(left) && e->shape.kind == Shape::Scalar)) {
    // A read; of a vector state it gives the one element of the row.
    const Expr *state = isStateRef(right) ? right : left;
    const Expr *key = isStateRef(right) ? left : right;
    Value row = assoc::ReadOp::create(b, stateAt(state->symbol, state->version),
                                      emit(key));
    if (state->symbol->shape.kind != Shape::Row)
      return row;
    return vector::ExtractOp::create(b, row, ArrayRef<int64_t>{0});
  }
  if (lhs->shape.kind == Shape::Matrix || rhs->shape.kind == Shape::Matrix) {
    mlir::emitError(placeOf(e->range))
        << "a product with a matrix other than a plain state is not supported "
           "here; give the matrix to a state first";
    hadError = true;
    Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
    return e->shape.kind == Shape::Scalar
               ? zero
               : asRow(zero, std::max(e->shape.rows, e->shape.cols));
  }
  Value x = emit(lhs), y = emit(rhs);
  if (e->shape.kind == Shape::Scalar) {
    unifyShapes(b, x, y);
    Value product = arith::MulFOp::create(b, x, y);
    return isa<VectorType>(product.getType()) ? sumOf(b, product) : product;
  }
  return binary(ExprKind::Mul, x, y); // diag(w) @ x^T, x @ diag(w), x^T @ [1]
}

/// The scores of each pair of a query and keys are added up.
Value Emitter::emitAttend(const Expr *e) {
  SmallVector<Value> queries, keys;
  auto list = [&](const Expr *ref) {
    return stateAt(ref->symbol, ref->version);
  };
  for (size_t i = 0; i + 1 < e->args.size(); i += 2) {
    queries.push_back(emit(e->args[i]));
    keys.push_back(list(e->args[i + 1]));
  }
  return assoc::AttendOp::create(b, rowType(e->shape.cols), queries, keys,
                                 list(e->args.back()));
}

//===----------------------------------------------------------------------===//
// Affine updates
//===----------------------------------------------------------------------===//

bool isMinusOne(const Expr *e) {
  auto value = e ? constantValue(e) : std::nullopt;
  return value && *value == -1;
}

void Emitter::emitWrite(const Stmt &stmt, const Write &write, Value decayed,
                        Value &state) {
  auto type = cast<assoc::StateType>(state.getType());
  bool decays = stmt.affine->decayKind != AffineUpdate::None;
  Value key = emit(write.key);
  // S + beta k^T (v - k S) with S the state right after the decay.
  if (write.value && write.reads.size() == 1 && state == decayed) {
    const Read &read = write.reads.front();
    if (isMinusOne(read.coeff) && sameValue(read.key, write.key) &&
        read.version == stmt.version && (read.decayed || !decays)) {
      Value value = asRow(emit(write.value), type.getValueDim());
      Value beta = scalarOrOne(write.coeff);
      state = assoc::DeltaOp::create(b, state, key, value, beta);
      return;
    }
  }
  if (write.value) {
    Value value = emit(write.value);
    if (write.coeff)
      value = binary(ExprKind::Mul, emit(write.coeff), value);
    state =
        assoc::AddOp::create(b, state, key, asRow(value, type.getValueDim()));
  }
  for (const Read &read : write.reads) {
    Value by = scalarOrOne(read.coeff);
    if (write.coeff)
      by = arith::MulFOp::create(b, emit(write.coeff), by);
    Value of = read.decayed ? decayedStates.lookup({stmt.symbol, read.version})
                            : stateAt(stmt.symbol, read.version);
    Value at = emit(read.key);
    state = assoc::EraseOp::create(b, state, key, by, at, of);
  }
}

void Emitter::emitUpdate(const Stmt &stmt) {
  const AffineUpdate &update = *stmt.affine;
  Value state = stateAt(stmt.symbol, stmt.version);
  at(stmt.range, stmt.symbol->name);
  auto domain = update.logDomain ? assoc::Domain::Log : assoc::Domain::Linear;
  if (update.decayKind == AffineUpdate::Scalar)
    state = assoc::GateOp::create(b, state, domain, emit(update.decay));
  else if (update.decayKind == AffineUpdate::Channel)
    state = assoc::DecayOp::create(
        b, state, domain,
        asRow(emit(update.decay),
              cast<assoc::StateType>(state.getType()).getKeyDim()));
  Value decayed = state;
  decayedStates[{stmt.symbol, stmt.version}] = decayed;
  for (const Write &write : update.writes)
    emitWrite(stmt, write, decayed, state);
  states[{stmt.symbol, stmt.version + 1}] = state;
}

//===----------------------------------------------------------------------===//
// Updates that are not affine
//===----------------------------------------------------------------------===//

/// Finds what the rows of a matrix expression need from outside: states, by
/// row, and column vectors, by element.
void Emitter::collectLeaves(const Expr *e) {
  if (e->kind == ExprKind::Ref && e->symbol->kind == SymbolKind::Local &&
      e->shape.kind == Shape::Matrix)
    return collectLeaves(e->symbol->definition);
  if (e->shape.kind == Shape::Column || e->shape.kind == Shape::Diagonal) {
    columnLeaves.push_back(e);
  } else if (e->shape.kind == Shape::Matrix) {
    if (isStateRef(e))
      stateLeaves.push_back(e);
    else if (e->kind == ExprKind::MatMul &&
             e->args[0]->shape.kind == Shape::Matrix) {
      collectLeaves(e->args[0]); // the right matrix is read by row @ matrix
      if (e->args[1]->shape.kind == Shape::Diagonal)
        emit(e->args[1]);
    } else
      for (const Expr *arg : e->args)
        collectLeaves(arg);
  } else {
    emit(e); // the same for every row: computed outside
  }
}

/// Row c of a matrix expression (or element c of a column), inside the region.
Value Emitter::emitMatrixRow(const Expr *e) {
  if (e->kind == ExprKind::Ref && e->symbol->kind == SymbolKind::Local &&
      e->shape.kind == Shape::Matrix)
    return emitMatrixRow(e->symbol->definition);
  if (Value leaf = leaves.lookup(e))
    return leaf;
  if (e->shape.kind != Shape::Matrix)
    return emit(e);
  auto arg = [&](unsigned i) { return emitMatrixRow(e->args[i]); };
  switch (e->kind) {
  case ExprKind::Neg:
    return arith::NegFOp::create(b, arg(0));
  case ExprKind::Add:
  case ExprKind::Sub:
  case ExprKind::Mul:
  case ExprKind::Div:
    return binary(e->kind, arg(0), arg(1));
  case ExprKind::Pow:
    return powerOf(b, arg(0), e->number);
  case ExprKind::MatMul:
    if (e->args[0]->shape.kind == Shape::Matrix &&
        e->args[1]->shape.kind == Shape::Matrix) {
      const Expr *right = e->args[1];
      if (!isStateRef(right)) {
        mlir::emitError(placeOf(right->range))
            << "a matrix product needs a plain state on its right in the step "
               "form";
        return nullptr;
      }
      Value row = arg(0);
      return row ? assoc::ReadOp::create(
                       b, stateAt(right->symbol, right->version), row)
                 : Value();
    }
    return binary(ExprKind::Mul, arg(0),
                  arg(1)); // x^T @ y, diag(w) @ M, M @ diag
  case ExprKind::Call: {
    SmallVector<Value> args;
    for (unsigned i = 0; i < e->args.size(); ++i) {
      args.push_back(arg(i));
      if (!args.back())
        return nullptr;
    }
    for (Value &x : args)
      for (Value &other : args)
        unifyShapes(b, x, other);
    if (e->func == Func::Sum || e->func == Func::L2Norm ||
        e->func == Func::RmsNorm) {
      mlir::emitError(placeOf(e->range))
          << "'" << name(e->func) << "' of a matrix is not supported";
      return nullptr;
    }
    return callOf(b, e->func, args, e->eps);
  }
  default:
    mlir::emitError(placeOf(e->range))
        << "this matrix expression is not supported in the step form";
    return nullptr;
  }
}

LogicalResult Emitter::emitGeneral(const Stmt &stmt) {
  at(stmt.range, stmt.symbol->name);
  Value state = stateAt(stmt.symbol, stmt.version);
  auto type = cast<assoc::StateType>(state.getType());
  leaves.clear();
  stateLeaves.clear();
  columnLeaves.clear();
  bool isVector = stmt.symbol->shape.kind == Shape::Row;
  Value newRow;
  SmallVector<Value> sources, columns;
  if (isVector) {
    // Elementwise on the whole row, then one element per key channel.
    columns.push_back(asRow(emit(stmt.expr), type.getKeyDim()));
  } else {
    collectLeaves(stmt.expr);
    for (const Expr *leaf : stateLeaves)
      sources.push_back(stateAt(leaf->symbol, leaf->version));
    for (const Expr *leaf : columnLeaves)
      columns.push_back(emit(leaf));
  }
  auto map = assoc::MapOp::create(b, type, state, sources, columns);
  Block &body = map.getBody().emplaceBlock();
  for (Value value : sources)
    body.addArgument(cast<assoc::StateType>(value.getType()).getValueRowType(),
                     b.getLoc());
  for (unsigned i = 0; i < columns.size(); ++i)
    body.addArgument(b.getF32Type(), b.getLoc());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&body);
  if (isVector) {
    newRow = body.getArgument(0);
  } else {
    unsigned next = 0;
    for (const Expr *leaf : stateLeaves)
      leaves[leaf] = body.getArgument(next++);
    for (const Expr *leaf : columnLeaves)
      leaves[leaf] = body.getArgument(next++);
    newRow = emitMatrixRow(stmt.expr);
  }
  if (!newRow)
    return failure();
  assoc::YieldOp::create(b, ValueRange{asRow(newRow, type.getValueDim())});
  states[{stmt.symbol, stmt.version + 1}] = map.getResult();
  return success();
}

//===----------------------------------------------------------------------===//
// The layer
//===----------------------------------------------------------------------===//

OwningOpRef<ModuleOp> Emitter::run() {
  OwningOpRef<ModuleOp> module = ModuleOp::create(b.getLoc());
  b.setInsertionPointToEnd(module->getBody());
  at(layer.range);
  SmallVector<Attribute> args, outputs;
  SmallVector<const Symbol *> arguments;
  auto declare = [&](ArrayRef<const Symbol *> list, assoc::Role role) {
    for (const Symbol *symbol : list) {
      args.push_back(assoc::ArgAttr::get(b.getContext(), role, symbol->name));
      arguments.push_back(symbol);
    }
  };
  declare(layer.params, assoc::Role::Param);
  declare(layer.inputs, assoc::Role::Input);
  declare(layer.states, assoc::Role::State);
  for (const Symbol *symbol : layer.outputs)
    outputs.push_back(b.getStringAttr(symbol->name));
  auto op =
      assoc::LayerOp::create(b, b.getStringAttr(layer.name),
                             b.getArrayAttr(args), b.getArrayAttr(outputs));
  Block &body = op.getBody().emplaceBlock();
  b.setInsertionPointToStart(&body);
  for (const Symbol *symbol : arguments) {
    at(symbol->range, symbol->name);
    if (symbol->kind == SymbolKind::State) {
      states[{symbol, 0}] = body.addArgument(stateType(*symbol), b.getLoc());
      continue;
    }
    Type type = storedType(*symbol);
    Value value = body.addArgument(type, b.getLoc());
    if (!getElementTypeOrSelf(type).isF32()) {
      Type wide = isa<VectorType>(type)
                      ? Type(rowType(cast<VectorType>(type).getDimSize(0)))
                      : b.getF32Type();
      value = arith::ExtFOp::create(b, wide, value);
    }
    symbols[symbol] = value;
  }
  DenseMap<const Symbol *, unsigned> latest;
  for (const Stmt &stmt : layer.stmts) {
    switch (stmt.kind) {
    case Stmt::Define:
      // Matrices (and whatever else has no normal form of its own) are taken
      // apart where they are used; other locals are emitted here, so that the
      // IR follows the spec's order.
      if (stmt.expr && stmt.symbol->shape.kind != Shape::Matrix &&
          !symbols[stmt.symbol]) {
        Value value = emit(stmt.symbol->definition);
        value.setLoc(NameLoc::get(b.getStringAttr(stmt.symbol->name),
                                  placeOf(stmt.symbol->range)));
        symbols[stmt.symbol] = value;
      }
      break;
    case Stmt::Update:
      if (stmt.symbol->shape.kind == Shape::List) {
        Value row = emit(stmt.expr->args[1]);
        at(stmt.range, stmt.symbol->name);
        states[{stmt.symbol, stmt.version + 1}] =
            assoc::AppendOp::create(b, stateAt(stmt.symbol, stmt.version), row);
      } else if (stmt.affine)
        emitUpdate(stmt);
      else if (failed(emitGeneral(stmt)))
        return nullptr;
      latest[stmt.symbol] = stmt.version + 1;
      break;
    case Stmt::Output:
      symbols[stmt.symbol] = emit(stmt.expr);
      break;
    }
  }
  SmallVector<Value> results;
  for (const Symbol *symbol : layer.outputs) {
    at(symbol->range, symbol->name);
    Type type = storedType(*symbol);
    Value value = symbols[symbol];
    if (auto row = dyn_cast<VectorType>(type))
      value = asRow(value, row.getDimSize(0));
    if (value.getType() != type)
      value = arith::TruncFOp::create(b, type, value);
    results.push_back(value);
  }
  for (const Symbol *symbol : layer.states)
    results.push_back(stateAt(symbol, latest.lookup(symbol)));
  at(layer.range);
  assoc::YieldOp::create(b, results);
  return hadError ? nullptr : std::move(module);
}

} // namespace

OwningOpRef<ModuleOp> plum::emitAssoc(const Layer &layer, const Source &source,
                                      const EmitOptions &options,
                                      MLIRContext &context) {
  context.loadDialect<assoc::AssocDialect, arith::ArithDialect,
                      math::MathDialect, vector::VectorDialect>();
  return Emitter(layer, source, options, context).run();
}
