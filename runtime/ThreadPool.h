//===- ThreadPool.h - A few threads that stay -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs `count` independent items over n threads, the caller being one of them.
// Items are handed out one at a time, in order, to whichever thread is free:
// put the long ones first. Threads are started on demand and wait between runs.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_THREADPOOL_H
#define PLUM_RUNTIME_THREADPOOL_H

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace plum::runtime {

class ThreadPool {
public:
  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  /// item(thread, index) for each index < count, thread < `threads`; returns
  /// when all are done. `item` must not throw. Calls from several threads
  /// queue up. Should the system refuse a thread, fewer are used.
  void run(int threads, int64_t count,
           const std::function<void(int thread, int64_t index)> &item);

  /// CPUs that this process may use.
  static int available();

private:
  void work(int thread, uint64_t seen);

  std::mutex runMutex; ///< Held by the caller of run.
  std::mutex mutex;    ///< Guards what follows.
  std::condition_variable wake, done;
  std::vector<std::thread> workers; ///< Thread i + 1 of a run.
  /// Null when nothing is left to start on.
  const std::function<void(int, int64_t)> *job = nullptr;
  std::atomic<int64_t> next = 0;
  int64_t total = 0;
  int active = 0;     ///< Workers that may take part in this run.
  int running = 0;    ///< Of these, how many are at it.
  uint64_t round = 0; ///< Counts runs.
  bool stopping = false;
};

/// Memory on a 64-byte boundary, as workspaces must be.
struct AlignedBuffer {
  struct Free {
    void operator()(void *pointer) const { std::free(pointer); }
  };
  std::unique_ptr<void, Free> memory;
  size_t size = 0;

  /// At least `bytes`, keeping what is there when it is enough; contents are
  /// undefined. False when memory is short.
  bool reserve(size_t bytes);
  char *data() const { return static_cast<char *>(memory.get()); }
};

} // namespace plum::runtime

#endif // PLUM_RUNTIME_THREADPOOL_H
