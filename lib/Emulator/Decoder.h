//===- Decoder.h - From MLIR to the emulator's form -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks a kernel once, block by block. Decoder.cpp: slots and control flow;
// DecodeOps.cpp: single ops; DecodeAsm.cpp: inline assembly.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMULATOR_DECODER_H
#define PLUM_LIB_EMULATOR_DECODER_H

#include "Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <map>

namespace plum::emulator {

using Slots = llvm::SmallVector<Slot, 4>;

/// i64 and pointers that are not to shared memory.
bool isWide(mlir::Type type);
/// Elements of a vector, members of a struct, or the type itself.
llvm::SmallVector<mlir::Type> componentsOf(mlir::Type type);

class Decoder {
public:
  explicit Decoder(Program &program) : program(program) {}
  Status run(mlir::LLVM::LLVMFuncOp func);

private:
  using Decoded = mlir::LogicalResult; ///< On failure `error` is set.

  //===--- Slots ----------------------------------------------------------===//
  /// Where a value is: its components, and for a pointer a constant to add.
  struct Place {
    Slots slots;
    int64_t offset = 0;
  };
  Slot newSlot(bool wide);
  Slot allocate(bool wide); ///< A free one, or new.
  void hold(Slot slot) { ++holders[slot]; }
  void drop(Slot slot);
  Slot constant(uint64_t value, bool wide);
  void define(mlir::Value value, Slots slots, int64_t offset = 0);
  /// New slots for all components.
  Slots fresh(mlir::Type type);
  /// Slots and offset, without looking whether they are accumulators.
  const Place &peek(mlir::Value value) { return places[value]; }
  /// Slots of a value that is about to be read, its offset added.
  Slots use(mlir::Value value);
  Slot use1(mlir::Value value) { return use(value).front(); }
  /// For accesses: the offset stays apart.
  std::pair<Slot, int64_t> useAddress(mlir::Value value);
  void checkReady(mlir::Value value);
  void noteWrite(mlir::Value value);
  uint32_t list(llvm::ArrayRef<Slot> slots);

  //===--- Code -----------------------------------------------------------===//
  Inst &emit(Code code);
  void emitMove(llvm::ArrayRef<Slot> to, llvm::ArrayRef<Slot> from);
  Decoded fail(mlir::Operation *op, const llvm::Twine &message);
  Decoded unsupported(mlir::Operation *op);

  //===--- Control --------------------------------------------------------===//
  /// `terminator` emits what the block's last op does.
  Decoded block(mlir::Block &block, llvm::function_ref<void()> terminator);
  Slots useAll(mlir::ValueRange values);
  Decoded decodeIf(mlir::scf::IfOp op);
  Decoded decodeFor(mlir::scf::ForOp op);
  Decoded decodeWhile(mlir::scf::WhileOp op);
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value>>
  lastUses(mlir::Block &block);

  //===--- Single ops (DecodeOps.cpp) -------------------------------------===//
  Decoded operation(mlir::Operation *op);
  Decoded arithmetic(mlir::Operation *op);
  Decoded conversion(mlir::Operation *op);
  Decoded elementwise(mlir::Operation *op, Code code, int64_t imm = 0);
  Decoded decodeConstant(mlir::Operation *op, mlir::Attribute value);
  Decoded decodeGep(mlir::LLVM::GEPOp op);
  Decoded decodeLoad(mlir::LLVM::LoadOp op);
  Decoded decodeStore(mlir::LLVM::StoreOp op);
  Decoded decodeBitcast(mlir::Operation *op);
  Decoded decodeAsm(mlir::LLVM::InlineAsmOp op);
  Decoded decodeWgmma(mlir::LLVM::InlineAsmOp op, const AsmInst &match);
  mlir::Value registerOf(mlir::Value value, bool &waited);
  bool isSoleUse(mlir::Value value, mlir::Operation *user);
  /// Values that a wgmma takes from registers: marks them for NoteWrite.
  void findWgmmaOperands(mlir::LLVM::LLVMFuncOp func);
  const std::optional<AsmInst> &matchOf(mlir::LLVM::InlineAsmOp op);

  Program &program;
  std::optional<Error> error;
  mlir::Operation *current = nullptr;
  int32_t loop = -1;

  llvm::DenseMap<mlir::Value, Place> places;
  std::vector<uint32_t> holders; ///< By slot.
  std::vector<bool> wideSlot, permanent, accumulator;
  Slots freeNarrow, freeWide;
  std::map<std::pair<uint64_t, bool>, Slot> constants;
  Slots temporaries;          ///< Held until the present op is done.
  llvm::DenseSet<Slot> ready; ///< Accumulators checked in this block.
  llvm::DenseSet<mlir::Value> wgmmaOperands;
  llvm::StringMap<std::optional<AsmInst>> matches;
};

} // namespace plum::emulator

#endif // PLUM_LIB_EMULATOR_DECODER_H
