//===- Shared.cpp - A CTA's shared memory, and what is wrong ----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Shared.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace plum;
using namespace plum::emulator;

static std::string nameOf(Epoch epoch) {
  uint32_t clock = epoch >> kTimeBits;
  return clock < kMaxWarps ? "warp " + std::to_string(clock)
                           : std::string("a copy");
}

void Shared::reset(uint32_t bytes, uint32_t warps, bool trackProxies,
                   const Options &options) {
  this->warps = warps;
  this->trackProxies = trackProxies && options.checkProxyFences;
  checkRaces = options.checkRaces;
  checkUndefined = options.checkUndefined;
  checkLanes = options.checkLanes;
  size_t granules = (bytes + kGranule - 1) / kGranule;
  data.assign(bytes, 0xcd);
  cells.assign((bytes + 1) / 2, {});
  writers.assign((bytes + 1) / 2, {});
  instOf.assign(1, ~0u);
  busy.assign(granules, 0);
  readSets.clear();
  freeReadSets.clear();
  if (this->trackProxies) {
    dirtyWarps.assign(granules, 0);
    dirtyIndex.resize(warps);
    dirty.resize(warps);
    for (uint32_t w = 0; w < warps; ++w) {
      dirtyIndex[w].assign(granules, 0);
      dirty[w].clear();
    }
  }
}

std::string Shared::describe(uint32_t address) {
  int64_t offset = int64_t(address) - kSharedBase;
  return std::string(offset < 0 ? "shared-0x" : "shared+0x") +
         llvm::utohexstr(uint64_t(std::abs(offset)), /*LowerCase=*/true);
}

bool Shared::fail(const Twine &text, uint32_t serial) {
  why = text.str();
  other = instOf[serial];
  return false;
}

