//===- Threads.h - How a block's fibers wait for each other -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Between Cta.cpp, which runs the fibers, and Warpgroup.cpp, which has words of
// its own that wait.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_KERNELS_THREADS_H
#define PLUM_TEST_UNIT_KERNELS_THREADS_H

#include <cstdint>
#include <initializer_list>

namespace plum::kernels {

constexpr int kWords = 8; ///< The most that a lane brings to an exchange.

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

/// Arrives, and waits for the others.
void meet(Meeting &meeting);
/// Waits until it has happened so often.
void waitUntil(const Meeting &meeting, uint64_t past);
/// What every lane of a warp has brought.
const uint32_t (*exchange(std::initializer_list<uint32_t> mine))[kWords];

/// Of Warpgroup.cpp: a block begins; the copies in flight arrive, false without
/// any.
void beginWarpgroups(int threads);
bool finishCopies();

} // namespace plum::kernels

#endif // PLUM_TEST_UNIT_KERNELS_THREADS_H
