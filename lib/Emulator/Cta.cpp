//===- Cta.cpp - Scheduling and errors --------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cta.h"

#include "mlir/IR/OperationSupport.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

Cta::Cta(const Program &program, Memory &memory, GlobalOrder &global,
         const Options &options, ArrayRef<uint8_t> arguments, uint32_t threads,
         uint32_t sharedBytes)
    : program(program), memory(memory), global(global), options(options),
      arguments(arguments), threads(threads), sharedBytes(sharedBytes),
      warps(threads / kLanes), random(options.seed) {
  for (auto [i, warp] : llvm::enumerate(warps)) {
    warp.index = i;
    warp.frame.resize(program.slots);
    warp.inFlight.resize(program.slots);
    warp.writtenAt.resize(program.slots);
    for (const Program::Constant &constant : program.constants)
      for (uint32_t lane = 0; lane < kLanes; ++lane)
        if (constant.wide)
          warp.u64(constant.slot)[lane] = constant.value;
        else
          warp.u32(constant.slot)[lane] = uint32_t(constant.value);
  }
}

void Cta::reset() {
  for (Warp &warp : warps) {
    Warp fresh;
    fresh.index = warp.index;
    fresh.frame = std::move(warp.frame);
    fresh.inFlight = std::move(warp.inFlight);
    fresh.writtenAt = std::move(warp.writtenAt);
    llvm::fill(fresh.inFlight, 0);
    llvm::fill(fresh.writtenAt, 0);
    fresh.clock[fresh.index] = 1;
    warp = std::move(fresh);
  }
  shared.reset(sharedBytes, warps.size(), program.asyncProxy, options);
  barriers.fill({});
  mbarriers.clear();
  events.clear();
  // From nearly lockstep to one warp after the other.
  quantum = options.seed == 0 ? INT64_MAX : int64_t(1) << (2 * (random() % 8));
}

Result<bool> Cta::turn() {
  bool progress = false;
  SmallVector<Warp *> order;
  for (Warp &warp : warps)
    if (!warp.done)
      order.push_back(&warp);
  if (options.seed)
    std::shuffle(order.begin(), order.end(), random);
  for (Warp *warp : order) {
    int64_t before = instructions;
    int64_t budget = quantum;
    if (options.seed && quantum > 1)
      budget = 1 + int64_t(random() % uint64_t(quantum));
    budget = std::min(budget, options.maxInstructions);
    if (execute(*warp, budget) == Step::Fail)
      return *error;
    progress |= instructions != before || warp->done;
  }
  if (!events.empty() && (!progress || (options.seed && random() % 2 == 0))) {
    size_t which = options.seed ? random() % events.size() : 0;
    if (Status status = deliver(which); !status)
      return status.error();
    progress = true;
  }
  return progress;
}

Status Cta::run(int64_t index) {
  this->index = index;
  reset();
  int64_t limit = instructions + options.maxInstructions;
  while (!llvm::all_of(warps, [](const Warp &warp) { return warp.done; })) {
    Result<bool> progress = turn();
    if (!progress)
      return progress.error();
    if (!*progress)
      return deadlock();
    if (instructions >= limit)
      return errorAt(warps.front().pc, warps.front(), -1,
                     "no end after " + Twine(options.maxInstructions) +
                         " instructions of warps");
  }
  return finish();
}

Status Cta::finish() {
  for (Warp &warp : warps)
    if (!warp.stores.empty())
      return errorAt(warp.stores.front().inst, warp, warp.stores.front().lane,
                     "the thread ends before its bulk store has read shared "
                     "memory: no cp.async.bulk.wait_group waits for it");
  for (const AsyncEvent &event : events)
    if (event.bulk)
      return errorAt(event.inst, warps[event.warp], -1,
                     "the CTA ends while a bulk load is in flight");
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

std::string Cta::opText(uint32_t inst) {
  Operation *op = program.origins[inst].op;
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream, OpPrintingFlags().skipRegions().elideLargeElementsAttrs());
  constexpr size_t kLongest = 400;
  if (text.size() > kLongest)
    text = text.substr(0, kLongest) + "...";
  if (!isa<UnknownLoc>(op->getLoc())) {
    text += " at ";
    op->getLoc().print(stream);
  }
  return text;
}

