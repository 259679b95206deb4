//===- TileArguments.cpp - What tile kernels read of tensors -*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Addresses from plum_gpu_args, and what is read from there into registers:
// params, and numbers of tokens.
//
//===----------------------------------------------------------------------===//

#include "TileEmitter.h"

#include "plum/ABI/GpuABI.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using tile::LayoutKind;

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

Value TileEmitter::tokenStride(StringRef name) {
  return field64(name, FIELD(token));
}

/// The head of a tensor that several may share.
Value TileEmitter::headOf(StringRef name) {
  return ownHead(p, head, field32(name, FIELD(share)));
}

Value TileEmitter::rowAddress(StringRef name, Value row) {
  Value address =
      p.add(field64(name, FIELD(data)),
            p.mul(p.toU64(inputSequence), field64(name, FIELD(sequence))));
  address =
      p.add(address, p.mul(p.toU64(headOf(name)), field64(name, FIELD(head))));
  return p.add(address, p.mul(p.toU64(row), tokenStride(name)));
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
    out.stride.push_back(tokenStride(name));
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
