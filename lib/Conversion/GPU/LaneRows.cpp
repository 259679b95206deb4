//===- LaneRows.cpp - The maths of a token, eight lanes a row ---*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaneRows.h"

#include "Elementwise.h"
#include "Place.h"
#include "plum/ABI/GpuABI.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum;
using namespace plum::gpu;
using namespace plum::assoc;

#define FIELD(NAME) int64_t(offsetof(plum_gpu_tensor, NAME))

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

static int64_t bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

Values gpu::packEight(Ptx &p, ArrayRef<Value> eight) {
  Values pairs;
  for (int64_t i = 0; i < 8; i += 2)
    pairs.push_back(p.pack(eight[i], eight[i + 1]));
  return pairs;
}

Values gpu::loadEight(Ptx &p, Value pointer, Type element) {
  Values out;
  if (element.isF32())
    for (int64_t half : {0, 16}) {
      Value four = p.load(p.vec(element, 4), p.at(pointer, half));
      for (int64_t i = 0; i < 4; ++i)
        out.push_back(p.element(four, i));
    }
  else if (element.isBF16()) {
    Value four = p.load(p.vec(p.getI32Type(), 4), pointer);
    for (int64_t i = 0; i < 4; ++i) {
      Value pair = p.element(four, i);
      out.append({p.low(pair), p.high(pair)});
    }
  } else {
    for (int64_t i = 0; i < 8; ++i)
      out.push_back(p.loadHalf(p.at(pointer, 2 * i), false));
  }
  return out;
}

void gpu::storeEight(Ptx &p, ArrayRef<Value> eight, Value pointer,
                     Type element) {
  if (element.isF32())
    for (int64_t half : {0, 1})
      p.store(p.vector(eight.slice(4 * half, 4)), p.at(pointer, 16 * half));
  else if (element.isBF16())
    p.store(p.vector(packEight(p, eight)), pointer);
  else
    for (int64_t i = 0; i < 8; ++i)
      p.storeHalf(eight[i], p.at(pointer, 2 * i), false);
}

