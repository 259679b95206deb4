//===- TileSums.cpp - Sums in tile kernels ----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Along rows, down blocks, over whole columns, over teams; and their opposite,
// the broadcast.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include <set>

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using tile::LayoutKind;

/// The left operand of a cumsum: row i of the triangle says which rows it sums.
static Values triangleOf(Ptx &p, tile::CumsumOp op, Value g, Value t) {
  auto summed = [&](Value row, Value k) -> Value {
    if (!op.getHalf()) {
      return op.getExclusive() ? p.lt(k, row) : p.ge(row, k);
    }
    const int64_t h = *op.getHalf();
    Value border = p.bitOr(p.bitAnd(row, ~(2 * h - 1) & 15), p.i32(h));
    Value upper = p.cmp(arith::CmpIPredicate::ne, p.bitAnd(row, h), p.i32(0));
    Value toRow = op.getExclusive() ? p.lt(k, row) : p.ge(row, k);
    Value above = p.both(p.ge(k, border), toRow);
    Value below = p.both(p.lt(row, k), p.lt(k, border));
    return p.select(upper, above, below);
  };
  Values triangle;
  for (int64_t i = 0; i < 4; ++i) {
    Value row = p.add(g, i % 2 * 8), k = p.add(p.shl(t, 1), i / 2 * 8);
    Value low = p.select(summed(row, k), p.i32(0x3f80), p.i32(0));
    Value high =
        p.select(summed(row, p.add(k, 1)), p.i32(0x3f800000), p.i32(0));
    triangle.push_back(p.bitOr(low, high));
  }
  return triangle;
}

static std::pair<int64_t, bool> triangleKind(tile::CumsumOp op) {
  return {op.getHalf().value_or(0), op.getExclusive()};
}

void TileEmitter::planTriangles() {
  // Few stay in registers. Those of halves would take the registers that the
  // halves' sums need, and lie in shared memory.
  std::map<std::pair<int64_t, bool>, tile::CumsumOp> kinds;
  kernel.walk([&](tile::CumsumOp op) { kinds.insert({triangleKind(op), op}); });
  if (kinds.size() <= 2 ||
      kernel.getBody().front().getOps<tile::ArrivedOp>().empty())
    return;
  for (auto [kind, op] : kinds) {
    triangles[kind] = sharedBytes;
    sharedBytes += 32 * 16;
  }
}

void TileEmitter::storeTriangles() {
  if (triangles.empty())
    return;
  // Read only after the inputs have arrived, which is a barrier.
  once(p.eq(warp, p.i32(0)), [&] {
    std::set<std::pair<int64_t, bool>> stored;
    kernel.walk([&](tile::CumsumOp op) {
      if (stored.insert(triangleKind(op)).second)
        p.store(p.vector(triangleOf(p, op, g, t)),
                p.at(p.shared(triangles[triangleKind(op)]), p.shl(lane, 4)));
    });
  });
}

void TileEmitter::cumsum(tile::CumsumOp op) {
  Values &v = use(op.getValue());
  Values triangle;
  if (auto known = triangles.find(triangleKind(op)); known != triangles.end()) {
    Value four = p.load(p.vec(p.getI32Type(), 4),
                        p.at(p.shared(known->second), p.shl(lane, 4)));
    for (int64_t i = 0; i < 4; ++i)
      triangle.push_back(p.element(four, i));
  } else {
    triangle = triangleOf(p, op, g, t);
  }
  Values out;
  for (size_t j = 0; j < v.size() / 4; ++j) {
    Values big, small;
    for (size_t i = 0; i < 2; ++i) {
      Value a = v[4 * j + 2 * i], b = v[4 * j + 2 * i + 1];
      Value pair = p.pack(a, b);
      big.push_back(pair);
      small.push_back(p.pack(p.fsub(a, p.low(pair)), p.fsub(b, p.high(pair))));
    }
    const auto from = op.getFrom();
    Values d(4, p.f32(from ? from->convertToDouble() : 0));
    d = p.mma(triangle, small[0], small[1], d);
    d = p.mma(triangle, big[0], big[1], d);
    out.append(d);
  }
  set(op.getResult(), out);
}

