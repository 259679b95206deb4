//===- Warpgroup.cpp - Hopper's words, thread by thread -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cta.h"
#include "Threads.h"

#include "runtime/cuda/kernels/Warpgroup.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace plum::kernels {

namespace {

constexpr int kGroupThreads = 128;

/// The meeting counts arrivals; a phase is over when its bytes are there, too.
struct SignalState {
  Meeting meeting;
  int expected = 0, arrived = 0;
  int64_t bytes = 0; ///< That the phase still waits for.

  void check() {
    if (arrived < expected || bytes)
      return;
    arrived = 0;
    ++meeting.past;
  }
};

struct BulkCopy {
  void *to;
  const void *from;
  int bytes;
  Signal *signal;
};

/// A lane's part of a product: its two rows of a.
struct LateProduct {
  float *c;
  int tokens;
  std::array<uint32_t, 16> rows; ///< Lane t's word i at 4 t + i.
  const char *b;
};
struct ThreadProducts {
  std::vector<std::vector<LateProduct>> groups; ///< The last is still open.
};

std::map<Signal *, SignalState> signals;
std::vector<BulkCopy> copies;
std::map<int, Meeting> groupMeetings;
std::vector<ThreadProducts> products;

/// A kernel that breaks the words' rules.
[[noreturn]] void refuse(const char *what) {
  std::fprintf(stderr, "a kernel's thread %d %s\n", threadIndex(), what);
  std::abort();
}

SignalState &stateOf(Signal *signal) {
  auto found = signals.find(signal);
  if (found == signals.end())
    refuse("uses a signal that nobody has made");
  return found->second;
}

void finish(const LateProduct &product) {
  const int t = threadIndex() % 4;
  for (int n = 0; n < product.tokens / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const int lower = i / 2, row = 8 * n + 2 * t + i % 2;
      float &c = product.c[4 * n + i];
      double sum = double(c);
      for (int k = 0; k < 16; ++k) {
        const int lane = k % 8 / 2, later = k / 8;
        // As the hardware: bits 7 to 9 of an address turn bits 4 to 6.
        auto at = reinterpret_cast<uintptr_t>(product.b) +
                  uintptr_t(row * kPanelRowBytes + 2 * k);
        at ^= at >> 3 & 0x70;
        uint16_t element;
        std::memcpy(&element, reinterpret_cast<const void *>(at), 2);
        sum += double(widenHalf(
                   product.rows[size_t(4 * lane + 2 * later + lower)], k % 2)) *
               double(widen(element));
      }
      c = float(sum);
    }
}

} // namespace

void beginWarpgroups(int threads) {
  signals.clear();
  copies.clear();
  groupMeetings.clear();
  products.assign(size_t(threads), {});
}

bool finishCopies() {
  if (copies.empty())
    return false;
  for (const BulkCopy &copy : copies) {
    std::memcpy(copy.to, copy.from, size_t(copy.bytes));
    SignalState &state = stateOf(copy.signal);
    state.bytes -= copy.bytes;
    state.check();
  }
  copies.clear();
  return true;
}

void initSignal(Signal *signal, int arrivals) {
  signals[signal] = {{}, arrivals, 0, 0};
}
void arrive(Signal *signal) { arriveExpecting(signal, 0); }
void arriveExpecting(Signal *signal, int bytes) {
  SignalState &state = stateOf(signal);
  state.bytes += bytes;
  if (++state.arrived > state.expected)
    refuse("arrives at a signal more often than it expects");
  state.check();
}
void waitFor(Signal *signal, int parity) {
  SignalState &state = stateOf(signal);
  if (int(state.meeting.past % 2) == parity)
    waitUntil(state.meeting, state.meeting.past + 1);
}
void copyBulk(void *to, const void *from, int bytes, Signal *signal) {
  const auto all = reinterpret_cast<uintptr_t>(to) |
                   reinterpret_cast<uintptr_t>(from) | uintptr_t(bytes);
  if (all % 16)
    refuse("copies what is no multiple of 16 bytes");
  std::memset(to, 0xff, size_t(bytes));
  copies.push_back({to, from, bytes, signal});
}

void groupBarrier(int id) {
  Meeting &meeting = groupMeetings[id];
  meeting.expected = kGroupThreads;
  meet(meeting);
}

void multiplyLater(float *c, int tokens, const uint32_t (&a)[4],
                   const void *b) {
  const auto *all = exchange({a[0], a[1], a[2], a[3]});
  LateProduct product = {c, tokens, {}, static_cast<const char *>(b)};
  const int g = threadIndex() % kWarp / 4;
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 4; ++i)
      product.rows[size_t(4 * t + i)] = all[4 * g + t][i];
  auto &groups = products[size_t(threadIndex())].groups;
  if (groups.empty())
    groups.emplace_back();
  groups.back().push_back(product);
}
void commitProducts() {
  auto &groups = products[size_t(threadIndex())].groups;
  if (groups.empty())
    groups.emplace_back();
  groups.emplace_back();
}
void waitForProducts(int inFlight) {
  auto &groups = products[size_t(threadIndex())].groups;
  while (int(groups.size()) - 1 > inFlight) {
    for (const LateProduct &product : groups.front())
      finish(product);
    groups.erase(groups.begin());
  }
  exchange({}); // Of the whole warp: nobody is behind it before all are.
}

} // namespace plum::kernels
