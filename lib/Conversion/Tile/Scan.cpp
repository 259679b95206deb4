//===- Scan.cpp - What depends on the state ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One team per sequence, head and slice of V; it keeps its slice of the
// transposed state S^T [slice, K] in accumulators from the first chunk to the
// last. Everything is transposed, so that the state, the blocks and the right
// sides are left operands, which come from registers, and the tiles of the blob
// right operands, which come from shared memory:
//
//   R^T = S^T X~^T      W^T = V^T - R^T      U^T = W^T T^T
//   O^T = S^T Q~^T + U^T M^T                 S'^T = D S^T + U^T K^
//
// The chain from state to state is reads, solve, carry. What only the output
// needs is issued so that it fills the chain's waits: the products of solved
// blocks with scores are put off to the next chunk, behind its reads.
//
// Operands are bf16. Where the schedule says two terms, a number whose
// roundings would add up from state to state is hi + lo, hi the number rounded
// and lo what that lacks: the state's copy as solves read it, right sides,
// solved blocks, and the tiles that meet these. A product is hi Hi + hi Lo + lo
// Hi, and nothing is put off. docs/gpu.md says which numbers and why.
//
// Of a vector state z [K] every slice's team has a copy, an element a thread.
// What tokens read of it is not worth tensor cores: each row of the read tile
// is multiplied with z while the products of the chunk are under way.
//
//===----------------------------------------------------------------------===//

#include "ToTile.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;

namespace {

class Scan {
public:
  Scan(TileBuilder &b, const Graph &graph, const BlobLayout &blob,
       const Schedule &schedule)
      : b(b), graph(graph), blob(blob), schedule(schedule), R(graph.rows()),
        slice(schedule.slice), terms(schedule.terms) {}
  void build();
  /// What is wrong with the chunk's size; empty when its stages fit.
  std::string tooLarge();

private:
  struct Ring {
    Value ring;
    SmallVector<Attribute> parts;
    SmallVector<Type> types;
    unsigned add(TileBuilder &b, tile::SharedType type, int64_t offset,
                 bool sliced);
    unsigned addRows(TileBuilder &b, tile::SharedType type, StringRef input,
                     bool sliced);
  };
  void planParts();
  int64_t bytesFor(int64_t firstStages, int64_t secondStages) const;
  /// Stages of the two rings; as few as may be where nothing fits.
  std::pair<int64_t, int64_t> stages() const;
  /// Are products put off to the next chunk?
  bool defers() const;
  void makeRings();
  /// A block as a left operand: bf16 [slice, R].
  const Terms &operand(unsigned block);
  /// The reads of a sum: products that add up, and those of raw inputs, each
  /// of which has its rows' factors still to come.
  struct Reads {
    Value total;
    SmallVector<std::pair<Value, unsigned>> raw;
  };
  Reads reads(const Sum &s, ArrayRef<Value> state);
  /// All of it, with the factors; null where there is nothing.
  Value total(const Reads &reads);
  /// Rows (tokens, which are columns here) times their factors, from the parts
  /// of this chunk or of the one before.
  Value scaled(Value rows, unsigned vector, ArrayRef<Value> parts);
  /// The block that a solve makes.
  unsigned solvedBlock(unsigned solve) const {
    return llvm::find(graph.blocks, RowBlock{RowBlock::Solve, solve, Value()}) -
           graph.blocks.begin();
  }
  /// A block as it meets a key tile.
  Terms keyOperand(unsigned key, unsigned block, ArrayRef<Value> solved);
  /// The terms of a tile of which this is the first.
  Terms tile(Value first, std::optional<unsigned> low) const;
  /// The product of two sums of terms, without those of two small ones.
  Value dot(ArrayRef<Value> a, ArrayRef<Value> tile, Value onto,
            bool transposed);
  /// A block times a score tile of this chunk.
  Value product(unsigned scores, unsigned block, Value onto) {
    return dot(operand(block), tile(c[scorePart[scores]], scoreLow[scores]),
               onto, false);
  }
  bool solved(unsigned block) const {
    return graph.blocks[block].kind == RowBlock::Solve;
  }
  /// The state and its copies take most of a thread's registers. The outputs'
  /// reads come first then: whoever waits for the chain's reads has waited for
  /// both, and the copies are gone before anything else is made.
  bool crowded() const { return graph.K / 2 + terms * graph.K / 4 > 150; }
  /// Second terms need the registers that what waits would stay in.
  bool deferred(unsigned block) const {
    return terms == 1 && !crowded() && solved(block);
  }
  /// The outputs that are the scan's: name and rows.
  SmallVector<std::pair<StringRef, Value>> outputs() const;
  /// Their rows, in bf16.
  SmallVector<Value> outputValues(ArrayRef<Value> sums);
  void writeOutputs(ArrayRef<Value> values, bool previous);
  Value outputValue(Value v, ArrayRef<Value> sums);
  Value makeOutput(Value v, ArrayRef<Value> sums);
  Value carryState(Value state);
  /// A vector [K] of the blob.
  Value rowOf(unsigned part);
  Value carryVector(Value z);
  /// A sum of the vector state, [R].
  Value readVector(const Sum &s);

