//===- ChunkGraph.cpp - A planned chunk as tiles and terms ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value [R, V] of the scan is evaluated symbolically to a list of terms,
// each with the scale of its rows; tiles and blocks get their numbers as they
// are first needed.
//
//===----------------------------------------------------------------------===//

#include "ChunkGraph.h"
#include "StepRows.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;
using chunk::Moment;

void Scale::multiply(const Scale &other) {
  constant *= other.constant;
  factors.append(other.factors);
  llvm::sort(factors, [](Value a, Value b) {
    return a.getAsOpaquePointer() < b.getAsOpaquePointer();
  });
}

namespace {

struct Term {
  enum Kind { Read, Product, Alone } kind;
  Rows x;              ///< Read.
  unsigned scores = 0; ///< Product.
  Scale columns;       ///< Product: of the score tile.
  unsigned block = 0;  ///< Product, Alone.
  Value whole;         ///< Alone: the rows with their scale, in a map.
  Scale scale;         ///< Of the rows.
};
using Terms = SmallVector<Term, 2>;

template <typename T, typename V> unsigned indexOf(T &list, const V &item) {
  auto it = llvm::find(list, item);
  if (it != list.end())
    return it - list.begin();
  list.push_back(item);
  return list.size() - 1;
}

class Analysis {
public:
  Analysis(func::FuncOp function, std::string &why) : why(why) {
    graph.function = function;
  }
  FailureOr<Graph> run();

private:
  LogicalResult fail(const Twine &text) {
    if (why.empty())
      why = text.str();
    return failure();
  }
  /// Through stages and loop-carried values to what makes the value.
  Value resolve(Value value);
  /// The value in a map's region behind the map's result.
  Value yielded(Value value);
  FailureOr<Rows> rows(Value value, ArrayAttr at);
  Scale scaleOf(Value scalar);
  const Argument *rawInput(Value rows, Scale &scale);
  void useRawInputs();
  FailureOr<Terms> evaluate(Value value);
  FailureOr<unsigned> scores(chunk::ScoresOp op);
  FailureOr<unsigned> blockOf(Value value, Scale &scale);
  FailureOr<Sum> sum(Terms terms);
  FailureOr<Sum> vectorSum(Terms terms);
  bool weight(Value one, Scale &scale);
  LogicalResult carry(chunk::CarryOp op);
  LogicalResult carryVector(chunk::CarryOp op);
  LogicalResult readOutputs();
  LogicalResult noteDecay(Value decay);
  LogicalResult readArguments();
  LogicalResult solve(chunk::MatmulOp op, chunk::InverseOp inverse, Terms &out);

  Graph graph;
  std::string &why;
  scf::ForOp loop;
  StepRows steps;
  DenseMap<Value, unsigned> solved; ///< Result of a solve to its block.
};

} // namespace

//===----------------------------------------------------------------------===//
// Looking through structure
//===----------------------------------------------------------------------===//

Value Analysis::resolve(Value value) {
  while (auto stage = value.getDefiningOp<chunk::StageOp>()) {
    auto yield = cast<chunk::YieldOp>(stage.getBody().front().getTerminator());
    value = yield.getValues()[cast<OpResult>(value).getResultNumber()];
  }
  return value;
}

Value Analysis::yielded(Value value) {
  value = resolve(value);
  auto map = value.getDefiningOp<chunk::MapOp>();
  if (!map || llvm::any_of(map.getPerToken(), [](int64_t n) { return n != 1; }))
    return Value();
  auto yield = cast<chunk::YieldOp>(map.getBody().front().getTerminator());
  return yield.getValues()[cast<OpResult>(value).getResultNumber()];
}

const Argument *Graph::argument(Value value) const {
  auto arg = dyn_cast<BlockArgument>(value);
  if (!arg)
    return nullptr;
  if (!isa<func::FuncOp>(arg.getOwner()->getParentOp())) {
    Value behind = source(arg);
    return behind && behind != value ? argument(behind) : nullptr;
  }
  // Argument 0 is the token count.
  return arg.getArgNumber() ? &arguments[arg.getArgNumber() - 1] : nullptr;
}

