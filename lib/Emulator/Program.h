//===- Program.h - A kernel in the emulator's own form ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel is translated once: from nested MLIR to a flat list of instructions
// over numbered slots, which a warp runs with one switch.
//
// Slots. A warp has a frame of 128-byte slots, 32 lanes of 4 bytes. i1, i16,
// i32, f32, halves (as bits) and shared pointers take one slot, zero-extended;
// i64 and other pointers two. Vectors and structs are lists of slots, so that
// putting one together or taking it apart costs nothing; so does a bitcast and
// a constant added to a pointer. A slot is given to the next value once nothing
// needs it any more, which keeps a frame in the cache. Two kinds are never
// given away: constants, written when a warp is set up, and accumulators of
// wgmma, which are written when somebody waits.
//
// Masks. Instructions without side effects compute all 32 lanes, whatever the
// mask: what an inactive lane computes is never looked at. Only moves into the
// results of an if and the variables of a loop, stores and the like obey it.
//
// Control. `if`:  IfBegin else, then..., moves, Else end, else..., moves, EndIf
//          `for`: moves, LoopBegin, head: LoopTest exit, body..., moves, Jump
//                 head, exit: LoopEnd.   `while` the same with WhileTest.
// A loop's lanes leave the mask one by one; the variables of those that left
// keep their values, and are the loop's results.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMULATOR_PROGRAM_H
#define PLUM_LIB_EMULATOR_PROGRAM_H

#include "plum/Support/Result.h"

#include "mlir/IR/BuiltinOps.h"