Error Cta::errorAt(uint32_t inst, const Warp &warp, int lane,
                   const Twine &text) {
  std::string who = "cta " + std::to_string(index) + ", ";
  who += lane < 0 ? "warp " + std::to_string(warp.index)
                  : "thread " + std::to_string(warp.index * kLanes + lane);
  Error result{"kernel '" + program.name + "'", who + ": " + text.str(), {}};
  result.notes.push_back("op: " + opText(inst));
  std::string loops;
  int shown = lane < 0 ? 0 : lane;
  for (int32_t i = program.origins[inst].loop; i >= 0;
       i = program.loops[i].parent) {
    Slot slot = program.loops[i].variable;
    auto &frame = const_cast<Warp &>(warp);
    int64_t value = program.loops[i].wide
                        ? int64_t(frame.u64(slot)[shown])
                        : int64_t(int32_t(frame.u32(slot)[shown]));
    loops = (loops.empty() ? "" : ", ") + loops;
    loops = std::to_string(value) + loops;
  }
  if (!loops.empty())
    result.notes.push_back("in iteration " + loops +
                           " of the loops around it, outermost first");
  return result;
}

Step Cta::fail(Warp &warp, int lane, const Twine &text) {
  error = errorAt(warp.pc, warp, lane, text);
  if (uint32_t other = shared.takeOther(); other != ~0u)
    error->notes.push_back("the other op: " + opText(other));
  return Step::Fail;
}

Step Cta::diverged(Warp &warp) {
  return fail(warp, -1,
              "lanes 0x" + Twine::utohexstr(warp.mask) +
                  " alone reach an instruction that all lanes of the warp "
                  "have to execute together");
}

/// What a blocked warp waits for.
std::string Cta::waitsFor(Warp &warp) {
  const Inst &inst = program.code[warp.pc];
  std::string name = "warp " + std::to_string(warp.index) + " waits ";
  std::string text;
  llvm::raw_string_ostream stream(text);
  switch (inst.code) {
  case Code::Barrier: {
    uint32_t id = warp.u32(inst.a)[0];
    stream << name << "at bar.sync " << id << ": " << barriers[id].arrived
           << " of " << barriers[id].threads << " threads are there";
    break;
  }
  case Code::Wait: {
    forLanes(warp.mask, [&](uint32_t lane) {
      uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
      const Mbarrier &barrier = mbarriers[address];
      uint32_t parity = warp.u32(inst.b)[lane];
      if ((barrier.phase & 1) != parity)
        return true;
      stream << name << "(lanes 0x" << llvm::utohexstr(warp.mask)
             << ") for parity " << parity << " of the mbarrier at "
             << Shared::describe(address) << ": in phase " << barrier.phase
             << ", " << barrier.pending << " of " << barrier.count
             << " arrivals and " << barrier.bytes << " bytes are missing";
      return false;
    });
    break;
  }
  default:
    stream << name << "for the rest of its warpgroup at wgmma";
  }
  stream << "; op: " << opText(warp.pc);
  return text;
}

Error Cta::deadlock() {
  Error result{"kernel '" + program.name + "'",
               "cta " + std::to_string(index) + ": deadlock, no warp can go on",
               {}};
  std::string ended;
  for (Warp &warp : warps) {
    if (warp.done)
      ended += (ended.empty() ? "" : ", ") + std::to_string(warp.index);
    else
      result.notes.push_back(waitsFor(warp));
  }
  if (!ended.empty())
    result.notes.push_back("these warps have ended: " + ended);
  return result;
}