Value Graph::source(BlockArgument arg) const {
  Operation *parent = arg.getOwner()->getParentOp();
  Value operand;
  if (auto map = dyn_cast<chunk::MapOp>(parent))
    operand = map.getIns()[arg.getArgNumber()];
  else if (auto out = dyn_cast<chunk::OutputOp>(parent))
    operand = out.getIns()[arg.getArgNumber()];
  else
    return Value();
  while (auto stage = operand.getDefiningOp<chunk::StageOp>()) {
    auto yield = cast<chunk::YieldOp>(stage.getBody().front().getTerminator());
    operand = yield.getValues()[cast<OpResult>(operand).getResultNumber()];
  }
  if (auto map = operand.getDefiningOp<chunk::MapOp>()) {
    auto yield = cast<chunk::YieldOp>(map.getBody().front().getTerminator());
    return yield.getValues()[cast<OpResult>(operand).getResultNumber()];
  }
  return operand;
}

/// A value and all that it is made of.
static llvm::SetVector<Value> parts(Value value) {
  llvm::SetVector<Value> work;
  work.insert(value);
  for (size_t i = 0; i < work.size(); ++i)
    if (Operation *op = work[i].getDefiningOp())
      work.insert_range(op->getOperands());
  return work;
}

llvm::SetVector<BlockArgument> Graph::sources(Value value) {
  llvm::SetVector<BlockArgument> out;
  for (Value part : parts(value))
    if (auto arg = dyn_cast<BlockArgument>(part))
      out.insert(arg);
  return out;
}

//===----------------------------------------------------------------------===//
// Scales and rows
//===----------------------------------------------------------------------===//

Scale Analysis::scaleOf(Value scalar) {
  Scale scale;
  FloatAttr constant;
  if (matchPattern(scalar, m_Constant(&constant))) {
    scale.constant = constant.getValueAsDouble();
  } else if (auto neg = scalar.getDefiningOp<arith::NegFOp>()) {
    scale = scaleOf(neg.getOperand());
    scale.constant = -scale.constant;
  } else {
    scale.factors.push_back(scalar);
  }
  return scale;
}

FailureOr<Rows> Analysis::rows(Value value, ArrayAttr at) {
  Value inner = yielded(value);
  std::optional<Moment> moment = momentOf(at, steps);
  if (!inner || !moment)
    return fail("updates of one token that do not match each other");
  return Rows{inner, *moment};
}

LogicalResult Analysis::noteDecay(Value decay) {
  if (!decay)
    return success();
  auto cumsum = resolve(decay).getDefiningOp<chunk::CumsumOp>();
  Value inner = cumsum ? yielded(cumsum.getDecay()) : Value();
  if (!inner)
    return fail("a factor of rows that no map makes");
  if (graph.logDecay && graph.logDecay != inner)
    return fail("two different decays");
  graph.logDecay = inner;
  graph.decay = isa<VectorType>(inner.getType()) ? Graph::Decay::Channel
                                                 : Graph::Decay::Scalar;
  graph.linear = cumsum.getDomain() == assoc::Domain::Linear;
  // exp(16 b) and its inverse must be normal fp32 numbers, with room for the
  // rows they scale.
  if (auto bounds = cumsum.getBounds(); bounds && !graph.linear)
    graph.bounded = bounds->getLow().convertToDouble() >= -5.0;
  return success();
}

//===----------------------------------------------------------------------===//
// Terms
//===----------------------------------------------------------------------===//

FailureOr<unsigned> Analysis::scores(chunk::ScoresOp op) {
  auto x = rows(op.getX(), op.getXRows()), y = rows(op.getY(), op.getYRows());
  if (failed(x) || failed(y) || failed(noteDecay(op.getDecay())))
    return failure();
  return indexOf(graph.scores, Scores{*x, *y});
}

