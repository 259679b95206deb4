//===- AttendBlock.cpp - What a block of attend does ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

#include "plum/ABI/GpuABI.h"

#include <numbers>

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

static constexpr double kLog2e = std::numbers::log2e;

KernelShape AttendEmitter::attend() {
  if (shape.heads()) { // Warpgroups have the same rows.
    rowWarp = p.remu(warp, shape.rowWarps);
    columnWarp = p.divu(warp, shape.rowWarps);
  } else {
    rowWarp = p.divu(warp, shape.columnWarps);
    columnWarp = p.remu(warp, shape.columnWarps);
  }
  coordinates();
  forSequence([&] { block(); });
  if (shape.wide)
    return {.threads = shape.threads() + AttendShape::kProducers,
            .registers = shape.launchRegisters(),
            .sharedBytes = shape.bytes};
  return {.threads = shape.threads(),
          .registers = kMostRegisters,
          .sharedBytes = shape.bytes};
}

void AttendEmitter::coordinates() {
  Type i32 = p.getI32Type();
  Value id = p.ctaid(), heads = p.argument(ARG(heads), i32);
  if (shape.step()) {
    split = take(id, p.i32(shape.splits));
    Value together = p.argument(ARG(head_block), i32);
    head = p.mul(take(id, p.divu(heads, together)), together);
    number = id;
    place = tokenAt(p, id);
    return;
  }
  Value chunks = p.argument(ARG(chunks), i32);
  Value packed = p.cmp(arith::CmpIPredicate::ne,
                       p.argument(ARG(cu_seqlens), p.getI64Type()), p.i64(0));
  Value count =
      p.select(packed, chunks, p.mul(chunks, p.argument(ARG(sequences), i32)));
  // Some heads after others, so that blocks that run at a time share what the
  // L2 has of lists. Of these, chunks that see most come first: no long one is
  // left at the end.
  constexpr int64_t kTogether = 8;
  Value rest = id;
  id = take(rest, p.mul(count, kTogether));
  Value first = p.mul(rest, kTogether);
  Value some = p.minimum(p.sub(heads, first), p.i32(kTogether));
  head = p.add(first, take(id, some));
  place = chunkAt(p, p.sub(p.sub(count, p.i32(1)), id), shape.chunk);
}

std::pair<Value, Value> AttendEmitter::tokenAndHead(Value row) {
  if (shape.step()) {
    Value last = p.sub(p.argument(ARG(head_block), p.getI32Type()), p.i32(1));
    return {place.firstToken, p.add(head, p.minimum(row, last))};
  }
  Value last = p.sub(place.rows, p.i32(1));
  return {p.add(place.firstToken, p.minimum(row, last)), head};
}

std::pair<Value, Value> AttendEmitter::seeLists() {
  Value before =
      p.add(p.add(past, place.begin), layer.attend.seesOwn() ? 1 : 0);
  keyCount = p.add(before, p.sub(place.rows, p.i32(1)));
  for (unsigned list : layer.read())
    lists.push_back(maths.list(layer.final(list), slot, head));
  for (int64_t half : {0, 1})
    seen[half] = shape.step() ? keyCount
                              : p.minimum(p.add(before, rowOf(half)), keyCount);
  Value tiles = p.divu(p.add(keyCount, shape.keys - 1), shape.keys);
  if (!shape.step())
    return {p.i32(0), tiles};
  Value each = tilesEach(tiles);
  Value first = p.mul(split, each);
  return {first, p.minimum(p.add(first, each), tiles)};
}

void AttendEmitter::block() {
  auto [first, end] = seeLists();
  if (shape.wide && !shape.step())
    // With no keys at all, a tile of which nothing is seen.
    return wideBlock(first, p.maximum(end, p.i32(1)));
  auto work = [&, first = first, end = end] {
    if (shape.wide)
      return wideBlock(first, end);
    startCopies(first, end);
    makeQueries();
    p.barrier(int64_t(0), shape.threads());
    readFactors();
    loop(first, end);
    exchangeTotals();
    if (shape.step())
      storePart();
    else
      storeAnswers();
  };
  // merge knows which splits have keys.
  if (shape.step())
    p.ifThen(p.lt(first, end), work);
  else
    work();
}

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

