//===- States.cpp - What sequences carry from token to token --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/States.h"

#include "runtime/model/Backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace plum::model {

int64_t StateLayout::addFixed(std::string name, std::vector<int64_t> shape) {
  int64_t size = 1;
  for (int64_t extent : shape)
    size *= extent;
  fixed.push_back({std::move(name), std::move(shape), block, size});
  block += (size + 15) / 16 * 16; // Each on its own cache line.
  return int64_t(fixed.size()) - 1;
}

int64_t StateLayout::addGrowing(std::string name, int64_t width) {
  growing.push_back({std::move(name), width});
  return int64_t(growing.size()) - 1;
}

Result<StatePool> StatePool::create(const StateLayout &layout, int64_t slots,
                                    uint64_t identity, Backend *backend) {
  StatePool pool;
  pool.layout = &layout;
  pool.backend = backend;
  pool.identity = identity;
  size_t bytes = size_t(layout.block) * size_t(slots) * sizeof(float);
  pool.blocks = Block(backend, bytes);
  if (!pool.blocks.data())
    return Error{"",
                 "no memory for the states of " + std::to_string(slots) +
                     " sequences: " + std::to_string(bytes) + " bytes",
                 {}};
  pool.sequences.resize(size_t(slots));
  for (int64_t slot = 0; slot < slots; ++slot)
    pool.reset(slot);
  return pool;
}

size_t StatePool::elementBytes() const {
  return byteSize(backend ? backend->cacheType() : DType::F32);
}

int64_t StatePool::bytes(int64_t slot) const {
  size_t sum = size_t(layout->block) * sizeof(float);
  const Sequence &sequence = sequences[size_t(slot)];
  for (size_t g = 0; g < layout->growing.size(); ++g)
    sum += size_t(sequence.growing[g].rows * layout->growing[g].width) *
           elementBytes();
  return int64_t(sum);
}

void StatePool::reset(int64_t slot) {
  size_t bytes = size_t(layout->block) * sizeof(float);
  if (backend)
    backend->clear(block(slot), bytes);
  else
    std::memset(block(slot), 0, bytes);
  dropCheckpoints(slot);
  Sequence &sequence = sequences[size_t(slot)];
  sequence.tokens.clear();
  sequence.growing.resize(layout->growing.size());
  for (Growth &growth : sequence.growing)
    growth.rows = 0; // Its memory serves the next sequence.
}

void StatePool::fork(int64_t from, int64_t to) {
  if (from == to)
    return;
  dropCheckpoints(to);
  copyBytes(backend, block(to), block(from),
            size_t(layout->block) * sizeof(float));
  sequences[size_t(to)].tokens = sequences[size_t(from)].tokens;
  for (size_t g = 0; g < layout->growing.size(); ++g) {
    const Growth &source = sequences[size_t(from)].growing[g];
    size_t bytes =
        size_t(source.rows * layout->growing[g].width) * elementBytes();
    sequences[size_t(to)].growing[g].rows = 0;
    if (void *data = extend(to, int64_t(g), source.rows))
      copyBytes(backend, data, source.memory.data(), bytes);
  }
}

void *StatePool::extend(int64_t slot, int64_t index, int64_t count) {
  constexpr size_t fewest = 64; // Rows.
  Growth &growth = sequences[size_t(slot)].growing[size_t(index)];
  size_t row = size_t(layout->growing[size_t(index)].width) * elementBytes();
  size_t used = size_t(growth.rows) * row, needed = used + size_t(count) * row;
  if (needed > growth.memory.size() || !growth.memory.data()) {
    Block larger(backend, std::max(needed + needed / 2, fewest * row));
    if (!larger.data())
      return nullptr;
    copyBytes(backend, larger.data(), growth.memory.data(), used);
    growth.memory = std::move(larger);
  }
  growth.rows += count;
  return growth.memory.data();
}

View StatePool::growing(int64_t slot, int64_t index) {
  const Growth &growth = sequences[size_t(slot)].growing[size_t(index)];
  int64_t width = layout->growing[size_t(index)].width;
  return {reinterpret_cast<float *>(growth.memory.data()), growth.rows, width,
          width};
}