  TileBuilder &b;
  const Graph &graph;
  const BlobLayout &blob;
  const Schedule &schedule;
  const int64_t R, slice, terms;

  Ring first, second; ///< What a chunk needs at its start, and what later.
  SmallVector<unsigned> readPart, solvePart, scorePart, keyPart, storedPart;
  /// Second terms, all in the second ring.
  SmallVector<std::optional<unsigned>> solveLow, scoreLow, keyLow;
  SmallVector<unsigned> vectorPart;
  DenseMap<unsigned, unsigned> inputPart;  ///< Argument to part of `first`:
  DenseMap<unsigned, unsigned> wholePart;  ///< its slice, or whole rows.
  DenseMap<unsigned, unsigned> besidePart; ///< What outputs read of inputs.
  SmallVector<unsigned> rowSumPart;
  std::optional<unsigned> decayPart, keySumPart;
  SmallVector<bool> keyInFirst;
  SmallVector<Value> a, c, cBefore; ///< Parts of the two rings.
  SmallVector<Terms> fragments;     ///< Blocks as operands, made once a chunk.
  Value panel;
  Value parts; ///< Where warps leave sums over their rows.
  DenseMap<Value, Value> outputMaths; ///< Of one chunk.
  Value vectorTile;        ///< The vector state, where all threads can read it.
  SmallVector<Value> dots; ///< Its products with read tiles, [1, R].
};

} // namespace

unsigned Scan::Ring::add(TileBuilder &b, tile::SharedType type, int64_t offset,
                         bool sliced) {
  parts.push_back(
      tile::PartAttr::get(b.getContext(), type, offset, StringAttr(), sliced));
  types.push_back(type);
  return parts.size() - 1;
}
unsigned Scan::Ring::addRows(TileBuilder &b, tile::SharedType type,
                             StringRef input, bool sliced) {
  parts.push_back(tile::PartAttr::get(b.getContext(), type, -1,
                                      b.getStringAttr(input), sliced));
  types.push_back(type);
  return parts.size() - 1;
}

