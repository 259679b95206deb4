//===- TileCopies.cpp - Rows into tiles, tiles into memory ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of inputs come by copies of 16 bytes that run on beside the threads;
// what prepare leaves goes by bulk copies on sm_90a; a scan writes rows through
// a panel.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using tile::LayoutKind;

void TileEmitter::copyRows(ArrayRef<RowCopy> copies, Value thread,
                           int64_t threads, Value firstRow, Value rows,
                           bool rolled) {
  // Thread i of a step has row i / pieces, piece i % pieces; a step advances a
  // fixed number of rows.
  const tile::SharedType type = copies[0].to.type;
  const int64_t pieces = type.getCols() / 8, R = type.getRows();
  SmallVector<Inputs> from;
  for (const RowCopy &copy : copies) {
    from.push_back(inputs(copy.input, firstRow));
    if (copy.columnBytes)
      for (Value &base : from.back().base)
        base = p.add(base, p.toI64(copy.columnBytes));
  }
  rows = validRows(rows);
  // Where a piece of a row lies in a tile, and how far into its row.
  auto place = [&](Value row, Value piece) {
    return p.add(pieceOffset(row, p.bitAnd(piece, 7)),
                 p.mul(p.shr(piece, 3), R * 128));
  };
  auto inRow = [&](Value piece) { return p.toU64(p.shl(piece, 4)); };
  // Any piece; a row beyond the end copies nothing, but its address must be
  // one.
  auto checked = [&](Value index) {
    Value row = p.divu(index, pieces), piece = p.remu(index, pieces);
    Value offset = place(row, piece);
    Value inside = p.lt(row, rows);
    Value source = p.select(inside, row, p.i32(0));
    Value bytes = p.select(inside, p.i32(16), p.i32(0));
    for (auto [copy, input] : llvm::zip(copies, from))
      p.copy16(p.at(copy.to.base, offset),
               p.global(p.add(inputRow(input, source), inRow(piece))), bytes);
  };
  const int64_t total = R * pieces, hop = threads / pieces;
  const bool regular = threads % pieces == 0 && hop % steps == 0 &&
                       R % hop == 0 && (hop % 8 == 0 || 8 % hop == 0);
  if (!regular) {
    for (int64_t i = 0; i < total; i += threads) {
      Value index = p.add(thread, i);
      if (i + threads <= total)
        checked(index);
      else
        p.ifThen(p.lt(index, p.i32(total)), [&] { checked(index); });
    }
    return;
  }
  // The thread's piece stays the same, and its row advances by `hop`: the
  // address by a constant, the place by a constant and, in the swizzle, what
  // the row's last three bits say.
  auto whole = [&](const RowCopy &copy, const Inputs &input) {
    Value row = p.divu(thread, pieces), piece = p.remu(thread, pieces);
    Value offset = place(row, piece);
    Value address = p.add(inputRow(input, row), inRow(piece));
    Value ahead = p.mul(inputOf(input, row).second, p.i64(hop / steps));
    // `count` of them from `base` on; returns the next address.
    auto pieceCopies = [&](int64_t count, Value base, Value address) {
      for (int64_t i = 0; i < count; ++i) {
        Value swizzled = p.bitXor(offset, p.i32(i * hop % 8 * 16));
        p.copy16(p.at(p.at(base, swizzled), i * hop * 128), p.global(address),
                 p.i32(16));
        address = p.add(address, ahead);
      }
      return address;
    };
    const int64_t count = R / hop, group = std::max<int64_t>(8 / hop, 4);
    if (!rolled || count <= group || count % group) {
      pieceCopies(count, copy.to.base, address);
      return;
    }
    // Producers have few registers.
    p.loop(p.i32(0), p.i32(R * 128), group * hop * 128, ValueRange{address},
           [&](Value at, ValueRange state) -> Values {
             return {pieceCopies(group, p.at(copy.to.base, at), state[0])};
           });
  };
  p.ifElse(
      p.ge(rows, p.i32(R)), {},
      [&]() -> Values {
        for (auto [copy, input] : llvm::zip(copies, from))
          whole(copy, input);
        return {};
      },
      [&]() -> Values {
        p.loop(thread, p.i32(total), threads, checked);
        return {};
      });
}