void TileEmitter::blockSum(tile::BlockSumOp op) {
  const SharedTile to = teamPart(tiles.find(op.getTo())->second, op.getStrip());
  Values &v = use(op.getValue());
  const int64_t first = op.getStrip() ? constantIndex(op.getStrip()) * 16 : 0;
  Value base =
      p.at(to.base, p.add(p.mul(warp, to.type.getCols() * 4), p.shl(g, 2)));
  Values sums;
  for (size_t j = 0; j < v.size() / 4; ++j) {
    Value s = p.fadd(p.fadd(v[4 * j], v[4 * j + 1]),
                     p.fadd(v[4 * j + 2], v[4 * j + 3]));
    s = p.fadd(s, p.shuffleXor(s, 1));
    sums.push_back(p.fadd(s, p.shuffleXor(s, 2)));
  }
  p.ifThen(p.eq(t, p.i32(0)), [&] {
    for (auto [j, s] : llvm::enumerate(sums))
      p.store(s, p.at(base, (first + 8 * int64_t(j)) * 4));
  });
}

void TileEmitter::reduce(tile::ReduceOp op) {
  Values &v = use(op.getValue());
  Values out;
  for (int64_t row : {0, 2}) {
    Value s;
    for (size_t j = 0; j < v.size() / 4; ++j) {
      Value pair = p.fadd(v[4 * j + row], v[4 * j + row + 1]);
      s = s ? p.fadd(s, pair) : pair;
    }
    s = p.fadd(s, p.shuffleXor(s, 1));
    out.push_back(p.fadd(s, p.shuffleXor(s, 2)));
  }
  set(op.getResult(), out);
}

void TileEmitter::reduceRows(tile::ReduceRowsOp op) {
  Values &v = use(op.getValue());
  const SharedTile &parts = tiles.find(op.getParts())->second;
  const int64_t pitch = parts.type.getCols() * 4, blocks = v.size() / 4;
  Type two = p.vec(p.getF32Type(), 2);
  Value mine = p.at(parts.base, p.shl(t, 3)); // Columns 2t and 2t + 1.
  Values sums;
  for (int64_t j = 0; j < blocks; ++j)
    for (int64_t column : {0, 1}) {
      Value s = p.fadd(v[4 * j + column], v[4 * j + 2 + column]);
      for (int64_t delta : {4, 8, 16})
        s = p.fadd(s, p.shuffleXor(s, delta));
      sums.push_back(s);
    }
  teamBarrier(); // What is there has been read.
  once(p.eq(g, p.i32(0)), [&] {
    Value to = p.at(mine, p.mul(warp, pitch));
    for (int64_t j = 0; j < blocks; ++j)
      p.store(p.vector({sums[2 * j], sums[2 * j + 1]}), p.at(to, 32 * j));
  });
  teamBarrier();
  Values out;
  for (int64_t j = 0; j < blocks; ++j) {
    Value a, b;
    for (int64_t w = 0; w < parts.type.getRows(); ++w) {
      Value pair = p.load(two, p.at(mine, w * pitch + 32 * j));
      a = a ? p.fadd(a, p.element(pair, 0)) : p.element(pair, 0);
      b = b ? p.fadd(b, p.element(pair, 1)) : p.element(pair, 1);
    }
    out.append({a, b});
  }
  set(op.getResult(), out);
}

/// Row g has its element in lane g / 2 of its four, row g + 8 in the same lane,
/// 8 columns and 8 rows on.
void TileEmitter::diagonal(tile::DiagonalOp op) {
  Values &v = use(op.getValue());
  Value odd = p.cmp(arith::CmpIPredicate::ne, p.bitAnd(lane, 4), p.i32(0));
  Value from = p.add(p.shl(g, 2), p.shr(g, 1));
  Values out;
  for (int64_t at : {0, 6})
    out.push_back(p.shuffleIndex(p.select(odd, v[at + 1], v[at]), from));
  set(op.getResult(), out);
}