std::vector<float> StatePool::readGrowing(int64_t slot, size_t index) const {
  const Growth &growth = sequences[size_t(slot)].growing[index];
  std::vector<float> values(size_t(growth.rows * layout->growing[index].width));
  if (!backend) {
    copyBytes(nullptr, values.data(), growth.memory.data(),
              values.size() * sizeof(float));
  } else if (elementBytes() == sizeof(float)) {
    backend->copyOut(values.data(), growth.memory.data(),
                     values.size() * sizeof(float));
  } else {
    std::vector<uint16_t> narrow(values.size());
    backend->copyOut(narrow.data(), growth.memory.data(), narrow.size() * 2);
    std::transform(narrow.begin(), narrow.end(), values.begin(), bf16ToFloat);
  }
  return values;
}

bool StatePool::writeGrowing(Growth &growth,
                             std::span<const float> values) const {
  growth.memory = Block(backend, values.size() * elementBytes());
  std::byte *to = growth.memory.data();
  if (!to)
    return false;
  if (!backend) {
    copyBytes(nullptr, to, values.data(), values.size_bytes());
  } else if (elementBytes() == sizeof(float)) {
    backend->copyIn(to, values.data(), values.size_bytes());
  } else {
    std::vector<uint16_t> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(), floatToBf16);
    backend->copyIn(to, narrow.data(), narrow.size() * 2);
  }
  return true;
}

Status StatePool::begin(std::span<const Span> spans, bool checkpoints) {
  kept.spans.clear();
  kept.first.clear();
  kept.before.clear();
  if (!checkpoints)
    return Status::ok();
  int64_t tokens = 0;
  for (const Span &span : spans)
    tokens += span.length;
  kept.count = tokens + int64_t(spans.size());
  size_t bytes = size_t(kept.count * layout->block) * sizeof(float);
  if (bytes > kept.memory.size() || !kept.memory.data()) {
    kept.memory = {}; // There may not be room for both.
    kept.memory = Block(backend, bytes);
    if (!kept.memory.data())
      return Error{"",
                   "no memory for the states after each of " +
                       std::to_string(tokens) +
                       " tokens: " + std::to_string(bytes) + " bytes",
                   {}};
  }
  kept.spans.assign(spans.begin(), spans.end());
  int64_t done = 0;
  for (const Span &span : spans) {
    auto s = int64_t(kept.first.size());
    kept.before.push_back(backend ? done + s : tokens + s);
    kept.first.push_back(backend ? done + s + 1 : done);
    done += span.length;
    copyBytes(backend, checkpointBlocks() + kept.before.back() * layout->block,
              block(span.slot), size_t(layout->block) * sizeof(float));
  }
  return Status::ok();
}

void StatePool::end(std::span<const Span> spans, std::span<const int32_t> ids) {
  for (size_t s = 0; backend && s < kept.spans.size(); ++s)
    copyBytes(backend, block(kept.spans[s].slot),
              checkpointBlocks() +
                  checkpointAt(s, kept.spans[s].length - 1) * layout->block,
              size_t(layout->block) * sizeof(float));
  for (const Span &span : spans) {
    auto first = ids.begin() + span.begin;
    std::vector<int32_t> &tokens = sequences[size_t(span.slot)].tokens;
    tokens.insert(tokens.end(), first, first + span.length);
  }
}

void StatePool::dropCheckpoints(int64_t slot) {
  for (Span &span : kept.spans)
    if (span.slot == slot)
      span.slot = -1;
}

Status StatePool::rollBack(int64_t slot, int64_t count) {
  if (count == 0)
    return Status::ok();
  Sequence &sequence = sequences[size_t(slot)];
  for (size_t i = 0; i < kept.spans.size(); ++i) {
    const Span &span = kept.spans[i];
    int64_t left = int64_t(sequence.tokens.size()) - span.past - count;
    if (span.slot != slot || left < 0 || left >= span.length)
      continue;
    copyBytes(backend, block(slot),
              checkpointBlocks() + checkpointAt(i, left - 1) * layout->block,
              size_t(layout->block) * sizeof(float));
    sequence.tokens.resize(size_t(span.past + left));
    for (Growth &growth : sequence.growing)
      growth.rows = span.past + left;
    return Status::ok();
  }
  return Error{"",
               "slot " + std::to_string(slot) + " cannot drop " +
                   std::to_string(count) + " tokens",
               {"only tokens of its last forward pass, made with checkpoints, "
                "can be dropped"}};
}

} // namespace plum::model
