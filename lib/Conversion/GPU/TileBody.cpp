//===- TileBody.cpp - The ops of a tile kernel, one by one ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops over strips are unrolled, the loop over chunks is one; elementwise
// maths is done register by register. Everything else has a function of its own
// in the files around.
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"
#include "TileEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

void TileEmitter::emitBlock(Block &block) {
  for (Operation &op : block)
    emitOp(&op);
}

void TileEmitter::emitStrips(tile::StripsOp op) {
  Block &body = op.getBody().front();
  auto yield = cast<tile::YieldOp>(body.getTerminator());
  const size_t carried = op.getInit().size();
  SmallVector<Values> state, pieces(op.getNumResults() - carried);
  for (Value v : op.getInit())
    state.push_back(use(v));
  for (int64_t s = 0; s < int64_t(op.getCount()); ++s) {
    strips[body.getArgument(0)] = s;
    for (size_t i = 0; i < carried; ++i)
      set(body.getArgument(1 + i), state[i]);
    for (Operation &inner : body.without_terminator())
      emitOp(&inner);
    if (!triangles.empty())
      p.syncWarp();
    for (size_t i = 0; i < carried; ++i)
      state[i] = use(yield.getValues()[i]);
    for (size_t i = 0; i < pieces.size(); ++i)
      pieces[i].append(use(yield.getValues()[carried + i]));
  }
  for (size_t i = 0; i < carried; ++i)
    set(op.getResult(i), state[i]);
  for (size_t i = 0; i < pieces.size(); ++i)
    set(op.getResult(carried + i), pieces[i]);
}

void TileEmitter::emitChunks(tile::ChunksOp op) {
  Block &body = op.getBody().front();
  auto yield = cast<tile::YieldOp>(body.getTerminator());
  // Stage and parity of each ring, the previous stage, then the registers.
  Values init;
  for (size_t i = 0; i < ringOrder.size(); ++i)
    init.append({p.i32(0), p.i32(0), p.i32(0)});
  const size_t first = init.size();
  SmallVector<size_t> counts;
  for (Value v : op.getInit()) {
    Values &r = use(v);
    counts.push_back(r.size());
    init.append(r);
  }
  Values results = p.loop(
      p.i32(0), chunkCount, 1, init, [&](Value n, ValueRange state) -> Values {
        chunkIndex = n;
        rows = p.minimum(p.sub(length, p.mul(n, C)), p.i32(C));
        for (auto [i, name] : llvm::enumerate(ringOrder)) {
          RingState &ring = rings[name];
          ring.index = state[3 * i];
          ring.parity = state[3 * i + 1];
          ring.lastIndex = state[3 * i + 2];
        }
        size_t at = first;
        for (auto [arg, count] : llvm::zip(body.getArguments(), counts)) {
          set(arg, Values(state.slice(at, count)));
          at += count;
        }
        for (Operation &inner : body.without_terminator())
          emitOp(&inner);
        awaitAll();
        committed = 0;
        Values next;
        for (Value name : ringOrder) {
          RingState &ring = rings[name];
          auto [index, parity] = nextStage(ring, ring.index, ring.parity);
          next.append({index, parity, ring.index});
        }
        for (Value v : yield.getValues())
          next.append(use(v));
        // What a tile.store_state takes at the end, at the end of this turn.
        for (auto [result, value] :
             llvm::zip(op.getResults(), yield.getValues()))
          for (Operation *user : result.getUsers())
            if (auto store = dyn_cast<tile::StoreStateOp>(user);
                store && !summary)
              storeSnapshot(store.getName(), use(value),
                            cast<RankedTensorType>(value.getType()).getRank() ==
                                1);
        return next;
      });
  for (auto [i, name] : llvm::enumerate(ringOrder))
    rings[name].lastIndex = results[3 * i + 2];
  size_t at = first;
  for (auto [result, count] : llvm::zip(op.getResults(), counts)) {
    set(result, Values(ArrayRef(results).slice(at, count)));
    at += count;
  }
  chunkIndex = chunkCount; // What is left belongs to the chunk before the end.
}

