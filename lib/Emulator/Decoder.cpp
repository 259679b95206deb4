//===- Decoder.cpp - Slots and control flow ---------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A slot counts the values that need it. A value of a block lets go of its
// slots after the last op of the block that uses it, itself or in a region; so
// what a loop uses from outside outlives the loop.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

bool emulator::isWide(Type type) {
  if (auto pointer = dyn_cast<LLVM::LLVMPointerType>(type))
    return pointer.getAddressSpace() != 3;
  return type.isInteger(64);
}

SmallVector<Type> emulator::componentsOf(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return SmallVector<Type>(vector.getNumElements(), vector.getElementType());
  if (auto structure = dyn_cast<LLVM::LLVMStructType>(type))
    return SmallVector<Type>(structure.getBody());
  return {type};
}

Slot Decoder::newSlot(bool wide) {
  Slot slot = program.slots;
  program.slots += wide ? 2 : 1;
  holders.resize(program.slots, 0);
  wideSlot.resize(program.slots, false);
  permanent.resize(program.slots, false);
  accumulator.resize(program.slots, false);
  wideSlot[slot] = wide;
  return slot;
}

Slot Decoder::allocate(bool wide) {
  Slots &free = wide ? freeWide : freeNarrow;
  return free.empty() ? newSlot(wide) : free.pop_back_val();
}

void Decoder::drop(Slot slot) {
  if (--holders[slot] == 0 && !permanent[slot])
    (wideSlot[slot] ? freeWide : freeNarrow).push_back(slot);
}

Slot Decoder::constant(uint64_t value, bool wide) {
  auto [it, isNew] = constants.try_emplace({value, wide}, 0);
  if (isNew) {
    it->second = newSlot(wide);
    permanent[it->second] = true;
    program.constants.push_back({it->second, value, wide});
  }
  return it->second;
}

void Decoder::define(Value value, Slots slots, int64_t offset) {
  for (Slot slot : slots)
    hold(slot);
  places[value] = {std::move(slots), offset};
}

Slots Decoder::fresh(Type type) {
  Slots slots;
  for (Type component : componentsOf(type))
    slots.push_back(allocate(isWide(component)));
  return slots;
}

void Decoder::checkReady(Value value) {
  for (Slot slot : places[value].slots) {
    if (!accumulator[slot] || !ready.insert(slot).second)
      continue;
    emit(Code::CheckReady).a = slot;
    bool waited = false;
    registerOf(value, waited);
    if (!waited)
      (void)fail(current, "an accumulator is used that has not passed through "
                          "a wgmmaWait: its use may be moved before the wait");
  }
}

Slots Decoder::use(Value value) {
  const Place &place = places[value];
  checkReady(value);
  if (place.offset == 0)
    return place.slots;
  bool wide = isWide(value.getType());
  Slot sum = allocate(wide);
  hold(sum);
  temporaries.push_back(sum);
  Inst &inst = emit(wide ? Code::AddImm64 : Code::AddImm32);
  inst.dst = sum;
  inst.a = place.slots.front();
  inst.imm = place.offset;
  return {sum};
}

std::pair<Slot, int64_t> Decoder::useAddress(Value value) {
  const Place &place = places[value];
  return {place.slots.front(), place.offset};
}

uint32_t Decoder::list(ArrayRef<Slot> slots) {
  uint32_t start = program.lists.size();
  program.lists.insert(program.lists.end(), slots.begin(), slots.end());
  return start;
}

void Decoder::noteWrite(Value value) {
  if (!wgmmaOperands.contains(value))
    return;
  for (Slot slot : peek(value).slots)
    if (!permanent[slot])
      emit(Code::NoteWrite).a = slot;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

Inst &Decoder::emit(Code code) {
  program.origins.push_back({current, loop});
  program.code.push_back({code});
  return program.code.back();
}

void Decoder::emitMove(ArrayRef<Slot> to, ArrayRef<Slot> from) {
  Slots source, target;
  for (auto [t, f] : llvm::zip_equal(to, from)) {
    if (t == f)
      continue;
    // Slots, not values: a wide one is two.
    for (Slot part = 0; part <= Slot(wideSlot[t]); ++part) {
      target.push_back((t + part) | (!wideSlot[t] ? 0
                                     : part       ? kWideHigh
                                                  : kWideLow));
      source.push_back(f + part);
    }
  }
  if (target.empty())
    return;
  bool overlap = llvm::any_of(source, [&](Slot slot) {
    return llvm::any_of(
        target, [&](Slot t) { return (t & ~(kWideLow | kWideHigh)) == slot; });
  });
  uint32_t targets = list(target), sources = list(source);
  Inst &inst = emit(Code::Move);
  inst.dst = targets;
  inst.a = sources;
  inst.count = target.size();
  inst.flags = overlap;
}

LogicalResult Decoder::fail(Operation *op, const Twine &message) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "op: ";
  op->print(stream, OpPrintingFlags().skipRegions().useLocalScope());
  error = Error{
      "kernel '" + program.name + "'", ("emulator: " + message).str(), {text}};
  return failure();
}

