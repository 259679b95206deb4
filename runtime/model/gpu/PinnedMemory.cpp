//===- PinnedMemory.cpp - Pages that the GPU copies to directly -----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/PinnedMemory.h"

#include <map>
#include <mutex>

namespace plum::model {

using namespace runtime::cuda;

namespace {

constexpr size_t kMost = size_t(64) << 20;

class PinnedMemory final : public HostMemory {
public:
  explicit PinnedMemory(std::shared_ptr<const Device> device)
      : device(std::move(device)) {}
  ~PinnedMemory() override {
    Current current(*device);
    for (auto [bytes, block] : unused)
      device->driver().cuMemFreeHost(block);
  }

  void *take(size_t bytes) override {
    if (bytes == 0 || bytes > kMost)
      return nullptr;
    std::lock_guard lock(mutex);
    // One that is little larger will do.
    auto found = unused.lower_bound(bytes);
    if (found != unused.end() && found->first <= 2 * bytes) {
      void *block = found->second;
      unusedBytes -= found->first;
      unused.erase(found);
      return block;
    }
    Current current(*device);
    void *block = nullptr;
    if (device->driver().cuMemHostAlloc(&block, bytes, 0) != CUDA_SUCCESS)
      return nullptr; // Then memory of another kind.
    sizes[block] = bytes;
    return block;
  }

  void give(void *block) override {
    std::lock_guard lock(mutex);
    auto size = sizes.find(block);
    if (unusedBytes + size->second <= kMost) {
      unused.insert({size->second, block});
      unusedBytes += size->second;
      return;
    }
    sizes.erase(size);
    Current current(*device);
    device->driver().cuMemFreeHost(block);
  }

private:
  std::shared_ptr<const Device> device;
  std::mutex mutex;
  std::map<void *, size_t> sizes;
  std::multimap<size_t, void *> unused;
  size_t unusedBytes = 0;
};

} // namespace

std::shared_ptr<HostMemory> pinnedMemory(std::shared_ptr<const Device> device) {
  return std::make_shared<PinnedMemory>(std::move(device));
}

} // namespace plum::model
