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

#include "plum/Transforms/Passes.h"

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
// What a layer says about one of its states
//===----------------------------------------------------------------------===//

/// A row of the chunk: a value of the token's equations, and where it stands.
struct Row {
  Value value;
  AtAttr at;
};

struct StateChain {
  BlockArgument start;
  SmallVector<StepOp> steps;
  SmallVector<assoc::ReadOp> reads;
  bool decays = false, channelDecay = false;
  Domain domain = Domain::Log;
  BoundsAttr bounds;
  /// Erases, one entry each; u0 may be null. Then the other writes.
  SmallVector<Row> along, at, keys;
  SmallVector<Value> by, u0, values;

  StateType type() const { return cast<StateType>(start.getType()); }
};

/// Collects the chain of `start`; fails with an error or remark when it has no
/// chunkwise form.
class ChainReader {
public:
  explicit ChainReader(LayerOp layer) : layer(layer) {}
  FailureOr<StateChain> read(BlockArgument start);

private:
  AtAttr at(int64_t step, Moment moment) {
    return AtAttr::get(layer.getContext(), step, moment);
  }
  void readDecays(StateChain &chain);
  void readWrites(StateChain &chain, StepOp step, int64_t index);

  LayerOp layer;
  DenseMap<Value, AtAttr> places; ///< When each state of the chain is current.
};

void ChainReader::readDecays(StateChain &chain) {
  bool allLog = true;
  double low = 0, high = 0;
  bool bounded = true, assumed = false;
  for (StepOp step : chain.steps) {
    Value decay = step.getDecay();
    if (!decay)
      continue;
    chain.decays = true;
    chain.channelDecay |= isa<VectorType>(decay.getType());
    allLog &= *step.getDomain() == Domain::Log;
    if (BoundsAttr bounds = step.getBoundsAttr()) {
      low = std::min(low, bounds.getLow().convertToDouble());
      high = std::max(high, bounds.getHigh().convertToDouble());
      assumed |= bounds.getAssumed();
    } else
      bounded = false;
  }
  chain.domain = allLog ? Domain::Log : Domain::Linear;
  if (chain.decays && bounded && allLog)
    chain.bounds = BoundsAttr::get(layer.getContext(), low, high, assumed);
}

void ChainReader::readWrites(StateChain &chain, StepOp step, int64_t index) {
  SmallVector<bool> joined(step.getKeys().size(), false);
  for (unsigned i = 0; i < step.getAlong().size(); ++i) {
    Value key = step.getAlong()[i], u0;
    for (unsigned j = 0; j < joined.size() && !u0; ++j)
      if (!joined[j] && step.getKeys()[j] == key) {
        joined[j] = true;
        u0 = step.getValues()[j];
      }
    AtAttr read = step.getDecayed()[i] ? at(index, Moment::Decayed)
                                       : places.lookup(step.getOf()[i]);
    chain.along.push_back({key, at(index, Moment::After)});
    chain.at.push_back({step.getAt()[i], read});
    chain.by.push_back(step.getBy()[i]);
    chain.u0.push_back(u0);
  }
  for (unsigned j = 0; j < joined.size(); ++j)
    if (!joined[j]) {
      chain.keys.push_back({step.getKeys()[j], at(index, Moment::After)});
      chain.values.push_back(step.getValues()[j]);
    }
}