/// Elementwise maths, register by register; the same operands give the same
/// register, so a broadcast row costs what a row costs.
void TileEmitter::elementwise(Operation *op) {
  Value result = op->getResult(0);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    if (!type)
      return set(
          result,
          {p.f32(cast<FloatAttr>(constant.getValue()).getValueAsDouble())});
    auto splat = cast<DenseElementsAttr>(constant.getValue());
    double number = splat.getSplatValue<APFloat>().convertToDouble();
    assert((type.getElementType().isF32() || number == 0) &&
           "a bf16 constant is 0");
    Value v = type.getElementType().isF32() ? p.f32(number) : p.i32(0);
    return set(result, Values(registerCount(type, threads), v));
  }
  if (isa<arith::TruncFOp>(op)) {
    Values &v = use(op->getOperand(0));
    Values out;
    for (size_t i = 0; i < v.size(); i += 2)
      out.push_back(p.pack(v[i], v[i + 1]));
    return set(result, out);
  }
  if (isa<arith::ExtFOp>(op)) {
    Values out;
    for (Value pair : use(op->getOperand(0)))
      out.append({p.low(pair), p.high(pair)});
    return set(result, out);
  }
  SmallVector<Values> operands;
  for (Value v : op->getOperands())
    operands.push_back(use(v));
  Values out;
  for (size_t i = 0; i < operands[0].size(); ++i) {
    Values scalars;
    for (Values &v : operands)
      scalars.push_back(v[i]);
    Value known;
    for (size_t j = i; j-- > 0 && !known && i - j <= 4;)
      if (llvm::all_of(operands, [&](Values &v) { return v[j] == v[i]; }))
        known = out[j];
    if (!known)
      known = isa<math::Exp2Op>(op)   ? p.ex2(scalars[0])
              : isa<math::Log2Op>(op) ? p.lg2(scalars[0])
                                      : emitScalar(p, op, scalars, Exp::Fast);
    out.push_back(known);
  }
  set(result, out);
}

/// Are rows of inputs right operands? Threads have copied them (cp.async is no
/// bulk copy), and wgmma reads past the caches of threads: a fence has to stand
/// between, on either side of the barrier.
static bool multipliesRows(tile::AcquireOp op, tile::RingOp ring) {
  return llvm::any_of(llvm::zip(op.getParts(), ring.getParts()), [](auto pair) {
    auto [part, attr] = pair;
    return cast<tile::PartAttr>(attr).getRows() &&
           llvm::any_of(part.getUsers(),
                        [](Operation *user) { return isa<tile::DotOp>(user); });
  });
}

