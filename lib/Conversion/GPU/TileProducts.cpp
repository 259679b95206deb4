//===- TileProducts.cpp - Tensor cores of tile kernels ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product by wgmma is one commit group. It is under way until a register of
// its result is used; then everything committed up to it is waited for, and its
// registers pass through the wait. As the accumulator of the next product they
// need no wait: products on the same registers run in order.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using tile::LayoutKind;

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

void TileEmitter::await(int64_t group) {
  SmallVector<std::pair<int64_t, Value>> later;
  Values all;
  SmallVector<Value> done;
  for (auto [g, value] : pending) {
    if (g > group) {
      later.push_back({g, value});
      continue;
    }
    done.push_back(value);
    all.append(registers[value]);
  }
  if (done.empty())
    return;
  Values ready = p.wgmmaWait(committed - group, all);
  size_t at = 0;
  for (Value value : done) {
    Values &r = registers[value];
    for (Value &v : r)
      v = ready[at++];
  }
  pending = later;
}

void TileEmitter::awaitAll() {
  if (!pending.empty())
    await(committed);
}

Values &TileEmitter::use(Value v) {
  for (auto [group, value] : pending)
    if (value == v) {
      await(group);
      break;
    }
  return registers[v];
}

//===----------------------------------------------------------------------===//
// Products with shared memory
//===----------------------------------------------------------------------===//

void TileEmitter::dot(tile::DotOp op) {
  const SharedTile b = tiles.find(op.getB())->second;
  RankedTensorType type = tensorOf(op.getResult());
  const int64_t N = type.getDimSize(1);
  Values a = use(op.getA());
  const bool transposed = op.getTransposed();
  bool zero = !op.getC();
  Values acc = zero ? Values() : peek(op.getC());

  if (wide) {
    if (zero)
      for (int64_t i = 0; i < N / 2; ++i)
        acc.push_back(p.undefined());
    // The left operand, and accumulators that were computed, must be written
    // before the products start.
    Values fenced = a;
    bool running = false;
    if (!zero) {
      for (auto [g, value] : pending)
        running |= value == op.getC();
      if (!running)
        fenced.append(acc);
    }
    fenced = p.wgmmaFence(fenced);
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = fenced[i];
    set(op.getA(), a); // The next product takes these, not copies.
    if (!zero && !running)
      for (size_t i = 0; i < acc.size(); ++i)
        acc[i] = fenced[a.size() + i];
    acc = multiplyWide(p, a, panels(b), acc, zero, transposed);
    p.wgmmaCommit();
    ++committed;
    // The accumulator's old name is this product's now.
    llvm::erase_if(pending,
                   [&](auto &x) { return op.getC() && x.second == op.getC(); });
    set(op.getResult(), acc);
    pending.push_back({committed, op.getResult()});
    return;
  }

  if (zero)
    acc.assign(N / 2, p.f32(0));
  acc = multiply(p, a, panels(b), acc, transposed);
  set(op.getResult(), acc);
}

//===----------------------------------------------------------------------===//
// Products within and between blocks of 16 rows
//===----------------------------------------------------------------------===//

void TileEmitter::dotDiag(tile::DotDiagOp op) {
  Values &x = use(op.getX()), &y = use(op.getY());
  Values acc = use(op.getC());
  Value none = p.i32(0), zero = p.f32(0);
  for (size_t k = 0; k < x.size() / 4; ++k) {
    ArrayRef<Value> a = ArrayRef(x).slice(4 * k, 4),
                    b = ArrayRef(y).slice(4 * k, 4);
    // A right operand's fragments are those of a left one, in another order.
    if (op.getHalf()) {
      // Rows g with the first 8 rows of y, rows g + 8 with the second, or of
      // halves of 8 with the first.
      const bool whole = *op.getHalf() == 8;
      if (!whole) {
        Values d = p.mma({a[0], none, a[2], none}, b[0], b[2],
                         {acc[0], acc[1], zero, zero});
        std::copy(d.begin(), d.begin() + 2, acc.begin());
      }
      Values d = p.mma({none, a[1], none, a[3]}, b[whole ? 0 : 1],
                       b[whole ? 2 : 3], {zero, zero, acc[2], acc[3]});
      std::copy(d.begin() + 2, d.end(), acc.begin() + 2);
      continue;
    }
    for (int64_t h : {0, 1}) {
      Values d = p.mma(a, b[h], b[h + 2], ArrayRef(acc).slice(4 * h, 4));
      std::copy(d.begin(), d.end(), acc.begin() + 4 * h);
    }
  }
  set(op.getResult(), acc);
}