void Scan::planParts() {
  auto whole = [&](unsigned argument) {
    auto [it, isNew] = wholePart.insert({argument, 0});
    if (isNew)
      it->second = first.addRows(b, b.shared(R, graph.K),
                                 graph.arguments[argument].name, false);
    return it->second;
  };
  for (auto [read, offset] : llvm::zip(graph.readTiles, blob.reads))
    readPart.push_back(read.isRaw()
                           ? whole(*read.x.raw)
                           : first.add(b, b.shared(R, graph.K), offset, false));
  auto input = [&](unsigned argument) {
    if (!inputPart.contains(argument))
      inputPart[argument] = first.addRows(b, b.shared(R, slice),
                                          graph.arguments[argument].name, true);
  };
  for (const RowBlock &block : graph.blocks)
    if (block.kind == RowBlock::Input)
      input(block.index);
  // Inputs that the output's maths read beside the sums: where sums are put off
  // to the next chunk, the rows have to wait as well.
  const bool late = defers();
  if (graph.output)
    for (auto [name, rows] : outputs())
      for (BlockArgument arg : Graph::sources(rows)) {
        const Argument *argument = graph.argument(arg);
        if (!argument || argument->role != "input" || argument->shape.empty())
          continue;
        unsigned index = argument - graph.arguments.begin();
        if (!late) {
          input(index);
          besidePart[index] = inputPart[index];
        } else if (!besidePart.contains(index)) {
          besidePart[index] =
              second.addRows(b, b.shared(R, slice), argument->name, true);
        }
      }
  for (auto [i, block] : llvm::enumerate(graph.blocks))
    storedPart.push_back(
        block.kind == RowBlock::Stored
            ? first.add(b, b.shared(R, slice), blob.stored[i], true)
            : 0);
  // What is not there has no part.
  auto low = [&](int64_t offset, int64_t cols) -> std::optional<unsigned> {
    if (offset < 0)
      return std::nullopt;
    return second.add(b, b.shared(R, cols), offset, false);
  };
  for (auto [i, offset] : llvm::enumerate(blob.keys)) {
    const KeyTile &key = graph.keyTiles[i];
    keyInFirst.push_back(key.isRaw() || blob.sharedWith[i] >= 0);
    keyPart.push_back(key.isRaw() ? whole(*key.k.raw)
                      : keyInFirst.back()
                          ? readPart[blob.sharedWith[i]]
                          : second.add(b, b.shared(R, graph.K), offset, false));
    keyLow.push_back(low(blob.keysLow[i], graph.K));
  }
  for (auto [offset, lowOffset] : llvm::zip(blob.solves, blob.solvesLow)) {
    solvePart.push_back(second.add(b, b.shared(R, R), offset, false));
    solveLow.push_back(low(lowOffset, R));
  }
  for (auto [offset, lowOffset] : llvm::zip(blob.scores, blob.scoresLow)) {
    scorePart.push_back(second.add(b, b.shared(R, R), offset, false));
    scoreLow.push_back(low(lowOffset, R));
  }
  for (int64_t offset : blob.vectors)
    vectorPart.push_back(
        offset < 0 ? 0 : second.add(b, b.shared(1, R, false), offset, false));
  for (int64_t offset : blob.rowSums)
    rowSumPart.push_back(
        second.add(b, b.shared(1, R, /*half=*/false), offset, false));
  auto row = [&](int64_t offset) {
    return second.add(b, b.shared(1, graph.K, /*half=*/false), offset, false);
  };
  if (blob.decay >= 0)
    decayPart = row(blob.decay);
  if (blob.keySum >= 0)
    keySumPart = row(blob.keySum);
}

bool Scan::defers() const {
  return llvm::any_of(graph.reads, [&](const Sum &s) {
    return llvm::any_of(s.products,
                        [&](auto product) { return deferred(product.second); });
  });
}

int64_t Scan::bytesFor(int64_t firstStages, int64_t secondStages) const {
  auto bytes = [](const Ring &ring) {
    int64_t sum = 0;
    for (Type type : ring.types)
      sum += cast<tile::SharedType>(type).bytes();
    return (sum + 1023) / 1024 * 1024;
  };
  int64_t rest = graph.output ? tileBytes(R, slice) : 0;
  if (graph.output && graph.sumsOutputs)
    rest += slice / 16 * R * 4;
  if (graph.vectorState && graph.output)
    rest += 1024 * (1 + graph.readTiles.size()); // Its tile, and dots.
  return firstStages * bytes(first) + secondStages * bytes(second) + rest;
}

/// Prefetch hides the memory's latency; what the chain reads first matters
/// more. A product that is put off needs the stage before.
std::pair<int64_t, int64_t> Scan::stages() const {
  if (schedule.stages)
    return {schedule.stages, schedule.stages};
  SmallVector<std::pair<int64_t, int64_t>> choices{
      {3, 3}, {3, 2}, {2, 2}, {1, 2}};
  if (!defers())
    choices.append({{2, 1}, {1, 1}});
  for (auto [x, y] : choices)
    if (bytesFor(x, y) <= schedule.shared)
      return {x, y};
  return choices.back();
}

std::string Scan::tooLarge() {
  planParts();
  auto [x, y] = stages();
  int64_t bytes = bytesFor(x, y);
  if (schedule.stages || bytes <= schedule.shared)
    return "";
  return ("chunk = " + Twine(graph.chunk) + " (its tiles take " +
          Twine(bytes / 1024) + " KiB of shared memory, of " +
          Twine(schedule.shared / 1024) + "; a smaller chunk takes less)")
      .str();
}