FailureOr<StateChain> ChainReader::read(BlockArgument start) {
  StateChain chain;
  chain.start = start;
  Value state = start;
  places[state] = at(0, Moment::Before);
  SmallVector<Value> current = {state};
  while (true) {
    StepOp next;
    for (Operation *user : state.getUsers()) {
      if (auto step = dyn_cast<StepOp>(user); step && step.getState() == state)
        next = step;
      else if (!isa<StepOp, assoc::ReadOp, assoc::YieldOp>(user)) {
        user->emitRemark()
            << "layer '" << layer.getSymName()
            << "' has no chunkwise form: this op is not a step or "
               "a read; it runs in the step form";
        return failure();
      }
    }
    if (!next)
      break;
    int64_t index = chain.steps.size();
    chain.steps.push_back(next);
    readWrites(chain, next, index);
    state = next.getResult();
    places[state] = at(index, Moment::After);
    current.push_back(state);
  }
  readDecays(chain);
  for (Operation &op : layer.getBlock())
    if (auto read = dyn_cast<assoc::ReadOp>(op);
        read && llvm::is_contained(current, read.getState()))
      chain.reads.push_back(read);
  return chain;
}

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

  LogicalResult readChains();
  int levelOf(Value value);
  void createFunction();
  void createLoop();
  void mapRows(ArrayRef<StateChain *> chains);
  void deriveState(StateChain &chain);
  void createOutputs();

  /// The rows a map makes, until its op is built.
  struct Request {
    SmallVector<Value> rows; ///< One per row of a token; null is neutral.
    Type rowType;
    double fill;
    Tensor *result;
    StringRef name;
  };
  void request(Tensor &result, StringRef name, ArrayRef<Value> rows,
               double fill);
  Value rowOr(ImplicitLocOpBuilder &in, Value row, const Request &request,
              IRMapping &map);

  Value cloneInto(OpBuilder &in, Value value, IRMapping &map,
                  SmallVectorImpl<Value> &tokenInputs);
  Value hoisted(Value value);
  bool isPerLayer(Value value);
  Value tensorOf(Value value) { return tensors.lookup(value); }
  RankedTensorType matrix(int64_t rows, int64_t cols) {
    return RankedTensorType::get({rows, cols}, b.getF32Type());
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
  SmallVector<StateChain, 0> chains;
  DenseMap<Value, int> levels;      ///< Of reads: one above their state's.
  DenseMap<Value, int> chainLevels; ///< Of state arguments.
  SmallVector<Request> requests;

  func::FuncOp function;
  scf::ForOp loop;
  IRMapping perLayer;             ///< Params and what is made of them alone.
  DenseMap<Value, Value> tensors; ///< Layer values that are tensors by now.
  DenseMap<Value, Value> states;  ///< State argument -> its tensor.
  /// Tensors of each chain.
  struct Rows {
    Tensor decay, along, at, by, u0, keys, values;
    SmallVector<Tensor> queries;
  };
  std::map<void *, Rows> rowsOf; ///< By state argument; entries stay put.
};

bool Derivation::isPerLayer(Value value) {
  if (auto arg = dyn_cast<BlockArgument>(value))
    return cast<ArgAttr>(layer.getArgs()[arg.getArgNumber()]).getRole() ==
           Role::Param;
  Operation *op = value.getDefiningOp();
  return isPure(op) && llvm::all_of(op->getOperands(),
                                    [&](Value v) { return isPerLayer(v); });
}

/// How many states have to be done before a value is known: 0 for what needs
/// only inputs. -1 for what depends on a state in any other way than a read.
int Derivation::levelOf(Value value) {
  auto found = levels.find(value);
  if (found != levels.end())
    return found->second;
  int level = 0;
  if (Operation *op = value.getDefiningOp())
    for (Value operand : op->getOperands())
      level = std::max(level, levelOf(operand));
  levels[value] = level;
  return level;
}