/// What is fetched next to each other is fetched together: one branch, and one
/// place of a thread in all tiles.
void TileEmitter::fetch(tile::FetchOp op) {
  auto tileOf = [&](tile::FetchOp o) { return tiles.find(o.getTo())->second; };
  auto together = [&](tile::FetchOp a, tile::FetchOp b) {
    return a && b && tileOf(a).type == tileOf(b).type;
  };
  auto before = dyn_cast_or_null<tile::FetchOp>(op->getPrevNode());
  if (together(before, op))
    return;
  askForNumbers();
  SmallVector<RowCopy> copies;
  for (tile::FetchOp next = op; next == op || together(op, next);
       next = dyn_cast_or_null<tile::FetchOp>(next->getNextNode()))
    copies.push_back({next.getInput(), tileOf(next)});
  copyRows(copies, tid, threads, firstToken, rows);
}

void TileEmitter::exportTile(tile::ExportOp op) {
  const SharedTile &from = tiles.find(op.getTile())->second;
  Value to = p.at(blob, op.getBlob());
  const int64_t bytes = from.type.bytes();
  if (from.type.swizzled() && from.type.getCols() % 64) {
    // The last panel is not full, and what it lacks becomes zero.
    const int64_t R = from.type.getRows(), pieces = from.type.getCols() / 8;
    Type four = p.vec(p.getI32Type(), 4);
    Value none = p.vector(Values(4, p.i32(0)));
    p.loop(tid, p.i32(bytes / 16), threads, [&](Value at) {
      Value row = p.remu(p.shr(at, 3), R);
      Value piece = p.add(p.mul(p.divu(at, 8 * R), 8),
                          p.bitXor(p.bitAnd(at, 7), p.bitAnd(row, 7)));
      Value offset = p.shl(at, 4);
      Value data = p.ifElse(
          p.lt(piece, p.i32(pieces)), four,
          [&]() -> Values { return {p.load(four, p.at(from.base, offset))}; },
          [&]() -> Values { return {none}; })[0];
      p.store(data, p.at(to, p.toI64(offset)));
    });
    return;
  }
  if (p.chip.hopper()) {
    exports = true;
    p.ifThen(p.eq(tid, p.i32(0)), [&] {
      p.bulkStore(to, from.base, bytes);
      p.bulkCommit();
    });
    return;
  }
  Type four = p.vec(p.getI32Type(), 4);
  Value mine = p.shl(tid, 4);
  Value source = p.at(from.base, mine), target = p.at(to, p.toI64(mine));
  for (int64_t i = 0; i < bytes; i += threads * 16)
    if (i + threads * 16 <= bytes)
      p.store(p.load(four, p.at(source, i)), p.at(target, i));
    else
      p.ifThen(p.lt(mine, p.i32(bytes - i)), [&] {
        p.store(p.load(four, p.at(source, i)), p.at(target, i));
      });
}

void TileEmitter::exportVector(tile::ExportVectorOp op) {
  Values &v = use(op.getValue());
  Value to = p.at(blob, op.getBlob());
  int64_t n = tensorOf(op.getValue()).getDimSize(0);
  if (op.getTokens()) {
    // Four lanes have each row.
    once(p.eq(t, p.i32(0)), [&] {
      for (int64_t i = 0; i < 2; ++i) {
        Value index = elementIndex(LayoutKind::AccCol, i);
        p.store(v[i], p.at(to, p.toI64(p.shl(index, 2))));
      }
    });
    return;
  }
  for (auto [i, value] : llvm::enumerate(v)) {
    Value index = elementIndex(LayoutKind::Linear, i);
    auto write = [&, value = value] {
      p.store(value, p.at(to, p.toI64(p.shl(index, 2))));
    };
    if ((int64_t(i) + 1) * threads <= n)
      write();
    else
      p.ifThen(p.lt(index, p.i32(n)), write);
  }
}

