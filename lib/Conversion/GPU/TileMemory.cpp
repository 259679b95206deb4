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

static RankedTensorType tensorOf(Value v) {
  return cast<RankedTensorType>(v.getType());
}
static LayoutKind kindOf(Value v) { return *tile::layoutOf(v.getType()); }

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

//===----------------------------------------------------------------------===//
// plum_gpu_args
//===----------------------------------------------------------------------===//

int64_t TileEmitter::tensorOffset(StringRef name) {
  for (auto [i, attr] : llvm::enumerate(kernel.getArguments()))
    if (cast<tile::ArgumentAttr>(attr).getName() == name)
      return offsetof(plum_gpu_args, tensors) + i * sizeof(plum_gpu_tensor);
  llvm_unreachable("the kernel lists every tensor that it names");
}
Type TileEmitter::elementOf(StringRef name) {
  for (Attribute attr : kernel.getArguments())
    if (cast<tile::ArgumentAttr>(attr).getName() == name)
      return cast<tile::ArgumentAttr>(attr).getElement();
  llvm_unreachable("the kernel lists every tensor that it names");
}
Value TileEmitter::field64(StringRef name, int64_t at) {
  return p.argument(tensorOffset(name) + at, p.getI64Type());
}
Value TileEmitter::field32(StringRef name, int64_t at) {
  return p.argument(tensorOffset(name) + at, p.getI32Type());
}

#define FIELD(NAME) int64_t(offsetof(plum_gpu_tensor, NAME))

/// The head of a tensor that several may share.
Value TileEmitter::headOf(StringRef name) {
  return p.mulHigh(p.shl(head, 1), field32(name, FIELD(share)));
}

Value TileEmitter::rowAddress(StringRef name, Value row) {
  Value address =
      p.add(field64(name, FIELD(data)),
            p.mul(p.toU64(inputSequence), field64(name, FIELD(sequence))));
  address =
      p.add(address, p.mul(p.toU64(headOf(name)), field64(name, FIELD(head))));
  return p.add(address, p.mul(p.toU64(row), field64(name, FIELD(token))));
}
Value TileEmitter::paramAddress(StringRef name) {
  return p.add(field64(name, FIELD(data)),
               p.mul(p.toU64(headOf(name)), field64(name, FIELD(head))));
}

TileEmitter::Inputs TileEmitter::inputs(StringRef names, Value firstRow) {
  SmallVector<StringRef> list;
  names.split(list, ',');
  Inputs out;
  for (StringRef name : list) {
    out.base.push_back(rowAddress(name, firstRow));
    out.stride.push_back(field64(name, FIELD(token)));
  }
  return out;
}
std::pair<Value, Value> TileEmitter::inputOf(const Inputs &inputs, Value row) {
  Value base = inputs.base[0], stride = inputs.stride[0];
  for (size_t s = 1; s < inputs.base.size(); ++s) {
    Value mine = p.eq(p.remu(row, steps), p.i32(int64_t(s)));
    base = p.select(mine, inputs.base[s], base);
    stride = p.select(mine, inputs.stride[s], stride);
  }
  return {base, stride};
}
Value TileEmitter::inputRow(const Inputs &inputs, Value row) {
  auto [base, stride] = inputOf(inputs, row);
  Value token = steps == 1 ? row : p.divu(row, steps);
  return p.add(base, p.mul(p.toU64(token), stride));
}

/// One element of a param or input as f32.
static Value loadElement(Ptx &p, Type element, Value pointer) {
  return element.isF32() ? p.load(p.getF32Type(), pointer)
                         : p.loadHalf(pointer, element.isBF16());
}

void TileEmitter::askForNumbers() {
  if (!numbers.empty())
    return;
  kernel.walk([&](tile::ColumnOp op) {
    column(op);
    numbers[{op, 0}] = registers[op.getResult()];
  });
  kernel.walk([&](tile::ParamOp op) {
    const int64_t count = op.getStrip() ? stripCount(op.getStrip()) : 1;
    for (int64_t strip = 0; strip < count; ++strip) {
      if (op.getStrip())
        strips[op.getStrip()] = strip;
      param(op);
      numbers[{op, strip}] = registers[op.getResult()];
    }
  });
}

