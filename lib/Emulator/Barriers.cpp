//===- Barriers.cpp - bar.sync and mbarriers --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arriving publishes what the warp has seen, and starts a new time of its
// clock, so that what it does later is not covered. Not waiting any more takes
// over what everybody published who arrived.
//
//===----------------------------------------------------------------------===//

#include "Cta.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

Step Cta::barrier(Warp &warp, const Inst &inst) {
  const bool waits = inst.code == Code::Barrier;
  if (warp.atBarrier)
    return Step::Block;
  if (warp.barrierPassed) {
    warp.barrierPassed = false;
    return Step::Next;
  }
  if (!converged(warp))
    return diverged(warp);
  uint32_t id = warp.u32(inst.a)[0];
  for (uint32_t lane = 1; lane < kLanes; ++lane)
    if (warp.u32(inst.a)[lane] != id)
      return fail(warp, lane, "lanes of a warp name different barriers");
  if (id >= barriers.size())
    return fail(warp, -1, "barrier " + Twine(id) + " of 0 to 15");
  if (inst.imm % kLanes || inst.imm <= 0 || inst.imm > threads)
    return fail(warp, -1,
                "barrier of " + Twine(inst.imm) + " threads in a CTA of " +
                    Twine(threads));
  NamedBarrier &barrier = barriers[id];
  if (barrier.arrived && barrier.threads != inst.imm)
    return fail(warp, -1,
                "barrier " + Twine(id) + " of " + Twine(inst.imm) +
                    " threads, where others wait for " +
                    Twine(barrier.threads));
  barrier.threads = inst.imm;
  barrier.arrived += kLanes;
  if (waits) {
    barrier.waiting |= 1u << warp.index;
    join(barrier.clock, warp.clock);
    syncLanes(warp);
  } else {
    join(barrier.clock, published(warp));
  }
  if (barrier.arrived < barrier.threads) {
    if (!waits)
      return Step::Next;
    warp.atBarrier = true;
    return Step::Block;
  }
  for (Warp &other : warps)
    if (barrier.waiting >> other.index & 1) {
      join(other.clock, barrier.clock);
      other.atBarrier = false;
      other.barrierPassed = other.index != warp.index;
    }
  barrier = {};
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

Step Cta::barrierInit(Warp &warp, const Inst &inst) {
  Step step = Step::Next;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    if (address % 8)
      step = misaligned(warp, lane, "mbarrier", Shared::describe(address), 8);
    else if (mbarriers.contains(address))
      step =
          fail(warp, lane,
               "second init of the mbarrier at " + Shared::describe(address));
    else if (mbarriers.size() == kMaxClocks - kMaxWarps)
      step = fail(warp, lane, "more mbarriers than the emulator can follow");
    else if (inst.count == 0 || inst.count >= 1u << 20)
      step = fail(warp, lane, "mbarrier of " + Twine(inst.count) + " arrivals");
    else if (!shared.initBarrier(writer(warp, lane), address))
      step = badShared(warp, lane, "init of an mbarrier", address);
    if (step != Step::Next)
      return false;
    Mbarrier &barrier = mbarriers[address];
    barrier.count = barrier.pending = inst.count;
    barrier.clockIndex = kMaxWarps + mbarriers.size() - 1;
    barrier.initWarp = warp.index;
    return true;
  });
  return step;
}

Step Cta::fenceBarrierInit(Warp &warp) {
  for (auto &[address, barrier] : mbarriers)
    barrier.visibleToCopies |= barrier.initWarp == warp.index;
  return Step::Next;
}

Mbarrier *Cta::barrierAt(Warp &warp, int lane, uint32_t address) {
  auto found = mbarriers.find(address);
  if (found == mbarriers.end()) {
    fail(warp, lane,
         "no mbarrier was initialised at " + Shared::describe(address));
    return nullptr;
  }
  if (!shared.sees(actor(warp), address)) {
    badShared(warp, lane, "mbarrier", address);
    return nullptr;
  }
  return &found->second;
}

void Cta::completeIfDone(Mbarrier &barrier) {
  if (barrier.pending || barrier.bytes)
    return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.completed = barrier.arriving;
}

Step Cta::arrive(Warp &warp, const Inst &inst, bool expect) {
  const VectorClock clock = published(warp);
  bool good = forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    Mbarrier *barrier = barrierAt(warp, lane, address);
    if (!barrier)
      return false;
    if (barrier->pending == 0) {
      fail(warp, lane,
           "arrival at the mbarrier at " + Shared::describe(address) +
               ", whose " + Twine(barrier->count) + " arrivals of phase " +
               Twine(barrier->phase) + " have all been made");
      return false;
    }
    if (expect)
      barrier->bytes += warp.u32(inst.b)[lane];
    --barrier->pending;
    join(barrier->arriving, clock);
    completeIfDone(*barrier);
    return true;
  });
  tick(warp);
  return good ? Step::Next : Step::Fail;
}

Step Cta::wait(Warp &warp, const Inst &inst) {
  bool passed = true;
  bool good = forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    uint32_t parity = warp.u32(inst.b)[lane];
    Mbarrier *barrier = barrierAt(warp, lane, address);
    if (!barrier)
      return false;
    if (parity > 1) {
      fail(warp, lane, "parity " + Twine(parity) + " of an mbarrier wait");
      return false;
    }
    passed &= (barrier->phase & 1) != parity;
    return true;
  });
  if (!good)
    return Step::Fail;
  if (!passed)
    return Step::Block;
  ++warp.syncs;
  forLanes(warp.mask, [&](uint32_t lane) {
    join(warp.clock,
         mbarriers[warp.u32(inst.a)[lane] + uint32_t(inst.imm)].completed);
    return true;
  });
  return Step::Next;
}