void Scan::makeRings() {
  planParts();
  const auto [firstStages, secondStages] = stages();
  for (auto [ring, count] :
       {std::pair(&first, firstStages), std::pair(&second, secondStages)})
    if (!ring->parts.empty())
      ring->ring = tile::RingOp::create(b, tile::RingType::get(b.getContext()),
                                        count, b.getArrayAttr(ring->parts));
}

Value Scan::dot(ArrayRef<Value> a, ArrayRef<Value> tile, Value onto,
                bool transposed) {
  auto type = cast<tile::SharedType>(tile.front().getType());
  int64_t n = transposed ? type.getCols() : type.getRows();
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0;
         j < tile.size() && i + j < std::max(a.size(), tile.size()); ++j)
      onto = tile::DotOp::create(b, b.tensor({slice, n}), a[i], tile[j], onto,
                                 transposed);
  return onto;
}

Terms Scan::tile(Value first, std::optional<unsigned> low) const {
  Terms out{first};
  if (low)
    out.push_back(c[*low]);
  return out;
}

const Terms &Scan::operand(unsigned block) {
  if (!fragments[block].empty())
    return fragments[block];
  const RowBlock &row = graph.blocks[block];
  Value tile = row.kind == RowBlock::Input ? a[inputPart[row.index]]
                                           : a[storedPart[block]];
  Value rows =
      tile::LoadOp::create(b, b.tensor({slice, R}, true), tile, Value(),
                           /*transposed=*/true, false, IntegerAttr());
  if (!graph.output && graph.erases())
    rows = tile::ValuesOp::create(b, rows.getType(), rows);
  return fragments[block] = {rows};
}

Scan::Reads Scan::reads(const Sum &s, ArrayRef<Value> state) {
  Reads out;
  for (unsigned read : s.reads) {
    const ReadTile &tile = graph.readTiles[read];
    Value part = a[readPart[read]];
    if (tile.isRaw() && !graph.vectors[*tile.vector].isOne())
      out.raw.push_back({dot(state, part, Value(), false), *tile.vector});
    else
      out.total = dot(state, part, out.total, false);
  }
  return out;
}

Value Scan::scaled(Value rows, unsigned vector, ArrayRef<Value> parts) {
  if (graph.vectors[vector].isOne())
    return rows;
  Value row =
      tile::LoadOp::create(b, b.tensor({R}), parts[vectorPart[vector]], Value(),
                           false, false, b.getI64IntegerAttr(0));
  return b.mul(rows, Value(tile::BroadcastOp::create(b, b.tensor({slice, R}),
                                                     row, true)));
}

Value Scan::total(const Reads &reads) {
  Value out = reads.total;
  for (auto [product, vector] : reads.raw) {
    Value rows = scaled(product, vector, c);
    out = out ? b.add(rows, out) : rows;
  }
  return out;
}

Terms Scan::keyOperand(unsigned key, unsigned block, ArrayRef<Value> solved) {
  const KeyTile &tile = graph.keyTiles[key];
  if (!tile.isRaw() || graph.vectors[*tile.vector].isOne())
    return operand(block);
  const RowBlock &row = graph.blocks[block];
  Value rows =
      row.kind == RowBlock::Solve ? solved[row.index] : b.wide(operand(block));
  return b.terms(scaled(rows, *tile.vector, c), terms);
}

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

Value Scan::rowOf(unsigned part) {
  return tile::LoadOp::create(b, b.tensor({graph.K}), c[part], Value(), false,
                              false, b.getI64IntegerAttr(0));
}

Value Scan::carryState(Value state) {
  if (!decayPart)
    return state;
  return b.mul(state, Value(tile::BroadcastOp::create(
                          b, cast<RankedTensorType>(state.getType()),
                          rowOf(*decayPart), true)));
}

Value Scan::carryVector(Value z) {
  return b.add(decayPart ? b.mul(z, rowOf(*decayPart)) : z, rowOf(*keySumPart));
}

