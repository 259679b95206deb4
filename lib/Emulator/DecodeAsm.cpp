//===- DecodeAsm.cpp - Inline assembly and wgmma ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asm.cpp tells which instruction a text is; here its operands are placed.
// wgmma's fences and waits pass registers through: a renaming. Accumulators are
// slots of their own, which a chain of products shares.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

const std::optional<AsmInst> &Decoder::matchOf(LLVM::InlineAsmOp op) {
  auto [it, isNew] = matches.try_emplace(op.getAsmString());
  if (isNew)
    it->second = matchAsm(op.getAsmString());
  return it->second;
}

/// The value that a register holds before casts, and before the wgmma fences
/// and waits it passes through; `waited`: whether it passes through a wait.
Value Decoder::registerOf(Value value, bool &waited) {
  while (Operation *def = value.getDefiningOp()) {
    unsigned position = 0;
    Operation *passed = def;
    if (auto extract = dyn_cast<LLVM::ExtractValueOp>(def)) {
      passed = extract.getContainer().getDefiningOp();
      position = extract.getPosition().front();
    }
    auto assembly = dyn_cast_or_null<LLVM::InlineAsmOp>(passed);
    const AsmInst *match = nullptr;
    if (assembly)
      if (const auto &found = matchOf(assembly))
        match = &*found;
    if (match &&
        (match->code == Code::WgmmaFence || match->code == Code::WgmmaWait)) {
      waited |= match->code == Code::WgmmaWait;
      value = assembly.getOperand(position);
    } else if (isa<LLVM::BitcastOp, LLVM::ExtractValueOp>(def)) {
      value = def->getOperand(0);
    } else {
      break;
    }
  }
  return value;
}

void Decoder::findWgmmaOperands(LLVM::LLVMFuncOp func) {
  bool waited;
  func.walk([&](LLVM::InlineAsmOp op) {
    const auto &match = matchOf(op);
    if (!match || match->code != Code::Wgmma)
      return;
    for (Value operand : op.getOperands())
      if (!operand.getType().isInteger(64)) // A descriptor.
        wgmmaOperands.insert(registerOf(operand, waited));
  });
}

/// Whether `value` is an accumulator that only `user` needs, in its block: then
/// the product may go on in the same registers.
bool Decoder::isSoleUse(Value value, Operation *user) {
  for (;;) {
    auto extract = value.getDefiningOp<LLVM::ExtractValueOp>();
    if (!extract || !value.hasOneUse() ||
        extract->getBlock() != user->getBlock())
      return false;
    Value all = extract.getContainer();
    auto assembly = all.getDefiningOp<LLVM::InlineAsmOp>();
    if (!assembly || assembly->getBlock() != user->getBlock())
      return false;
    for (Operation *other : all.getUsers()) {
      auto sibling = dyn_cast<LLVM::ExtractValueOp>(other);
      if (!sibling || (sibling != extract &&
                       sibling.getPosition() == extract.getPosition()))
        return false;
    }
    const auto &match = matchOf(assembly);
    if (match && match->code == Code::Wgmma)
      return true;
    if (!match ||
        (match->code != Code::WgmmaFence && match->code != Code::WgmmaWait))
      return false;
    value = assembly.getOperand(extract.getPosition().front());
  }
}