/// A thread has a column, or one in every `threads`.
void TileEmitter::columnSums(tile::ColumnSumsOp op) {
  const SharedTile &from = tiles.find(op.getFrom())->second;
  const SharedTile &weights = tiles.find(op.getWeights())->second;
  const int64_t R = from.type.getRows(), columns = from.type.getCols();
  Values out;
  for (int64_t first = 0; first < columns; first += threads) {
    // Threads beyond the last column read that.
    Value column = p.minimum(p.add(tid, first), p.i32(columns - 1));
    Value piece = p.bitAnd(p.shr(column, 3), 7);
    Value base = p.at(p.at(from.base, p.mul(p.shr(column, 6), R * 128)),
                      p.shl(p.bitAnd(column, 7), 1));
    Values places; // By row modulo 8: that is what the swizzle repeats with.
    for (int64_t r = 0; r < 8; ++r)
      places.push_back(
          p.at(base, p.add(p.shl(p.bitXor(piece, p.i32(r)), 4), r * 128)));
    Value sum = p.f32(0);
    for (int64_t row = 0; row < R; row += 4) {
      Value few = p.load(p.vec(p.getF32Type(), 4), p.at(weights.base, row * 4));
      for (int64_t i = 0; i < 4; ++i)
        sum = p.fma(
            p.element(few, i),
            p.loadHalf(p.at(places[(row + i) % 8], (row + i) / 8 * 1024), true),
            sum);
    }
    out.push_back(sum);
  }
  set(op.getResult(), out);
}

/// Neighbouring threads share a row, as many as there are for each.
void TileEmitter::rowDots(tile::RowDotsOp op) {
  const SharedTile &rows = tiles.find(op.getRows())->second;
  const SharedTile &vector = tiles.find(op.getVector())->second;
  const SharedTile &to = tiles.find(op.getTo())->second;
  const int64_t R = rows.type.getRows(), pieces = rows.type.getCols() / 8;
  int64_t sharers = 1;
  while (sharers < 32 && 2 * sharers * R <= threads &&
         pieces % (2 * sharers) == 0)
    sharers *= 2;
  const int64_t mine = pieces / sharers, step = threads / sharers;
  Value part = p.bitAnd(tid, sharers - 1);
  Value firstPiece = p.mul(part, mine);
  Value numbers = p.at(vector.base, p.shl(firstPiece, 5));
  for (int64_t first = 0; first < R; first += step) {
    Value row = p.add(p.divu(tid, sharers), first);
    Value safe = first + step <= R ? row : p.minimum(row, p.i32(R - 1));
    Values sums(4, p.f32(0));
    for (int64_t i = 0; i < mine; ++i) {
      Value piece = p.add(firstPiece, i);
      Value offset = p.add(pieceOffset(safe, p.bitAnd(piece, 7)),
                           p.mul(p.shr(piece, 3), R * 128));
      Value pairs = p.load(p.vec(p.getI32Type(), 4), p.at(rows.base, offset));
      for (int64_t half : {0, 1}) {
        Value four =
            p.load(p.vec(p.getF32Type(), 4), p.at(numbers, i * 32 + half * 16));
        for (int64_t j : {0, 1}) {
          Value pair = p.element(pairs, 2 * half + j);
          Value &low = sums[2 * j], &high = sums[2 * j + 1];
          low = p.fma(p.low(pair), p.element(four, 2 * j), low);
          high = p.fma(p.high(pair), p.element(four, 2 * j + 1), high);
        }
      }
    }
    Value sum = p.fadd(p.fadd(sums[0], sums[1]), p.fadd(sums[2], sums[3]));
    for (int64_t distance = 1; distance < sharers; distance *= 2)
      sum = p.fadd(sum, p.shuffleXor(sum, distance));
    Value writes = p.eq(part, p.i32(0));
    if (first + step > R)
      writes = p.both(writes, p.lt(row, p.i32(R)));
    p.ifThen(writes, [&] { p.store(sum, p.at(to.base, p.shl(row, 2))); });
  }
}

