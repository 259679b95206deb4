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

#include "Scan.h"

using namespace mlir;
using namespace plum;
using namespace plum::totile;

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