bool Shared::inBounds(uint32_t address, uint32_t bytes) {
  return contains(address, bytes) ||
         fail("outside the " + Twine(data.size()) + " bytes of shared memory");
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

bool Shared::race(uint32_t address, const char *mine, const char *theirs,
                  Epoch offender, uint32_t serial) {
  return fail("races with " + Twine(theirs) + " of " + nameOf(offender) +
                  " at " + describe(address) +
                  ": no barrier orders it before this " + mine +
                  (offender >> kTimeBits < kMaxWarps
                       ? " (a lane that arrives alone speaks for the others "
                         "only after syncWarp)"
                       : ""),
              serial);
}

void Shared::recordRead(const Actor &who, Cell &cell) {
  Epoch me = who.epoch();
  if (!(cell.read & kReadSet)) {
    if (cell.read == 0 || covers(*who.seen, cell.read)) {
      cell.read = me;
      return;
    }
    uint32_t set;
    if (freeReadSets.empty()) {
      set = readSets.size() / warps;
      readSets.resize(readSets.size() + warps, 0);
    } else {
      set = freeReadSets.back();
      freeReadSets.pop_back();
      std::fill_n(readSets.begin() + set * warps, warps, 0);
    }
    readSets[set * warps + (cell.read >> kTimeBits)] = cell.read;
    cell.read = kReadSet | set;
  }
  readSets[(cell.read & ~kReadSet) * warps + who.clock] = me;
}

bool Shared::readsOrdered(const Actor &who, const Cell &cell, Epoch &offender) {
  if (cell.read == 0)
    return true;
  if (!(cell.read & kReadSet)) {
    offender = cell.read;
    return covers(*who.seen, cell.read);
  }
  const uint32_t *set = &readSets[(cell.read & ~kReadSet) * warps];
  for (uint32_t w = 0; w < warps; ++w)
    if (set[w] && !covers(*who.seen, set[w])) {
      offender = set[w];
      return false;
    }
  return true;
}

void Shared::clearReads(Cell &cell) {
  if (cell.read & kReadSet)
    freeReadSets.push_back(cell.read & ~kReadSet);
  cell.read = 0;
}

/// A lane reads what its warp has written.
bool Shared::laneReads(const Actor &who, uint32_t i) {
  const Writer &writer = writers[i];
  uint32_t lane = writer.lane & 63;
  if (cells[i].write == 0 || writer.lane >> 6 != who.syncs || lane == who.lane)
    return true;
  return fail("of which lane " + Twine(lane) + " of this warp has written " +
                  describe(kSharedBase + 2 * i) + " with no syncWarp since",
              writer.serial);
}

bool Shared::readCells(const Actor &who, uint32_t address, uint32_t bytes) {
  Epoch me = who.epoch();
  uint32_t first = (address - kSharedBase) / 2;
  for (uint32_t i = first, end = first + bytes / 2; i < end; ++i) {
    Cell &cell = cells[i];
    if (checkLanes && cell.write >> kTimeBits == who.clock &&
        !laneReads(who, i))
      return false;
    if (cell.read == me ||
        (cell.read & kReadSet &&
         readSets[(cell.read & ~kReadSet) * warps + who.clock] == me))
      continue;
    if (cell.write == 0) {
      if (checkUndefined)
        return fail("of which nothing has written " +
                    describe(kSharedBase + 2 * i));
    } else if (checkRaces && !covers(*who.seen, cell.write)) {
      return race(kSharedBase + 2 * i, "read", "the write", cell.write,
                  writers[i].serial);
    }
    if (checkRaces)
      recordRead(who, cell);
    else
      cell.read = me;
  }
  return true;
}

/// `values`: what is stored, or null if that is not known yet.
bool Shared::writeCells(const Actor &who, uint32_t address, uint32_t bytes,
                        const uint8_t *values) {
  Epoch me = who.epoch();
  uint32_t first = (address - kSharedBase) / 2;
  for (uint32_t i = first, end = first + bytes / 2; i < end; ++i) {
    Cell &cell = cells[i];
    Writer before = writers[i];
    writers[i] = {who.serial, who.lane | who.syncs << 6};
    if (values && before.serial == who.serial &&
        std::memcmp(&data[2 * i], values + 2 * (i - first), 2))
      return fail("where lane " + Twine(before.lane & 63) +
                  " stores another value in the same instruction");
    if (cell.write == me && cell.read == 0)
      continue;
    if (checkRaces) {
      Epoch offender = cell.write;
      if (cell.write && !covers(*who.seen, cell.write))
        return race(kSharedBase + 2 * i, "write", "the write", offender,
                    before.serial);
      if (!readsOrdered(who, cell, offender))
        return race(kSharedBase + 2 * i, "write", "a read", offender, 0);
      clearReads(cell);
    } else {
      cell.read = 0;
    }
    cell.write = me;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

const uint8_t *Shared::read(const Actor &who, uint32_t address,
                            uint32_t bytes) {
  if (!inBounds(address, bytes))
    return nullptr;
  uint32_t offset = address - kSharedBase;
  for (uint32_t g = offset / kGranule; g <= (offset + bytes - 1) / kGranule;
       ++g)
    if (busy[g] & kWrites) {
      fail("which a copy still in flight will write");
      return nullptr;
    }
  return readCells(who, address, bytes) ? data.data() + offset : nullptr;
}

/// In bounds, and nobody in flight or with a barrier there minds.
bool Shared::writable(uint32_t address, uint32_t bytes) {
  if (!inBounds(address, bytes))
    return false;
  uint32_t offset = address - kSharedBase;
  for (uint32_t g = offset / kGranule; g <= (offset + bytes - 1) / kGranule;
       ++g) {
    if (busy[g] == 0)
      continue;
    if (busy[g] & kWrites)
      return fail("which a copy still in flight will write");
    if (busy[g] & ~kBarriers)
      return fail("which a bulk store or wgmma still in flight will read");
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t at = g * kGranule + 8 * half;
      if ((busy[g] & kBarrier << half) && at < offset + bytes &&
          offset < at + 8)
        return fail("where an mbarrier lives");
    }
  }
  return true;
}

bool Shared::write(const Actor &who, uint32_t address, const uint8_t *from,
                   uint32_t bytes) {
  if (!writable(address, bytes) || !writeCells(who, address, bytes, from))
    return false;
  std::memcpy(&data[address - kSharedBase], from, bytes);
  return true;
}

uint8_t *Shared::arrive(const Actor &who, uint32_t address, uint32_t bytes) {
  uint32_t first = (address - kSharedBase) / 2;
  for (uint32_t i = first; i < first + bytes / 2; ++i) {
    clearReads(cells[i]);
    cells[i].write = who.epoch();
    writers[i] = {who.serial, who.lane | who.syncs << 6};
  }
  return data.data() + (address - kSharedBase);
}

/// A lane alone overwrites what its warp may still be reading.
bool Shared::lanesHaveRead(const Actor &who, uint32_t address, uint32_t bytes) {
  uint32_t first = (address - kSharedBase) / 2;
  for (uint32_t i = first; i < first + bytes / 2; ++i) {
    Epoch read = cells[i].read;
    if (read & kReadSet)
      read = readSets[(read & ~kReadSet) * warps + who.clock];
    if (read >> kTimeBits == who.clock &&
        read > epochOf(who.clock, who.vouched))
      return fail("of which other lanes of this warp have read " +
                  describe(kSharedBase + 2 * i) + " with no syncWarp since");
  }
  return true;
}

bool Shared::beginWrite(const Actor &who, uint32_t address, uint32_t bytes) {
  if (!writable(address, bytes) || !lanesHaveRead(who, address, bytes) ||
      !writeCells(who, address, bytes, nullptr) || !clean(address, bytes))
    return false;
  uint32_t first = (address - kSharedBase) / kGranule;
  for (uint32_t g = first; g < first + bytes / kGranule; ++g)
    busy[g] += kOneWrite;
  return true;
}

void Shared::endWrite(uint32_t address, uint32_t bytes) {
  uint32_t first = (address - kSharedBase) / kGranule;
  for (uint32_t g = first; g < first + bytes / kGranule; ++g)
    busy[g] -= kOneWrite;
}

bool Shared::beginRead(const Actor &who, uint32_t address, uint32_t bytes) {
  if (!read(who, address, bytes) || !clean(address, bytes))
    return false;
  uint32_t first = (address - kSharedBase) / kGranule;
  for (uint32_t g = first; g < first + bytes / kGranule; ++g)
    ++busy[g];
  return true;
}

void Shared::endRead(const Actor &who, uint32_t address, uint32_t bytes) {
  uint32_t first = (address - kSharedBase) / kGranule;
  for (uint32_t g = first; g < first + bytes / kGranule; ++g)
    --busy[g];
  // It read until now, not only when it was issued.
  (void)readCells(who, address, bytes);
}

//===----------------------------------------------------------------------===//
// Proxies and mbarriers
//===----------------------------------------------------------------------===//

bool Shared::clean(uint32_t address, uint32_t bytes) {
  if (!trackProxies)
    return true;
  uint32_t first = (address - kSharedBase) / kGranule;
  for (uint32_t g = first; g < first + (bytes + kGranule - 1) / kGranule; ++g) {
    if (!dirtyWarps[g])
      continue;
    for (uint32_t w = 0; w < warps; ++w)
      if (dirtyIndex[w][g])
        return fail("of which warp " + Twine(w) + " has stored to " +
                        describe(kSharedBase + g * kGranule) +
                        " with no fence.proxy.async since",
                    writers[g * kGranule / 2].serial);
  }
  return true;
}

void Shared::markDirty(uint32_t warp, uint32_t lane, uint32_t address,
                       uint32_t bytes) {
  uint32_t offset = address - kSharedBase;
  for (uint32_t g = offset / kGranule; g <= (offset + bytes - 1) / kGranule;
       ++g) {
    uint32_t &index = dirtyIndex[warp][g];
    if (!index) {
      dirty[warp].push_back({g, 0});
      index = dirty[warp].size();
      ++dirtyWarps[g];
    }
    dirty[warp][index - 1].lanes |= 1u << lane;
  }
}

void Shared::fenceProxy(uint32_t warp, uint32_t lanes) {
  if (!trackProxies)
    return;
  std::vector<Dirty> kept;
  for (Dirty entry : dirty[warp]) {
    entry.lanes &= ~lanes;
    uint32_t &index = dirtyIndex[warp][entry.granule];
    if (entry.lanes) {
      kept.push_back(entry);
      index = kept.size();
    } else {
      index = 0;
      --dirtyWarps[entry.granule];
    }
  }
  dirty[warp] = std::move(kept);
}

bool Shared::initBarrier(const Actor &who, uint32_t address) {
  if (!writable(address, 8) || !writeCells(who, address, 8, nullptr))
    return false;
  uint32_t offset = address - kSharedBase;
  busy[offset / kGranule] |= kBarrier << (offset % kGranule / 8);
  return true;
}

bool Shared::sees(const Actor &who, uint32_t address) {
  const Cell &cell = cells[(address - kSharedBase) / 2];
  if (!checkRaces || covers(*who.seen, cell.write))
    return true;
  return race(address, "use", "the init", cell.write,
              writers[(address - kSharedBase) / 2].serial);
}