/// Where a result of dot_blocks gets its diagonal, if that is all it is for and
/// the diagonal is there already.
tile::PlaceDiagOp TileEmitter::placeOf(Value product) {
  if (!product.hasOneUse())
    return nullptr;
  auto place = dyn_cast<tile::PlaceDiagOp>(*product.user_begin());
  return place && registers.contains(place.getBlocks()) ? place : nullptr;
}

void TileEmitter::dotBlocks(tile::DotBlocksOp op) {
  SmallVector<SharedTile, 2> y{tiles.find(op.getY())->second};
  if (op.getLow())
    y.push_back(tiles.find(op.getLow())->second);
  const int64_t count = op.getX().size(), rows = y[0].type.getRows(),
                blocks = rows / 16;
  const int64_t depth = tensorOf(op.getX()[0]).getDimSize(1);
  if (teams > 1)
    for (SharedTile &term : y)
      term.base = p.at(term.base, p.mul(team, depth / 64 * rows * 128));
  SmallVector<Values> x;
  for (Value v : op.getX())
    x.push_back(use(v));
  SmallVector<Values> out(count);
  SmallVector<Type> types(8 * count, p.getF32Type());
  Values placed;
  for (Value result : op.getResults())
    if (tile::PlaceDiagOp place = placeOf(result))
      placed.append(use(place.getBlocks()));
  if (placed.size() != types.size())
    placed.clear();
  // Fragments `half` and `half` + 2 of y times the factors of their columns.
  auto scalePairs = [&](MutableArrayRef<Values> terms, int64_t half, Value s) {
    Value s0 = p.element(s, 0), s1 = p.element(s, 1);
    if (terms.size() == 1) {
      Value factors = p.pack(s0, s1);
      for (int64_t i : {half, half + 2})
        terms[0][i] = p.mulPair(terms[0][i], factors);
      return;
    }
    for (int64_t i : {half, half + 2}) {
      Value &hi = terms[0][i], &lo = terms[1][i];
      Value a = p.fmul(p.fadd(p.low(hi), p.low(lo)), s0);
      Value b = p.fmul(p.fadd(p.high(hi), p.high(lo)), s1);
      hi = p.pack(a, b);
      lo = p.pack(p.fsub(a, p.low(hi)), p.fsub(b, p.high(hi)));
    }
  };
  for (int64_t J = 0; J < blocks; ++J) {
    auto product = [&](bool scaled) -> Values {
      Values acc(8 * count, p.f32(0));
      Value scaleAt;
      if (scaled) {
        const SharedTile &scale = tiles.find(op.getScale())->second;
        // Row (I - 1) (I - 2) / 2 + J of the table.
        Value row = p.add(
            p.shr(p.mul(p.sub(warp, p.i32(1)), p.sub(warp, p.i32(2))), 1), J);
        scaleAt = p.at(p.at(scale.base, p.mul(row, scale.type.getCols() * 4)),
                       p.shl(t, 3));
        if (teams > 1)
          scaleAt = p.at(scaleAt, p.mul(team, depth * 4));
      }
      for (int64_t k = 0; k < depth / 16; ++k) {
        SmallVector<Values, 2> terms;
        for (const SharedTile &term : y) {
          Value at = p.at(term.base, p.bitXor(matrixOffset(p.i32(0), 0, true),
                                              p.i32(k % 4 * 32)));
          terms.push_back(
              p.ldmatrix4(p.at(at, k / 4 * rows * 128 + J * 16 * 128), false));
        }
        if (scaleAt) // On y, which all x meet.
          for (int64_t half : {0, 1})
            scalePairs(terms, half,
                       p.load(p.vec(p.getF32Type(), 2),
                              p.at(scaleAt, k * 64 + half * 32)));
        for (const Values &f : terms)
          for (int64_t i = 0; i < count; ++i)
            for (int64_t h : {0, 1}) {
              int64_t to = 8 * i + 4 * h;
              Values d = p.mma(ArrayRef(x[i]).slice(4 * k, 4), f[2 * h],
                               f[2 * h + 1], ArrayRef(acc).slice(to, 4));
              std::copy(d.begin(), d.end(), acc.begin() + to);
            }
      }
      return acc;
    };
    const Values none(8 * count, p.f32(0));
    // What is placed on the diagonal goes there at once.
    auto rest = [&]() -> Values {
      if (placed.empty())
        return none;
      return p.ifElse(
          p.eq(warp, p.i32(J)), types, [&] { return placed; },
          [&] { return none; });
    };
    auto orNone = [&](Value condition, bool scaled) {
      return p.ifElse(condition, types, [&] { return product(scaled); }, rest);
    };
    Values block;
    if (op.getDiagonal())
      block = orNone(p.ge(warp, p.i32(J)), false);
    else if (J + 1 < blocks && !op.getScale())
      block = orNone(p.lt(p.i32(J), warp), false);
    else if (J + 1 == blocks)
      block = rest();
    else // Nothing lies between neighbours.
      block = p.ifElse(
          p.eq(warp, p.i32(J + 1)), types, [&] { return product(false); },
          [&]() -> Values {
            return J + 2 < blocks ? orNone(p.lt(p.i32(J + 1), warp), true)
                                  : rest();
          });
    for (int64_t i = 0; i < count; ++i)
      out[i].append(block.begin() + 8 * i, block.begin() + 8 * i + 8);
  }
  for (int64_t i = 0; i < count; ++i) {
    set(op.getResults()[i], out[i]);
    if (!placed.empty())
      set(placeOf(op.getResults()[i]).getResult(), out[i]);
  }
}

