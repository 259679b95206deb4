//===- ThreadPool.cpp - A few threads that stay ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Worker w may take part in a run when w <= active. The caller does not wait
// for workers to wake up: when it has handed out the last item it closes the
// job and waits only for those that are in it. So a run of few short items
// costs no more than the caller's own work.
//
//===----------------------------------------------------------------------===//

#include "runtime/ThreadPool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <system_error>

namespace plum::runtime {

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread &worker : workers)
    worker.join();
}

int ThreadPool::available() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

void ThreadPool::work(int thread, uint64_t seen) {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || round != seen; });
    if (stopping)
      return;
    seen = round;
    if (thread > active || !job)
      continue;
    const auto &item = *job;
    ++running;
    lock.unlock();
    while (true) {
      int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= total)
        break;
      item(thread, index);
    }
    lock.lock();
    if (--running == 0)
      done.notify_one();
  }
}

void ThreadPool::run(int threads, int64_t count,
                     const std::function<void(int, int64_t)> &item) {
  std::lock_guard turn(runMutex);
  int wanted = int(std::min<int64_t>(std::max(threads, 1), count)) - 1;
  if (wanted <= 0) {
    for (int64_t i = 0; i < count; ++i)
      item(0, i);
    return;
  }
  while (int(workers.size()) < wanted) {
    try {
      workers.emplace_back(&ThreadPool::work, this, int(workers.size()) + 1,
                           round);
    } catch (const std::system_error &) {
      wanted = int(workers.size()); // The system is out of threads.
    }
  }
  {
    std::lock_guard lock(mutex);
    job = &item;
    next = 0;
    total = count;
    active = wanted;
    ++round;
  }
  wake.notify_all();
  while (true) {
    int64_t index = next.fetch_add(1, std::memory_order_relaxed);
    if (index >= total)
      break;
    item(0, index);
  }
  std::unique_lock lock(mutex);
  job = nullptr;
  done.wait(lock, [&] { return running == 0; });
}

bool AlignedBuffer::reserve(size_t bytes) {
  if (memory && size >= bytes)
    return true;
  size_t rounded = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  memory.reset(); // First: two at a time may not fit.
  memory.reset(rounded < bytes ? nullptr : std::aligned_alloc(64, rounded));
  size = memory ? rounded : 0;
  return memory != nullptr;
}

} // namespace plum::runtime
