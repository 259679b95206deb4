//===- KernelBuilder.cpp - Loops, vectors and buffers -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"

#include "plum/ABI/KernelABI.h"

#include <cstddef>

using namespace mlir;
using namespace plum::cpu;

//===----------------------------------------------------------------------===//
// Arena
//===----------------------------------------------------------------------===//

int64_t Arena::take(int64_t elements) {
  // A cache line apart, so that no row of one shares a line with the next.
  int64_t size = llvm::alignTo(std::max<int64_t>(elements, 1), 16);
  int64_t begin = 0;
  auto *place = used.begin();
  for (; place != used.end(); ++place) {
    if (place->begin - begin >= size)
      break;
    begin = place->end;
  }
  used.insert(place, {begin, begin + size});
  top = std::max(top, begin + size);
  return begin;
}

void Arena::give(int64_t offset) {
  llvm::erase_if(used,
                 [&](const Piece &piece) { return piece.begin == offset; });
}

//===----------------------------------------------------------------------===//
// KernelBuilder
//===----------------------------------------------------------------------===//

KernelBuilder::KernelBuilder(func::FuncOp function, Machine machine)
    : ImplicitLocOpBuilder(function.getLoc(), function.getContext()),
      machine(machine) {
  Block *entry = function.addEntryBlock();
  setInsertionPointToStart(entry);
  auto pointer = LLVM::LLVMPointerType::get(getContext());
  Value args = entry->getArgument(0);
  auto field = [&](Type type, size_t offset) {
    return load(type, atByte(args, i64(int64_t(offset))));
  };
  tokenCount = field(getI64Type(), offsetof(plum_kernel_args, tokens));
  workspace = field(pointer, offsetof(plum_kernel_args, workspace));
  inputs = field(pointer, offsetof(plum_kernel_args, inputs));
  params = field(pointer, offsetof(plum_kernel_args, params));
  states = field(pointer, offsetof(plum_kernel_args, states));
  outputs = field(pointer, offsetof(plum_kernel_args, outputs));
  lists = field(pointer, offsetof(plum_kernel_args, growing));
  pastRows = field(getI64Type(), offsetof(plum_kernel_args, past));
  sharing = field(getI64Type(), offsetof(plum_kernel_args, heads));
  Operation *end = func::ReturnOp::create(*this);
  setInsertionPoint(end);
  // Workspace pointers are made here, before everything that uses them.
  entryEnd = workspace.getDefiningOp();
  if (machine.x86) {
    flushSubnormals(end);
    setInsertionPoint(end->getPrevNode());
  }
}

/// Sets flush-to-zero and denormals-are-zero in MXCSR, and what was there
/// before back at the end.
void KernelBuilder::flushSubnormals(Operation *end) {
  auto call = [&](StringRef intrinsic, Value pointer) {
    LLVM::CallIntrinsicOp::create(*this, getStringAttr(intrinsic),
                                  ValueRange{pointer});
  };
  Buffer before = allocate(1, 1), during = allocate(1, 1);
  call("llvm.x86.sse.stmxcsr", before.base);
  constexpr int32_t kFlushAndZero = 0x8040;
  Value flags =
      arith::ConstantOp::create(*this, getI32IntegerAttr(kFlushAndZero));
  Value old = load(getI32Type(), before.base);
  store(arith::OrIOp::create(*this, old, flags), during.base);
  call("llvm.x86.sse.ldmxcsr", during.base);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPoint(end);
  call("llvm.x86.sse.ldmxcsr", before.base);
}

KernelBuilder::Rows KernelBuilder::rowsAt(Value array, unsigned i) {
  auto pointer = LLVM::LLVMPointerType::get(getContext());
  int64_t base = int64_t(i) * int64_t(sizeof(plum_rows));
  Value data = load(pointer, atByte(array, i64(base)));
  Value stride =
      load(getI64Type(),
           atByte(array, i64(base + int64_t(offsetof(plum_rows, stride)))));
  return {data, stride};
}

Value KernelBuilder::pointerAt(Value array, unsigned i) {
  auto pointer = LLVM::LLVMPointerType::get(getContext());
  return load(pointer, atByte(array, i64(int64_t(i) * 8)));
}

Value KernelBuilder::rowsBefore(Value row) {
  Value heads = arith::MaxSIOp::create(*this, sharing, i64(1));
  return add(pastRows, arith::DivSIOp::create(*this, row, heads));
}