LogicalResult Derivation::readChains() {
  SmallVector<StateChain, 0> pending;
  for (BlockArgument start : layer.argumentsOf(Role::State)) {
    FailureOr<StateChain> chain = ChainReader(layer).read(start);
    if (failed(chain))
      return failure();
    pending.push_back(std::move(*chain));
  }
  // A read of a state not yet placed has an unreachable level.
  constexpr int kUnplaced = 1 << 20;
  for (StateChain &chain : pending)
    for (assoc::ReadOp read : chain.reads)
      levels[read.getResult()] = kUnplaced;
  while (!pending.empty()) {
    bool progress = false;
    SmallVector<StateChain, 0> rest;
    DenseMap<Value, int> known;
    for (auto [value, level] : levels)
      if (value.getDefiningOp<assoc::ReadOp>())
        known[value] = level;
    for (StateChain &chain : pending) {
      levels = known;
      int level = 0;
      for (StepOp step : chain.steps)
        for (Value operand : step->getOperands())
          if (!isa<StateType>(operand.getType()))
            level = std::max(level, levelOf(operand));
      for (assoc::ReadOp read : chain.reads)
        level = std::max(level, levelOf(read.getKey()));
      if (level >= kUnplaced) {
        rest.push_back(std::move(chain));
        continue;
      }
      chainLevels[chain.start] = level;
      for (assoc::ReadOp read : chain.reads)
        known[read.getResult()] = level + 1;
      chains.push_back(std::move(chain));
      progress = true;
    }
    levels = known;
    pending = std::move(rest);
    if (!progress) {
      layer.emitRemark()
          << "layer '" << layer.getSymName()
          << "' has no chunkwise form: what its state writes depends on "
             "what it reads other than by an erase; it runs in the step "
             "form";
      return failure();
    }
  }
  return success();
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

void Derivation::request(Tensor &result, StringRef name, ArrayRef<Value> rows,
                         double fill) {
  Request r{SmallVector<Value>(rows), {}, fill, &result, name};
  for (Value row : rows)
    if (row && (!r.rowType || isa<VectorType>(row.getType())))
      r.rowType = row.getType();
  requests.push_back(std::move(r));
}

/// Emits one chunk.map for the rows that all chains of one level need.
void Derivation::mapRows(ArrayRef<StateChain *> level) {
  requests.clear();
  // A value of its own (one row a token) is shared between requests, and later
  // maps and the outputs read it instead of computing it again.
  SmallVector<std::pair<Value, Tensor *>> singles;
  auto ask = [&](Tensor &result, StringRef name, ArrayRef<Value> rows,
                 double fill) {
    if (rows.size() == 1 && fill == 0) {
      if (Value known = tensorOf(rows[0]);
          known && !isa<BlockArgument>(rows[0])) {
        result = known;
        return;
      }
      for (auto [value, tensor] : singles)
        if (value == rows[0]) {
          singles.push_back({value, &result});
          return;
        }
      singles.push_back({rows[0], &result});
    }
    request(result, name, rows, fill);
  };
  auto values = [](ArrayRef<Row> rows) {
    return llvm::map_to_vector(rows, [](const Row &row) { return row.value; });
  };
  for (StateChain *chain : level) {
    Rows &rows = rowsOf[chain->start.getAsOpaquePointer()];
    if (chain->decays) {
      SmallVector<Value> decays;
      for (StepOp step : chain->steps)
        decays.push_back(step.getDecay());
      bool log = chain->domain == Domain::Log;
      request(rows.decay, "a", decays, log ? 0 : 1);
    }
    if (!chain->along.empty()) {
      ask(rows.along, "E", values(chain->along), 0);
      ask(rows.at, "F", values(chain->at), 0);
      request(rows.by, "c", chain->by, 0);
      if (llvm::any_of(chain->u0, [](Value v) { return bool(v); }))
        ask(rows.u0, "U0", chain->u0, 0);
    }
    if (!chain->keys.empty()) {
      ask(rows.keys, "K", values(chain->keys), 0);
      ask(rows.values, "V", chain->values, 0);
    }
    rows.queries.resize(chain->reads.size());
    for (auto [tensor, read] : llvm::zip(rows.queries, chain->reads))
      ask(tensor, "Q", read.getKey(), 0);
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
    for (Value row : r.rows) {
      // Decays of one chain are brought to one domain and shape.
      Value made;
      if (row) {
        made = cloneInto(in, row, map, ins);
        auto step = llvm::find_if(row.getUsers(), [&](Operation *user) {
          auto step = dyn_cast<StepOp>(user);
          return step && step.getDecay() == row && r.name == "a";
        });
        if (step != row.getUsers().end() && r.fill == 1 &&
            *cast<StepOp>(*step).getDomain() == Domain::Log)
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

void Derivation::deriveState(StateChain &chain) {
  Rows &rows = rowsOf[chain.start.getAsOpaquePointer()];
  Value S = states[chain.start];
  Location place = chain.start.getLoc();
  int64_t steps = std::max<int64_t>(chain.steps.size(), 1);
  int64_t V = chain.type().getValueDim();
  ArrayAttr along = rowsAttr(chain.along), at = rowsAttr(chain.at),
            keys = rowsAttr(chain.keys);
  Value G;
  if (chain.decays) {
    named("G", place);
    G = CumsumOp::create(b, rows.decay.getType(),
                         DomainAttr::get(b.getContext(), chain.domain),
                         rows.decay, chain.bounds);
  }
  auto numRows = [](Value tensor) {
    return cast<RankedTensorType>(tensor.getType()).getDimSize(0);
  };
  auto scores = [&](StringRef name, Value x, ArrayAttr xRows, Value y,
                    ArrayAttr yRows) {
    named(name, place);
    return ScoresOp::create(b, matrix(numRows(x), numRows(y)), x, xRows, y,
                            yRows, G, steps);
  };
  auto read = [&](StringRef name, Value x, ArrayAttr xRows) {
    named(name, place);
    return chunk::ReadOp::create(b, matrix(numRows(x), V), S, x, xRows, G,
                                 steps);
  };
  auto times = [&](StringRef name, Value M, Value X, Value onto) {
    named(name, place);
    return MatmulOp::create(b, matrix(numRows(M), V), M, X, onto);
  };

  // U = T (U0 + diag(c) (F~ S + M_FK V)), T = (I - diag(c) M_FE)^-1
  Value U;
  if (rows.along) {
    Value M = scores("M_fe", rows.at, at, rows.along, along);
    named("T", place);
    Value T = InverseOp::create(b, M.getType(), M, rows.by);
    Value R = read("R", rows.at, at);
    if (rows.keys)
      R = times("R", scores("M_fk", rows.at, at, rows.keys, keys), rows.values,
                R);
    named("W", place);
    Value W = ScaleOp::create(b, R.getType(), R, rows.by);
    if (rows.u0)
      W = arith::AddFOp::create(b, rows.u0, W);
    U = times("U", T, W, Value());
  }

  // O = Q~ S + M_QE U + M_QK V
  for (auto [q, op] : llvm::zip(rows.queries, chain.reads)) {
    Row row{op.getKey(), {}};
    // The state a read sees is the input of step s or the result of step s.
    row.at = AtAttr::get(b.getContext(), 0, Moment::Before);
    for (auto [s, step] : llvm::enumerate(chain.steps))
      if (step.getResult() == op.getState())
        row.at = AtAttr::get(b.getContext(), s, Moment::After);
    ArrayAttr qRows = rowsAttr(row);
    Value O = read("O", q, qRows);
    if (U)
      O = times("O", scores("M_qe", q, qRows, rows.along, along), U, O);
    if (rows.keys)
      O = times("O", scores("M_qk", q, qRows, rows.keys, keys), rows.values, O);
    tensors[op.getResult()] = O;
  }

  // S' = diag(exp G_C) S + E^^T U + K^^T V
  SmallVector<Value> carriedKeys, carriedValues;
  SmallVector<Attribute> carriedRows;
  auto carry = [&](Value key, ArrayAttr keyRows, Value value) {
    carriedKeys.push_back(key);
    carriedRows.push_back(keyRows);
    carriedValues.push_back(value);
  };
  if (U)
    carry(rows.along, along, U);
  if (rows.keys)
    carry(rows.keys, keys, rows.values);
  if (chain.decays || !carriedKeys.empty()) {
    named("S", place);
    S = CarryOp::create(b, S.getType(), S, carriedKeys,
                        b.getArrayAttr(carriedRows), carriedValues, G, steps);
  }
  states[chain.start] = S;
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
    else if (!isa<StateType>(arg.getType()))
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
  if (failed(readChains()))
    return failure();
  createFunction();
  createLoop();
  int last = 0;
  for (StateChain &chain : chains)
    last = std::max(last, chainLevels[chain.start]);
  for (int level = 0; level <= last; ++level) {
    SmallVector<StateChain *> now;
    for (StateChain &chain : chains)
      if (chainLevels[chain.start] == level)
        now.push_back(&chain);
    mapRows(now);
    for (StateChain *chain : now)
      deriveState(*chain);
  }
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