LogicalResult Decoder::decodeWgmma(LLVM::InlineAsmOp op, const AsmInst &match) {
  // The holes: n, d (first, count), a (first, count; of a descriptor the first
  // alone), descriptor, scale-d, transposed.
  ArrayRef<int64_t> holes = match.numbers;
  const size_t count = holes[2];
  WgmmaShape shape;
  shape.shared = holes.size() == 7;
  const size_t lefts = shape.shared ? 1 : 4;
  if (holes[0] != int64_t(2 * count) || holes[0] % 8 || holes[0] > 256 ||
      holes[1] != 0 || holes[3] != int64_t(count) ||
      (!shape.shared && holes[4] != 4) ||
      holes[holes.size() - 3] != int64_t(count + lefts) ||
      op.getNumOperands() != count + lefts + 1)
    return fail(op, "wgmma with an unexpected list of operands");
  shape.n = holes[0];
  shape.zero = holes[holes.size() - 2] == 0;
  shape.transposed = holes.back() == 1;
  for (Value a : op.getOperands().take_front(lefts))
    shape.a.push_back(use1(a));
  shape.descriptor = use1(op.getOperand(lefts));
  OperandRange accumulators = op.getOperands().drop_front(lefts + 1);
  for (Value d : accumulators)
    shape.d.push_back(peek(d).slots.front());

  // A chain accumulates in place: d is an earlier product and nobody else looks
  // at it.
  shape.inPlace = llvm::all_of(accumulators, [&](Value d) {
    return accumulator[peek(d).slots.front()] && isSoleUse(d, op);
  });
  if (shape.inPlace)
    shape.result = shape.d;
  else
    for (size_t i = 0; i < count; ++i) {
      Slot slot = newSlot(false);
      accumulator[slot] = permanent[slot] = true;
      shape.result.push_back(slot);
    }
  for (Slot slot : shape.result)
    ready.erase(slot);
  for (Slot slot : shape.a)
    if (!shape.shared && !permanent[slot])
      shape.fenced.push_back(slot);
  for (Slot slot : shape.d)
    if (!permanent[slot])
      shape.fenced.push_back(slot);
  define(op.getResult(0), Slots(shape.result.begin(), shape.result.end()));
  emit(Code::Wgmma).a = program.wgmmas.size();
  program.wgmmas.push_back(std::move(shape));
  return success();
}

LogicalResult Decoder::decodeAsm(LLVM::InlineAsmOp op) {
  const std::optional<AsmInst> &match = matchOf(op);
  if (!match)
    return fail(op, "the inline assembly \"" + op.getAsmString() +
                        "\" is not one of Ptx.h's; lib/Emulator/Asm.cpp lists "
                        "those known");
  program.asyncProxy |= match->code == Code::Wgmma ||
                        match->code == Code::BulkStore ||
                        match->code == Code::BulkLoad;
  if (match->code == Code::Wgmma)
    return decodeWgmma(op, *match);

  if (match->code == Code::WgmmaFence || match->code == Code::WgmmaWait) {
    // The operands are the results, in the same registers.
    Slots registers;
    for (Value operand : op.getOperands())
      registers.append(peek(operand).slots);
    emit(match->code).imm = match->numbers.empty() ? 0 : match->numbers[0];
    if (op.getNumResults())
      define(op.getResult(0), std::move(registers));
    return success();
  }

  Slots in = useAll(op.getOperands());
  Slots out;
  if (op.getNumResults())
    out = fresh(op.getResultTypes().front());
  auto input = [&](size_t i) { return i < in.size() ? in[i] : 0; };
  auto hole = [&](size_t i) { return match->numbers[i]; };
  Inst inst{match->code};
  switch (match->code) {
  default: // Elementwise, and those with one number or none.
    if (!out.empty())
      inst.dst = out.front();
    inst.a = input(0);
    inst.b = input(1);
    inst.c = input(2);
    inst.imm = match->numbers.empty() ? 0 : hole(0);
    break;
  case Code::LoadMatrix:
  case Code::LoadMatrixTransposed:
    inst.dst = list(out);
    inst.a = input(0);
    inst.imm = hole(0);
    break;
  case Code::StoreMatrix:
  case Code::StoreMatrixTransposed:
    inst.a = input(0);
    inst.b = list(ArrayRef(in).drop_front());
    inst.imm = hole(0);
    break;
  case Code::Mma:
    inst.dst = list(out);
    inst.a = list(in);
    break;
  case Code::BarrierInit:
    inst.a = input(0);
    inst.imm = hole(0);
    inst.count = hole(1);
    break;
  case Code::BulkLoad: // dst: offset of the mbarrier.
    inst.a = input(0);
    inst.b = input(1);
    inst.c = input(2);
    inst.imm = hole(0);
    inst.count = hole(1);
    inst.dst = hole(2);
    break;
  case Code::BulkStore: // a: shared, b: global, as for a load.
    inst.a = input(1);
    inst.b = input(0);
    inst.imm = hole(0);
    inst.count = hole(1);
    break;
  }
  emit(inst.code) = inst;
  if (op.getNumResults())
    define(op.getResult(0), std::move(out));
  return success();
}