void TileEmitter::sumTeams(tile::SumTeamsOp op) {
  const SharedTile &through = tiles.find(op.getThrough())->second;
  SmallVector<Values> values;
  for (Value v : op.getValues())
    values.push_back(use(v));
  if (op.columns()) {
    const int64_t pitch = through.type.getCols() * 4;
    auto at = [&](int64_t value, Value of, int64_t i) {
      Value row = p.add(of, value * teams);
      return p.at(p.at(through.base, p.mul(row, pitch)),
                  p.shl(elementIndex(LayoutKind::AccCol, i), 2));
    };
    p.ifThen(p.eq(t, p.i32(0)), [&] {
      for (auto [n, v] : llvm::enumerate(values))
        for (auto [i, part] : llvm::enumerate(v))
          p.store(part, at(n, team, i));
    });
    teamBarrier();
    for (auto [n, v] : llvm::enumerate(values)) {
      for (size_t i = 0; i < v.size(); ++i) {
        Value sum;
        for (int64_t of = 0; of < teams; ++of) {
          Value part = p.load(p.getF32Type(), at(n, p.i32(of), i));
          sum = sum ? p.fadd(sum, part) : part;
        }
        v[i] = sum;
      }
      set(op.getResult(n), v);
    }
    return;
  }
  // A thread's registers meet those of the same thread of the owner: four at a
  // time, in an order that no bank notices.
  const int64_t quads = values[0].size() / 4, row = warps * 32 * 16;
  Value mine = p.shl(p.add(p.shl(warp, 5), lane), 4);
  auto owner = [&](size_t n) { return int64_t(n) % teams; };
  auto at = [&](int64_t value, int64_t other, int64_t quad) {
    return p.at(p.at(through.base, mine),
                ((value * (teams - 1) + other) * quads + quad) * row);
  };
  for (auto [n, v] : llvm::enumerate(values))
    for (int64_t of = 0, other = 0; of < teams; ++of) {
      if (of == owner(n))
        continue;
      p.ifThen(p.eq(team, p.i32(of)), [&] {
        for (int64_t q = 0; q < quads; ++q)
          p.store(p.vector(ArrayRef(v).slice(4 * q, 4)), at(n, other, q));
      });
      ++other;
    }
  teamBarrier();
  for (auto [n, v] : llvm::enumerate(values)) {
    SmallVector<Type> types(v.size(), p.getF32Type());
    set(op.getResult(n),
        p.ifElse(
            p.eq(team, p.i32(owner(n))), types,
            [&] {
              Values sum = v;
              for (int64_t k = 0; k < teams - 1; ++k)
                for (int64_t q = 0; q < quads; ++q) {
                  Value four = p.load(p.vec(p.getF32Type(), 4), at(n, k, q));
                  for (int64_t i = 0; i < 4; ++i)
                    sum[4 * q + i] = p.fadd(sum[4 * q + i], p.element(four, i));
                }
              return sum;
            },
            [&] { return v; }));
  }
}

void TileEmitter::broadcast(tile::BroadcastOp op) {
  RankedTensorType type = tensorOf(op.getResult());
  LayoutKind kind = *tile::layoutOf(type);
  Values &v = use(op.getValue());
  const int64_t count = registerCount(type, threads);
  if (!isa<RankedTensorType>(op.getValue().getType()))
    return set(op.getResult(), Values(count, v[0]));
  Values out;
  for (int64_t i = 0; i < count; ++i) {
    int64_t j = i / 4;
    if (kind == LayoutKind::Acc)
      out.push_back(op.getRows() ? v[2 * j + i % 2] : v[i % 4 / 2]);
    else if (kind == LayoutKind::Opb)
      out.push_back(op.getRows() ? v[j] : v[i % 4]);
    else
      out.push_back(v[0]);
  }
  set(op.getResult(), out);
}
