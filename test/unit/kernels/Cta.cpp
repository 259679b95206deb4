//===- Cta.cpp - Device kernels, thread by thread on a CPU ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cta.h"
#include "Context.h"
#include "Threads.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
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
struct Warp {
  Meeting meeting;
  /// What each lane has brought. A lane may still read from one exchange while
  /// others bring to the next, never to the one after it.
  uint32_t slots[2][kLanes][kWords] = {};
};

struct Copy {
  void *to;
  const void *from;
  bool there;
};

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  const Meeting *waitsFor = nullptr;
  uint64_t until = 0; ///< waitsFor->past at which it goes on.
  bool done = false;
  /// Groups of copies in flight; the last is still open.
  std::vector<std::vector<Copy>> copies;
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
  size_t sharedBytes = 0;
  std::unique_ptr<char[]> shared; ///< Of exactly the bytes of the launch.
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

} // namespace

void waitUntil(const Meeting &meeting, uint64_t past) {
  Fiber &self = block.fibers[size_t(block.current)];
  self.waitsFor = &meeting;
  self.until = past;
  if (meeting.past < past)
    leave(false);
}

void meet(Meeting &meeting) {
  const uint64_t until = meeting.past + 1;
  ++meeting.arrived;
  meeting.check();
  waitUntil(meeting, until);
}

const uint32_t (*exchange(std::initializer_list<uint32_t> mine)) [kWords] {
  Warp &warp = block.warps[size_t(block.current / kLanes)];
  auto *slots = warp.slots[warp.meeting.past % 2];
  std::copy(mine.begin(), mine.end(), slots[block.current % kLanes]);
  meet(warp.meeting);
  return slots;
}

namespace {

  std::string runBlock(bool reversed) {
    const int threads = block.kernel->threads;
    block.barrier = {threads, 0, 0};
    for (Warp &warp : block.warps)
      warp.meeting = {kLanes, 0, 0};
    for (Fiber &fiber : block.fibers) {
      prepare(fiber.context, fiber.stack.get(), kStackBytes, fiberMain);
      fiber.waitsFor = nullptr;
      fiber.done = false;
      fiber.copies.clear();
    }
    std::memset(block.shared.get(), 0xff, block.sharedBytes);
    beginWarpgroups(threads);
    for (int left = threads; left > 0;) {
      bool any = false;
      for (int i = 0; i < threads; ++i) {
        block.current = reversed ? threads - 1 - i : i;
        Fiber &fiber = block.fibers[size_t(block.current)];
        if (fiber.done ||
            (fiber.waitsFor && fiber.waitsFor->past < fiber.until))
          continue;
        any = true;
        enter(fiber);
        left -= fiber.done;
      }
      if (!any && left > 0 && !finishCopies())
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
  block.sharedBytes = size_t(sharedBytes);
  block.shared =
      std::make_unique<char[]>(size_t(sharedBytes)); // 16-byte aligned.
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
  return exchange({x})[lane ^ mask][0];
}
uint32_t shuffle(uint32_t x, int from) { return exchange({x})[from][0]; }
uint32_t ballot(bool x) {
  const auto *all = exchange({x});
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i)
    bits |= all[i][0] << i;
  return bits;
}
uint32_t sameLanes(uint32_t x) {
  const auto *all = exchange({x});
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i)
    bits |= uint32_t(all[i][0] == x) << i;
  return bits;
}
uint32_t warpMax(uint32_t x) {
  const auto *all = exchange({x});
  for (int i = 0; i < kLanes; ++i)
    x = std::max(x, all[i][0]);
  return x;
}
uint32_t warpMin(uint32_t x) {
  const auto *all = exchange({x});
  for (int i = 0; i < kLanes; ++i)
    x = std::min(x, all[i][0]);
  return x;
}
void warpBarrier() { exchange({}); }

void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                 uint32_t b1) {
  const auto *all = exchange({a[0], a[1], a[2], a[3], b0, b1});
  const int g = block.current % kLanes / 4, t = block.current % 4;
  for (int i = 0; i < 4; ++i) {
    const int lower = i / 2, column = 2 * t + i % 2;
    double sum = double(c[i]);
    for (int k = 0; k < 16; ++k) { // Columns 2 l, 2 l + 1 are of lane l.
      const int lane = k % 8 / 2, later = k / 8;
      sum += double(widenHalf(all[4 * g + lane][2 * later + lower], k % 2)) *
             double(widenHalf(all[4 * column + lane][4 + later], k % 2));
    }
    c[i] = float(sum);
  }
}

uint32_t transpose(uint32_t x) {
  const auto *all = exchange({x});
  const int g = block.current % kLanes / 4, t = block.current % 4;
  auto element = [&](int row, int column) {
    return all[4 * row + column / 2][0] >> 16 * (column % 2) & 0xffff;
  };
  return element(2 * t, g) | element(2 * t + 1, g) << 16;
}

/// The 16-bit element of a matrix whose rows the lanes have named.
template <typename Fn> static void matrices(const void *row, Fn each) {
  const auto address = uint64_t(reinterpret_cast<uintptr_t>(row));
  const auto *all = exchange({uint32_t(address), uint32_t(address >> 32)});
  for (int m = 0; m < 4; ++m)
    each(m, [&](int r, int column) {
      const uint32_t *words = all[8 * m + r];
      const auto at = uintptr_t(words[0] | uint64_t(words[1]) << 32);
      uint16_t element;
      std::memcpy(&element, reinterpret_cast<const char *>(at) + 2 * column, 2);
      return uint32_t(element);
    });
}

void loadMatrices(uint32_t (&to)[4], const void *row) {
  const int g = block.current % kLanes / 4, t = block.current % 4;
  matrices(row, [&](int m, auto element) {
    to[m] = element(g, 2 * t) | element(g, 2 * t + 1) << 16;
  });
}

void loadMatricesTransposed(uint32_t (&to)[4], const void *row) {
  const int g = block.current % kLanes / 4, t = block.current % 4;
  matrices(row, [&](int m, auto element) {
    to[m] = element(2 * t, g) | element(2 * t + 1, g) << 16;
  });
}

char *sharedMemory() { return block.shared.get(); }

void copyAsync(void *to, const void *from, bool there) {
  std::memset(to, 0xff, 16);
  auto &copies = block.fibers[size_t(block.current)].copies;
  if (copies.empty())
    copies.emplace_back();
  copies.back().push_back({to, from, there});
}
void commitCopies() {
  auto &copies = block.fibers[size_t(block.current)].copies;
  if (copies.empty())
    copies.emplace_back();
  copies.emplace_back();
}
void waitForCopies(int inFlight) {
  auto &copies = block.fibers[size_t(block.current)].copies;
  while (int(copies.size()) - 1 > inFlight) {
    for (const Copy &copy : copies.front())
      if (copy.there)
        std::memcpy(copy.to, copy.from, 16);
      else
        std::memset(copy.to, 0, 16);
    copies.erase(copies.begin());
  }
}

} // namespace plum::kernels