Value KernelBuilder::appended(Value rows) {
  Value own =
      arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, sharing, i64(0));
  return arith::SelectOp::create(*this, own, rows, i64(0));
}

Value KernelBuilder::i64(int64_t value) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(value));
}

Value KernelBuilder::f32(double value) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(float(value)));
}

Value KernelBuilder::add(Value a, Value b) {
  return createOrFold<arith::AddIOp>(a, b);
}

Value KernelBuilder::mul(Value a, int64_t b) {
  return b == 1 ? a : createOrFold<arith::MulIOp>(a, i64(b));
}

Value KernelBuilder::minimum(Value a, Value b) {
  return arith::MinSIOp::create(*this, a, b);
}

void KernelBuilder::loop(Value begin, Value end, int64_t step, Body body) {
  loop(begin, end, step, {}, [&](Value i, ValueRange) {
    body(i);
    return Carry();
  });
}

void KernelBuilder::loop(int64_t begin, int64_t end, int64_t step, Body body) {
  if (end <= begin)
    return;
  if (end - begin <= step)
    return body(i64(begin));
  loop(i64(begin), i64(end), step, body);
}

KernelBuilder::Carry KernelBuilder::loop(Value begin, Value end, int64_t step,
                                         ValueRange init, CarryBody body) {
  auto op = scf::ForOp::create(*this, begin, end, i64(step), init);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(op.getBody());
  Carry carried = body(op.getInductionVar(), op.getRegionIterArgs());
  // Without carried values the loop came with its terminator.
  if (!init.empty())
    scf::YieldOp::create(*this, carried);
  return Carry(op.getResults());
}

void KernelBuilder::columns(int64_t n,
                            llvm::function_ref<void(Value, int64_t)> body) {
  int64_t full = n / machine.lanes * machine.lanes;
  loop(0, full, machine.lanes, [&](Value c) { body(c, machine.lanes); });
  int64_t at = full;
  for (int64_t lanes = machine.lanes / 2; lanes >= 1; lanes /= 2)
    if ((n - at) >= lanes) {
      body(i64(at), lanes);
      at += lanes;
    }
}

Value KernelBuilder::splat(Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(*this, vec(lanes), scalar);
}

Value KernelBuilder::constant(double value, int64_t lanes) {
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(vec(lanes), getF32FloatAttr(float(value))));
}

Value KernelBuilder::times(Value a, Value b) {
  return arith::MulFOp::create(*this, a, b);
}

Value KernelBuilder::fma(Value a, Value b, Value c) {
  return math::FmaOp::create(*this, a, b, c);
}

Value KernelBuilder::maximum(Value a, Value b) {
  return arith::MaximumFOp::create(*this, a, b);
}

Value KernelBuilder::sum(Value vector) {
  return vector::ReductionOp::create(*this, vector::CombiningKind::ADD, vector,
                                     arith::FastMathFlags::reassoc);
}

/// Bytes of an element, which is also the alignment we may count on.
static unsigned alignmentOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (isa<LLVM::LLVMPointerType>(element))
    return 8;
  return element.getIntOrFloatBitWidth() / 8;
}

Value KernelBuilder::load(Type type, Value pointer) {
  return LLVM::LoadOp::create(*this, type, pointer, alignmentOf(type));
}

void KernelBuilder::store(Value value, Value pointer) {
  LLVM::StoreOp::create(*this, value, pointer, alignmentOf(value.getType()));
}

Value KernelBuilder::at(Value base, Value elements) {
  return LLVM::GEPOp::create(*this, base.getType(), getF32Type(), base,
                             ArrayRef<LLVM::GEPArg>{elements},
                             LLVM::GEPNoWrapFlags::inbounds);
}

Value KernelBuilder::at(const Buffer &buffer, Value row, Value col) {
  return at(buffer.base, add(mul(row, buffer.cols), col));
}

Value KernelBuilder::atByte(Value base, Value bytes) {
  return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{bytes},
                             LLVM::GEPNoWrapFlags::inbounds);
}

Buffer KernelBuilder::allocate(int64_t rows, int64_t cols) {
  int64_t offset = arena.take(rows * cols);
  Value &base = bases[offset];
  if (!base) {
    OpBuilder::InsertionGuard guard(*this);
    setInsertionPointAfter(entryEnd);
    base = at(workspace, i64(offset));
  }
  return {base, rows, cols, offset};
}

void KernelBuilder::release(const Buffer &buffer) {
  if (buffer.offset >= 0)
    arena.give(buffer.offset);
}