void TileEmitter::placeDiag(tile::PlaceDiagOp op) {
  if (registers.contains(op.getResult()))
    return; // By dot_blocks.
  Values &blocks = use(op.getBlocks());
  Values out = use(op.getInto());
  for (int64_t J = 0; J < int64_t(out.size()) / 8; ++J) {
    Value mine = p.eq(warp, p.i32(J));
    for (int64_t i = 0; i < 8; ++i)
      out[8 * J + i] = p.select(mine, blocks[i], out[8 * J + i]);
  }
  set(op.getResult(), out);
}

void TileEmitter::mask(tile::MaskOp op) {
  Values &v = use(op.getValue());
  RankedTensorType type = tensorOf(op.getValue());
  const bool diagonal = type.getDimSize(1) == 16 && type.getDimSize(0) != 16;
  Values out;
  for (auto [i, value] : llvm::enumerate(v)) {
    // Row g or g + 8 of the warp's block; column within it or of the matrix.
    Value row = p.add(g, int64_t(i) % 4 / 2 * 8);
    Value column = p.add(p.shl(t, 1), int64_t(i) / 4 * 8 + i % 2);
    if (!diagonal)
      row = p.add(row, p.shl(warp, 4));
    Value keep = op.getInclusive() ? p.ge(row, column) : p.lt(column, row);
    out.push_back(p.select(keep, value, p.f32(0)));
  }
  set(op.getResult(), out);
}

void TileEmitter::joinHalves(tile::JoinHalvesOp op) {
  SmallVector<Values> halves;
  for (Value v : op.getHalves())
    halves.push_back(use(v));
  Values diagonal(2, p.f32(0));
  if (op.getDiagonal())
    diagonal = use(op.getDiagonal());
  // Within 8 rows and columns: (g, 2t) and (g, 2t + 1), of rows g + 8 as well.
  Values out(8, p.f32(0));
  for (int64_t i = 0; i < 2; ++i) {
    Value column = p.add(p.shl(t, 1), i);
    Values meet; // In which pass.
    for (int64_t h : {4, 2, 1}) {
      Value group = p.eq(p.divu(g, 2 * h), p.divu(column, 2 * h));
      Value upper = p.cmp(arith::CmpIPredicate::ne, p.bitAnd(g, h), p.i32(0));
      Value lower = p.eq(p.bitAnd(column, h), p.i32(0));
      meet.push_back(p.both(group, p.both(upper, lower)));
    }
    Value same = p.eq(g, column);
    for (int64_t half : {0, 1}) {
      Value v = p.select(same, diagonal[half], p.f32(0));
      for (int64_t h = 0; h < 3; ++h)
        v = p.select(meet[h], halves[1 + h][2 * half + i], v);
      out[half ? 6 + i : i] = v;
    }
    out[2 + i] = halves[0][2 + i];
  }
  set(op.getResult(), out);
}
