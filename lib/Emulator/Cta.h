//===- Cta.h - A CTA that runs ----------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state of warps, barriers and copies in flight, and one method for each
// instruction that is more than arithmetic. By file:
//
//   Cta.cpp       the scheduler, errors, deadlocks
//   Execute.cpp   a warp's switch: arithmetic and control
//   Access.cpp    loads, stores, ldmatrix, stmatrix, mma, shuffles
//   Barriers.cpp  bar.sync and mbarriers
//   Copies.cpp    cp.async and bulk copies
//   Wgmma.cpp     wgmma
//
// An instruction that cannot go on returns Block and is executed again when the
// scheduler comes back to the warp. What is asynchronous is recorded when it is
// issued and happens as late as it may: cp.async and bulk stores at the wait
// that needs them, wgmma likewise (each warp its own 16 rows), copies that
// arrive on an mbarrier when no warp can go on without one (or earlier, at
// random, if there is a seed).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMULATOR_CTA_H
#define PLUM_LIB_EMULATOR_CTA_H

#include "GlobalOrder.h"
#include "Shared.h"

#include "llvm/ADT/SmallVector.h"

#include <map>
#include <random>

namespace plum::emulator {

struct alignas(64) SlotLanes {
  uint32_t v[kLanes];
};

enum class Step { Next, Block, Fail };

/// A thread's cp.async of 16 bytes.
struct AsyncCopy {
  uint32_t to;
  uint64_t from;
  uint32_t bytes; ///< The rest is zero.
  int64_t group;  ///< -1: not committed.
  bool done;
  Epoch arrived; ///< If done.
  uint32_t inst;
};

struct BulkStore {
  uint32_t lane, from;
  uint64_t to;
  uint32_t bytes;
  int64_t group; ///< -1: not committed.
  uint32_t inst;
};

struct PendingWgmma {
  uint32_t shape; ///< Index into Program::wgmmas.
  uint32_t inst;
  int64_t group; ///< -1: not committed.
  std::array<SlotLanes, 4> a;
  /// Addresses, 16 bytes each: of B and, where A is shared, of the warp's rows.
  std::vector<uint32_t> pieces, left;
};

struct Warp {
  uint32_t index = 0, pc = 0, mask = ~0u;
  bool done = false;
  struct Scope {
    uint32_t outside, otherwise; ///< Masks.
  };
  llvm::SmallVector<Scope, 16> scopes;
  std::vector<SlotLanes> frame;
  VectorClock clock{};

  // Lanes synchronise at syncWarp and bar.sync. What a lane publishes alone
  // covers what the others did before the last time.
  uint32_t syncs = 0;
  uint32_t touched = 0;    ///< Lanes with shared accesses since then.
  uint32_t syncedTime = 0; ///< Of its clock, then.

  bool atBarrier = false, barrierPassed = false;
  std::array<std::vector<AsyncCopy>, kLanes> copies;
  std::array<int64_t, kLanes> copyGroups{}, bulkGroups{};
  VectorClock copiesDone{}; ///< By arrivals; known once it waits.
  std::vector<BulkStore> stores;

  std::vector<PendingWgmma> wgmmas;
  int64_t wgmmaGroups = 0;
  uint32_t wgmmaFences = 0;
  uint64_t wgmmaCount = 0;       ///< Reached.
  uint64_t wgmmaReached = ~0ull; ///< pc while waiting for the other three.
  std::array<uint64_t, 2> wgmmaDescriptors{}; ///< Of B, and of A or 0.
  std::vector<uint16_t> inFlight;  ///< By slot: wgmmas that will write it.
  std::vector<uint32_t> writtenAt; ///< By slot: fences needed before wgmma.

  uint32_t *u32(Slot slot) { return frame[slot].v; }
  uint64_t *u64(Slot slot) {
    return reinterpret_cast<uint64_t *>(frame[slot].v);
  }
  float *f32(Slot slot) { return reinterpret_cast<float *>(frame[slot].v); }
};

struct NamedBarrier {
  int64_t threads = 0, arrived = 0;
  uint32_t waiting = 0; ///< Mask of warps.
  VectorClock clock{};
};

struct Mbarrier {
  uint32_t count, pending, clockIndex, initWarp;
  int64_t bytes = 0; ///< Expected and not yet there.
  uint64_t phase = 0;
  bool visibleToCopies = false; ///< fence.mbarrier_init since its init.
  VectorClock arriving{}, completed{};
};

/// What arrives on an mbarrier some time.
struct AsyncEvent {
  bool bulk;
  uint32_t warp, inst, mask; ///< mask: lanes, of cp.async arrivals.
  // A bulk load.
  uint32_t to, bytes;
  uint64_t from;
  // Where: of a bulk load lane 0's.
  std::array<uint32_t, kLanes> barrier;
  std::array<size_t, kLanes> upTo; ///< The lane's copies before this.
  VectorClock seen;                ///< By the arriving warp.
};

class Cta {
public:
  Cta(const Program &program, Memory &memory, GlobalOrder &global,
      const Options &options, llvm::ArrayRef<uint8_t> arguments,
      uint32_t threads, uint32_t sharedBytes);
  Status run(int64_t index);
  int64_t instructions = 0; ///< Of warps, in all.

private:
  //===--- Scheduling (Cta.cpp) -------------------------------------------===//
  void reset();
  /// One turn for each warp; whether anything happened.
  Result<bool> turn();
  Status finish();
  Error deadlock();
  std::string waitsFor(Warp &warp);
  /// An error of a lane (-1: of the warp) at the warp's instruction.
  Step fail(Warp &warp, int lane, const llvm::Twine &text);
  Error errorAt(uint32_t inst, const Warp &warp, int lane,
                const llvm::Twine &text);
  std::string opText(uint32_t inst);
  /// All 32 lanes must be here.
  bool converged(Warp &warp) { return warp.mask == ~0u; }
  Step diverged(Warp &warp);
  Actor actor(const Warp &warp, uint32_t lane = kAllLanes) const {
    return {warp.index, &warp.clock, warp.syncs, 0, lane};
  }
  /// Of an instruction that writes shared memory.
  Actor writer(const Warp &warp, uint32_t lane = kAllLanes) {
    return {warp.index, &warp.clock,      warp.syncs, shared.newSerial(warp.pc),
            lane,       vouchedTime(warp)};
  }
  void tick(Warp &warp) { ++warp.clock[warp.index]; }
  void syncLanes(Warp &warp) {
    ++warp.syncs;
    warp.touched = 0;
    warp.syncedTime = warp.clock[warp.index];
    tick(warp);
  }
  /// The time of its own clock that the active lanes can vouch for.
  uint32_t vouchedTime(const Warp &warp) const {
    return options.checkLanes && warp.touched & ~warp.mask
               ? warp.syncedTime
               : warp.clock[warp.index];
  }
  /// What an arrival by the active lanes publishes.
  VectorClock published(const Warp &warp) const {
    VectorClock clock = warp.clock;
    clock[warp.index] = vouchedTime(warp);
    return clock;
  }