Value Scan::readVector(const Sum &s) {
  auto load = [&](Value tile) -> Value {
    return tile::LoadOp::create(b, b.tensor({R}), tile, Value(), false, false,
                                b.getI64IntegerAttr(0));
  };
  Value out;
  auto add = [&](Value part) { out = out ? b.add(out, part) : part; };
  for (unsigned read : s.reads) {
    Value part = load(dots[read]);
    const ReadTile &tile = graph.readTiles[read];
    if (tile.isRaw() && !graph.vectors[*tile.vector].isOne())
      part = b.mul(part, load(c[vectorPart[*tile.vector]]));
    add(part);
  }
  if (s.rowSums)
    add(load(c[rowSumPart[*s.rowSums]]));
  return out;
}

void Scan::build() {
  makeRings();
  if (graph.output)
    panel = b.alloc(b.shared(R, slice));
  if (graph.output && graph.sumsOutputs)
    parts = b.alloc(b.shared(slice / 16, R, /*half=*/false));
  const Argument *stateArgument =
      llvm::find_if(graph.arguments, [](const Argument &x) {
        return x.role == "state" && x.shape[1] != 1;
      });
  RankedTensorType stateType = b.tensor({slice, graph.K});
  RankedTensorType outType = b.tensor({slice, R});
  Value start =
      tile::LoadStateOp::create(b, stateType, stateArgument->name,
                                /*summary=*/!graph.output, IntegerAttr());

  // Carried: the state; with solves, sums of the outputs that wait for their
  // products, and the blocks of these.
  SmallVector<unsigned> waitingBlocks;
  for (const Sum &s : graph.reads)
    for (auto [tile, block] : s.products)
      if (deferred(block) && !llvm::is_contained(waitingBlocks, block))
        waitingBlocks.push_back(block);
  const bool defer = defers();
  SmallVector<Value> init{start};
  // A vector state, and what a segment's decays come to: see Summary.cpp.
  // Neither is there where blocks are solved for.
  const RankedTensorType rowType = b.tensor({graph.K});
  StringRef vectorName;
  if (graph.vectorState) {
    vectorName = graph.arguments[graph.vectorState->argument].name;
    init.push_back(tile::LoadStateOp::create(
        b, rowType, vectorName, /*summary=*/!graph.output,
        graph.output ? b.getI64IntegerAttr(blob.kept) : IntegerAttr()));
  }
  dots.assign(graph.readTiles.size(), Value());
  for (const Sum &s : graph.reads)
    for (unsigned read : s.ofVector ? ArrayRef(s.reads) : ArrayRef<unsigned>())
      if (!dots[read])
        dots[read] = b.alloc(b.shared(1, R, /*half=*/false));
  if (llvm::any_of(dots, [](Value v) { return bool(v); }))
    vectorTile = b.alloc(b.shared(1, graph.K, /*half=*/false));
  const bool wholeDecay = !graph.output && !graph.erases();
  if (wholeDecay)
    init.push_back(b.constant(1, rowType));
  if (defer) {
    for (size_t i = 0; i < graph.reads.size(); ++i)
      init.push_back(b.constant(0, outType));
    for (size_t i = 0; i < waitingBlocks.size(); ++i)
      init.push_back(arith::ConstantOp::create(
          b, DenseElementsAttr::get(
                 b.tensor({slice, R}, true),
                 Attribute(b.getFloatAttr(b.getBF16Type(), 0)))));
  }
  auto isSum = [&](unsigned i) {
    const Sum &s = graph.reads[i];
    return s.base || s.rowSums || !s.reads.empty() || !s.products.empty();
  };
  // A sum that waits anyway gets its factors then, too: one less matrix in
  // registers while the state is carried.
  auto lateFactor = [&](unsigned i) -> std::optional<unsigned> {
    const Sum &s = graph.reads[i];
    if (!defer || s.reads.size() != 1 ||
        !llvm::all_of(s.products, [&](auto p) { return deferred(p.second); }))
      return std::nullopt;
    return graph.readTiles[s.reads[0]].vector;
  };
  /// Accumulators must not be computed with while products are under way, so
  /// the factors come before this chunk's first.
  auto withFactors = [&](ValueRange outs) {
    SmallVector<Value> sums(outs.begin(), outs.end());
    for (auto [i, sum] : llvm::enumerate(sums))
      if (auto vector = lateFactor(i))
        sum = scaled(sum, *vector, cBefore);
    return sums;
  };
  /// Adds what was put off to the sums of the chunk before.
  auto finish = [&](ValueRange outs, ValueRange blocks) {
    SmallVector<Value> sums;
    for (auto [i, out] : llvm::enumerate(outs)) {
      Value total = isSum(i) ? out : Value();
      for (auto [tile, block] : graph.reads[i].products)
        if (deferred(block)) {
          size_t at = llvm::find(waitingBlocks, block) - waitingBlocks.begin();
          total = dot(blocks[at], cBefore[scorePart[tile]], total, false);
        }
      sums.push_back(total);
    }
    return sums;
  };

  Region region;
  Block &body = region.emplaceBlock();
  for (Value v : init)
    body.addArgument(v.getType(), b.getLoc());
  SmallVector<Value> carried;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&body);
    fragments.assign(graph.blocks.size(), {});
    auto acquired = [&](Ring &ring) {
      if (!ring.ring)
        return SmallVector<Value>(); // Inputs may be all that is needed.
      auto op = tile::AcquireOp::create(b, ring.types, ring.ring);
      return SmallVector<Value>(op.getResults());
    };
    Value state = body.getArgument(0);
    Terms packed = b.terms(state, terms);
    Value z;
    if (graph.vectorState)
      z = body.getArgument(1);
    if (vectorTile) {
      tile::StoreOp::create(b, z, vectorTile, Value(), false, false,
                            b.getI64IntegerAttr(0));
      tile::BarrierOp::create(b);
    }
    a = acquired(first);
    c = acquired(second);
    if (defer) {
      auto op = tile::PreviousOp::create(b, second.types, second.ring);
      cBefore.assign(op.getResults().begin(), op.getResults().end());
    }

    // With nothing to solve the state's decay has no wait to hide in, and must
    // not touch the accumulators while a product that read them is under way.
    Value next;
    if (graph.solves.empty())
      next = carryState(state);

    SmallVector<Value> before;
    if (defer)
      before = withFactors(body.getArguments().slice(1, graph.reads.size()));

    SmallVector<Value> outs;
    SmallVector<Reads> pending(graph.reads.size());
    // Products that are not put off.
    auto direct = [&](unsigned i, bool ofSolved) {
      for (auto [tile, block] : graph.reads[i].products)
        if (!deferred(block) && solved(block) == ofSolved)
          outs[i] = product(tile, block, outs[i]);
    };
    auto readForOutputs = [&] {
      for (auto [i, s] : llvm::enumerate(graph.reads)) {
        outs.push_back(isSum(i) || !defer ? Value() : b.constant(0, outType));
        if (!isSum(i) || s.ofVector)
          continue;
        // What is only read may be rounded.
        pending[i] = reads(s, packed.front());
        if (pending[i].raw.empty()) {
          outs[i] = pending[i].total;
          direct(i, /*ofSolved=*/false);
        }
      }
    };
    if (crowded())
      readForOutputs();

    // The chain up to the first solve's reads, then what was put off.
    SmallVector<Value> rights(graph.solves.size());
    Reads firstReads;
    if (!graph.solves.empty())
      firstReads = reads(graph.solves[0].right, packed);
    if (defer)
      before = finish(before,
                      body.getArguments().drop_front(1 + graph.reads.size()));
    for (auto [i, solve] : llvm::enumerate(graph.solves)) {
      const Sum &s = solve.right;
      Reads mine = i ? reads(s, packed) : firstReads;
      for (auto [tile, block] : s.products)
        mine.total = product(tile, block, mine.total);
      Value right = total(mine);
      if (s.base) {
        Value base = b.wide(operand(*s.base));
        right = !right          ? base
                : s.negateReads ? b.sub(base, right)
                                : b.add(base, right);
      }
      Value u =
          dot(b.terms(right, terms),
              tile(c[solvePart[solve.tile]], solveLow[solve.tile]), Value(),
              /*transposed=*/true);
      rights[i] = u;
      unsigned block = solvedBlock(i);
      // Later solves and products take it as an operand.
      if (i + 1 < graph.solves.size())
        fragments[block] = b.terms(u, terms);
    }
    // The finished sums of the chunk before leave the accumulators here, so
    // that this chunk's can start.
    SmallVector<Value> ready;
    if (defer) {
      ready = outputValues(before);
      tile::ReleaseOp::create(b, second.ring, /*previous=*/true);
    }
    if (!crowded())
      readForOutputs();
    if (!next)
      next = carryState(state);
    for (auto [i, u] : llvm::enumerate(rights)) {
      unsigned block = solvedBlock(i);
      if (fragments[block].empty())
        fragments[block] = b.terms(u, terms);
    }
    for (auto [key, block] : graph.carry)
      next = dot(keyOperand(key, block, rights),
                 tile(keyInFirst[key] ? a[keyPart[key]] : c[keyPart[key]],
                      keyLow[key]),
                 next, /*transposed=*/true);
    carried.push_back(next);
    if (vectorTile) {
      for (auto [read, to] : llvm::enumerate(dots))
        if (to)
          tile::RowDotsOp::create(b, a[readPart[read]], vectorTile, to);
      tile::BarrierOp::create(b);
    }
    if (z)
      carried.push_back(carryVector(z));
    if (wholeDecay) {
      Value before = body.getArguments().back();
      carried.push_back(decayPart ? b.mul(before, rowOf(*decayPart)) : before);
    }
    for (size_t i = 0; i < graph.reads.size(); ++i)
      if (!pending[i].raw.empty()) {
        outs[i] = lateFactor(i) ? pending[i].raw[0].first : total(pending[i]);
        direct(i, /*ofSolved=*/false);
      }
    for (size_t i = 0; i < graph.reads.size(); ++i)
      direct(i, /*ofSolved=*/true);
    for (auto [i, s] : llvm::enumerate(graph.reads))
      if (s.ofVector)
        outs[i] = readVector(s);
    if (defer) {
      writeOutputs(ready, /*previous=*/true);
      carried.append(outs);
      for (unsigned block : waitingBlocks)
        carried.append(operand(block));
    } else if (graph.output) {
      writeOutputs(outputValues(outs), false);
    }
    for (const Ring &ring : {first, second})
      if (ring.ring && !(defer && ring.ring == second.ring))
        tile::ReleaseOp::create(b, ring.ring, false);
    tile::YieldOp::create(b, carried);
  }
  SmallVector<Type> types;
  for (Value v : init)
    types.push_back(v.getType());
  auto chunks = tile::ChunksOp::create(b, types, init);
  chunks.getBody().takeBody(region);
  if (defer) {
    auto tail = tile::TailOp::create(b);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&tail.getBody().emplaceBlock());
    auto op = tile::PreviousOp::create(b, second.types, second.ring);
    cBefore.assign(op.getResults().begin(), op.getResults().end());
    writeOutputs(
        outputValues(finish(
            withFactors(chunks.getResults().slice(1, graph.reads.size())),
            chunks.getResults().drop_front(1 + graph.reads.size()))),
        true);
  }
  tile::StoreStateOp::create(b, chunks.getResult(0), stateArgument->name,
                             /*summary=*/!graph.output);
  if (graph.vectorState)
    tile::StoreStateOp::create(b, chunks.getResult(1), vectorName,
                               /*summary=*/!graph.output);
  if (wholeDecay)
    tile::StoreDecayOp::create(b, chunks.getResults().back());
}

std::string plum::totile::scanTooLarge(MLIRContext *context, const Graph &graph,
                                       const BlobLayout &blob,
                                       const Schedule &schedule) {
  TileBuilder b(UnknownLoc::get(context), context);
  return Scan(b, graph, blob, schedule).tooLarge();
}

void plum::totile::buildScan(ModuleOp module, const Graph &graph,
                             const BlobLayout &blob, const Schedule &schedule) {
  TileBuilder b(module.getLoc(), module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  tile::KernelOp kernel = makeKernel(
      b, graph, graph.output ? "scan" : "summary", schedule.slice / 16, blob);
  kernel.setSlice(schedule.slice);
  kernel.setSlices(graph.V / schedule.slice);
  b.setInsertionPointToStart(&kernel.getBody().front());
  Scan(b, graph, blob, schedule).build();
}