/// The input that rows are, up to a scale that is peeled off; null if none.
const Argument *Analysis::rawInput(Value v, Scale &scale) {
  while (true) {
    if (auto neg = v.getDefiningOp<arith::NegFOp>()) {
      scale.constant = -scale.constant;
      v = neg.getOperand();
      continue;
    }
    auto mul = v.getDefiningOp<arith::MulFOp>();
    if (!mul)
      break;
    bool found = false;
    for (auto [a, b] : {std::pair(mul.getLhs(), mul.getRhs()),
                        std::pair(mul.getRhs(), mul.getLhs())}) {
      DenseElementsAttr splat;
      if (auto broadcast = a.getDefiningOp<vector::BroadcastOp>();
          broadcast && broadcast.getSource().getType().isF32()) {
        scale.multiply(scaleOf(broadcast.getSource()));
        found = true;
      } else if (matchPattern(a, m_Constant(&splat)) && splat.isSplat()) {
        scale.constant *= splat.getSplatValue<APFloat>().convertToDouble();
        found = true;
      }
      if (found) {
        v = b;
        break;
      }
    }
    if (!found)
      break;
  }
  if (auto extension = v.getDefiningOp<arith::ExtFOp>())
    if (auto argument = dyn_cast<BlockArgument>(extension.getIn()))
      if (const Argument *input = graph.argument(argument);
          input && input->role == "input" && input->element.isBF16())
        return input;
  return nullptr;
}

/// A block that a value is, up to a scale of its rows.
FailureOr<unsigned> Analysis::blockOf(Value value, Scale &scale) {
  value = resolve(value);
  if (auto it = solved.find(value); it != solved.end())
    return it->second;
  Value inner = yielded(value);
  if (!inner)
    return fail("a value of the chunk that is neither an input nor solved for");
  Scale peeled;
  if (const Argument *input = rawInput(inner, peeled)) {
    scale.multiply(peeled);
    unsigned index = input - graph.arguments.begin();
    return indexOf(graph.blocks, RowBlock{RowBlock::Input, index, Value()});
  }
  return indexOf(graph.blocks, RowBlock{RowBlock::Stored, 0, inner});
}

/// The factor of a row that a vector state is written with: vector<1>.
bool Analysis::weight(Value one, Scale &scale) {
  DenseElementsAttr splat;
  if (matchPattern(one, m_Constant(&splat))) {
    scale.constant *= splat.getSplatValue<APFloat>().convertToDouble();
    return true;
  }
  if (auto broadcast = one.getDefiningOp<vector::BroadcastOp>();
      broadcast && broadcast.getSource().getType().isF32()) {
    scale.multiply(scaleOf(broadcast.getSource()));
    return true;
  }
  auto mul = one.getDefiningOp<arith::MulFOp>();
  return mul && weight(mul.getLhs(), scale) && weight(mul.getRhs(), scale);
}

static bool isColumn(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(1) == 1;
}

LogicalResult Analysis::solve(chunk::MatmulOp op, chunk::InverseOp inverse,
                              Terms &out) {
  auto right = evaluate(op.getRows());
  auto matrix = resolve(inverse.getScores()).getDefiningOp<chunk::ScoresOp>();
  if (failed(right) || !matrix)
    return fail("a system that is not one of scores");
  auto number = scores(matrix);
  if (failed(number))
    return failure();
  SolveTile tile{*number, {}, {}};
  if (inverse.getScale()) {
    Value c = yielded(inverse.getScale());
    if (!c)
      return fail("a factor of rows that no map makes");
    tile.rows = scaleOf(c);
  }
  // A factor that every term has moves into the tile's columns.
  ArrayRef<Value> common = right->front().scale.factors;
  if (llvm::all_of(*right, [&](Term &t) {
        return ArrayRef(t.scale.factors) == common;
      })) {
    tile.columns.factors.assign(common.begin(), common.end());
    for (Term &term : *right)
      term.scale.factors.clear();
  }
  auto total = sum(*right);
  if (failed(total))
    return failure();
  graph.solveTiles.push_back(tile);
  unsigned index = graph.solves.size();
  graph.solves.push_back({index, *total});
  unsigned block =
      indexOf(graph.blocks, RowBlock{RowBlock::Solve, index, Value()});
  solved[op.getResult()] = block;
  Term term{Term::Alone, {}, 0, {}, block, {}, {}};
  out.push_back(term);
  return success();
}

