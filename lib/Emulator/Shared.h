//===- Shared.h - A CTA's shared memory, and what is wrong ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes, and beside them what is known of each:
//
// Order. Every warp has a clock, and so has every mbarrier, for the copies that
// complete on it. An epoch is (whose clock, time); whatever a warp does carries
// its present epoch. A vector clock says for each of these clocks up to what
// time it has been synchronised with: a warp has one, so has each barrier, and
// they are joined when somebody arrives or stops waiting. Two accesses of a
// cell (2 bytes: nothing is smaller) by different warps race unless the later
// warp's vector clock covers the earlier one's epoch. A cell keeps its last
// write and the reads since: one epoch, or one for each warp when they are not
// ordered. This is FastTrack (Flanagan, Freund, PLDI 2009).
//
// Lanes. Beside its last write a cell keeps the lane and how often the warp had
// synchronised its lanes (syncWarp, barriers). Another lane of the warp may
// look only after one more. Lanes that store different values to the same bytes
// in one instruction are wrong at once.
//
// Flight. 16 bytes (a granule) count the asynchronous copies in flight that
// will write them, and the bulk stores and wgmma in flight that will read them.
//
// Proxies. A granule that a store has written is dirty for the asynchronous
// proxy until the storing lanes execute fence.proxy.async.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMULATOR_SHARED_H
#define PLUM_LIB_EMULATOR_SHARED_H

#include "Program.h"
#include "plum/Emulator/Emulator.h"

#include <array>

namespace plum::emulator {

constexpr uint32_t kMaxWarps = 32, kMaxClocks = 128, kTimeBits = 25;
constexpr uint32_t kGranule = 16;

using Epoch = uint32_t; ///< Clock << kTimeBits | time; 0: never.
using VectorClock = std::array<uint32_t, kMaxClocks>;

inline Epoch epochOf(uint32_t clock, uint32_t time) {
  return clock << kTimeBits | time;
}
inline void join(VectorClock &into, const VectorClock &from) {
  for (uint32_t i = 0; i < kMaxClocks; ++i)
    into[i] = into[i] < from[i] ? from[i] : into[i];
}

/// Whether `seen` covers an epoch.
inline bool covers(const VectorClock &seen, Epoch earlier) {
  return seen[earlier >> kTimeBits] >= (earlier & ((1u << kTimeBits) - 1));
}

constexpr uint32_t kAllLanes = 63; ///< Not the same as any.

/// Who accesses.
struct Actor {
  uint32_t clock; ///< A warp's number, or kMaxWarps + that of an mbarrier.
  const VectorClock *seen;
  uint32_t syncs = 0;  ///< Of the warp's lanes.
  uint32_t serial = 0; ///< Of a write: from newSerial().
  uint32_t lane = kAllLanes;
  uint32_t vouched = ~0u; ///< Own time up to which no other lane's reads last.
  Epoch epoch() const { return epochOf(clock, (*seen)[clock]); }
};

class Shared {
public:
  void reset(uint32_t bytes, uint32_t warps, bool trackProxies,
             const Options &options);

  //===--- Accesses: null or false, and problem(), if they are wrong ------===//
  const uint8_t *read(const Actor &who, uint32_t address, uint32_t bytes);
  bool write(const Actor &who, uint32_t address, const uint8_t *from,
             uint32_t bytes);
  /// A number for one execution of an instruction that writes.
  uint32_t newSerial(uint32_t inst) {
    instOf.push_back(inst);
    return instOf.size() - 1;
  }
  /// A copy's bytes arrive: no check but the record.
  uint8_t *arrive(const Actor &who, uint32_t address, uint32_t bytes);
  const uint8_t *bytes(uint32_t address) const {
    return data.data() + (address - kSharedBase);
  }

  //===--- Asynchronous accesses, of whole granules -----------------------===//
  bool beginWrite(const Actor &who, uint32_t address, uint32_t bytes);
  void endWrite(uint32_t address, uint32_t bytes);
  bool beginRead(const Actor &who, uint32_t address, uint32_t bytes);
  void endRead(const Actor &who, uint32_t address, uint32_t bytes);

  //===--- Proxies --------------------------------------------------------===//
  void stored(uint32_t warp, uint32_t lane, uint32_t address, uint32_t bytes) {
    if (trackProxies)
      markDirty(warp, lane, address, bytes);
  }
  void fenceProxy(uint32_t warp, uint32_t lanes);

  //===--- mbarriers ------------------------------------------------------===//
  bool initBarrier(const Actor &who, uint32_t address);
  /// Whether the init happens before what `who` does now.
  bool sees(const Actor &who, uint32_t address);

  bool contains(uint32_t address, uint32_t bytes) {
    return address >= kSharedBase && address - kSharedBase <= data.size() &&
           bytes <= data.size() - (address - kSharedBase);
  }
  const std::string &problem() const { return why; }
  /// The instruction of the write that the last problem is about, or ~0u.
  uint32_t takeOther() { return std::exchange(other, ~0u); }

  static std::string describe(uint32_t address);

private:
  struct Cell {
    Epoch write = 0;
    Epoch read = 0; ///< Top bit: index of a read set.
  };
  struct Writer {
    uint32_t serial = 0;
    uint32_t lane = 0; ///< And the warp's syncs, << 6.
  };
  struct Dirty {
    uint32_t granule, lanes;
  };
  static constexpr uint32_t kReadSet = 1u << 31;
  /// Of a granule: an mbarrier in its first or second half, asynchronous
  /// writes in flight, reads in flight.
  static constexpr uint32_t kBarrier = 1u << 30, kBarriers = 3u << 30;
  static constexpr uint32_t kOneWrite = 1u << 16, kWrites = 0x3fff0000;

  bool fail(const llvm::Twine &text, uint32_t serial = 0);
  bool writable(uint32_t address, uint32_t bytes);
  bool inBounds(uint32_t address, uint32_t bytes);
  bool readCells(const Actor &who, uint32_t address, uint32_t bytes);
  bool writeCells(const Actor &who, uint32_t address, uint32_t bytes,
                  const uint8_t *values);
  void recordRead(const Actor &who, Cell &cell);
  bool readsOrdered(const Actor &who, const Cell &cell, Epoch &offender);
  void clearReads(Cell &cell);
  bool race(uint32_t address, const char *mine, const char *theirs,
            Epoch offender, uint32_t serial);
  bool laneReads(const Actor &who, uint32_t i);
  bool lanesHaveRead(const Actor &who, uint32_t address, uint32_t bytes);
  bool clean(uint32_t address, uint32_t bytes);
  void markDirty(uint32_t warp, uint32_t lane, uint32_t address,
                 uint32_t bytes);

  std::vector<uint8_t> data;
  std::vector<Cell> cells;
  std::vector<Writer> writers;  ///< Of a cell's last write.
  std::vector<uint32_t> instOf; ///< By serial.
  std::vector<uint32_t> busy;   ///< By granule: copies in flight.
  std::vector<uint32_t> readSets, freeReadSets;
  std::vector<uint16_t> dirtyWarps;              ///< By granule.
  std::vector<std::vector<uint32_t>> dirtyIndex; ///< [warp][granule], +1.
  std::vector<std::vector<Dirty>> dirty;         ///< [warp].
  uint32_t warps = 0;
  bool trackProxies = false, checkRaces = true, checkUndefined = true;
  bool checkLanes = true;
  std::string why;
  uint32_t other = ~0u;
};

} // namespace plum::emulator

#endif // PLUM_LIB_EMULATOR_SHARED_H
