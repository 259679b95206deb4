//===- Copies.cpp - cp.async and bulk copies --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A copy is checked when it is issued: its addresses, that nobody still uses
// what it overwrites, that what it reads was written. From then until it is
// performed its bytes count as in flight.
//
//===----------------------------------------------------------------------===//

#include "Cta.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

Step Cta::copy16(Warp &warp, const Inst &inst) {
  constexpr uint32_t kBytes = 16;
  Step step = Step::Next;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t to = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    uint64_t from = warp.u64(inst.b)[lane];
    uint32_t bytes = warp.u32(inst.c)[lane];
    if (bytes > kBytes)
      step = fail(warp, lane, "cp.async of " + Twine(bytes) + " of 16 bytes");
    else if (to % kBytes)
      step = misaligned(warp, lane, "target of cp.async", Shared::describe(to),
                        kBytes);
    else if (bytes && from % kBytes)
      step = misaligned(warp, lane, "source of cp.async", memory.describe(from),
                        kBytes);
    else if (bytes && !globalSource(warp, lane, "cp.async", from, bytes))
      step = Step::Fail;
    else if (!shared.beginWrite(writer(warp, lane), to, kBytes))
      step = badShared(warp, lane, "target of cp.async", to);
    else
      warp.copies[lane].push_back({to, from, bytes, -1, false, 0, warp.pc});
    return step == Step::Next;
  });
  return step;
}

void Cta::performCopy(const Actor &who, AsyncCopy &copy) {
  uint8_t *to = shared.arrive(who, copy.to, 16);
  std::memset(to, 0, 16);
  if (copy.bytes)
    std::memcpy(to, memory.source(copy.from, copy.bytes), copy.bytes);
  shared.endWrite(copy.to, 16);
  copy.done = true;
  copy.arrived = who.epoch();
}

void Cta::prune(Warp &warp) {
  // An arrival in flight counts how many copies came before it.
  if (llvm::any_of(events, [&](const AsyncEvent &event) {
        return !event.bulk && event.warp == warp.index;
      }))
    return;
  for (std::vector<AsyncCopy> &copies : warp.copies)
    llvm::erase_if(copies, [](const AsyncCopy &copy) { return copy.done; });
}

Step Cta::copyWait(Warp &warp, const Inst &inst) {
  forLanes(warp.mask, [&](uint32_t lane) {
    int64_t complete = warp.copyGroups[lane] - inst.imm;
    for (AsyncCopy &copy : warp.copies[lane])
      if (!copy.done && copy.group >= 0 && copy.group < complete)
        performCopy(writer(warp, lane), copy);
    return true;
  });
  join(warp.clock, warp.copiesDone);
  prune(warp);
  return Step::Next;
}

Step Cta::copyArrive(Warp &warp, const Inst &inst) {
  AsyncEvent event{};
  event.warp = warp.index;
  event.inst = warp.pc;
  event.mask = warp.mask;
  event.seen = published(warp);
  bool good = forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t address = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    event.barrier[lane] = address;
    event.upTo[lane] = warp.copies[lane].size();
    return barrierAt(warp, lane, address) != nullptr;
  });
  if (!good)
    return Step::Fail;
  events.push_back(event);
  tick(warp);
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Bulk loads
//===----------------------------------------------------------------------===//

static bool whole(uint64_t to, uint64_t from, uint32_t bytes) {
  return to % 16 == 0 && from % 16 == 0 && bytes % 16 == 0 && bytes > 0;
}

Step Cta::bulkLoad(Warp &warp, const Inst &inst) {
  Step step = Step::Next;
  uint32_t bytes = inst.count;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t to = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    uint64_t from = warp.u64(inst.b)[lane];
    uint32_t address = warp.u32(inst.c)[lane] + inst.dst;
    Mbarrier *barrier = barrierAt(warp, lane, address);
    if (!barrier)
      step = Step::Fail;
    else if (!barrier->visibleToCopies)
      step = fail(warp, lane,
                  "the mbarrier at " + Shared::describe(address) +
                      " was initialised with no fence.mbarrier_init since: "
                      "the copy may not see it");
    else if (!whole(to, from, bytes))
      step = fail(warp, lane,
                  "bulk load of " + Twine(bytes) + " bytes from " +
                      memory.describe(from) + " to " + Shared::describe(to) +
                      ", which are not all multiples of 16");
    else if (!globalSource(warp, lane, "bulk load", from, bytes))
      step = Step::Fail;
    else if (!shared.beginWrite(writer(warp, lane), to, bytes))
      step = badShared(
          warp, lane,
          "target of a bulk load of " + std::to_string(bytes) + " bytes", to);
    if (step != Step::Next)
      return false;
    AsyncEvent event{};
    event.bulk = true;
    event.warp = warp.index;
    event.inst = warp.pc;
    event.mask = 1u << lane;
    event.to = to;
    event.from = from;
    event.bytes = bytes;
    event.barrier[0] = address;
    events.push_back(event);
    return true;
  });
  return step;
}

