//===- ThreadPoolTest.cpp -------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/ThreadPool.h"

#include <gtest/gtest.h>

using namespace plum::runtime;

TEST(ThreadPool, RunsEveryItemOnceWhateverTheThreads) {
  ThreadPool pool;
  for (int threads : {1, 4, 2, 7, 1, 3})
    for (int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      std::atomic<bool> inRange = true;
      pool.run(threads, count, [&](int thread, int64_t index) {
        inRange = inRange && thread >= 0 && thread < threads;
        ++seen[static_cast<size_t>(index)];
      });
      EXPECT_TRUE(inRange);
      for (std::atomic<int> &times : seen)
        EXPECT_EQ(times, 1);
    }
}

TEST(ThreadPool, CallsFromSeveralThreadsQueueUp) {
  ThreadPool pool;
  std::atomic<int64_t> sum = 0;
  auto caller = [&] {
    for (int i = 0; i < 50; ++i)
      pool.run(3, 10, [&](int, int64_t index) { sum += index; });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(sum, 2 * 50 * 45);
}

TEST(ThreadPool, ManyShortRuns) {
  ThreadPool pool;
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 5000; ++i)
    pool.run(1 + i % 4, 4, [&](int, int64_t) { ++sum; });
  EXPECT_EQ(sum, 5000 * 4);
}

TEST(AlignedBuffer, IsOn64BytesAndKeepsWhatIsEnough) {
  AlignedBuffer buffer;
  ASSERT_TRUE(buffer.reserve(0));
  ASSERT_TRUE(buffer.reserve(1000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  char *before = buffer.data();
  ASSERT_TRUE(buffer.reserve(10));
  EXPECT_EQ(buffer.data(), before);
  EXPECT_FALSE(buffer.reserve(SIZE_MAX - 3));
}
