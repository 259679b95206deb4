//===- States.cpp - What sequences carry from token to token --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/States.h"

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
                                    uint64_t identity) {
  StatePool pool;
  pool.layout = &layout;
  pool.identity = identity;
  size_t floats = size_t(layout.block) * size_t(slots);
  size_t bytes = std::max<size_t>(floats, 16) * sizeof(float);
  pool.blocks.reset(static_cast<float *>(std::aligned_alloc(64, bytes)));
  if (!pool.blocks)
    return Error{"",
                 "no memory for the states of " + std::to_string(slots) +
                     " sequences: " + std::to_string(bytes) + " bytes",
                 {}};
  pool.sequences.resize(size_t(slots));
  for (int64_t slot = 0; slot < slots; ++slot)
    pool.reset(slot);
  return pool;
}

int64_t StatePool::bytes(int64_t slot) const {
  size_t floats = size_t(layout->block);
  for (const auto &rows : sequences[size_t(slot)].growing)
    floats += rows.size();
  return int64_t(floats * sizeof(float));
}

void StatePool::reset(int64_t slot) {
  std::fill_n(blocks.get() + slot * layout->block, layout->block, 0.0f);
  Sequence &sequence = sequences[size_t(slot)];
  sequence.tokens.clear();
  sequence.growing.assign(layout->growing.size(), {});
}

void StatePool::fork(int64_t from, int64_t to) {
  if (from == to)
    return;
  std::copy_n(blocks.get() + from * layout->block, layout->block,
              blocks.get() + to * layout->block);
  sequences[size_t(to)] = sequences[size_t(from)];
}

View StatePool::growing(int64_t slot, int64_t index) {
  std::vector<float> &rows = sequences[size_t(slot)].growing[size_t(index)];
  int64_t width = layout->growing[size_t(index)].width;
  return {rows.data(), int64_t(rows.size()) / width, width, width};
}

void StatePool::append(int64_t slot, int64_t index, const View &rows) {
  std::vector<float> &all = sequences[size_t(slot)].growing[size_t(index)];
  for (int64_t i = 0; i < rows.count; ++i)
    all.insert(all.end(), rows.row(i), rows.row(i) + rows.width);
}

void StatePool::begin(std::span<const Span> spans, bool checkpoints) {
  kept = {};
  if (!checkpoints)
    return;
  kept.spans.assign(spans.begin(), spans.end());
  for (const Span &span : spans) {
    kept.first.push_back(kept.count);
    kept.count += span.length;
    const float *block = blocks.get() + span.slot * layout->block;
    kept.before.insert(kept.before.end(), block, block + layout->block);
  }
  kept.blocks.resize(size_t(kept.count * layout->block));
}

void StatePool::end(std::span<const Span> spans, std::span<const int32_t> ids) {
  for (const Span &span : spans) {
    auto first = ids.begin() + span.begin;
    std::vector<int32_t> &tokens = sequences[size_t(span.slot)].tokens;
    tokens.insert(tokens.end(), first, first + span.length);
  }
}

Status StatePool::rollBack(int64_t slot, int64_t count) {
  if (count == 0)
    return Status::ok();
  Sequence &sequence = sequences[size_t(slot)];
  for (size_t i = 0; i < kept.spans.size(); ++i) {
    Span &span = kept.spans[i];
    int64_t left = int64_t(sequence.tokens.size()) - span.past - count;
    if (span.slot != slot || left < 0 || left >= span.length)
      continue;
    const float *from =
        left == 0
            ? kept.before.data() + int64_t(i) * layout->block
            : kept.blocks.data() + (kept.first[i] + left - 1) * layout->block;
    std::copy_n(from, layout->block, blocks.get() + slot * layout->block);
    sequence.tokens.resize(size_t(span.past + left));
    for (size_t g = 0; g < sequence.growing.size(); ++g)
      sequence.growing[g].resize(size_t(span.past + left) *
                                 size_t(layout->growing[g].width));
    return Status::ok();
  }
  return Error{"",
               "slot " + std::to_string(slot) + " cannot drop " +
                   std::to_string(count) + " tokens",
               {"only tokens of its last forward pass, made with checkpoints, "
                "can be dropped"}};
}

} // namespace plum::model