Status Cta::deliver(size_t i) {
  AsyncEvent event = events[i];
  events.erase(events.begin() + i);
  // Bytes that arrive carry the mbarrier's epoch: only who waits for its phase
  // may look at them.
  auto begin = [&](Mbarrier &barrier) {
    ++barrier.arriving[barrier.clockIndex];
    return Actor{barrier.clockIndex, &barrier.arriving, 0,
                 shared.newSerial(event.inst)};
  };
  if (event.bulk) {
    Mbarrier &barrier = mbarriers[event.barrier[0]];
    uint8_t *to = shared.arrive(begin(barrier), event.to, event.bytes);
    std::memcpy(to, memory.source(event.from, event.bytes), event.bytes);
    shared.endWrite(event.to, event.bytes);
    barrier.bytes -= event.bytes;
    completeIfDone(barrier);
    return Status::ok();
  }
  Warp &warp = warps[event.warp];
  std::optional<Error> wrong;
  forLanes(event.mask, [&](uint32_t lane) {
    Mbarrier &barrier = mbarriers[event.barrier[lane]];
    join(barrier.arriving, event.seen);
    Actor who = begin(barrier);
    for (size_t k = 0; k < event.upTo[lane]; ++k) {
      AsyncCopy &copy = warp.copies[lane][k];
      if (!copy.done)
        performCopy(who, copy);
      // Others may have come with a later arrival, on another mbarrier.
      uint32_t clock = copy.arrived >> kTimeBits;
      uint32_t time = copy.arrived & ((1u << kTimeBits) - 1);
      for (VectorClock *seen : {&barrier.arriving, &warp.copiesDone})
        (*seen)[clock] = std::max((*seen)[clock], time);
    }
    if (barrier.pending == 0) {
      wrong = errorAt(event.inst, warp, lane,
                      "arrival of cp.async at the mbarrier at " +
                          Shared::describe(event.barrier[lane]) + ", whose " +
                          Twine(barrier.count) + " arrivals of phase " +
                          Twine(barrier.phase) + " have all been made");
      return false;
    }
    --barrier.pending;
    completeIfDone(barrier);
    return true;
  });
  prune(warp);
  return wrong ? Status(*wrong) : Status::ok();
}

//===----------------------------------------------------------------------===//
// Bulk stores
//===----------------------------------------------------------------------===//

Step Cta::bulkStore(Warp &warp, const Inst &inst) {
  Step step = Step::Next;
  uint32_t bytes = inst.count;
  forLanes(warp.mask, [&](uint32_t lane) {
    uint32_t from = warp.u32(inst.a)[lane] + uint32_t(inst.imm);
    uint64_t to = warp.u64(inst.b)[lane];
    std::string what = "bulk store of " + std::to_string(bytes) + " bytes";
    if (!whole(to, from, bytes))
      step =
          fail(warp, lane,
               what + " from " + Shared::describe(from) + " to " +
                   memory.describe(to) + ", which are not all multiples of 16");
    else if (!globalTarget(warp, lane, "bulk store", to, bytes))
      step = Step::Fail;
    else if (!shared.beginRead(actor(warp, lane), from, bytes))
      step = badShared(warp, lane, what, from);
    else
      warp.stores.push_back({lane, from, to, bytes, -1, warp.pc});
    return step == Step::Next;
  });
  return step;
}

void Cta::performStore(Warp &warp, const BulkStore &store) {
  std::memcpy(memory.destination(store.to, store.bytes),
              shared.bytes(store.from), store.bytes);
  shared.endRead(actor(warp), store.from, store.bytes);
}

Step Cta::bulkWait(Warp &warp, const Inst &inst) {
  llvm::erase_if(warp.stores, [&](const BulkStore &store) {
    bool complete = (warp.mask >> store.lane & 1) && store.group >= 0 &&
                    store.group < warp.bulkGroups[store.lane] - inst.imm;
    if (complete)
      performStore(warp, store);
    return complete;
  });
  return Step::Next;
}
