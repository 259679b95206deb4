//===- DecodeOps.cpp - Single ops -------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

namespace {
struct IntegerOp {
  StringRef name;
  Code narrow, wide;
  bool wraps;    ///< i1 and i16 need their upper bits cleared.
  bool isSigned; ///< i1 and i16 would need sign extension: refused.
};
struct FloatOp {
  StringRef name;
  Code code;
};
} // namespace

static constexpr IntegerOp kIntegerOps[] = {
    {"arith.addi", Code::Add32, Code::Add64, true, false},
    {"arith.subi", Code::Sub32, Code::Sub64, true, false},
    {"arith.muli", Code::Mul32, Code::Mul64, true, false},
    {"arith.divui", Code::DivU32, Code::DivU64, false, false},
    {"arith.remui", Code::RemU32, Code::RemU64, false, false},
    {"arith.divsi", Code::DivS32, Code::DivS64, false, true},
    {"arith.remsi", Code::RemS32, Code::RemS64, false, true},
    {"arith.shli", Code::Shl32, Code::Shl64, true, false},
    {"arith.shrui", Code::ShrU32, Code::ShrU64, false, false},
    {"arith.shrsi", Code::ShrS32, Code::ShrS64, false, true},
    {"arith.andi", Code::And32, Code::And64, false, false},
    {"arith.ori", Code::Or32, Code::Or64, false, false},
    {"arith.xori", Code::Xor32, Code::Xor64, false, false},
    {"arith.minsi", Code::MinS32, Code::MinS64, false, true},
    {"arith.maxsi", Code::MaxS32, Code::MaxS64, false, true},
    {"arith.minui", Code::MinU32, Code::MinU64, false, false},
    {"arith.maxui", Code::MaxU32, Code::MaxU64, false, false},
};

static constexpr FloatOp kFloatOps[] = {
    {"arith.addf", Code::AddF},          {"arith.subf", Code::SubF},
    {"arith.mulf", Code::MulF},          {"arith.divf", Code::DivF},
    {"arith.negf", Code::NegF},          {"arith.maximumf", Code::MaxF},
    {"arith.minimumf", Code::MinF},      {"arith.maxnumf", Code::MaxNumF},
    {"arith.minnumf", Code::MinNumF},    {"llvm.intr.fma", Code::FmaF},
    {"llvm.intr.maximum", Code::MaxF},   {"llvm.intr.minimum", Code::MinF},
    {"llvm.intr.maxnum", Code::MaxNumF}, {"llvm.intr.minnum", Code::MinNumF},
};

/// One instruction for each component of the result.
LogicalResult Decoder::elementwise(Operation *op, Code code, int64_t imm) {
  SmallVector<Slots> operands;
  for (Value operand : op->getOperands())
    operands.push_back(use(operand));
  Slots results = fresh(op->getResult(0).getType());
  for (auto [i, result] : llvm::enumerate(results)) {
    auto operand = [&](size_t n) -> Slot {
      if (n >= operands.size())
        return 0;
      // A scalar condition chooses between vectors.
      return operands[n][operands[n].size() == 1 ? 0 : i];
    };
    Slot a = operand(0), b = operand(1), c = operand(2);
    Inst &inst = emit(code);
    inst.dst = result;
    inst.a = a;
    inst.b = b;
    inst.c = c;
    inst.imm = imm;
  }
  define(op->getResult(0), std::move(results));
  return success();
}

