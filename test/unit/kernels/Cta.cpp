//===- Cta.cpp - Device kernels, thread by thread on a CPU ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cta.h"
#include "Context.h"

#include <map>
#include <memory>
#include <vector>

#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#endif

namespace plum::kernels {

namespace {

std::map<std::string, Entry> &registry() {
  static std::map<std::string, Entry> entries;
  return entries;
}

constexpr size_t kStackBytes = 128 << 10;
constexpr int kLanes = 32;

/// A point that some threads have to reach before any goes on.
struct Meeting {
  int expected = 0, arrived = 0;
  uint64_t past = 0; ///< How often it has happened.

  void check() {
    if (expected && arrived == expected) {
      arrived = 0;
      ++past;
    }
  }
};

struct Warp {
  Meeting meeting;
  /// What each lane has brought. A lane may still read from one exchange while
  /// others bring to the next, never to the one after it.
  uint32_t slots[2][kLanes] = {};
};

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  const Meeting *waitsFor = nullptr;
  uint64_t until = 0; ///< waitsFor->past at which it goes on.
  bool done = false;
};

struct Block {
  const Entry *kernel = nullptr;
  const void *args = nullptr;
  int64_t x = 0, width = 1;
  int y = 0;
  Meeting barrier;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;
  Context scheduler;
  int current = 0; ///< The thread that runs.
#if __has_feature(address_sanitizer)
  const void *mainStack = nullptr;
  size_t mainBytes = 0;
#endif
};

Block block;

/// Leaves the current fiber, for the scheduler.
void leave(bool forGood) {
  Fiber &self = block.fibers[size_t(block.current)];
#if __has_feature(address_sanitizer)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(forGood ? nullptr : &fake, block.mainStack,
                                 block.mainBytes);
  switchTo(self.context, block.scheduler);
  __sanitizer_finish_switch_fiber(fake, &block.mainStack, &block.mainBytes);
#else
  switchTo(self.context, block.scheduler);
#endif
}

void enter(Fiber &fiber) {
#if __has_feature(address_sanitizer)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber.stack.get(), kStackBytes);
  switchTo(block.scheduler, fiber.context);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  switchTo(block.scheduler, fiber.context);
#endif
}

void fiberMain() {
#if __has_feature(address_sanitizer)
  __sanitizer_finish_switch_fiber(nullptr, &block.mainStack, &block.mainBytes);
#endif
  block.kernel->body(block.args);
  block.fibers[size_t(block.current)].done = true;
  --block.barrier.expected; // Others no longer wait for it there.
  block.barrier.check();
  leave(true);
}

void meet(Meeting &meeting) {
  Fiber &self = block.fibers[size_t(block.current)];
  self.waitsFor = &meeting;
  self.until = meeting.past + 1;
  ++meeting.arrived;
  meeting.check();
  if (meeting.past < self.until)
    leave(false);
}

/// What every lane has brought.
const uint32_t *exchange(uint32_t mine) {
  Warp &warp = block.warps[size_t(block.current / kLanes)];
  uint32_t *slots = warp.slots[warp.meeting.past % 2];
  slots[block.current % kLanes] = mine;
  meet(warp.meeting);
  return slots;
}

std::string runBlock(bool reversed) {
  const int threads = block.kernel->threads;
  block.barrier = {threads, 0, 0};
  for (Warp &warp : block.warps)
    warp.meeting = {kLanes, 0, 0};
  for (Fiber &fiber : block.fibers) {
    prepare(fiber.context, fiber.stack.get(), kStackBytes, fiberMain);
    fiber.waitsFor = nullptr;
    fiber.done = false;
  }
  for (int left = threads; left > 0;) {
    bool any = false;
    for (int i = 0; i < threads; ++i) {
      block.current = reversed ? threads - 1 - i : i;
      Fiber &fiber = block.fibers[size_t(block.current)];
      if (fiber.done || (fiber.waitsFor && fiber.waitsFor->past < fiber.until))
        continue;
      any = true;
      enter(fiber);
      left -= fiber.done;
    }
    if (!any && left > 0)
      return std::string(block.kernel->symbol) + ": " + std::to_string(left) +
             " threads of block " + std::to_string(block.x) + ", " +
             std::to_string(block.y) + " wait for others in vain";
  }
  return "";
}

} // namespace

bool enlist(const Entry &entry) {
  return registry().emplace(entry.symbol, entry).second;
}

const Entry *findKernel(const std::string &symbol) {
  auto found = registry().find(symbol);
  return found == registry().end() ? nullptr : &found->second;
}

std::string runGrid(const Entry &kernel, int64_t gridX, int gridY,
                    int sharedBytes, const void *args) {
  static int64_t launches = 0;
  ++launches;
  block.kernel = &kernel;
  block.args = args;
  block.width = gridX;
  block.warps.resize(size_t(kernel.threads / kLanes));
  block.fibers.resize(size_t(kernel.threads));
  for (Fiber &fiber : block.fibers)
    if (!fiber.stack)
      fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  for (block.y = 0; block.y < gridY; ++block.y)
    for (block.x = 0; block.x < gridX; ++block.x)
      if (std::string error = runBlock((launches + block.x + block.y) % 2);
          !error.empty())
        return error;
  return "";
}

int threadIndex() { return block.current; }
int64_t blockX() { return block.x; }
int blockY() { return block.y; }
int64_t gridX() { return block.width; }
void barrier() { meet(block.barrier); }

uint32_t shuffleXor(uint32_t x, int mask) {
  int lane = block.current % kLanes;
  return exchange(x)[lane ^ mask];
}
uint32_t shuffle(uint32_t x, int from) { return exchange(x)[from]; }
uint32_t ballot(bool x) {
  const uint32_t *all = exchange(x);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i)
    bits |= all[i] << i;
  return bits;
}

} // namespace plum::kernels