AttendEmitter::Query AttendEmitter::makeQuery(Value row) {
  auto [token, rowHead] = tokenAndHead(row);
  maths.begin(place.inputSequence, token, rowHead);
  // Scores have a factor above 0, and queries its sign: so the largest is the
  // largest before and after.
  Value scale = p.f32(layer.constant * kLog2e);
  if (layer.factor)
    scale = p.fmul(maths.get(layer.factor)[0], scale);
  Value sign = p.select(p.fcmp(arith::CmpFPredicate::OLT, scale, p.f32(0)),
                        p.i32(int32_t(0x80008000)), p.i32(0));
  Query made{row, p.fmax(p.fabs(scale), p.f32(1e-30)), {}};
  for (Value query : layer.queries) {
    Values elements = maths.all(query);
    Values &pairs = made.pairs.emplace_back();
    for (size_t i = 0; i < elements.size(); i += 2)
      pairs.push_back(p.bitXor(p.pack(elements[i], elements[i + 1]), sign));
  }
  return made;
}

void AttendEmitter::storeQuery(const Query &made) {
  for (auto [i, pairs] : llvm::enumerate(made.pairs)) {
    const int64_t width = layer.keyDim(i);
    // A piece behind the row is its last again; keys have zeros there.
    for (int64_t n = 0; n < LaneRows::pieces(width); ++n)
      maths.ifHas(layer.padded(width), n, [&] {
        Value piece = maths.piece(n);
        Value offset = p.add(pieceOffset(p, made.row, p.bitAnd(piece, 7)),
                             p.mul(p.shr(piece, 3), shape.rows() * 128));
        p.store(p.vector(ArrayRef(pairs).slice(4 * n, 4)),
                p.at(p.shared(shape.queryAt[i]), offset));
      });
  }
  if (layer.factor)
    p.ifThen(p.eq(maths.piece(0), p.i32(0)), [&] {
      p.store(made.factor, p.at(p.shared(shape.factorsAt), p.shl(made.row, 2)));
    });
}

/// All are asked for before the first is waited for.
void AttendEmitter::makeQueries() {
  const int64_t together = shape.threads() / 8;
  SmallVector<Query> made;
  for (int64_t first = 0; first < shape.rows(); first += together)
    made.push_back(makeQuery(p.add(p.shr(tid, 3), first)));
  for (const Query &each : made)
    storeQuery(each);
}

