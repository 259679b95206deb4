//===- TileMemory.cpp - Shared and global memory of tile kernels -*- C++ -*-==//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include "plum/ABI/GpuABI.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using tile::LayoutKind;

//===----------------------------------------------------------------------===//
// Where elements are
//===----------------------------------------------------------------------===//

/// Index along the vector (or, for matrices, nothing) of register i.
Value TileEmitter::elementIndex(LayoutKind kind, int64_t i) {
  switch (kind) {
  case LayoutKind::AccRow:
    return p.add(p.shl(t, 1), i / 2 * 8 + i % 2);
  case LayoutKind::AccCol:
    return p.add(p.add(p.shl(warp, 4), g), i * 8);
  case LayoutKind::OpbRow:
    return p.add(g, i * 8);
  case LayoutKind::OpbCol:
    return p.add(p.add(p.shl(warp, 4), p.shl(t, 1)), i / 2 * 8 + i % 2);
  case LayoutKind::Linear:
    return p.add(tid, i * threads);
  default:
    llvm_unreachable("a matrix has two indices");
  }
}

int64_t plum::gpu::registerCount(RankedTensorType type, int64_t threads) {
  const int64_t n = type.getShape().back();
  // bf16 matrices are held in pairs.
  const int64_t pair = type.getElementType().isF32() ? 1 : 2;
  switch (*tile::layoutOf(type)) {
  case LayoutKind::Acc:
  case LayoutKind::Opb:
    return n / 8 * 4 / pair;
  case LayoutKind::AccRow:
    return n / 8 * 2;
  case LayoutKind::AccCol:
    return 2;
  case LayoutKind::OpbRow:
    return n / 8;
  case LayoutKind::OpbCol:
    return 4;
  case LayoutKind::Linear:
    return (n + threads - 1) / threads;
  }
  llvm_unreachable("all layouts are above");
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

void TileEmitter::load(tile::LoadOp op) {
  const SharedTile from =
      teamPart(tiles.find(op.getFrom())->second, op.getStrip());
  RankedTensorType type = tensorOf(op.getResult());
  LayoutKind kind = kindOf(op.getResult());
  Values out;
  if (!from.type.swizzled()) {
    const int64_t first = op.getStrip() ? constantIndex(op.getStrip()) * 16 : 0;
    const int64_t pitch = from.type.getCols() * 4;
    Value base = from.base;
    if (op.getBlocks()) {
      base = p.at(base, p.mul(warp, pitch));
      // One row for all rows of the warp: the same registers for g and g + 8.
      LayoutKind row =
          kind == LayoutKind::Opb ? LayoutKind::OpbRow : LayoutKind::AccRow;
      assert(row == LayoutKind::AccRow &&
             "tables are read as accumulators are");
      (void)row;
      Value at = p.at(base, p.shl(t, 3));
      for (int64_t j = 0; j < type.getDimSize(1) / 8; ++j) {
        Value pair =
            p.load(p.vec(p.getF32Type(), 2), p.at(at, (first + 8 * j) * 4));
        Value a = p.element(pair, 0), b = p.element(pair, 1);
        out.append({a, b, a, b});
      }
      return set(op.getResult(), out);
    }
    base = p.at(base, op.getRow().value_or(0) * pitch + first * 4);
    int64_t n = registerCount(type, threads);
    if (kind == LayoutKind::AccRow) {
      Value at = p.at(base, p.shl(t, 3));
      for (int64_t j = 0; j < n / 2; ++j) {
        Value pair = p.load(p.vec(p.getF32Type(), 2), p.at(at, 32 * j));
        out.append({p.element(pair, 0), p.element(pair, 1)});
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        Value index = elementIndex(kind, i);
        // Threads beyond the vector read its last element.
        if (kind == LayoutKind::Linear)
          index = p.minimum(index, p.i32(type.getDimSize(0) - 1));
        out.push_back(p.load(p.getF32Type(), p.at(base, p.shl(index, 2))));
      }
    }
    return set(op.getResult(), out);
  }

  if (op.getTransposed()) {
    // The result's rows are the tile's columns: warp w has columns 16 w ... of
    // the tile, a quarter of a panel; the result's columns are rows.
    Value panel = p.mul(p.shr(warp, 2), from.type.getRows() * 128);
    Value offset = p.bitXor(matrixOffset(p.i32(0), 0, /*swap=*/true),
                            p.shl(p.bitAnd(warp, 3), 5));
    Value at = p.at(p.at(from.base, panel), offset);
    for (int64_t s = 0; s < type.getDimSize(1) / 16; ++s)
      out.append(p.ldmatrix4(p.at(at, s * 16 * 128), /*transposed=*/true));
    return set(op.getResult(), out);
  }
  const bool opb = kind == LayoutKind::Opb;
  const int64_t first = op.getStrip() ? constantIndex(op.getStrip()) : 0;
  for (int64_t s = 0; s < type.getDimSize(1) / 16; ++s) {
    int64_t strip = first + s;
    Value offset = matrixOffset(p.shl(warp, 4), strip % 4, false);
    Value at =
        p.at(p.at(from.base, offset), strip / 4 * from.type.getRows() * 128);
    out.append(p.ldmatrix4(at, opb));
  }
  set(op.getResult(), out);
}

void TileEmitter::store(tile::StoreOp op) {
  const SharedTile to = teamPart(tiles.find(op.getTo())->second, op.getStrip());
  RankedTensorType type = tensorOf(op.getValue());
  Values &v = use(op.getValue());
  if (!to.type.swizzled()) {
    Value base = p.at(to.base, op.getRow().value_or(0) * to.type.getCols() * 4);
    if (op.getTokens()) {
      once(p.eq(t, p.i32(0)), [&] { // Four lanes have each row.
        for (int64_t i = 0; i < 2; ++i)
          p.store(v[i],
                  p.at(base, p.shl(elementIndex(LayoutKind::AccCol, i), 2)));
      });
      return;
    }
    for (auto [i, value] : llvm::enumerate(v)) {
      Value index = elementIndex(LayoutKind::Linear, i);
      auto write = [&, value = value] {
        p.store(value, p.at(base, p.shl(index, 2)));
      };
      if ((int64_t(i) + 1) * threads <= type.getDimSize(0))
        write();
      else
        p.ifThen(p.lt(index, p.i32(type.getDimSize(0))), write);
    }
    return;
  }
  if (op.getTransposed())
    return storeTransposed(to, v);
  const int64_t first = op.getStrip() ? constantIndex(op.getStrip()) : 0;
  for (int64_t s = 0; s < type.getDimSize(1) / 16; ++s)
    storeBlock(to, warp, p.i32(first + s), ArrayRef(v).slice(4 * s, 4));
}

/// The first or second four registers of this thread: the first of all threads
/// lie before the second. Strips of a team lie together.
Value TileEmitter::stashAt(Value tile, Value strip, bool second) {
  const SharedTile &at = tiles.find(tile)->second;
  const int64_t bytes = at.type.getRows() * 16 * 4;
  Value mine = p.shl(p.bitAnd(tid, warps * 32 - 1), 4);
  if (teams > 1)
    mine = p.add(mine, p.mul(team, stripCount(strip) * bytes));
  return p.at(p.at(at.base, mine),
              constantIndex(strip) * bytes + second * bytes / 2);
}

void TileEmitter::stash(tile::StashOp op) {
  Values &v = use(op.getValue());
  for (size_t i = 0; i < v.size(); i += 4)
    p.store(p.vector(ArrayRef(v).slice(i, 4)),
            stashAt(op.getTo(), op.getStrip(), op.getSecond() || i));
}

void TileEmitter::unstash(tile::UnstashOp op) {
  RankedTensorType type = tensorOf(op.getResult());
  Type element = type.getElementType().isF32() ? Type(p.getF32Type())
                                               : Type(p.getI32Type());
  Values out;
  for (int64_t i = 0; i < registerCount(type, threads); i += 4) {
    Value four = p.load(p.vec(element, 4), stashAt(op.getFrom(), op.getStrip(),
                                                   op.getSecond() || i));
    for (int64_t j = 0; j < 4; ++j)
      out.push_back(p.element(four, j));
  }
  set(op.getResult(), out);
}

void TileEmitter::storeTransposed(const SharedTile &to, ArrayRef<Value> v) {
  const int64_t R = to.type.getRows();
  Value base = p.at(to.base, p.mul(p.shr(warp, 2), R * 128));
  if (p.chip.hopper()) {
    Value quarter = p.shl(p.bitAnd(warp, 3), 5);
    Value at = p.at(base, p.bitXor(matrixOffset(p.i32(0), 0, true), quarter));
    for (int64_t s = 0; s < R / 16; ++s)
      p.stmatrix4(p.at(at, s * 16 * 128), v.slice(4 * s, 4), true);
    return;
  }
  // A pair is of two rows of the tile.
  for (int64_t i = 0; i < int64_t(v.size()); ++i) {
    Value column = p.add(p.shl(p.bitAnd(warp, 3), 4), p.add(g, i % 2 * 8));
    for (int64_t half : {0, 1}) {
      Value row = p.add(p.shl(t, 1), i / 2 * 8 + half);
      Value offset = p.add(pieceOffset(row, p.shr(column, 3)),
                           p.shl(p.bitAnd(column, 7), 1));
      Value bits = p.createOrFold<arith::TruncIOp>(
          p.getI16Type(), half ? p.shr(v[i], 16) : v[i]);
      p.store(bits, p.at(base, offset));
    }
  }
}

void TileEmitter::element(tile::ElementOp op) {
  const SharedTile &from = tiles.find(op.getFrom())->second;
  set(op.getResult(),
      {p.load(
          p.getF32Type(),
          p.at(from.base,
               int64_t(op.getRow() * from.type.getCols() + op.getCol()) * 4))});
}
