//===- Backend.cpp - Where a model runs, if not on this CPU ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace plum::model {

void FreeRows::operator()(float *rows) const {
  if (backend)
    backend->release(rows);
  else if (host)
    host->give(rows);
  else
    delete[] rows;
}

Rows::Rows(Backend &backend, int64_t count, int64_t width)
    : count(count), width(width),
      own(static_cast<float *>(backend.allocate(size_t(count * width) * 4)),
          FreeRows{&backend}) {}

Rows Work::rows(int64_t count, int64_t width) const {
  return backend ? Rows(*backend, count, width) : Rows(count, width);
}

Rows Backend::download(const View &x) {
  const size_t bytes = size_t(x.count * x.width) * sizeof(float);
  std::shared_ptr<HostMemory> memory = hostMemory();
  Rows rows;
  if (void *block = memory ? memory->take(bytes) : nullptr) {
    rows.count = x.count;
    rows.width = x.width;
    rows.own = {static_cast<float *>(block), FreeRows{nullptr, memory}};
  } else {
    rows = Rows(x.count, x.width);
  }
  if (x.stride == x.width) {
    copyOut(rows.row(0), x.data, size_t(x.count * x.width) * sizeof(float));
    return rows;
  }
  for (int64_t i = 0; i < x.count; ++i)
    copyOut(rows.row(i), x.row(i), size_t(x.width) * sizeof(float));
  return rows;
}

void FreeBlock::operator()(std::byte *block) const {
  if (backend)
    backend->free(block);
  else
    std::free(block);
}

Block::Block(Backend *backend, size_t bytes) : bytes(bytes) {
  size_t whole = std::max<size_t>((bytes + 63) / 64 * 64, 64);
  void *data =
      backend ? backend->reserve(whole) : std::aligned_alloc(64, whole);
  own = {static_cast<std::byte *>(data), FreeBlock{backend}};
}

void copyBytes(Backend *backend, void *to, const void *from, size_t bytes) {
  if (bytes == 0)
    return;
  if (backend)
    backend->copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

} // namespace plum::model