void AttendEmitter::readFactors() {
  for (int64_t half : {0, 1})
    factor[half] =
        layer.factor
            ? p.load(p.getF32Type(),
                     p.at(p.shared(shape.factorsAt), p.shl(rowOf(half), 2)))
            : p.f32(std::max(std::abs(layer.constant * kLog2e), 1e-30));
  if (!shape.hold)
    return;
  for (unsigned i = 0; i < layer.queries.size(); ++i) {
    Panels queries{p.shared(shape.queryAt[i]), shape.rows(), lane};
    for (int64_t J = 0; J < layer.padded(layer.keyDim(i)) / 16; ++J)
      held.append(leftOperand(p, queries, p.shl(rowWarp, 4), J));
  }
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

/// Sums of weights, of all lanes and warps that have the row. A barrier of all.
void AttendEmitter::exchangeTotals() {
  for (Value &x : total)
    for (int64_t mask : {1, 2})
      x = p.fadd(x, p.shuffleXor(x, mask));
  if (shape.heads())
    return;
  p.barrier(int64_t(0), shape.threads());
  if (shape.columnWarps == 1)
    return;
  auto at = [&](int64_t half) {
    return p.at(p.shared(shape.exchangeAt),
                p.mul(rowOf(half), shape.columnWarps * 4));
  };
  p.ifThen(p.eq(t, p.i32(0)), [&] {
    for (int64_t half : {0, 1})
      p.store(total[half], p.at(at(half), p.shl(columnWarp, 2)));
  });
  p.barrier(int64_t(0), shape.threads());
  for (int64_t half : {0, 1}) {
    Value all = p.load(p.vec(p.getF32Type(), shape.columnWarps), at(half));
    total[half] = p.element(all, 0);
    for (int64_t i = 1; i < shape.columnWarps; ++i)
      total[half] = p.fadd(total[half], p.element(all, i));
  }
}

/// The answers take the place of queries and tiles, as numbers, row by row;
/// then the layer's outputs are made of them.
void AttendEmitter::storeAnswers() {
  const int64_t pitch = AttendShape::answerPitch(layer);
  Value column = p.add(p.mul(columnWarp, part()), p.shl(t, 1));
  for (int64_t half : {0, 1}) {
    // Of no rows at all the answer is 0.
    Value isNone = p.fcmp(arith::CmpFPredicate::OEQ, total[half], p.f32(0));
    Value inverse = p.select(isNone, p.f32(0), p.rcp(total[half]));
    Value to =
        p.at(p.at(p.shared(), p.mul(rowOf(half), pitch)), p.shl(column, 2));
    for (int64_t j = 0; j < part() / 8; ++j)
      p.store(p.vector({p.fmul(sums[4 * j + 2 * half], inverse),
                        p.fmul(sums[4 * j + 2 * half + 1], inverse)}),
              p.at(to, 32 * j));
  }
  p.barrier(int64_t(0), shape.threads());
  p.loop(p.i32(0), place.rows, shape.threads() / 8, [&](Value base) {
    Value row = p.add(base, p.shr(tid, 3));
    auto [token, rowHead] = tokenAndHead(row);
    Value from = p.at(p.shared(), p.mul(row, pitch));
    Values answer;
    for (int64_t n = 0; n < LaneRows::pieces(V); ++n) {
      Value piece = p.minimum(maths.piece(n), p.i32(V / 8 - 1));
      answer.append(loadEight(p, p.at(from, p.shl(piece, 5)), p.getF32Type()));
    }
    maths.begin(place.inputSequence, token, rowHead);
    maths.set(layer.attend.getResult(), answer);
    storeOutputs(p.lt(row, place.rows));
  });
}

Value AttendEmitter::partOf(Value ownHead) {
  Value heads = p.argument(ARG(heads), p.getI32Type());
  Value owner = p.add(p.mul(p.toI64(number), p.toI64(heads)), p.toI64(ownHead));
  Value which = p.add(p.mul(owner, shape.splits), p.toI64(split));
  return p.global(p.add(p.argument(ARG(blobs), p.getI64Type()),
                        p.mul(which, AttendShape::partBytes(layer))));
}

/// What this split of the keys adds up to, for merge.
void AttendEmitter::storePart() {
  Value together = p.argument(ARG(head_block), p.getI32Type());
  Value column = p.add(p.mul(columnWarp, part()), p.shl(t, 1));
  for (int64_t half : {0, 1})
    p.ifThen(p.lt(rowOf(half), together), [&] {
      Value to = partOf(p.add(head, rowOf(half)));
      Value mine = p.at(to, p.toI64(p.shl(column, 2)));
      for (int64_t j = 0; j < part() / 8; ++j) {
        auto store = [&] {
          p.store(
              p.vector({sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]}),
              p.at(mine, 32 * j));
        };
        if (8 * (j + 1) < part() || V % 16 == 0)
          store();
        else // The last warp has nothing but zeros here.
          p.ifThen(p.lt(columnWarp, p.i32(shape.columnWarps - 1)), store);
      }
      p.ifThen(p.both(p.eq(t, p.i32(0)), p.eq(columnWarp, p.i32(0))), [&] {
        p.store(p.vector({baseOf(largest[half], half).exponent, total[half]}),
                p.at(to, V * 4));
      });
    });
}