LogicalResult Decoder::arithmetic(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumOperands() == 0)
    return unsupported(op);
  StringRef name = op->getName().getStringRef();
  Type type = getElementTypeOrSelf(op->getOperand(0).getType());
  for (const IntegerOp &entry : kIntegerOps) {
    if (entry.name != name)
      continue;
    unsigned bits = type.getIntOrFloatBitWidth();
    if (!llvm::is_contained({1u, 16u, 32u, 64u}, bits) ||
        (entry.isSigned && bits < 32))
      return unsupported(op);
    LogicalResult done =
        elementwise(op, bits == 64 ? entry.wide : entry.narrow);
    if (bits >= 32 || !entry.wraps)
      return done;
    for (Slot slot : peek(op->getResult(0)).slots) {
      Inst &mask = emit(Code::AndImm32);
      mask.dst = mask.a = slot;
      mask.imm = (1 << bits) - 1;
    }
    return done;
  }
  for (const FloatOp &entry : kFloatOps)
    if (entry.name == name)
      return type.isF32() ? elementwise(op, entry.code) : unsupported(op);
  if (auto compare = dyn_cast<arith::CmpIOp>(op)) {
    using P = arith::CmpIPredicate;
    bool isSigned = llvm::is_contained({P::slt, P::sle, P::sgt, P::sge},
                                       compare.getPredicate());
    bool wide = type.isInteger(64);
    if (isSigned && !wide && !type.isInteger(32))
      return unsupported(op);
    return elementwise(op, wide ? Code::Cmp64 : Code::Cmp32,
                       int64_t(compare.getPredicate()));
  }
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    return type.isF32()
               ? elementwise(op, Code::CmpF, int64_t(compare.getPredicate()))
               : unsupported(op);
  if (isa<arith::SelectOp>(op)) {
    Type chosen = componentsOf(op->getResult(0).getType()).front();
    return elementwise(op, isWide(chosen) ? Code::Select64 : Code::Select32);
  }
  return conversion(op);
}

LogicalResult Decoder::conversion(Operation *op) {
  Type from = getElementTypeOrSelf(op->getOperand(0).getType());
  Type to = getElementTypeOrSelf(op->getResult(0).getType());
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](arith::ExtSIOp) {
        return elementwise(op,
                           isWide(to) ? Code::SignExtend64 : Code::SignExtend32,
                           from.getIntOrFloatBitWidth());
      })
      .Case([&](arith::ExtUIOp) -> LogicalResult {
        if (isWide(to))
          return elementwise(op, Code::ZeroExtend64);
        // Slots are zero-extended as they are.
        define(op->getResult(0), use(op->getOperand(0)));
        return success();
      })
      .Case([&](arith::TruncIOp) {
        unsigned bits = to.getIntOrFloatBitWidth();
        int64_t mask = (int64_t(1) << bits) - 1;
        return elementwise(op, isWide(from) ? Code::Truncate64 : Code::AndImm32,
                           mask);
      })
      .Case([&](arith::ExtFOp) -> LogicalResult {
        if (!to.isF32() || (!from.isF16() && !from.isBF16()))
          return unsupported(op);
        return elementwise(op,
                           from.isF16() ? Code::HalfToF32 : Code::BFloatToF32);
      })
      .Case([&](arith::TruncFOp) -> LogicalResult {
        if (!from.isF32() || (!to.isF16() && !to.isBF16()))
          return unsupported(op);
        return elementwise(op,
                           to.isF16() ? Code::F32ToHalf : Code::F32ToBFloat);
      })
      .Case<arith::SIToFPOp, arith::UIToFPOp>([&](auto) -> LogicalResult {
        if (!from.isInteger(32) || !to.isF32())
          return unsupported(op);
        return elementwise(op, isa<arith::SIToFPOp>(op) ? Code::SignedToF32
                                                        : Code::UnsignedToF32);
      })
      .Case([&](arith::FPToSIOp) -> LogicalResult {
        if (!from.isF32() || !to.isInteger(32))
          return unsupported(op);
        return elementwise(op, Code::F32ToSigned);
      })
      .Default([&](Operation *) { return unsupported(op); });
}

//===----------------------------------------------------------------------===//
// Values that are only renamed
//===----------------------------------------------------------------------===//