FailureOr<Terms> Analysis::evaluate(Value value) {
  value = resolve(value);
  if (auto it = solved.find(value); it != solved.end())
    return Terms{Term{Term::Alone, {}, 0, {}, it->second, {}, {}}};
  if (auto read = value.getDefiningOp<chunk::ReadOp>()) {
    auto x = rows(read.getX(), read.getRows());
    if (failed(x) || failed(noteDecay(read.getDecay())))
      return failure();
    return Terms{Term{Term::Read, *x, 0, {}, 0, {}, {}}};
  }
  if (auto scale = value.getDefiningOp<chunk::ScaleOp>()) {
    auto terms = evaluate(scale.getRows());
    Value c = yielded(scale.getBy());
    if (failed(terms) || !c)
      return fail("a factor of rows that no map makes");
    for (Term &term : *terms)
      term.scale.multiply(scaleOf(c));
    return terms;
  }
  if (auto add = value.getDefiningOp<arith::AddFOp>()) {
    auto a = evaluate(add.getLhs()), b = evaluate(add.getRhs());
    if (failed(a) || failed(b))
      return failure();
    a->append(*b);
    return a;
  }
  if (auto product = value.getDefiningOp<chunk::MatmulOp>()) {
    Terms terms;
    if (product.getOnto()) {
      auto onto = evaluate(product.getOnto());
      if (failed(onto))
        return failure();
      terms = *onto;
    }
    Value matrix = resolve(product.getMatrix());
    const bool ofVector = isColumn(product.getRows());
    if (ofVector && matrix.getDefiningOp<chunk::InverseOp>())
      return fail("a vector state that is erased from");
    if (auto inverse = matrix.getDefiningOp<chunk::InverseOp>()) {
      if (product.getOnto() || failed(solve(product, inverse, terms)))
        return fail("a solve that is added to something");
      return terms;
    }
    auto op = matrix.getDefiningOp<chunk::ScoresOp>();
    if (!op)
      return fail("a product with a matrix that is not scores");
    auto number = scores(op);
    Term term{Term::Product, {}, 0, {}, 0, {}, {}};
    if (failed(number))
      return failure();
    term.scores = *number;
    if (ofVector) {
      Value one = yielded(product.getRows());
      if (!one || !weight(one, term.columns))
        return fail("a vector state that is written with more than a factor");
    } else {
      auto block = blockOf(product.getRows(), term.columns);
      if (failed(block))
        return failure();
      term.block = *block;
    }
    terms.push_back(term);
    return terms;
  }
  Term term{Term::Alone, {}, 0, {}, 0, {}, {}};
  auto block = blockOf(value, term.scale);
  if (failed(block))
    return failure();
  term.block = *block;
  term.whole = yielded(value);
  return Terms{term};
}

FailureOr<Sum> Analysis::sum(Terms terms) {
  Sum out;
  // base - reads needs no negated tile.
  bool allNegative = llvm::all_of(terms, [](Term &t) {
    return t.kind == Term::Alone ||
           (t.kind == Term::Read && t.scale.constant < 0);
  });
  for (Term &term : terms) {
    switch (term.kind) {
    case Term::Read:
      out.negateReads = allNegative;
      if (allNegative)
        term.scale.constant = -term.scale.constant;
      out.reads.push_back(
          indexOf(graph.readTiles, ReadTile{term.x, term.scale}));
      break;
    case Term::Product:
      out.products.push_back(
          {indexOf(graph.scoreTiles,
                   ScoreTile{term.scores, term.scale, term.columns}),
           term.block});
      break;
    case Term::Alone: {
      if (out.base)
        return fail("a sum of two blocks");
      RowBlock block = graph.blocks[term.block];
      if (!term.scale.isOne()) {
        if (block.kind == RowBlock::Solve)
          return fail("a solved block that is scaled");
        // Nothing takes the scale: the scaled rows are written out after all.
        out.base =
            indexOf(graph.blocks, RowBlock{RowBlock::Stored, 0, term.whole});
        break;
      }
      out.base = term.block;
      break;
    }
    }
  }
  return out;
}