  //===--- A warp (Execute.cpp) -------------------------------------------===//
  /// Up to `budget` instructions. Block also when the budget is used up.
  Step execute(Warp &warp, int64_t budget);
  /// The rest: instructions with side effects.
  Step effect(Warp &warp, const Inst &inst);

  //===--- Access.cpp -----------------------------------------------------===//
  Step loadArgument(Warp &warp, const Inst &inst);
  Step loadGlobal(Warp &warp, const Inst &inst);
  Step storeGlobal(Warp &warp, const Inst &inst);
  Step loadShared(Warp &warp, const Inst &inst);
  Step storeShared(Warp &warp, const Inst &inst);
  Step shuffle(Warp &warp, const Inst &inst);
  Step loadMatrix(Warp &warp, const Inst &inst, bool transposed);
  Step storeMatrix(Warp &warp, const Inst &inst, bool transposed);
  Step mma(Warp &warp, const Inst &inst);
  Step misaligned(Warp &warp, int lane, llvm::StringRef what,
                  llvm::StringRef where, uint32_t alignment);
  Step badShared(Warp &warp, int lane, llvm::StringRef what, uint32_t address);

  //===--- Barriers.cpp ---------------------------------------------------===//
  Step barrier(Warp &warp, const Inst &inst);
  Step barrierInit(Warp &warp, const Inst &inst);
  Step fenceBarrierInit(Warp &warp);
  Step arrive(Warp &warp, const Inst &inst, bool expect);
  Step wait(Warp &warp, const Inst &inst);
  /// The mbarrier, or null after fail().
  Mbarrier *barrierAt(Warp &warp, int lane, uint32_t address);
  void completeIfDone(Mbarrier &barrier);

  //===--- Copies.cpp -----------------------------------------------------===//
  Step copy16(Warp &warp, const Inst &inst);
  Step copyWait(Warp &warp, const Inst &inst);
  Step copyArrive(Warp &warp, const Inst &inst);
  Step bulkLoad(Warp &warp, const Inst &inst);
  Step bulkStore(Warp &warp, const Inst &inst);
  Step bulkWait(Warp &warp, const Inst &inst);
  void performCopy(const Actor &who, AsyncCopy &copy);
  /// Forgets copies that are done.
  void prune(Warp &warp);
  void performStore(Warp &warp, const BulkStore &store);
  /// Lets events.begin() + i happen.
  Status deliver(size_t i);

  //===--- Wgmma.cpp ------------------------------------------------------===//
  Step wgmma(Warp &warp, const Inst &inst);
  Step issueWgmma(Warp &warp, const Inst &inst);
  Step wgmmaWait(Warp &warp, const Inst &inst);
  Step checkReady(Warp &warp, const Inst &inst);
  static bool findPieces(uint32_t n, bool transposed, uint64_t descriptor,
                         std::vector<uint32_t> &pieces, std::string &why);
  void performWgmma(Warp &warp, PendingWgmma &pending);

  //===--- Global memory --------------------------------------------------===//
  /// The bytes, or null after fail(); `what`: "global load".
  const uint8_t *globalSource(Warp &warp, int lane, const char *what,
                              uint64_t address, uint32_t bytes);
  uint8_t *globalTarget(Warp &warp, int lane, const char *what,
                        uint64_t address, uint32_t bytes);

  const Program &program;
  Memory &memory;
  GlobalOrder &global;
  const Options &options;
  llvm::ArrayRef<uint8_t> arguments;
  uint32_t threads, sharedBytes;

  int64_t index = 0; ///< %ctaid.x
  std::vector<Warp> warps;
  Shared shared;
  std::array<NamedBarrier, 16> barriers;
  std::map<uint32_t, Mbarrier> mbarriers; ///< By address.
  std::vector<AsyncEvent> events;
  std::mt19937_64 random;
  int64_t quantum = 0; ///< A warp's turn takes up to this many instructions.
  std::optional<Error> error;
};

/// Calls f(lane) for each lane of a mask, in order, until it is false.
template <typename F> inline bool forLanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1)
    if (!f(static_cast<uint32_t>(__builtin_ctz(mask))))
      return false;
  return true;
}

} // namespace plum::emulator

#endif // PLUM_LIB_EMULATOR_CTA_H