LogicalResult Decoder::decodeConstant(Operation *op, Attribute value) {
  auto bits = [](Attribute scalar) -> std::optional<uint64_t> {
    if (auto integer = dyn_cast<IntegerAttr>(scalar))
      return integer.getValue().getZExtValue();
    if (auto real = dyn_cast<FloatAttr>(scalar))
      return real.getValue().bitcastToAPInt().getZExtValue();
    return std::nullopt;
  };
  Slots slots;
  bool wide = isWide(getElementTypeOrSelf(op->getResult(0).getType()));
  auto add = [&](Attribute scalar) {
    if (auto pattern = bits(scalar))
      slots.push_back(constant(*pattern, wide));
  };
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    for (Attribute element : dense.getValues<Attribute>())
      add(element);
  else
    add(value);
  if (slots.size() != componentsOf(op->getResult(0).getType()).size())
    return unsupported(op);
  define(op->getResult(0), std::move(slots));
  return success();
}

LogicalResult Decoder::decodeBitcast(Operation *op) {
  Value from = op->getOperand(0), to = op->getResult(0);
  Place place = peek(from);
  auto parts = componentsOf(to.getType());
  if (place.slots.size() != parts.size() ||
      isWide(parts.front()) != wideSlot[place.slots.front()])
    return unsupported(op);
  define(to, place.slots, place.offset);
  return success();
}