FailureOr<Sum> Analysis::vectorSum(Terms terms) {
  Sum out;
  out.ofVector = true;
  SmallVector<ScoreTile> sums;
  for (Term &term : terms) {
    if (term.kind == Term::Alone)
      return fail("a read of a vector state that something is added to");
    if (term.kind == Term::Read)
      out.reads.push_back(
          indexOf(graph.readTiles, ReadTile{term.x, term.scale}));
    else
      sums.push_back({term.scores, term.scale, term.columns});
  }
  if (!sums.empty())
    out.rowSums = indexOf(graph.rowSums, sums);
  return out;
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

LogicalResult Analysis::readArguments() {
  func::FuncOp function = graph.function;
  unsigned matrices = 0;
  for (BlockArgument arg : function.getArguments().drop_front()) {
    Argument out;
    auto attr = [&](StringRef name) {
      auto a = function.getArgAttrOfType<StringAttr>(arg.getArgNumber(), name);
      return a ? a.str() : std::string();
    };
    out.name = attr(kNameAttr);
    out.role = attr(kRoleAttr);
    Type type = arg.getType();
    if (auto shaped = dyn_cast<ShapedType>(type)) {
      out.element = shaped.getElementType();
      for (int64_t d : shaped.getShape())
        if (!ShapedType::isDynamic(d))
          out.shape.push_back(d);
    } else {
      out.element = type;
    }
    if (out.role == "state") {
      if (out.shape[1] == 1) {
        if (graph.vectorState)
          return fail("more than one vector state");
        graph.vectorState = VectorState{unsigned(graph.arguments.size()), {}};
      } else {
        ++matrices;
        graph.K = out.shape[0];
        graph.V = out.shape[1];
      }
    }
    graph.arguments.push_back(out);
  }
  if (matrices != 1)
    return fail(matrices ? "more than one matrix state"
                         : "no state that is a matrix");
  if (graph.vectorState &&
      graph.arguments[graph.vectorState->argument].shape[0] != graph.K)
    return fail("a vector state that is not of the matrix's key dim");
  return success();
}

/// Takes factors of whole rows out of the products, and lets the scan read
/// inputs where no channel has a decay of its own.
void Analysis::useRawInputs() {
  const bool channel = graph.decay == Graph::Decay::Channel;
  auto mark = [&](Rows &rows) {
    Scale scale;
    const Argument *input = rawInput(rows.value, scale);
    if (!input || input->shape.size() != 1 || input->shape[0] != graph.K)
      return false;
    rows.raw = input - graph.arguments.begin();
    rows.scale = scale;
    return true;
  };
  const bool decays = graph.decay == Graph::Decay::Scalar;
  for (ReadTile &tile : graph.readTiles)
    if (mark(tile.x) && !channel) {
      TokenVector vector{tile.x.scale, TokenVector::None};
      vector.scale.multiply(tile.scale);
      if (decays)
        vector.decay = tile.x.moment == Moment::Before ? TokenVector::GrowBefore
                                                       : TokenVector::Grow;
      tile.vector = indexOf(graph.vectors, vector);
    }
  for (KeyTile &tile : graph.keyTiles)
    if (mark(tile.k) && !channel) {
      TokenVector vector{tile.k.scale,
                         decays ? TokenVector::Shrink : TokenVector::None};
      vector.scale.multiply(tile.scale);
      tile.vector = indexOf(graph.vectors, vector);
    }
  for (Scores &scores : graph.scores) {
    mark(scores.x);
    mark(scores.y);
  }
}

LogicalResult Analysis::carry(chunk::CarryOp op) {
  // Solves come in the order of their dependence, found from what is carried.
  for (auto [key, at, value] :
       llvm::zip(op.getKeys(), op.getKeyRows(), op.getValues())) {
    auto k = rows(key, cast<ArrayAttr>(at));
    auto terms = evaluate(value);
    if (failed(k) || failed(terms))
      return failure();
    if (terms->size() != 1 || terms->front().kind != Term::Alone)
      return fail("a carried value that is a sum");
    unsigned tile = indexOf(graph.keyTiles, KeyTile{*k, terms->front().scale});
    graph.carry.push_back({tile, terms->front().block});
  }
  return success();
}

LogicalResult Analysis::carryVector(chunk::CarryOp op) {
  for (auto [key, at, value] :
       llvm::zip(op.getKeys(), op.getKeyRows(), op.getValues())) {
    auto k = rows(key, cast<ArrayAttr>(at));
    if (failed(k))
      return failure();
    Scale scale;
    Value one = yielded(value);
    if (!one || !weight(one, scale))
      return fail("a vector state that is written with more than a factor");
    graph.vectorState->keys.push_back(
        indexOf(graph.keyTiles, KeyTile{*k, scale}));
  }
  return success();
}

LogicalResult Analysis::readOutputs() {
  SmallVector<bool> isRows, isSum; // By argument of the output's region.
  for (Value in : graph.output.getIns()) {
    Value value = resolve(in);
    auto type = cast<RankedTensorType>(value.getType());
    const bool rows = bool(yielded(value));
    isRows.push_back(rows);
    isSum.push_back(!rows && !type.isDynamicDim(0));
    if (!isSum.back()) {
      graph.reads.push_back({});
      continue;
    }
    auto terms = evaluate(value);
    if (failed(terms))
      return failure();
    auto total = isColumn(value) ? vectorSum(*terms) : sum(*terms);
    if (failed(total))
      return failure();
    graph.reads.push_back(*total);
  }
  auto yield =
      cast<chunk::YieldOp>(graph.output.getBody().front().getTerminator());
  for (Value value : yield.getValues()) {
    bool rows = false, sums = false, numbers = false, other = false;
    for (BlockArgument arg : Graph::sources(value)) {
      const Argument *argument = graph.argument(arg);
      other |= argument && argument->role == "input" &&
               !argument->shape.empty() && argument->shape[0] != graph.V;
      numbers |=
          argument && argument->role == "input" && argument->shape.empty();
      if (arg.getOwner()->getParentOp() == graph.output.getOperation()) {
        rows |= isRows[arg.getArgNumber()];
        sums |= isSum[arg.getArgNumber()];
      }
    }
    if (numbers && sums)
      return fail("an output that reads both the state and an input of one "
                  "number a token");
    if (other && sums)
      return fail(
          "an output that reads both the state and an input that is not "
          "as long as a value");
    rows |= numbers || other;
    graph.sumsOutputs |= !rows && llvm::any_of(parts(value), [](Value part) {
      return bool(part.getDefiningOp<vector::ReductionOp>());
    });
    if (rows && sums)
      return fail("an output that reads both the state and rows of the tokens' "
                  "maths");
    graph.preparedOutputs.push_back(rows ? value : Value());
  }
  return success();
}

FailureOr<Graph> Analysis::run() {
  func::FuncOp function = graph.function;
  graph.layer =
      function->getAttrOfType<FlatSymbolRefAttr>(kLayerAttr).getValue().str();
  graph.chunk = function->getAttrOfType<IntegerAttr>(kChunkAttr).getInt();
  FailureOr<StepRows> joined = joinSteps(function);
  if (failed(joined))
    return fail("updates of one token that do not match each other");
  steps = *joined;
  graph.steps = steps.steps;
  if (failed(readArguments()))
    return failure();
  chunk::CarryOp carried, carriedVector;
  function.walk([&](Operation *op) {
    if (auto c = dyn_cast<chunk::CarryOp>(op))
      (isColumn(c.getResult()) ? carriedVector : carried) = c;
    if (auto o = dyn_cast<chunk::OutputOp>(op))
      graph.output = o;
  });
  if (!carried || !graph.output)
    return fail("no state to carry");
  if (failed(noteDecay(carried.getDecay())) || failed(carry(carried)))
    return failure();
  if (graph.vectorState) {
    if (!carriedVector ||
        bool(carriedVector.getDecay()) != bool(carried.getDecay()))
      return fail("a vector state that decays in another way than the matrix");
    if (failed(noteDecay(carriedVector.getDecay())) ||
        failed(carryVector(carriedVector)))
      return failure();
    if (!graph.solves.empty())
      return fail("a vector state beside a matrix that is erased from");
  }
  if (failed(readOutputs()))
    return failure();
  useRawInputs();
  return std::move(graph);
}

FailureOr<Graph> plum::totile::analyse(func::FuncOp function,
                                       std::string &why) {
  return Analysis(function, why).run();
}
