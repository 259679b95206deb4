//===- ToChunk.cpp - The chunkwise WY form of a layer -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A chunk has C tokens of n steps each. Row i of any matrix below belongs to
// one step; G is the cumulative log decay over steps. With
//
//   E, F, c, U0   the rows of all erases: what they write along, what they
//                 read at, by how much, and the write that shares their key
//   K, V          the rows of the remaining writes
//   M_xy          x_i . y_j exp(G(i) - G(j)) where j was written before i looks
//
// the writes of the erases obey U = U0 + diag(c) (F~ S + M_FK V + M_FE U), so
//
//   T  = (I - diag(c) M_FE)^-1                one unit lower triangular system
//   U  = T (U0 + diag(c) (F~ S + M_FK V))
//   O  = Q~ S + M_QE U + M_QK V               for every read q
//   S' = diag(exp G_C) S + E^^T U + K^^T V
//
// which is docs/wy-form.md with several steps a token. What is not there drops
// out: no erases, no U; no decay, no G. Several states are taken in the order
// in which they read one another.
//
//===----------------------------------------------------------------------===//

#include "StateChain.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

#include <map>

#define DEBUG_TYPE "assoc-to-chunk"

namespace plum {
#define GEN_PASS_DEF_TOCHUNKPASS
#include "plum/Transforms/Passes.h.inc"
} // namespace plum

using namespace mlir;
using namespace plum;
using namespace plum::assoc;
using namespace plum::chunk;

namespace {

//===----------------------------------------------------------------------===//
// Building the loop
//===----------------------------------------------------------------------===//

class Derivation {
public:
  Derivation(LayerOp layer, int64_t chunk)
      : layer(layer), chunk(chunk), b(layer.getLoc(), layer.getContext()) {}

  LogicalResult run();

private:
  using Tensor = Value;

  void createFunction();
  void createLoop();
  void mapRows(int level);
  using Ask = llvm::function_ref<void(Value &, StringRef, ArrayRef<Value>)>;
  void deriveWrites(StateChain &chain);
  void deriveRead(StateChain &chain, unsigned index);
  void deriveCarry(StateChain &chain);
  void deriveAppend(ListChain &list);
  void deriveAttend(ListRead &read);
  Value scores(StateChain &chain, StringRef name, Value x, ArrayAttr xRows,
               Value y, ArrayAttr yRows);
  Value read(StateChain &chain, StringRef name, Value x, ArrayAttr xRows);
  Value times(StateChain &chain, StringRef name, Value M, Value X, Value onto);
  void createOutputs();

  /// The rows a map makes, until its op is built.
  struct Request {
    SmallVector<Value> rows; ///< One per row of a token; null is neutral.
    Type rowType;
    double fill;
    Tensor *result;
    StringRef name;
    SmallVector<bool> exponentiate; ///< Rows to take the exp of; may be empty.
  };
  Request &request(Tensor &result, StringRef name, ArrayRef<Value> rows,
                   double fill);
  Value cloneInto(OpBuilder &in, Value value, IRMapping &map,
                  SmallVectorImpl<Value> &tokenInputs);
  Value hoisted(Value value);
  bool isPerLayer(Value value);
  Value tensorOf(Value value) { return tensors.lookup(value); }
  RankedTensorType matrix(int64_t rows, int64_t cols) {
    return RankedTensorType::get({rows, cols}, b.getF32Type());
  }
  static int64_t numRows(Value tensor) {
    return cast<RankedTensorType>(tensor.getType()).getDimSize(0);
  }
  static int64_t stepsOf(const StateChain &chain) {
    return std::max<int64_t>(chain.steps.size(), 1);
  }
  ArrayAttr rowsAttr(ArrayRef<Row> rows) {
    return b.getArrayAttr(llvm::map_to_vector(
        rows, [](const Row &row) -> Attribute { return row.at; }));
  }
  void named(StringRef name, Location at) {
    b.setLoc(NameLoc::get(b.getStringAttr(name), at));
  }

  LayerOp layer;
  int64_t chunk;
  ImplicitLocOpBuilder b;
  StateChains chains;
  SmallVector<Request> requests;