LogicalResult Decoder::unsupported(Operation *op) {
  return fail(op, "op '" + op->getName().getStringRef() + "' is not supported");
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

DenseMap<Operation *, SmallVector<Value>> Decoder::lastUses(Block &block) {
  DenseMap<Operation *, SmallVector<Value>> dying;
  auto visit = [&](Value value, Operation *definition) {
    Operation *last = definition;
    for (Operation *user : value.getUsers()) {
      Operation *here = block.findAncestorOpInBlock(*user);
      if (!last || last->isBeforeInBlock(here))
        last = here;
    }
    if (last)
      dying[last].push_back(value);
  };
  for (BlockArgument argument : block.getArguments())
    visit(argument, nullptr);
  for (Operation &op : block)
    for (Value result : op.getResults())
      visit(result, &op);
  return dying;
}

LogicalResult Decoder::block(Block &block, function_ref<void()> terminator) {
  auto dying = lastUses(block);
  auto outside = ready;
  Operation *end = block.getTerminator();
  for (Operation &op : block) {
    size_t mark = temporaries.size();
    current = &op;
    if (&op == end)
      terminator();
    else if (failed(operation(&op)))
      return failure();
    if (error)
      return failure();
    while (temporaries.size() > mark)
      drop(temporaries.pop_back_val());
    for (Value value : dying[&op])
      for (Slot slot : peek(value).slots)
        drop(slot);
  }
  ready = std::move(outside);
  return success();
}

Slots Decoder::useAll(ValueRange values) {
  Slots slots;
  for (Value value : values)
    slots.append(use(value));
  return slots;
}

LogicalResult Decoder::decodeIf(scf::IfOp op) {
  Slots results;
  for (Value result : op.getResults()) {
    Slots slots = fresh(result.getType());
    results.append(slots);
    define(result, std::move(slots));
  }
  auto decodeBlock = [&](Block *block) {
    return this->block(*block, [&] {
      emitMove(results, useAll(block->getTerminator()->getOperands()));
    });
  };
  Slot condition = use1(op.getCondition());
  size_t begin = program.code.size();
  emit(Code::IfBegin).a = condition;
  if (failed(decodeBlock(op.thenBlock())))
    return failure();
  current = op;
  if (op.elseBlock()) {
    size_t middle = program.code.size();
    emit(Code::Else);
    program.code[begin].imm = middle;
    if (failed(decodeBlock(op.elseBlock())))
      return failure();
    current = op;
    program.code[middle].imm = program.code.size();
  } else {
    program.code[begin].imm = program.code.size();
  }
  emit(Code::EndIf);
  for (Value result : op.getResults())
    noteWrite(result);
  return success();
}

LogicalResult Decoder::decodeFor(scf::ForOp op) {
  Type type = op.getInductionVar().getType();
  if (!type.isInteger(32) && !type.isInteger(64))
    return fail(op, "a loop's bounds are i32 or i64");
  bool wide = isWide(type);
  Slot end = use1(op.getUpperBound()), step = use1(op.getStep());
  Slot variable = allocate(wide);
  hold(variable);
  define(op.getInductionVar(), {variable});
  Slots variables{variable}, initial = use(op.getLowerBound());
  for (auto [argument, result, init] : llvm::zip_equal(
           op.getRegionIterArgs(), op.getResults(), op.getInits())) {
    Slots slots = fresh(argument.getType());
    variables.append(slots);
    initial.append(use(init));
    define(argument, slots);
    define(result, std::move(slots));
    if (wgmmaOperands.contains(result))
      wgmmaOperands.insert(argument);
  }
  auto noteWrites = [&] {
    for (Value argument : op.getRegionIterArgs())
      noteWrite(argument);
  };
  emitMove(variables, initial);
  noteWrites();

  int32_t outer = loop;
  program.loops.push_back({variable, wide, outer});
  emit(Code::LoopBegin);
  loop = program.loops.size() - 1;
  size_t head = program.code.size();
  Inst &test = emit(Code::LoopTest);
  test.a = variable;
  test.b = end;
  test.flags = (op.getUnsignedCmp() ? 1 : 0) | (wide ? 2 : 0);
  LogicalResult body = block(*op.getBody(), [&] {
    // i + step and what is yielded move together: either may be the other's.
    Slots yielded{allocate(wide)};
    hold(yielded.front());
    yielded.append(useAll(op.getBody()->getTerminator()->getOperands()));
    Inst &add = emit(wide ? Code::Add64 : Code::Add32);
    add.dst = yielded.front();
    add.a = variable;
    add.b = step;
    emitMove(variables, yielded);
    drop(yielded.front());
    noteWrites();
  });
  if (failed(body))
    return failure();
  emit(Code::Jump).imm = head;
  loop = outer;
  current = op;
  program.code[head].imm = program.code.size();
  emit(Code::LoopEnd);
  drop(variable);
  return success();
}

LogicalResult Decoder::decodeWhile(scf::WhileOp op) {
  Block &before = op.getBefore().front(), &after = op.getAfter().front();
  Slots carried, results;
  for (BlockArgument argument : before.getArguments()) {
    Slots slots = fresh(argument.getType());
    carried.append(slots);
    define(argument, std::move(slots));
  }
  for (Slot slot : carried)
    hold(slot);
  for (auto [argument, result] :
       llvm::zip_equal(after.getArguments(), op.getResults())) {
    Slots slots = fresh(argument.getType());
    results.append(slots);
    define(argument, slots);
    define(result, std::move(slots));
    if (wgmmaOperands.contains(result))
      wgmmaOperands.insert(argument);
  }
  auto noteWrites = [&](ValueRange values) {
    for (Value value : values)
      noteWrite(value);
  };
  emitMove(carried, useAll(op.getInits()));
  noteWrites(before.getArguments());
  emit(Code::LoopBegin);
  size_t head = program.code.size(), exit = 0;
  LogicalResult first = block(before, [&] {
    auto condition = cast<scf::ConditionOp>(before.getTerminator());
    Slots passed = useAll(condition.getArgs());
    Slot test = use1(condition.getCondition());
    emitMove(results, passed);
    noteWrites(after.getArguments());
    exit = program.code.size();
    emit(Code::WhileTest).a = test;
  });
  if (failed(first))
    return failure();
  LogicalResult second = block(after, [&] {
    emitMove(carried, useAll(after.getTerminator()->getOperands()));
    noteWrites(before.getArguments());
  });
  if (failed(second))
    return failure();
  emit(Code::Jump).imm = head;
  current = op;
  program.code[exit].imm = program.code.size();
  emit(Code::LoopEnd);
  for (Slot slot : carried)
    drop(slot);
  return success();
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

Status Decoder::run(LLVM::LLVMFuncOp func) {
  program.name = func.getName().str();
  if (func.isExternal() || !llvm::hasSingleElement(func.getBody()))
    return Error{"kernel '" + program.name + "'",
                 "emulator: expects a body of one block",
                 {}};
  if (auto threads = func->getAttrOfType<DenseI32ArrayAttr>("nvvm.reqntid"))
    program.threads = threads[0];
  if (auto bytes = func->getAttrOfType<IntegerAttr>("plum.shared_bytes"))
    program.sharedBytes = bytes.getInt();
  current = func;
  findWgmmaOperands(func);
  Block &body = func.getBody().front();
  for (BlockArgument argument : body.getArguments())
    define(argument, {constant(kArgumentBase, true)});
  if (failed(block(body, [] {})))
    return *error;
  emit(Code::Return);
  return Status::ok();
}

Result<Program> emulator::decode(ModuleOp module, StringRef name) {
  auto func = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!func)
    return Error{
        "", "emulator: the module has no kernel '" + name.str() + "'", {}};
  Program program;
  if (Status status = Decoder(program).run(func); !status)
    return status.error();
  return program;
}
