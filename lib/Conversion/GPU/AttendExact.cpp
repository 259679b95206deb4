//===- AttendExact.cpp - attend of single tokens in plain fp32 --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No tensor cores, and nothing is rounded to bf16. A block has a token, the
// heads that share its lists, one after the other, and a split of the keys. Of
// a head, eight lanes have a query and sums [V] in registers, as LaneRows keeps
// rows; the sixteen of them in a block take keys in turn:
//
//     x      = q . k, log2 e      a sum over pieces, then three shuffles
//     m'     = max(m, x)
//     sums   = sums 2^(m - m') + 2^(x - m') v
//
// for a few keys at a time, whose loads are under way together. At the end the
// sixteen sums become one, within warps by shuffles and then in shared memory.
//
//===----------------------------------------------------------------------===//

#include "AttendEmitter.h"

#include "plum/ABI/GpuABI.h"

#include <numbers>

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

#define ARG(NAME) int64_t(offsetof(plum_gpu_args, NAME))

static constexpr int64_t kWarps = 4, kGroups = 4 * kWarps;
/// Numbers that a lane can hold: of queries, of sums and of a row that comes.
static constexpr int64_t kMostNumbers = 224;
/// Of the rows of a few keys that come together, about.
static constexpr int64_t kWantedNumbers = 32;
static constexpr double kLog2e = std::numbers::log2e;

static int64_t elementsOf(int64_t width) { return 8 * LaneRows::pieces(width); }

static int64_t keyElements(const AttendLayer &layer) {
  int64_t sum = 0;
  for (unsigned i = 0; i < layer.queries.size(); ++i)
    sum += elementsOf(layer.keyDim(i));
  return sum;
}

FailureOr<AttendShape> AttendShape::chooseExact(const AttendLayer &layer) {
  int64_t widest = layer.valueDim();
  for (unsigned list : layer.keys)
    widest = std::max(widest, layer.lists[list].width);
  const int64_t held =
      keyElements(layer) + elementsOf(layer.valueDim()) + elementsOf(widest);
  if (held > kMostNumbers)
    return layer.attend.emitError()
           << "rows that are not bf16 have no kernel for a GPU here: a thread "
              "would hold "
           << held << " numbers of queries, keys and values, at most "
           << kMostNumbers << " fit";
  AttendShape shape;
  shape.columnWarps = kWarps;
  shape.splits = 16;
  shape.leastTiles = 4;
  shape.bytes = kWarps * answerPitch(layer);
  return shape;
}

KernelShape AttendEmitter::attendExact() {
  coordinates();
  forSequence([&] {
    auto [first, end] = seeLists();
    p.ifThen(p.lt(first, end), [&] {
      Value firstKey = p.mul(first, shape.keys);
      Value endKey = p.minimum(p.mul(end, shape.keys), keyCount);
      p.loop(p.i32(0), p.argument(ARG(head_block), p.getI32Type()), 1,
             [&](Value i) { exactHead(p.add(head, i), firstKey, endKey); });
    });
  });
  return {.threads = shape.threads(),
          .registers = kMostRegisters,
          .sharedBytes = shape.bytes};
}

/// Of some keys; of the lane's eight all have them.
Values AttendEmitter::exactScores(ArrayRef<Values> queries,
                                  ArrayRef<Value> keys) {
  SmallVector<std::array<Value, 4>> parts(keys.size());
  parts.assign(keys.size(), {p.f32(0), p.f32(0), p.f32(0), p.f32(0)});
  for (auto [i, query] : llvm::enumerate(queries)) {
    const int64_t width = layer.keyDim(i), count = elementsOf(width);
    Values rows = maths.loadRows(width, placeOf(layer.keys[i]), keys);
    for (auto [u, sums] : llvm::enumerate(parts))
      for (int64_t n = 0; n < LaneRows::pieces(width); ++n) {
        std::array<Value, 4> before = sums;
        for (int64_t at = 8 * n; at < 8 * n + 8; ++at)
          sums[at % 4] = p.fma(query[at], rows[u * count + at], sums[at % 4]);
        if (64 * (n + 1) <= width)
          continue;
        Value has = p.lt(maths.piece(n), p.i32(width / 8));
        for (int64_t c = 0; c < 4; ++c)
          sums[c] = p.select(has, sums[c], before[c]);
      }
  }
  Values scores;
  for (const auto &[a, b, c, d] : parts) {
    Value sum = p.fadd(p.fadd(a, b), p.fadd(c, d));
    for (int64_t mask : {1, 2, 4})
      sum = p.fadd(sum, p.shuffleXor(sum, mask));
    scores.push_back(p.fmul(sum, p.f32(kLog2e)));
  }
  return scores;
}

