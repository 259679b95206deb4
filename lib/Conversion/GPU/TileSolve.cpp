//===- TileSolve.cpp - The triangular system of a chunk ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// X = (I - N)^-1 for N strictly lower triangular, in blocks of 16:
//
//   X_JJ = (I - N_JJ)^-1                      forward substitution, fp32
//   X_IJ = X_II sum over J <= K < I of N_IK X_KJ     on tensor cores
//
// The first is done by warp J for its own block, a lane per column. The second
// by warp J for its column of blocks, without another exchange: it keeps X_KJ
// transposed in registers, where a product's accumulators are the next one's
// left operand. No power of N is formed: for correlated keys they grow without
// bound while the inverse does not.
//
// Numbers that are operands or results are one bf16 term, or two: what the
// first one lacks is the second.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;

void TileEmitter::inverse(tile::InverseOp op) {
  using Terms = SmallVector<Values, 2>;
  SmallVector<SharedTile, 2> scratch{tiles.find(op.getBlocks())->second};
  SmallVector<SharedTile, 2> to{tiles.find(op.getTo())->second};
  if (op.getLow()) {
    scratch.push_back(tiles.find(op.getLowBlocks())->second);
    to.push_back(tiles.find(op.getLow())->second);
  }
  const size_t count = to.size();
  const SharedTile table = tiles.find(op.getDiagonal())->second;
  const int64_t R = to[0].type.getRows(), blocks = R / 16;
  Values n = use(op.getValue());
  Values scale;
  if (op.getScale())
    scale = use(op.getScale());

  auto packed = [&](ArrayRef<Value> eight) {
    Terms out(count);
    for (int64_t i = 0; i < 8; i += 2) {
      Value pair = p.pack(eight[i], eight[i + 1]);
      out[0].push_back(pair);
      if (count > 1)
        out[1].push_back(p.pack(p.fsub(eight[i], p.low(pair)),
                                p.fsub(eight[i + 1], p.high(pair))));
    }
    return out;
  };
  auto storeTerms = [&](ArrayRef<SharedTile> tile, Value I, Value J,
                        const Terms &terms) {
    for (auto [at, four] : llvm::zip(tile, terms))
      storeBlock(at, I, J, four);
  };

  // N below the diagonal, as right operands of the merges.
  for (int64_t J = 0; J + 1 < blocks; ++J)
    p.ifThen(p.lt(p.i32(J), warp), [&] {
      storeTerms(scratch, warp, p.i32(J), packed(ArrayRef(n).slice(8 * J, 8)));
    });
  // N on the diagonal, transposed, in fp32: row j of the table holds N[., j].
  Values mine(ArrayRef(n).take_front(8));
  for (int64_t J = 1; J < blocks; ++J)
    for (int64_t i = 0; i < 8; ++i)
      mine[i] = p.select(p.eq(warp, p.i32(J)), n[8 * J + i], mine[i]);
  Value tableAt = p.at(table.base, p.mul(warp, 16 * 80));
  for (int64_t i = 0; i < 8; ++i) {
    Value column = p.add(p.shl(t, 1), i / 4 * 8 + i % 2);
    Value row = p.add(g, i % 4 / 2 * 8);
    p.store(mine[i], p.at(tableAt, p.add(p.mul(column, 80), p.shl(row, 2))));
  }
  p.syncWarp();

  // x = column c of the inverse; once x_j is final, all later rows take it.
  Value c = p.bitAnd(lane, 15);
  Values x;
  for (int64_t i = 0; i < 16; ++i)
    x.push_back(p.select(p.eq(c, p.i32(i)), p.f32(1), p.f32(0)));
  for (int64_t j = 0; j < 15; ++j)
    for (int64_t i = (j + 1) & ~3; i < 16; i += 4) {
      Value four =
          p.load(p.vec(p.getF32Type(), 4), p.at(tableAt, j * 80 + i * 4));
      for (int64_t k = 0; k < 4; ++k)
        if (i + k > j)
          x[i + k] = p.fma(p.element(four, k), x[j], x[i + k]);
    }
  // The upper 16 lanes write the lower 8 rows.
  Value second = p.ge(lane, p.i32(16));
  Value rowBase = p.add(p.shl(warp, 4), p.select(second, p.i32(8), p.i32(0)));
  Value panel = p.mul(p.shr(warp, 2), R * 128);
  for (int64_t i = 0; i < 8; ++i) {
    Value row = p.add(rowBase, i);
    Value piece =
        p.bitXor(p.add(p.shl(p.bitAnd(warp, 3), 1), p.shr(c, 3)), p.i32(i));
    Value offset = p.add(p.add(p.shl(row, 7), p.shl(piece, 4)),
                         p.add(p.shl(p.bitAnd(c, 7), 1), panel));
    Value number = p.select(second, x[i + 8], x[i]);
    for (const SharedTile &tile : scratch) {
      p.storeHalf(number, p.at(tile.base, offset), true);
      if (count > 1)
        number = p.fsub(number, p.low(p.pack(number, number)));
    }
  }
  teamBarrier();

  auto storeColumn = [&](Value I, ArrayRef<Value> eight) {
    Values scaled(eight.begin(), eight.end());
    if (!scale.empty())
      for (int64_t i = 0; i < 8; ++i)
        scaled[i] = p.fmul(scaled[i], scale[i % 4 / 2]);
    storeTerms(to, warp, I, packed(scaled));
  };
  const Terms none(count, Values(4, p.i32(0)));
  for (int64_t I = 0; I + 1 < blocks; ++I)
    p.ifThen(p.lt(p.i32(I), warp),
             [&] { storeTerms(to, warp, p.i32(I), none); });

  for (int64_t I = blocks; I < (blocks + 3) / 4 * 4; ++I)
    storeTerms(to, warp, p.i32(I), none); // The panel's rest.

  SmallVector<Terms> column(1); // X_KJ transposed, K = J, J + 1, ...
  {
    Values wide;
    for (const SharedTile &tile : scratch) {
      column[0].push_back(p.ldmatrix4(blockAt(tile, warp, warp, true), true));
      Values term;
      for (Value pair : column[0].back())
        term.append({p.low(pair), p.high(pair)});
      if (wide.empty())
        wide = term;
      else
        for (auto [sum, v] : llvm::zip(wide, term))
          sum = p.fadd(sum, v);
    }
    storeColumn(warp, wide);
  }
  /// Without the products of two second terms.
  auto times = [&](const Terms &a, Value I, Value K, Values acc) {
    for (size_t j = 0; j < count; ++j) {
      Values f = p.ldmatrix4(blockAt(scratch[j], I, K, true), false);
      for (size_t i = 0; i + j < count; ++i)
        for (int64_t h : {0, 1}) {
          Values d = p.mma(a[i], f[2 * h], f[2 * h + 1],
                           ArrayRef(acc).slice(4 * h, 4));
          std::copy(d.begin(), d.end(), acc.begin() + 4 * h);
        }
    }
    return acc;
  };
  for (int64_t d = 1; d < blocks; ++d) {
    Value I = p.add(warp, d);
    SmallVector<Type> types(4 * count, p.getI32Type());
    auto flat = [](const Terms &terms) {
      Values all;
      for (const Values &four : terms)
        all.append(four);
      return all;
    };
    Values all = p.ifElse(
        p.lt(I, p.i32(blocks)), types,
        [&]() -> Values {
          Values acc(8, p.f32(0));
          for (int64_t e = 0; e < d; ++e)
            acc = times(column[e], I, p.add(warp, e), acc);
          acc = times(packed(acc), I, I, Values(8, p.f32(0)));
          storeColumn(I, acc);
          return flat(packed(acc));
        },
        [&] { return flat(none); });
    column.emplace_back();
    for (size_t i = 0; i < count; ++i)
      column.back().push_back(Values(ArrayRef(all).slice(4 * i, 4)));
  }
}

void TileEmitter::cumulate(tile::CumulateOp op) {
  const SharedTile to = tiles.find(op.getTo())->second;
  const int64_t R = to.type.getCols();
  Value v = use(op.getValue())[0];
  for (int64_t delta : {1, 2, 4, 8, 16}) {
    Value up = p.shuffleUp(v, delta);
    v = p.select(p.ge(lane, p.i32(delta)), p.fadd(v, up), v);
  }
  Value at = p.at(to.base, p.shl(tid, 2));
  Value inside = p.lt(tid, p.i32(R));
  p.ifThen(inside, [&] { p.store(v, at); });
  teamBarrier();
  if (R > 32) {
    // Sums of the warps before: their last elements, in order.
    Value before = p.f32(0);
    for (int64_t w = 1; w < (R + 31) / 32; ++w) {
      Value sum = p.load(p.getF32Type(), p.at(to.base, (32 * w - 1) * 4));
      before =
          p.fadd(before, p.select(p.ge(tid, p.i32(32 * w)), sum, p.f32(0)));
    }
    v = p.fadd(v, before);
    teamBarrier();
    p.ifThen(inside, [&] { p.store(v, at); });
    teamBarrier();
  }
}
