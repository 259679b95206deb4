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

static RankedTensorType tensorOf(Value v) {
  return cast<RankedTensorType>(v.getType());
}

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

Value TileEmitter::descriptor(Value pointer, int64_t leading, int64_t stride) {
  // Start, leading and stride byte offsets in units of 16; 128-byte swizzle.
  Value start = p.shr(p.bitAnd(p.address(pointer), 0x3ffff), 4);
  Value low = p.createOrFold<arith::ExtUIOp>(p.getI64Type(), start);
  return p.bitOr(low, p.i64((leading >> 4) << 16 | (stride >> 4) << 32 |
                            int64_t(1) << 62));
}

void TileEmitter::dot(tile::DotOp op) {
  const SharedTile b = tiles.find(op.getB())->second;
  RankedTensorType type = tensorOf(op.getResult());
  const int64_t N = type.getDimSize(1),
                depth = tensorOf(op.getA()).getDimSize(1);
  const int64_t rows = b.type.getRows();
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
    // K-major: rows of 128 bytes are n, 16 columns are 32 bytes further, a
    // panel per 64. MN-major: rows are k, 16 of them 2048 bytes; panels along
    // n.
    Value base = transposed ? descriptor(b.base, rows * 128, 1024)
                            : descriptor(b.base, 16, 1024);
    for (int64_t k = 0; k < depth / 16; ++k) {
      int64_t offset = transposed ? k * 2048 : k / 4 * rows * 128 + k % 4 * 32;
      acc = p.wgmma(N, acc, ArrayRef(a).slice(4 * k, 4),
                    p.add(base, offset >> 4), zero && k == 0, transposed);
    }
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
  for (int64_t k = 0; k < depth / 16; ++k)
    for (int64_t n = 0; n < N / 16; ++n) {
      // Four 8x8 tiles: b0 and b1 of two blocks of 8 columns.
      Values f;
      if (transposed) {
        Value at = p.at(b.base, matrixOffset(p.i32(0), n % 4, false));
        f = p.ldmatrix4(p.at(at, n / 4 * rows * 128 + k * 16 * 128), true);
      } else {
        Value at = p.at(b.base, p.bitXor(matrixOffset(p.i32(0), 0, true),
                                         p.i32(k % 4 * 32)));
        f = p.ldmatrix4(p.at(at, k / 4 * rows * 128 + n * 16 * 128), false);
      }
      for (int64_t h : {0, 1}) {
        int64_t at = 4 * (2 * n + h);
        Values d = p.mma(ArrayRef(a).slice(4 * k, 4), f[2 * h], f[2 * h + 1],
                         ArrayRef(acc).slice(at, 4));
        std::copy(d.begin(), d.end(), acc.begin() + at);
      }
    }
  set(op.getResult(), acc);
}

//===----------------------------------------------------------------------===//
// Products within and between blocks of 16 rows
//===----------------------------------------------------------------------===//

void TileEmitter::dotDiag(tile::DotDiagOp op) {
  Values &x = use(op.getX()), &y = use(op.getY());
  Values acc = use(op.getC());
  for (size_t k = 0; k < x.size() / 4; ++k) {
    ArrayRef<Value> a = ArrayRef(x).slice(4 * k, 4),
                    b = ArrayRef(y).slice(4 * k, 4);
    // A right operand's fragments are those of a left one, in another order.
    for (int64_t h : {0, 1}) {
      Values d = p.mma(a, b[h], b[h + 2], ArrayRef(acc).slice(4 * h, 4));
      std::copy(d.begin(), d.end(), acc.begin() + 4 * h);
    }
  }
  set(op.getResult(), acc);
}