void AttendEmitter::exactHead(Value ownHead, Value firstKey, Value endKey) {
  SmallVector<Values> queries;
  maths.begin(place.inputSequence, place.firstToken, ownHead);
  for (Value query : layer.queries)
    queries.push_back(maths.all(query));
  const int64_t n = elementsOf(V);
  const int64_t together = std::clamp<int64_t>(
      kWantedNumbers / std::max(n, keyElements(layer)), 1, 4);
  Value group = p.shr(tid, 3), last = p.sub(endKey, p.i32(1));
  Values init(n + 1, p.f32(0));
  init.push_back(p.f32(-3e38)); // A difference of two is a number.
  Values end =
      p.loop(firstKey, endKey, kGroups * together, init,
             [&](Value base, ValueRange before) -> Values {
               Values keys, safe;
               for (int64_t u = 0; u < together; ++u) {
                 keys.push_back(p.add(p.add(base, u * kGroups), group));
                 safe.push_back(p.minimum(keys[u], last));
               }
               Values x = exactScores(queries, safe);
               Value now = before[n + 1];
               for (int64_t u = 0; u < together; ++u) {
                 x[u] =
                     p.select(p.lt(keys[u], endKey), x[u],
                              p.f32(-std::numeric_limits<double>::infinity()));
                 now = p.fmax(now, x[u]);
               }
               Value keep = p.ex2(p.fsub(before[n + 1], now));
               Values next;
               for (int64_t c = 0; c <= n; ++c)
                 next.push_back(p.fmul(before[c], keep));
               Values rows = maths.loadRows(V, placeOf(layer.values), safe);
               for (int64_t u = 0; u < together; ++u) {
                 Value weight = p.ex2(p.fsub(x[u], now));
                 for (int64_t c = 0; c < n; ++c)
                   next[c] = p.fma(weight, rows[u * n + c], next[c]);
                 next[n] = p.fadd(next[n], weight);
               }
               next.push_back(now);
               return next;
             });
  largest[0] = end.pop_back_val();
  total[0] = end.pop_back_val();
  sums = end;
  exactPart(ownHead);
}

/// What the block's sixteen have become of a head, for merge.
void AttendEmitter::exactPart(Value ownHead) {
  const int64_t pitch = AttendShape::answerPitch(layer);
  Type pairType = p.vec(p.getF32Type(), 2);
  p.syncWarp();
  Value most = largest[0];
  for (int64_t mask : {8, 16})
    most = p.fmax(most, p.shuffleXor(most, mask));
  Value scale = p.ex2(p.fsub(largest[0], most));
  auto gather = [&](Value x) {
    x = p.fmul(x, scale);
    for (int64_t mask : {8, 16})
      x = p.fadd(x, p.shuffleXor(x, mask));
    return x;
  };
  for (Value &x : sums)
    x = gather(x);
  Value all = gather(total[0]);
  // The head before has been read.
  p.barrier(int64_t(0), shape.threads());
  Value mine = p.at(p.shared(), p.mul(warp, pitch));
  p.ifThen(p.lt(lane, p.i32(8)), [&] {
    for (int64_t i = 0; i < LaneRows::pieces(V); ++i)
      maths.ifHas(V, i, [&] {
        storeEight(p, ArrayRef(sums).slice(8 * i, 8),
                   p.at(mine, p.shl(maths.piece(i), 5)), p.getF32Type());
      });
    p.ifThen(p.eq(lane, p.i32(0)),
             [&] { p.store(p.vector({most, all}), p.at(mine, V * 4)); });
  });
  p.barrier(int64_t(0), shape.threads());
  Values scales;
  Value found = p.f32(-3e38), weights = p.f32(0);
  for (int64_t w = 0; w < kWarps; ++w) {
    Value pair = p.load(pairType, p.at(p.shared(w * pitch), V * 4));
    scales.push_back(p.element(pair, 0));
    found = p.fmax(found, scales[w]);
  }
  for (Value &x : scales)
    x = p.ex2(p.fsub(x, found));
  Value to = partOf(ownHead);
  p.loop(p.shl(tid, 1), p.i32(V), 2 * shape.threads(), [&](Value column) {
    Value pair[2] = {p.f32(0), p.f32(0)};
    for (int64_t w = 0; w < kWarps; ++w) {
      Value two = p.load(pairType, p.at(p.shared(w * pitch), p.shl(column, 2)));
      for (int64_t i : {0, 1})
        pair[i] = p.fma(p.element(two, i), scales[w], pair[i]);
    }
    p.store(p.vector({pair[0], pair[1]}), p.at(to, p.toI64(p.shl(column, 2))));
  });
  p.ifThen(p.eq(tid, p.i32(0)), [&] {
    for (int64_t w = 0; w < kWarps; ++w) {
      Value pair = p.load(pairType, p.at(p.shared(w * pitch), V * 4));
      weights = p.fma(p.element(pair, 1), scales[w], weights);
    }
    p.store(p.vector({found, weights}), p.at(to, V * 4));
  });
}