void TileEmitter::param(tile::ParamOp op) {
  const int64_t strip = op.getStrip() ? constantIndex(op.getStrip()) : 0;
  if (auto known = numbers.find({op, strip}); known != numbers.end())
    return set(op.getResult(), known->second);
  Type element = elementOf(op.getName());
  int64_t size = element.getIntOrFloatBitWidth() / 8;
  Value base = p.global(paramAddress(op.getName()));
  if (op.getResult().getType().isF32())
    return set(op.getResult(), {loadElement(p, element, base)});
  RankedTensorType type = tensorOf(op.getResult());
  LayoutKind kind = kindOf(op.getResult());
  if (op.getStrip())
    base = p.at(base, constantIndex(op.getStrip()) * 16 * size);
  if (op.getStrip() && teams > 1)
    base =
        p.at(base, p.toI64(p.mul(team, stripCount(op.getStrip()) * 16 * size)));
  if (scan && kind == LayoutKind::AccCol) // Along V: this team's slice.
    base = p.at(base, p.toI64(p.mul(slice, kernel.getSlice() * size)));
  Values out;
  for (int64_t i = 0, n = registerCount(type, threads); i < n; ++i) {
    Value index = elementIndex(kind, i);
    if (kind == LayoutKind::Linear)
      index = p.minimum(index, p.i32(type.getDimSize(0) - 1));
    out.push_back(
        loadElement(p, element, p.at(base, p.toI64(p.mul(index, size)))));
  }
  set(op.getResult(), out);
}

void TileEmitter::column(tile::ColumnOp op) {
  if (auto known = numbers.find({op, 0}); known != numbers.end())
    return set(op.getResult(), known->second);
  RankedTensorType type = tensorOf(op.getResult());
  LayoutKind kind = kindOf(op.getResult());
  Type element = elementOf(op.getName().split(',').first);
  Inputs from = inputs(op.getName(), firstToken);
  Value end = validRows(rows);
  Values out;
  for (int64_t i = 0, n = registerCount(type, threads); i < n; ++i) {
    Value index = elementIndex(kind, i);
    Value inside = p.lt(index, end);
    out.push_back(p.ifElse(
        inside, p.getF32Type(),
        [&]() -> Values {
          return {loadElement(p, element, p.global(inputRow(from, index)))};
        },
        [&]() -> Values { return {p.f32(0)}; })[0]);
  }
  set(op.getResult(), out);
}

void TileEmitter::step(tile::StepOp op) {
  RankedTensorType type = tensorOf(op.getResult());
  Values out;
  for (int64_t i = 0, n = registerCount(type, threads); i < n; ++i) {
    Value step = p.remu(elementIndex(kindOf(op.getResult()), i), steps);
    Value number = p.f32(0);
    for (int64_t s = 1; s < steps; ++s)
      number = p.select(p.eq(step, p.i32(s)), p.f32(double(s)), number);
    out.push_back(number);
  }
  set(op.getResult(), out);
}

void TileEmitter::valid(tile::ValidOp op) {
  RankedTensorType type = tensorOf(op.getResult());
  LayoutKind kind = kindOf(op.getResult());
  Values &v = use(op.getValue());
  Value fill = p.f32(op.getFill().convertToDouble());
  bool matrix = type.getRank() == 2;
  LayoutKind column = !matrix                   ? kind
                      : kind == LayoutKind::Opb ? LayoutKind::OpbCol
                                                : LayoutKind::AccCol;
  Values inside;
  int64_t perRow =
      kind == LayoutKind::Acc || kind == LayoutKind::AccCol ? 2 : 4;
  if (kind == LayoutKind::Linear)
    perRow = v.size();
  for (int64_t i = 0; i < perRow; ++i)
    inside.push_back(p.lt(elementIndex(column, i), validRows(rows)));
  Values out;
  for (auto [i, value] : llvm::enumerate(v)) {
    // acc: (g) (g) (g+8) (g+8); opb and vectors: one row each.
    size_t row = matrix && kind == LayoutKind::Acc ? i % 4 / 2 : i % perRow;
    out.push_back(p.select(inside[row], value, fill));
  }
  set(op.getResult(), out);
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

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
          rowAddress(op.getOutput(), firstToken),
          field64(op.getOutput(), FIELD(token)), rows);
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
  Value stride = field64(op.getOutput(), FIELD(token));
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