void TileEmitter::dotBlocks(tile::DotBlocksOp op) {
  const SharedTile y = tiles.find(op.getY())->second;
  const int64_t count = op.getX().size(), rows = y.type.getRows(),
                blocks = rows / 16;
  const int64_t depth = tensorOf(op.getX()[0]).getDimSize(1);
  SmallVector<Values> x;
  for (Value v : op.getX())
    x.push_back(use(v));
  SmallVector<Values> out(count);
  SmallVector<Type> types(8 * count, p.getF32Type());
  for (int64_t J = 0; J < blocks; ++J) {
    auto product = [&]() -> Values {
      Values acc(8 * count, p.f32(0));
      Value scaleAt;
      if (op.getScale()) {
        const SharedTile &scale = tiles.find(op.getScale())->second;
        // Row I (I - 1) / 2 + J of the table.
        Value row = p.add(p.shr(p.mul(warp, p.sub(warp, p.i32(1))), 1), J);
        scaleAt = p.at(p.at(scale.base, p.mul(row, scale.type.getCols() * 4)),
                       p.shl(t, 3));
      }
      for (int64_t k = 0; k < depth / 16; ++k) {
        Value at = p.at(y.base, p.bitXor(matrixOffset(p.i32(0), 0, true),
                                         p.i32(k % 4 * 32)));
        Values f =
            p.ldmatrix4(p.at(at, k / 4 * rows * 128 + J * 16 * 128), false);
        Value s0, s1;
        if (scaleAt) {
          Type pair = p.vec(p.getF32Type(), 2);
          Value v0 = p.load(pair, p.at(scaleAt, k * 64));
          Value v1 = p.load(pair, p.at(scaleAt, k * 64 + 32));
          s0 = p.pack(p.element(v0, 0), p.element(v0, 1));
          s1 = p.pack(p.element(v1, 0), p.element(v1, 1));
        }
        for (int64_t i = 0; i < count; ++i) {
          Values a(ArrayRef(x[i]).slice(4 * k, 4));
          if (s0)
            for (int64_t q = 0; q < 4; ++q)
              a[q] = p.mulPair(a[q], q < 2 ? s0 : s1);
          for (int64_t h : {0, 1}) {
            int64_t to = 8 * i + 4 * h;
            Values d =
                p.mma(a, f[2 * h], f[2 * h + 1], ArrayRef(acc).slice(to, 4));
            std::copy(d.begin(), d.end(), acc.begin() + to);
          }
        }
      }
      return acc;
    };
    Values block(8 * count, p.f32(0));
    bool last = J + 1 == blocks && !op.getDiagonal();
    if (!last) {
      Value below =
          op.getDiagonal() ? p.ge(warp, p.i32(J)) : p.lt(p.i32(J), warp);
      block = p.ifElse(below, types, product,
                       [&] { return Values(8 * count, p.f32(0)); });
    }
    for (int64_t i = 0; i < count; ++i)
      out[i].append(block.begin() + 8 * i, block.begin() + 8 * i + 8);
  }
  for (int64_t i = 0; i < count; ++i)
    set(op.getResults()[i], out[i]);
}

void TileEmitter::placeDiag(tile::PlaceDiagOp op) {
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
    Value keep;
    if (auto half = op.getHalf()) {
      if (*half == 0) {
        keep = p.eq(row, column);
      } else {
        // Same group of 2h, row in its upper and column in its lower half.
        Value group = p.eq(p.divu(row, 2 * *half), p.divu(column, 2 * *half));
        Value upper =
            p.cmp(arith::CmpIPredicate::ne, p.bitAnd(row, *half), p.i32(0));
        Value lower = p.eq(p.bitAnd(column, *half), p.i32(0));
        keep = p.both(group, p.both(upper, lower));
      }
    } else {
      keep = op.getInclusive() ? p.ge(row, column) : p.lt(column, row);
    }
    out.push_back(p.select(keep, value, p.f32(0)));
  }
  set(op.getResult(), out);
}

void TileEmitter::half(tile::HalfOp op) {
  Values &v = use(op.getValue());
  Value zero = p.f32(0);
  // Rows g are in the lower half of 16, rows g + 8 in the upper, statically.
  Values out, keep;
  if (op.getHalf() < 8)
    for (int64_t r : {0, 8}) {
      Value bit = p.bitAnd(p.add(g, r), op.getHalf());
      keep.push_back(op.getUpper()
                         ? p.cmp(arith::CmpIPredicate::ne, bit, p.i32(0))
                         : p.eq(bit, p.i32(0)));
    }
  for (auto [i, value] : llvm::enumerate(v)) {
    const int64_t second = i % 4 / 2;
    if (keep.empty())
      out.push_back(second == (op.getUpper() ? 1 : 0) ? value : zero);
    else
      out.push_back(p.select(keep[second], value, zero));
  }
  set(op.getResult(), out);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

void TileEmitter::cumsum(tile::CumsumOp op) {
  Values &v = use(op.getValue());
  // The left operand: row i of the triangle says which rows it sums.
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
  Values out;
  for (size_t j = 0; j < v.size() / 4; ++j) {
    Values big, small;
    for (size_t i = 0; i < 2; ++i) {
      Value a = v[4 * j + 2 * i], b = v[4 * j + 2 * i + 1];
      Value pair = p.pack(a, b);
      big.push_back(pair);
      small.push_back(p.pack(p.fsub(a, p.low(pair)), p.fsub(b, p.high(pair))));
    }
    Values d(4, p.f32(0));
    d = p.mma(triangle, small[0], small[1], d);
    d = p.mma(triangle, big[0], big[1], d);
    out.append(d);
  }
  set(op.getResult(), out);
}

void TileEmitter::blockSum(tile::BlockSumOp op) {
  const SharedTile &to = tiles.find(op.getTo())->second;
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