void LaneRows::ifHas(int64_t width, int64_t i, function_ref<void()> body) {
  if (64 * (i + 1) <= width)
    return body();
  p.ifThen(p.lt(piece(i), p.i32(width / 8)), body);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Value LaneRows::field64(int64_t tensor, int64_t offset) {
  return p.argument(offsetof(plum_gpu_args, tensors) +
                        tensor * sizeof(plum_gpu_tensor) + offset,
                    p.getI64Type());
}
Value LaneRows::field32(int64_t tensor, int64_t offset) {
  return p.argument(offsetof(plum_gpu_args, tensors) +
                        tensor * sizeof(plum_gpu_tensor) + offset,
                    p.getI32Type());
}

Value LaneRows::ownHead(int64_t tensor, Value head) {
  return gpu::ownHead(p, head, field32(tensor, FIELD(share)));
}

Value LaneRows::rowAddress(int64_t tensor, bool tokens) {
  Value address =
      p.add(field64(tensor, FIELD(data)), p.mul(p.toU64(ownHead(tensor, head)),
                                                field64(tensor, FIELD(head))));
  if (!tokens)
    return address;
  address = p.add(address,
                  p.mul(p.toU64(sequence), field64(tensor, FIELD(sequence))));
  return p.add(address, p.mul(p.toU64(token), field64(tensor, FIELD(token))));
}

ListPlace LaneRows::list(int64_t tensor, Value slot, Value head) {
  Value data = field64(tensor, FIELD(data)),
        sequence = field64(tensor, FIELD(sequence)),
        dtype = field32(tensor, FIELD(dtype));
  Value isTable = p.cmp(arith::CmpIPredicate::ne,
                        p.bitAnd(dtype, PLUM_GPU_TABLE), p.i32(0));
  Value begin = p.ifElse(
      isTable, p.getI64Type(),
      [&]() -> Values {
        Value at = p.global(p.add(data, p.shl(p.toI64(slot), 3)));
        return {p.add(p.load(p.getI64Type(), at), sequence)};
      },
      [&]() -> Values {
        return {p.add(data, p.mul(p.toU64(slot), sequence))};
      })[0];
  Value base = p.add(begin, p.mul(p.toU64(ownHead(tensor, head)),
                                  field64(tensor, FIELD(head))));
  Value type = p.bitAnd(dtype, PLUM_GPU_TABLE - 1);
  return {base, field64(tensor, FIELD(row)), p.eq(type, p.i32(PLUM_GPU_F32))};
}

Value LaneRows::isFirstOf(int64_t tensor, Value head) {
  // The head before has another; of head 0 what stands for it is no head.
  return p.cmp(arith::CmpIPredicate::ne, ownHead(tensor, head),
               ownHead(tensor, p.sub(head, p.i32(1))));
}

void LaneRows::storeRow(ArrayRef<Value> elements, int64_t width,
                        const ListPlace &list, Value index) {
  Value row = list.pointer(p, index);
  auto store = [&](Type element) {
    for (int64_t i = 0; i < pieces(width); ++i)
      ifHas(width, i, [&] {
        storeEight(p, elements.slice(8 * i, 8),
                   p.at(row, p.toI64(p.mul(piece(i), 8 * bytesOf(element)))),
                   element);
      });
    return Values();
  };
  p.ifElse(
      list.isF32, {}, [&] { return store(p.getF32Type()); },
      [&] { return store(p.getBF16Type()); });
}

Values LaneRows::loadRows(int64_t width, const ListPlace &list,
                          ArrayRef<Value> indices) {
  auto load = [&](Type element) {
    Values elements;
    for (Value index : indices) {
      Value row = list.pointer(p, index);
      for (int64_t i = 0; i < pieces(width); ++i) {
        Value bytes = p.mul(p.minimum(piece(i), p.i32(width / 8 - 1)),
                            8 * bytesOf(element));
        elements.append(loadEight(p, p.at(row, p.toI64(bytes)), element));
      }
    }
    return elements;
  };
  SmallVector<Type> types(8 * pieces(width) * indices.size(), p.getF32Type());
  return p.ifElse(
      list.isF32, types, [&] { return load(p.getF32Type()); },
      [&] { return load(p.getBF16Type()); });
}

void LaneRows::storeOutput(unsigned i) {
  Value value = layer.op.yieldedOutputs()[i];
  Type element = getElementTypeOrSelf(value.getType());
  Values elements = all(value);
  Value row = p.global(rowAddress(layer.output(i), true));
  if (elements.size() == 1) {
    p.ifThen(p.eq(lane, p.i32(0)), [&] {
      if (element.isF32())
        p.store(elements[0], row);
      else
        p.storeHalf(elements[0], row, element.isBF16());
    });
    return;
  }
  int64_t width = cast<VectorType>(value.getType()).getNumElements();
  for (int64_t n = 0; n < pieces(width); ++n)
    ifHas(width, n, [&] {
      storeEight(p, ArrayRef(elements).slice(8 * n, 8),
                 p.at(row, p.toI64(p.mul(piece(n), 8 * bytesOf(element)))),
                 element);
    });
}

//===----------------------------------------------------------------------===//
// Maths
//===----------------------------------------------------------------------===//

void LaneRows::begin(Value newSequence, Value newToken, Value newHead) {
  sequence = newSequence;
  token = newToken;
  head = newHead;
  known.clear();
}

static bool isRow(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector && vector.getNumElements() > 1;
}

Values LaneRows::all(Value value) {
  Values some = get(value);
  if (some.size() > 1 || !isRow(value.getType()))
    return some;
  int64_t width = cast<VectorType>(value.getType()).getNumElements();
  return Values(8 * pieces(width), some[0]);
}

Values LaneRows::load(BlockArgument argument) {
  const bool tokens =
      llvm::is_contained(layer.op.argumentsOf(Role::Input), argument);
  Value row = p.global(rowAddress(layer.tensorOf(argument), tokens));
  Type element = getElementTypeOrSelf(argument.getType());
  if (!isRow(argument.getType()))
    return {element.isF32() ? p.load(element, row)
                            : p.loadHalf(row, element.isBF16())};
  int64_t width = cast<VectorType>(argument.getType()).getNumElements();
  Values out;
  for (int64_t i = 0; i < pieces(width); ++i) {
    Value at = p.minimum(piece(i), p.i32(width / 8 - 1));
    out.append(loadEight(p, p.at(row, p.toI64(p.mul(at, 8 * bytesOf(element)))),
                         element));
  }
  return out;
}

static Value combine(Ptx &p, vector::CombiningKind kind, Value x, Value y) {
  using enum vector::CombiningKind;
  return kind == MUL        ? p.fmul(x, y)
         : kind == MINIMUMF ? p.fmin(x, y)
         : kind == MAXIMUMF ? p.fmax(x, y)
                            : p.fadd(x, y);
}

static double neutral(vector::CombiningKind kind) {
  using enum vector::CombiningKind;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return kind == MUL        ? 1
         : kind == MINIMUMF ? infinity
         : kind == MAXIMUMF ? -infinity
                            : 0;
}

Values LaneRows::reduce(Operation *op) {
  auto reduction = cast<vector::ReductionOp>(op);
  auto type = cast<VectorType>(reduction.getVector().getType());
  Values elements = all(reduction.getVector());
  Value sum;
  auto take = [&](Value next) {
    sum = sum ? combine(p, reduction.getKind(), sum, next) : next;
  };
  if (!isRow(type)) {
    sum = elements[0];
  } else {
    const int64_t width = type.getNumElements();
    for (int64_t i = 0; i < pieces(width); ++i) {
      Value has =
          64 * (i + 1) <= width ? Value() : p.lt(piece(i), p.i32(width / 8));
      for (int64_t n = 0; n < 8; ++n) {
        Value next = elements[8 * i + n];
        take(has ? p.select(has, next, p.f32(neutral(reduction.getKind())))
                 : next);
      }
    }
    for (int64_t mask : {1, 2, 4})
      take(p.shuffleXor(sum, mask));
  }
  if (reduction.getAcc())
    take(get(reduction.getAcc())[0]);
  return {sum};
}

/// An element of a row, from the lane that has it.
Values LaneRows::extract(Operation *op) {
  auto extract = cast<vector::ExtractOp>(op);
  Values elements = get(extract.getSource());
  if (elements.size() == 1)
    return elements;
  const int64_t at = extract.getStaticPosition()[0];
  Value from = p.add(p.sub(p.lane(), lane), at / 8 % 8);
  return {p.shuffleIndex(elements[at / 64 * 8 + at % 8], from)};
}

Values LaneRows::get(Value value) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  Operation *op = value.getDefiningOp();
  Values result;
  if (!op) {
    result = load(cast<BlockArgument>(value));
  } else if (isa<vector::ReductionOp>(op)) {
    result = reduce(op);
  } else if (auto extract = dyn_cast<vector::ExtractOp>(op);
             extract && extract.getNumIndices() == 1 &&
             !extract.hasDynamicPosition()) {
    result = this->extract(op);
  } else if (isa<vector::FromElementsOp>(op) && op->getNumOperands() == 1) {
    result = get(op->getOperand(0));
  } else {
    SmallVector<Values> operands;
    size_t count = 1;
    for (Value operand : op->getOperands()) {
      operands.push_back(get(operand));
      count = std::max(count, operands.back().size());
    }
    for (size_t i = 0; i < count; ++i) {
      Values scalars;
      for (Values &operand : operands)
        scalars.push_back(operand[operand.size() == 1 ? 0 : i]);
      Value element = emitScalar(p, op, scalars);
      if (!element) {
        if (!hasFailed)
          op->emitError("'" + op->getName().getStringRef() +
                        "' has no kernel for a GPU beside a state that grows");
        hasFailed = true;
        element = p.f32(0);
      }
      result.push_back(element);
    }
  }
  known[value] = result;
  return result;
}