void TileEmitter::emitOp(Operation *op) {
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](tile::AllocOp o) {
        tiles[o.getTile()] = {p.shared(*o.getOffset()), o.getTile().getType()};
      })
      .Case([&](tile::ReuseOp o) {
        tiles[o.getTile()] = {
            p.at(tiles.find(o.getFrom())->second.base, int64_t(o.getOffset())),
            o.getTile().getType()};
      })
      .Case([&](tile::RingOp) {})
      .Case([&](tile::AcquireOp o) {
        RingState &ring = rings[o.getRing()];
        p.wait(fullBarrier(ring, ring.index), ring.parity);
        if (p.chip.hopper() && multipliesRows(o, ring.op))
          p.fenceAsync();
        Value stage = stageBase(ring, ring.index);
        for (auto [i, part] : llvm::enumerate(o.getParts()))
          tiles[part] = {p.at(stage, ring.offsets[i]),
                         cast<tile::SharedType>(part.getType())};
      })
      .Case([&](tile::PreviousOp o) {
        RingState &ring = rings[o.getRing()];
        Value stage = stageBase(ring, ring.lastIndex);
        for (auto [i, part] : llvm::enumerate(o.getParts()))
          tiles[part] = {p.at(stage, ring.offsets[i]),
                         cast<tile::SharedType>(part.getType())};
      })
      .Case([&](tile::ReleaseOp o) {
        RingState &ring = rings[o.getRing()];
        Value first = p.eq(lane, p.i32(0));
        if (o.getPrevious()) {
          first = p.both(first, p.lt(p.i32(0), chunkIndex));
        } else {
          awaitAll();
        }
        p.syncWarp();
        p.ifThen(first, [&] {
          p.arrive(emptyBarrier(ring,
                                o.getPrevious() ? ring.lastIndex : ring.index));
        });
      })
      .Case([&](tile::BarrierOp) { teamBarrier(); })
      .Case([&](tile::ArrivedOp) {
        p.copyCommit();
        askForNumbers();
        p.copyWait(0);
        p.barrier(0, threads);
      })
      .Case([&](tile::StripsOp o) { emitStrips(o); })
      .Case([&](tile::ChunksOp o) { emitChunks(o); })
      .Case([&](tile::TeamOp o) {
        const int64_t number = o.getNumber();
        p.ifThen(p.eq(team ? team : p.i32(0), p.i32(number)), [&] {
          auto all = std::pair(tid, threads);
          within = number;
          threads = warps * 32;
          tid = p.sub(tid, p.i32(number * threads));
          emitBlock(o.getBody().front());
          std::tie(tid, threads) = all;
          within.reset();
        });
      })
      .Case([&](tile::TailOp o) {
        p.ifThen(p.lt(p.i32(0), chunkCount), [&] {
          emitBlock(o.getBody().front());
          awaitAll();
        });
      })
      .Case([&](tile::LoadOp o) { load(o); })
      .Case([&](tile::StoreOp o) { store(o); })
      .Case([&](tile::StashOp o) { stash(o); })
      .Case([&](tile::UnstashOp o) { unstash(o); })
      .Case([&](tile::ElementOp o) { element(o); })
      .Case([&](tile::ParamOp o) { param(o); })
      .Case([&](tile::ColumnOp o) { column(o); })
      .Case([&](tile::StepOp o) { step(o); })
      .Case([&](tile::ValidOp o) { valid(o); })
      .Case([&](tile::FetchOp o) { fetch(o); })
      .Case([&](tile::ExportOp o) { exportTile(o); })
      .Case([&](tile::ExportVectorOp o) { exportVector(o); })
      .Case([&](tile::ExportMatrixOp o) { exportMatrix(o); })
      .Case([&](tile::ExportRowsOp o) { exportRows(o); })
      .Case([&](tile::WriteRowsOp o) { writeRows(o); })
      .Case([&](tile::ValuesOp o) { values(o); })
      .Case([&](tile::LoadStateOp o) { loadState(o); })
      .Case([&](tile::StoreStateOp o) { storeState(o); })
      .Case([&](tile::StoreDecayOp o) { storeDecay(o); })
      .Case([&](tile::KeepStateOp o) { keepState(o); })
      .Case([&](tile::StripOp o) {
        Values &v = use(o.getValue());
        int64_t n =
            v.size() * 16 /
            cast<RankedTensorType>(o.getValue().getType()).getDimSize(1);
        set(o.getResult(),
            Values(ArrayRef(v).slice(constantIndex(o.getStrip()) * n, n)));
      })
      .Case([&](tile::BroadcastOp o) { broadcast(o); })
      .Case([&](tile::ReduceOp o) { reduce(o); })
      .Case([&](tile::ReduceRowsOp o) { reduceRows(o); })
      .Case([&](tile::DiagonalOp o) { diagonal(o); })
      .Case([&](tile::ColumnSumsOp o) { columnSums(o); })
      .Case([&](tile::RowDotsOp o) { rowDots(o); })
      .Case([&](tile::SumTeamsOp o) { sumTeams(o); })
      .Case([&](tile::CumsumOp o) { cumsum(o); })
      .Case([&](tile::BlockSumOp o) { blockSum(o); })
      .Case([&](tile::CumulateOp o) { cumulate(o); })
      .Case([&](tile::DotOp o) { dot(o); })
      .Case([&](tile::DotDiagOp o) { dotDiag(o); })
      .Case([&](tile::DotBlocksOp o) { dotBlocks(o); })
      .Case([&](tile::PlaceDiagOp o) { placeDiag(o); })
      .Case([&](tile::MaskOp o) { mask(o); })
      .Case([&](tile::JoinHalvesOp o) { joinHalves(o); })
      .Case([&](tile::InverseOp o) { inverse(o); })
      .Default([&](Operation *o) { elementwise(o); });
}