void TileEmitter::exportMatrix(tile::ExportMatrixOp op) {
  Values &v = use(op.getValue());
  RankedTensorType type = tensorOf(op.getValue());
  Value to = p.at(blob, op.getBlob());
  // Not from the row's number, which would stay in a register from the start.
  Value row = p.add(p.shl(warp, 11), p.shl(p.bitAnd(lane, 28), 5));
  const int64_t R = type.getDimSize(0);
  // What is left of the last panel is zero, so that the blob is written.
  const int64_t used = type.getDimSize(1) / 8;
  for (int64_t j = 0; j < (used + 7) / 8 * 8; ++j) {
    Value piece = p.bitXor(p.i32(j % 8), g);
    Value offset = p.add(p.add(row, p.shl(piece, 4)), p.shl(t, 2));
    Value at = p.at(p.at(to, p.toI64(offset)), j / 8 * R * 128);
    p.store(j < used ? v[2 * j] : p.i32(0), at);
    p.store(j < used ? v[2 * j + 1] : p.i32(0), p.at(at, 8 * 128));
  }
}

void TileEmitter::copyOut(Value base, int64_t R, int64_t pieces, Value thread,
                          int64_t threads, Value address, Value stride,
                          Value tokens) {
  for (int64_t i = 0; i < C * pieces; i += threads) {
    Value index = p.add(thread, i);
    Value token = p.divu(index, pieces), piece = p.remu(index, pieces);
    // Of a token's rows the last has seen all of its updates.
    Value row = steps == 1 ? token : p.add(p.mul(token, steps), steps - 1);
    Value offset = p.add(pieceOffset(row, p.bitAnd(piece, 7)),
                         p.mul(p.shr(piece, 3), R * 128));
    p.ifThen(p.lt(token, p.minimum(tokens, p.i32(C))), [&] {
      Value data = p.load(p.vec(p.getI32Type(), 4), p.at(base, offset));
      Value to = p.add(p.add(address, p.mul(p.toI64(token), stride)),
                       p.toI64(p.shl(piece, 4)));
      p.store(data, p.global(to));
    });
  }
}

void TileEmitter::exportRows(tile::ExportRowsOp op) {
  const SharedTile &from = tiles.find(op.getTile())->second;
  copyOut(from.base, from.type.getRows(), from.type.getCols() / 8, tid, threads,
          rowAddress(op.getOutput(), firstToken), tokenStride(op.getOutput()),
          rows);
}

void TileEmitter::writeRows(tile::WriteRowsOp op) {
  // Groups of four warps each have a panel of 64 columns of their own.
  const SharedTile &panel = tiles.find(op.getPanel())->second;
  Values v = use(op.getValue());
  const bool byGroup = warps % 4 == 0;
  const int64_t groupThreads = byGroup ? 128 : threads;
  const int64_t columns = byGroup ? 64 : panel.type.getCols();
  Value group = byGroup ? p.shr(warp, 2) : p.i32(0);
  Value inGroup = byGroup ? p.bitAnd(tid, 127) : tid;
  const int64_t R = panel.type.getRows();
  Value first = p.add(p.shl(group, 1), 1), second = p.add(p.shl(group, 1), 2);

  p.barrier(first, groupThreads); // The rows of the last call have been read.
  storeTransposed(panel, v);
  p.barrier(second, groupThreads);

  Value row0 = p.mul(chunkIndex, C);
  Value there = rows;
  if (op.getPrevious()) {
    row0 = p.sub(row0, p.i32(C));
    there = p.select(p.lt(row0, p.i32(0)), p.i32(0),
                     p.minimum(p.sub(length, row0), p.i32(C)));
  }
  const int64_t pieces = columns / 8;
  Value start = p.add(firstToken, row0);
  Value address = rowAddress(op.getOutput(), start);
  Value stride = tokenStride(op.getOutput());
  Value columnBytes =
      p.add(p.mul(slice, kernel.getSlice() * 2), p.mul(group, 128));
  address = p.add(address, p.toI64(columnBytes));
  Value groupBase = p.at(panel.base, p.mul(group, R * 128));
  copyOut(groupBase, R, pieces, inGroup, groupThreads, address, stride, there);
}

void TileEmitter::values(tile::ValuesOp op) {
  Values out;
  for (Value v : use(op.getValue()))
    out.push_back(p.select(followsIdentity,
                           v.getType().isF32() ? p.f32(0) : p.i32(0), v));
  set(op.getResult(), out);
}