LogicalResult Decoder::decodeGep(LLVM::GEPOp op) {
  auto indices = op.getIndices();
  Type element = op.getElemType();
  if (op.getRawConstantIndices().size() != 1 || !element.isIntOrFloat())
    return fail(op, "llvm.getelementptr is supported with one index");
  int64_t size = element.getIntOrFloatBitWidth() / 8;
  Place base = peek(op.getBase());
  auto index = indices[0];
  if (auto constant = dyn_cast<IntegerAttr>(index)) {
    define(op, base.slots, base.offset + constant.getInt() * size);
    return success();
  }
  Value by = cast<Value>(index);
  Slot a = base.slots.front(), b = use1(by);
  bool wide = isWide(op.getType());
  Slots result = fresh(op.getType());
  Inst &inst = emit(wide ? Code::MulAddress64 : Code::MulAddress32);
  inst.dst = result.front();
  inst.a = a;
  inst.b = b;
  inst.c = isWide(by.getType());
  inst.imm = size;
  define(op, std::move(result), base.offset);
  return success();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Bytes of each component; 0 when they are not all of one supported size.
static unsigned elementBytes(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (isa<LLVM::LLVMPointerType>(element))
    return isWide(element) ? 8 : 0;
  unsigned bits = element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 0;
  return bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
}

LogicalResult Decoder::decodeLoad(LLVM::LoadOp op) {
  unsigned bytes = elementBytes(op.getType());
  unsigned space =
      cast<LLVM::LLVMPointerType>(op.getAddr().getType()).getAddressSpace();
  if (!bytes || (space != 0 && space != 1 && space != 3))
    return unsupported(op);
  auto [address, offset] = useAddress(op.getAddr());
  Slots results = fresh(op.getType());
  uint32_t targets = list(results);
  Inst &inst = emit(space == 3   ? Code::LoadShared
                    : space == 1 ? Code::LoadGlobal
                                 : Code::LoadArgument);
  inst.dst = targets;
  inst.count = results.size();
  inst.a = address;
  inst.imm = offset;
  inst.flags = bytes;
  define(op, std::move(results));
  return success();
}

LogicalResult Decoder::decodeStore(LLVM::StoreOp op) {
  unsigned bytes = elementBytes(op.getValue().getType());
  unsigned space =
      cast<LLVM::LLVMPointerType>(op.getAddr().getType()).getAddressSpace();
  if (!bytes || (space != 1 && space != 3))
    return unsupported(op);
  Slots values = use(op.getValue());
  auto [address, offset] = useAddress(op.getAddr());
  uint32_t sources = list(values);
  Inst &inst = emit(space == 3 ? Code::StoreShared : Code::StoreGlobal);
  inst.b = sources;
  inst.count = values.size();
  inst.a = address;
  inst.imm = offset;
  inst.flags = bytes;
  return success();
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

LogicalResult Decoder::operation(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return decodeFor(loop);
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return decodeWhile(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return decodeIf(branch);
  auto thread = [&](Code code) {
    Slots slots{allocate(false)};
    emit(code).dst = slots.front();
    define(op->getResult(0), std::move(slots));
    return success();
  };
  auto renamed = [&](Slots slots) {
    define(op->getResult(0), std::move(slots));
    return success();
  };
  LogicalResult done =
      TypeSwitch<Operation *, LogicalResult>(op)
          .Case([&](arith::ConstantOp op) {
            return decodeConstant(op, op.getValue());
          })
          .Case([&](LLVM::ConstantOp op) {
            return decodeConstant(op, op.getValue());
          })
          .Case<LLVM::UndefOp, LLVM::PoisonOp>([&](auto op) {
            Slots slots;
            for (Type part : componentsOf(op.getType()))
              slots.push_back(constant(0, isWide(part)));
            return renamed(std::move(slots));
          })
          .Case([&](LLVM::AddressOfOp op) -> LogicalResult {
            auto global = SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(
                op, op.getGlobalNameAttr());
            if (!global || global.getAddrSpace() != 3)
              return fail(op, "only dynamic shared memory has an address");
            return renamed({constant(kSharedBase, false)});
          })
          .Case([&](LLVM::GEPOp op) { return decodeGep(op); })
          .Case([&](LLVM::LoadOp op) { return decodeLoad(op); })
          .Case([&](LLVM::StoreOp op) { return decodeStore(op); })
          .Case<LLVM::BitcastOp, arith::BitcastOp, LLVM::PtrToIntOp,
                LLVM::IntToPtrOp>([&](auto op) { return decodeBitcast(op); })
          .Case<LLVM::ExtractValueOp>([&](auto op) -> LogicalResult {
            if (op.getPosition().size() != 1)
              return unsupported(op);
            return renamed(
                {peek(op.getContainer()).slots[op.getPosition()[0]]});
          })
          .Case<LLVM::InsertValueOp>([&](auto op) -> LogicalResult {
            if (op.getPosition().size() != 1)
              return unsupported(op);
            Slots slots = peek(op.getContainer()).slots;
            slots[op.getPosition()[0]] = use1(op.getValue());
            return renamed(std::move(slots));
          })
          .Case<LLVM::ExtractElementOp>([&](auto op) -> LogicalResult {
            IntegerAttr at;
            if (!matchPattern(op.getPosition(), m_Constant(&at)))
              return unsupported(op);
            return renamed({peek(op.getVector()).slots[at.getInt()]});
          })
          .Case<LLVM::InsertElementOp>([&](auto op) -> LogicalResult {
            IntegerAttr at;
            if (!matchPattern(op.getPosition(), m_Constant(&at)))
              return unsupported(op);
            Slots slots = peek(op.getVector()).slots;
            slots[at.getInt()] = use1(op.getValue());
            return renamed(std::move(slots));
          })
          .Case([&](LLVM::InlineAsmOp op) { return decodeAsm(op); })
          .Case([&](NVVM::ThreadIdXOp) { return thread(Code::ThreadId); })
          .Case([&](NVVM::BlockIdXOp) { return thread(Code::BlockId); })
          .Case([&](NVVM::ShflOp op) -> LogicalResult {
            if (op.getType() != op.getVal().getType() || isWide(op.getType()))
              return unsupported(op);
            Slot value = use1(op.getVal()), by = use1(op.getOffset());
            Slot clamp = use1(op.getMaskAndClamp());
            Slot mask = use1(op.getThreadMask());
            Slots result = fresh(op.getType());
            Inst &inst = emit(Code::Shuffle);
            inst.dst = result.front();
            inst.a = value;
            inst.b = by;
            inst.c = clamp;
            inst.imm = mask;
            inst.flags = uint16_t(op.getKind());
            return renamed(std::move(result));
          })
          .Default([&](Operation *) { return arithmetic(op); });
  if (succeeded(done))
    for (Value result : op->getResults())
      noteWrite(result);
  return done;
}