  func::FuncOp function;
  scf::ForOp loop;
  IRMapping perLayer;             ///< Params and what is made of them alone.
  DenseMap<Value, Value> tensors; ///< Layer values that are tensors by now.
  DenseMap<Value, Value> states;  ///< State argument -> its tensor.
  /// Tensors of each chain.
  struct Rows {
    Tensor decay, along, at, by, u0, keys, values;
    SmallVector<Tensor> queries; ///< One per read.
    Tensor G, U;                 ///< Derived from the above.
  };
  void askWrites(StateChain &chain, Rows &rows, Ask ask);
  std::map<void *, Rows> rowsOf; ///< By state argument; entries stay put.
  /// Tensors of the rows that are appended, and of the queries of an attend.
  std::map<Operation *, Tensor> appended;
  std::map<Operation *, SmallVector<Tensor>> queries;
  Rows &rows(const StateChain &chain) {
    return rowsOf[chain.start.getAsOpaquePointer()];
  }
};

bool Derivation::isPerLayer(Value value) {
  if (auto arg = dyn_cast<BlockArgument>(value))
    return cast<ArgAttr>(layer.getArgs()[arg.getArgNumber()]).getRole() ==
           Role::Param;
  Operation *op = value.getDefiningOp();
  return isPure(op) && llvm::all_of(op->getOperands(),
                                    [&](Value v) { return isPerLayer(v); });
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// A value of params alone, computed once before the loop.
Value Derivation::hoisted(Value value) {
  if (Value done = perLayer.lookupOrNull(value))
    return done;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop);
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    hoisted(operand);
  b.clone(*op, perLayer);
  return perLayer.lookup(value);
}

/// Clones what computes `value` for one token into a region. Values that are
/// tensors of the chunk already, and the layer's inputs, become arguments.
Value Derivation::cloneInto(OpBuilder &in, Value value, IRMapping &map,
                            SmallVectorImpl<Value> &tokenInputs) {
  if (Value done = map.lookupOrNull(value))
    return done;
  if (isPerLayer(value) &&
      !(value.getDefiningOp() && matchPattern(value, m_Constant()))) {
    Value outside = hoisted(value);
    map.map(value, outside);
    return outside;
  }
  if (Value tensor = tensorOf(value)) {
    Value arg = in.getBlock()->addArgument(value.getType(), value.getLoc());
    tokenInputs.push_back(tensor);
    map.map(value, arg);
    return arg;
  }
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    cloneInto(in, operand, map, tokenInputs);
  in.clone(*op, map);
  return map.lookup(value);
}

Derivation::Request &Derivation::request(Tensor &result, StringRef name,
                                         ArrayRef<Value> rows, double fill) {
  Request r{SmallVector<Value>(rows), {}, fill, &result, name, {}};
  for (Value row : rows)
    if (row && (!r.rowType || isa<VectorType>(row.getType())))
      r.rowType = row.getType();
  requests.push_back(std::move(r));
  return requests.back();
}

/// Asks for the rows that the steps of a chain write with.
void Derivation::askWrites(StateChain &chain, Rows &rows, Ask ask) {
  auto values = [](ArrayRef<Row> rows) {
    return llvm::map_to_vector(rows, [](const Row &row) { return row.value; });
  };
  if (chain.decays) {
    // The decays of one chain are brought to one domain.
    bool log = chain.domain == Domain::Log;
    SmallVector<Value> decays;
    SmallVector<bool> exponentiate;
    for (StepOp step : chain.steps) {
      decays.push_back(step.getDecay());
      exponentiate.push_back(step.getDecay() && !log &&
                             *step.getDomain() == Domain::Log);
    }
    request(rows.decay, "a", decays, log ? 0 : 1).exponentiate = exponentiate;
  }
  if (!chain.along.empty()) {
    ask(rows.along, "E", values(chain.along));
    ask(rows.at, "F", values(chain.at));
    request(rows.by, "c", chain.by, 0);
    if (llvm::any_of(chain.u0, [](Value v) { return bool(v); }))
      ask(rows.u0, "U0", chain.u0);
  }
  if (!chain.keys.empty()) {
    ask(rows.keys, "K", values(chain.keys));
    ask(rows.values, "V", chain.values);
  }
}

/// Emits one chunk.map for the rows that become known at `level`.
void Derivation::mapRows(int level) {
  requests.clear();
  // A value of its own (one row a token) is shared between requests, and later
  // maps and the outputs read it instead of computing it again.
  SmallVector<std::pair<Value, Tensor *>> singles;
  auto ask = [&](Tensor &result, StringRef name, ArrayRef<Value> rows) {
    if (rows.size() == 1) {
      Value known = tensorOf(rows[0]);
      if (known && !isa<BlockArgument>(rows[0])) {
        result = known;
        return;
      }
      bool asked = llvm::any_of(
          singles, [&](auto &single) { return single.first == rows[0]; });
      singles.push_back({rows[0], &result});
      if (asked)
        return;
    }
    request(result, name, rows, 0);
  };
  for (StateChain &chain : chains.states) {
    Rows &rows = this->rows(chain);
    rows.queries.resize(chain.reads.size());
    if (chain.level == level)
      askWrites(chain, rows, ask);
    for (auto [tensor, read] : llvm::zip(rows.queries, chain.reads))
      if (read.level == level)
        ask(tensor, "Q", read.op.getKey());
  }

  for (ListChain &list : chains.lists)
    if (list.level == level)
      ask(appended[list.append], "X", list.append.getRow());
  for (ListRead &read : chains.attends) {
    SmallVector<Tensor> &tensors = queries[read.op];
    tensors.resize(read.op.getQueries().size());
    for (auto [tensor, query] : llvm::zip(tensors, read.op.getQueries()))
      if (read.level == level)
        ask(tensor, "Q", query);
  }

  if (requests.empty())
    return;
  b.setLoc(layer.getLoc());
  Block body;
  IRMapping map;
  SmallVector<Value> ins, yielded;
  SmallVector<int64_t> perToken;
  SmallVector<double> fills;
  SmallVector<Type> types;
  SmallVector<StringRef> names;
  OpBuilder in(b.getContext());
  in.setInsertionPointToStart(&body);
  for (Request &r : requests) {
    for (auto [i, row] : llvm::enumerate(r.rows)) {
      Value made;
      if (row) {
        made = cloneInto(in, row, map, ins);
        if (i < r.exponentiate.size() && r.exponentiate[i])
          made = math::ExpOp::create(in, b.getLoc(), made);
        if (made.getType() != r.rowType)
          made = vector::BroadcastOp::create(in, b.getLoc(), r.rowType, made);
      } else {
        Attribute zero = b.getF32FloatAttr(float(r.fill));
        if (auto vector = dyn_cast<VectorType>(r.rowType))
          zero = DenseElementsAttr::get(vector, zero);
        made = arith::ConstantOp::create(in, b.getLoc(), cast<TypedAttr>(zero));
      }
      yielded.push_back(made);
    }
    SmallVector<int64_t> shape = {chunk * int64_t(r.rows.size())};
    if (auto vector = dyn_cast<VectorType>(r.rowType))
      shape.push_back(vector.getDimSize(0));
    types.push_back(RankedTensorType::get(shape, b.getF32Type()));
    perToken.push_back(r.rows.size());
    fills.push_back(r.fill);
    auto spec =
        r.rows.size() == 1 ? dyn_cast<NameLoc>(r.rows[0].getLoc()) : NameLoc();
    names.push_back(spec ? spec.getName().getValue() : r.name);
  }
  chunk::YieldOp::create(in, b.getLoc(), yielded);
  auto op = chunk::MapOp::create(b, types, chunk, loop.getInductionVar(),
                                 function.getArgument(0), ins, perToken, fills,
                                 b.getStrArrayAttr(names));
  op.getBody().push_back(new Block);
  op.getBody().front().getOperations().splice(op.getBody().front().end(),
                                              body.getOperations());
  for (BlockArgument arg : body.getArguments())
    arg.replaceAllUsesWith(
        op.getBody().front().addArgument(arg.getType(), arg.getLoc()));
  for (auto [r, result] : llvm::zip(requests, op.getResults())) {
    *r.result = result;
    if (r.rows.size() == 1 && r.fill == 0 && r.rows[0] &&
        !isPerLayer(r.rows[0]))
      if (!tensors.count(r.rows[0]))
        tensors[r.rows[0]] = result;
  }
  for (auto [value, tensor] : singles)
    if (!*tensor)
      for (auto [other, made] : singles)
        if (other == value && *made)
          *tensor = *made;
}

//===----------------------------------------------------------------------===//
// The equations of one state
//===----------------------------------------------------------------------===//

Value Derivation::scores(StateChain &chain, StringRef name, Value x,
                         ArrayAttr xRows, Value y, ArrayAttr yRows) {
  named(name, chain.start.getLoc());
  return ScoresOp::create(b, matrix(numRows(x), numRows(y)), x, xRows, y, yRows,
                          rows(chain).G, stepsOf(chain));
}

Value Derivation::read(StateChain &chain, StringRef name, Value x,
                       ArrayAttr xRows) {
  named(name, chain.start.getLoc());
  return chunk::ReadOp::create(
      b, matrix(numRows(x), chain.type().getValueDim()), states[chain.start], x,
      xRows, rows(chain).G, stepsOf(chain));
}

/// M X, or onto + M X.
Value Derivation::times(StateChain &chain, StringRef name, Value M, Value X,
                        Value onto) {
  named(name, chain.start.getLoc());
  return MatmulOp::create(b, matrix(numRows(M), chain.type().getValueDim()), M,
                          X, onto);
}

/// U = T (U0 + diag(c) (F~ S + M_FK V)), T = (I - diag(c) M_FE)^-1
void Derivation::deriveWrites(StateChain &chain) {
  Rows &r = rows(chain);
  if (chain.decays) {
    named("G", chain.start.getLoc());
    r.G = CumsumOp::create(b, r.decay.getType(),
                           DomainAttr::get(b.getContext(), chain.domain),
                           r.decay, chain.bounds);
  }
  if (!r.along)
    return;
  ArrayAttr along = rowsAttr(chain.along), at = rowsAttr(chain.at);
  Value M = scores(chain, "M_fe", r.at, at, r.along, along);
  named("T", chain.start.getLoc());
  Value T = InverseOp::create(b, M.getType(), M, r.by);
  Value R = read(chain, "R", r.at, at);
  if (r.keys) {
    Value M_fk = scores(chain, "M_fk", r.at, at, r.keys, rowsAttr(chain.keys));
    R = times(chain, "R", M_fk, r.values, R);
  }
  named("W", chain.start.getLoc());
  Value W = ScaleOp::create(b, R.getType(), R, r.by);
  if (r.u0)
    W = arith::AddFOp::create(b, r.u0, W);
  r.U = times(chain, "U", T, W, Value());
}

/// O = Q~ S + M_QE U + M_QK V
void Derivation::deriveRead(StateChain &chain, unsigned index) {
  Rows &r = rows(chain);
  Value q = r.queries[index];
  ArrayAttr at = b.getArrayAttr({chain.reads[index].at});
  Value O = read(chain, "O", q, at);
  if (r.U) {
    Value M = scores(chain, "M_qe", q, at, r.along, rowsAttr(chain.along));
    O = times(chain, "O", M, r.U, O);
  }
  if (r.keys) {
    Value M = scores(chain, "M_qk", q, at, r.keys, rowsAttr(chain.keys));
    O = times(chain, "O", M, r.values, O);
  }
  tensors[chain.reads[index].op.getResult()] = O;
}

/// S' = diag(exp G_C) S + E^^T U + K^^T V. The last op on the state: a lowering
/// updates it in place.
void Derivation::deriveCarry(StateChain &chain) {
  Rows &r = rows(chain);
  SmallVector<Value> keys, values;
  SmallVector<Attribute> places;
  auto carry = [&](Value key, ArrayRef<Row> at, Value value) {
    keys.push_back(key);
    places.push_back(rowsAttr(at));
    values.push_back(value);
  };
  if (r.U)
    carry(r.along, chain.along, r.U);
  if (r.keys)
    carry(r.keys, chain.keys, r.values);
  if (!chain.decays && keys.empty())
    return;
  named("S", chain.start.getLoc());
  Value &S = states[chain.start];
  S = CarryOp::create(b, S.getType(), S, keys, b.getArrayAttr(places), values,
                      r.G, stepsOf(chain));
}

//===----------------------------------------------------------------------===//
// Growing states
//===----------------------------------------------------------------------===//

void Derivation::deriveAppend(ListChain &list) {
  b.setLoc(list.append.getLoc()); // The name of the state.
  Value &L = states[list.append.getList()];
  L = chunk::AppendOp::create(b, L.getType(), L, appended[list.append],
                              loop.getInductionVar(), function.getArgument(0));
}

void Derivation::deriveAttend(ListRead &read) {
  auto listOf = [&](Value list) { return states[appendTo(list).getList()]; };
  assoc::AttendOp op = read.op;
  named("O", op.getLoc());
  tensors[op.getResult()] = chunk::AttendOp::create(
      b, matrix(chunk, op.getType().getDimSize(0)), op.seesOwn(), queries[op],
      llvm::map_to_vector(op.getKeys(), listOf), listOf(op.getValues()),
      loop.getInductionVar(), function.getArgument(0));
}

//===----------------------------------------------------------------------===//
// The function around it
//===----------------------------------------------------------------------===//

/// tensor<?xdxT> of a row type, or tensor<?xT> of a scalar's.
RankedTensorType sequenceOf(Type row) {
  SmallVector<int64_t> shape = {ShapedType::kDynamic};
  if (auto vector = dyn_cast<VectorType>(row))
    shape.push_back(vector.getDimSize(0));
  return RankedTensorType::get(shape, getElementTypeOrSelf(row));
}

void Derivation::createFunction() {
  SmallVector<Type> types = {b.getIndexType()};
  SmallVector<DictionaryAttr> argAttrs = {b.getDictionaryAttr(
      {b.getNamedAttr(kRoleAttr, b.getStringAttr("tokens"))})};
  auto add = [&](Type type, StringRef role, StringRef name) {
    types.push_back(type);
    argAttrs.push_back(b.getDictionaryAttr(
        {b.getNamedAttr(kRoleAttr, b.getStringAttr(role)),
         b.getNamedAttr(kNameAttr, b.getStringAttr(name))}));
  };
  SmallVector<Type> results;
  for (BlockArgument arg : layer.getBody().getArguments()) {
    auto attr = cast<ArgAttr>(layer.getArgs()[arg.getArgNumber()]);
    Type type = arg.getType();
    if (attr.getRole() == Role::Input)
      type = sequenceOf(type);
    else if (auto state = dyn_cast<StateType>(type)) {
      type = matrix(state.getKeyDim(), state.getValueDim());
      results.push_back(type);
    } else if (isa<ListType>(type)) {
      results.push_back(type);
    }
    add(type, stringifyRole(attr.getRole()), attr.getName());
  }
  for (auto [name, value] :
       llvm::zip(layer.getOutputs().getAsValueRange<StringAttr>(),
                 layer.yieldedOutputs())) {
    Type type = sequenceOf(value.getType());
    add(type, "output", name);
    results.push_back(type);
  }
  b.setInsertionPointAfter(layer);
  std::string name = (layer.getSymName() + "_chunk" + Twine(chunk)).str();
  function = func::FuncOp::create(b, name, b.getFunctionType(types, results));
  function.setAllArgAttrs(llvm::map_to_vector(
      argAttrs, [](DictionaryAttr attr) -> Attribute { return attr; }));
  function->setAttr(kLayerAttr, FlatSymbolRefAttr::get(layer.getSymNameAttr()));
  function->setAttr(kChunkAttr, b.getI64IntegerAttr(chunk));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  for (auto [arg, value] : llvm::zip(layer.getBody().getArguments(),
                                     entry->getArguments().drop_front())) {
    value.setLoc(arg.getLoc());
    if (isPerLayer(arg))
      perLayer.map(arg, value);
    else if (!isa<StateType, ListType>(arg.getType()))
      tensors[arg] = value;
  }
}

void Derivation::createLoop() {
  b.setLoc(layer.getLoc());
  Value zero = arith::ConstantIndexOp::create(b, b.getLoc(), 0);
  Value step = arith::ConstantIndexOp::create(b, b.getLoc(), chunk);
  auto args = function.getArguments();
  SmallVector<Value> init;
  for (BlockArgument start : layer.argumentsOf(Role::State))
    init.push_back(args[1 + start.getArgNumber()]);
  unsigned numOutputs = layer.getOutputs().size();
  llvm::append_range(init, args.take_back(numOutputs));
  loop = scf::ForOp::create(b, zero, args[0], step, init);
  func::ReturnOp::create(b, loop.getResults());
  b.setInsertionPointToStart(loop.getBody());
  for (auto [start, value] :
       llvm::zip(layer.argumentsOf(Role::State), loop.getRegionIterArgs())) {
    value.setLoc(start.getLoc());
    states[start] = value;
  }
}

void Derivation::createOutputs() {
  b.setLoc(layer.getLoc());
  auto outs = loop.getRegionIterArgs().take_back(layer.getOutputs().size());
  SmallVector<Value> ins, yielded;
  IRMapping map;
  Block body;
  OpBuilder in(b.getContext());
  in.setInsertionPointToStart(&body);
  for (Value output : layer.yieldedOutputs())
    yielded.push_back(cloneInto(in, output, map, ins));
  chunk::YieldOp::create(in, b.getLoc(), yielded);
  auto op = OutputOp::create(b, TypeRange(ValueRange(outs)), chunk,
                             loop.getInductionVar(), function.getArgument(0),
                             ins, outs);
  Block *block = new Block;
  op.getBody().push_back(block);
  block->getOperations().splice(block->end(), body.getOperations());
  for (BlockArgument arg : body.getArguments())
    arg.replaceAllUsesWith(block->addArgument(arg.getType(), arg.getLoc()));
  SmallVector<Value> results;
  for (BlockArgument start : layer.argumentsOf(Role::State))
    results.push_back(states[start]);
  llvm::append_range(results, op.getResults());
  scf::YieldOp::create(b, results);
}

LogicalResult Derivation::run() {
  FailureOr<StateChains> read = readStateChains(layer);
  if (failed(read))
    return failure();
  chains = std::move(*read);
  createFunction();
  createLoop();
  int last = 0;
  for (StateChain &chain : chains.states) {
    last = std::max(last, chain.level);
    for (ChainRead &read : chain.reads)
      last = std::max(last, read.level);
  }
  for (ListChain &list : chains.lists)
    last = std::max(last, list.level);
  for (ListRead &read : chains.attends)
    last = std::max(last, read.level);
  for (int level = 0; level <= last; ++level) {
    mapRows(level);
    for (StateChain &chain : chains.states)
      if (chain.level == level)
        deriveWrites(chain);
    for (StateChain &chain : chains.states)
      for (unsigned i = 0; i < chain.reads.size(); ++i)
        if (chain.reads[i].level == level)
          deriveRead(chain, i);
    for (ListChain &list : chains.lists)
      if (list.level == level)
        deriveAppend(list);
    for (ListRead &read : chains.attends)
      if (read.level == level)
        deriveAttend(read);
  }
  for (StateChain &chain : chains.states)
    deriveCarry(chain);
  createOutputs();
  return success();
}

struct ToChunkPass : public plum::impl::ToChunkPassBase<ToChunkPass> {
  using ToChunkPassBase::ToChunkPassBase;

  void runOnOperation() override {
    SmallVector<int64_t> sizes(chunks.begin(), chunks.end());
    if (sizes.empty())
      sizes.push_back(64);
    for (int64_t size : sizes)
      if (size < 1 || size > 256 || !llvm::isPowerOf2_64(uint64_t(size))) {
        getOperation().emitError()
            << "expects a chunk size that is a power of two "
               "from 1 to 256, got "
            << size;
        return signalPassFailure();
      }
    for (LayerOp layer :
         llvm::make_early_inc_range(getOperation().getOps<LayerOp>()))
      for (int64_t size : sizes)
        if (failed(Derivation(layer, size).run()))
          break; // said why; the layer keeps its step form
  }
};

} // namespace