namespace plum::emulator {

using Slot = uint32_t;

constexpr uint32_t kLanes = 32;
constexpr uint32_t kSlotBytes = 4 * kLanes;
/// Where a kernel finds its arguments, and dynamic shared memory. Not at 0, so
/// that an address that was never computed is seen; 1024 as on sm_90.
constexpr uint64_t kArgumentBase = 0x1000;
constexpr uint32_t kSharedBase = 1024;

/// Of a Move's targets: lanes 0 to 15 and 16 to 31 of a wide slot.
constexpr Slot kWideLow = 1u << 30, kWideHigh = 1u << 31;

enum class Code : uint16_t {
  // dst, a, b, c: slots. 32 bits.
  Add32,
  Sub32,
  Mul32,
  DivU32,
  RemU32,
  DivS32,
  RemS32,
  Shl32,
  ShrU32,
  ShrS32,
  And32,
  Or32,
  Xor32,
  MinS32,
  MaxS32,
  MinU32,
  MaxU32,
  Cmp32,    // imm: arith::CmpIPredicate
  Select32, // a ? b : c
  AndImm32,
  AddImm32,
  // 64 bits.
  Add64,
  Sub64,
  Mul64,
  DivU64,
  RemU64,
  DivS64,
  RemS64,
  Shl64,
  ShrU64,
  ShrS64,
  And64,
  Or64,
  Xor64,
  MinS64,
  MaxS64,
  MinU64,
  MaxU64,
  Cmp64,
  Select64,
  AddImm64,
  // Between them; imm: bits of the narrow type.
  SignExtend32,
  SignExtend64,
  ZeroExtend64,
  Truncate64,
  MulAddress32,
  MulAddress64, // a + imm * sign-extended b (c: b has 64 bits)
  // f32.
  AddF,
  SubF,
  MulF,
  DivF,
  NegF,
  MaxF,
  MinF,
  MaxNumF,
  MinNumF,
  FmaF,
  CmpF, // imm: arith::CmpFPredicate
  HalfToF32,
  F32ToHalf,
  BFloatToF32,
  F32ToBFloat,
  SignedToF32,
  UnsignedToF32,
  F32ToSigned,
  Ex2,
  Lg2,
  Rcp,
  Rsqrt,
  Sqrt,
  PackBFloat,
  FmaBFloatPair,
  // Threads.
  ThreadId,
  BlockId,
  // Memory: dst/b: list of slots, count of them, a: address, imm: offset,
  // flags: bytes of an element.
  LoadArgument,
  LoadGlobal,
  StoreGlobal,
  LoadShared,
  StoreShared,
  // Within a warp. Asm: dst: list of results, a: list of operands, imm and the
  // rest as the table in Asm.cpp says.
  Shuffle, // dst, a: value, b: by, c: clamp, imm: mask slot, flags: ShflKind
  LoadMatrix,
  LoadMatrixTransposed,
  StoreMatrix,
  StoreMatrixTransposed,
  Mma,
  SyncWarp,
  VoteAny,
  // Across warps.
  Barrier,
  BarrierArrive,
  BarrierInit,
  FenceBarrierInit,
  Arrive,
  ArriveExpect,
  Wait,
  SetMaxRegisters,
  // Copies.
  Copy16,
  CopyCommit,
  CopyWait,
  CopyArrive,
  BulkLoad,
  BulkStore,
  BulkCommit,
  BulkWaitRead,
  BulkWait,
  FenceAsync,
  // wgmma.
  WgmmaFence,
  WgmmaCommit,
  WgmmaWait,
  Wgmma,
  CheckReady, // a: an accumulator that is about to be read
  NoteWrite,  // a: an operand of wgmma that was just written
  // Control.
  Move,    // dst, a: lists, count; flags: 1 if a is partly overwritten by dst;
           // a dst that is half of a wide slot says so
  IfBegin, // a: condition, imm: start of else, or EndIf
  Else,    // imm: EndIf
  EndIf,
  LoopBegin,
  LoopTest,  // a: i, b: end, imm: LoopEnd; flags: 1 if unsigned, 2 if 64 bits
  WhileTest, // a: condition, imm: LoopEnd
  Jump,      // imm
  LoopEnd,
  Return,
};

struct Inst {
  Code code;
  uint16_t flags = 0;
  uint32_t count = 0;
  uint32_t dst = 0, a = 0, b = 0, c = 0;
  int64_t imm = 0;
};

/// What a wgmma needs beyond an Inst, which holds its index in `a`.
struct WgmmaShape {
  uint32_t n;
  bool zero, transposed;
  bool shared;         ///< A lies in shared memory.
  std::vector<Slot> a; ///< 4, or A's descriptor.
  Slot descriptor;
  std::vector<Slot> d, result; ///< n / 2; may be the same.
  bool inPlace;
  std::vector<Slot> fenced; ///< Of a and d: those that NoteWrite tells of.
};

struct Program {
  std::string name;
  std::vector<Inst> code;
  std::vector<Slot> lists;
  std::vector<WgmmaShape> wgmmas;

  struct Constant {
    Slot slot;
    uint64_t value;
    bool wide;
  };
  std::vector<Constant> constants;
  uint32_t slots = 0; ///< Of a frame.

  int64_t threads = 0, sharedBytes = 0; ///< As the kernel's attributes say.
  bool asyncProxy = false; ///< wgmma or bulk copies read shared memory.

  /// For messages: each instruction's op, and the loops around each op.
  struct Loop {
    Slot variable;
    bool wide;
    int32_t parent; ///< -1: none.
  };
  std::vector<Loop> loops;
  struct Origin {
    mlir::Operation *op;
    int32_t loop;
  };
  std::vector<Origin> origins; ///< Parallel to `code`.
};

Result<Program> decode(mlir::ModuleOp module, llvm::StringRef name);

/// What one inline assembly text means.
struct AsmInst {
  Code code;
  /// What the text's holes hold, in order: integers, offsets of addresses,
  /// and first operand and count of operand lists.
  llvm::SmallVector<int64_t, 8> numbers;
};
std::optional<AsmInst> matchAsm(llvm::StringRef text);

} // namespace plum::emulator

#endif // PLUM_LIB_EMULATOR_PROGRAM_H
