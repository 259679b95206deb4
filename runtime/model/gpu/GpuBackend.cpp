//===- GpuBackend.cpp - A model's operations on a GPU ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory, weights, and passes: what is read of a batch before its first
// launch, what is recorded, and what is read back after the last one.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/gpu/GpuBackend.h"

#include "runtime/model/gpu/GpuExperts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace plum::model {

/// So many tokens of each of N sequences, in one pool.
struct GpuBackend::Pass {
  Tables tables;
  int64_t runs = 0, weightBytes = 0;
  std::shared_ptr<const runtime::cuda::Graph> graph;
  Rows logits; ///< Stay as long as the graph that writes them.
};

GpuBackend::GpuBackend(std::unique_ptr<Machine> machine,
                       GpuBackendOptions options)
    : machine(std::move(machine)), options(std::move(options)) {}

GpuBackend::~GpuBackend() {
  machine->wait();
  passes.clear();
  for (auto &[block, size] : sizes)
    machine->release(block);
  for (void *block : kept)
    machine->release(block);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Sizes in steps of an eighth, so that passes of nearly the same size share.
static size_t sizeClass(size_t bytes) {
  size_t step = 256;
  while (step * 8 < bytes)
    step *= 2;
  return (std::max<size_t>(bytes, 1) + step - 1) / step * step;
}

void *GpuBackend::allocate(size_t bytes) {
  size_t size = sizeClass(bytes);
  std::vector<void *> &list = spare[size];
  if (!list.empty()) {
    void *block = list.back();
    list.pop_back();
    return block;
  }
  void *block = machine->allocate(size);
  if (block)
    sizes[block] = size;
  return block;
}

void GpuBackend::release(void *block) {
  if (block)
    spare[sizes.at(block)].push_back(block);
}

void *GpuBackend::upload(size_t bytes) {
  void *block = machine->allocate(std::max<size_t>(bytes, 16));
  if (block)
    kept.push_back(block);
  return block;
}

const void *GpuBackend::upload(const void *values, size_t bytes) {
  void *block = upload(bytes);
  if (block)
    machine->copyIn(block, values, bytes);
  return block;
}

const float *GpuBackend::vector(const Vector &values) {
  auto [place, fresh] = vectors.try_emplace(values.data(), nullptr);
  if (fresh)
    place->second = upload(values.data(), values.size() * sizeof(float));
  return static_cast<const float *>(place->second);
}

void GpuBackend::fillRandom(void *to, int64_t count, kernels::WeightKind kind,
                            int64_t cols, bool scales) {
  kernels::FillArgs args;
  args.data = to;
  args.count = count;
  args.kind = kind;
  args.scales = scales;
  args.spread = 1 / std::sqrt(float(cols)); // Rows stay about as large.
  args.seed = uint32_t(++fills);
  machine->launch("plum_fill", 1024, args);
}

/// How a matrix is kept: what is multiplied in f32 is f32, or packed.
kernels::WeightKind GpuBackend::placedKind(const Matrix &matrix) const {
  return matrix.type == WeightType::MXFP4  ? kernels::WeightKind::MXFP4
         : options.compute == Compute::F32 ? kernels::WeightKind::F32
                                           : kernels::WeightKind::BF16;
}

/// Bytes of its values there.
int64_t GpuBackend::placedBytes(const Matrix &matrix) const {
  int64_t count = matrix.rows * matrix.cols;
  return matrix.type == WeightType::MXFP4                 ? count / 2
         : placedKind(matrix) == kernels::WeightKind::F32 ? count * 4
                                                          : count * 2;
}

int64_t GpuBackend::scaleBytes(const Matrix &matrix) {
  return matrix.type == WeightType::MXFP4 ? matrix.rows * matrix.cols / mxGroup
                                          : 0;
}

void GpuBackend::place(const Matrix &matrix, void *to, void *scales) {
  using kernels::WeightKind;
  int64_t count = matrix.rows * matrix.cols;
  WeightKind kind = placedKind(matrix);
  if (options.randomWeights) {
    bool packed = kind == WeightKind::MXFP4;
    fillRandom(to, packed ? count / 2 : count, kind, matrix.cols, false);
    if (packed)
      fillRandom(scales, count / mxGroup, kind, matrix.cols, true);
    return;
  }
  if (kind == WeightKind::F32 && matrix.type == WeightType::BF16) {
    std::vector<float> values(static_cast<size_t>(count));
    auto from = reinterpret_cast<const uint16_t *>(matrix.data);
    std::transform(from, from + count, values.begin(), bf16ToFloat);
    return machine->copyIn(to, values.data(), values.size() * sizeof(float));
  }
  if (kind == WeightKind::BF16 && matrix.type == WeightType::F32) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    auto from = reinterpret_cast<const float *>(matrix.data);
    std::transform(from, from + count, values.begin(), floatToBf16);
    return machine->copyIn(to, values.data(), values.size() * 2);
  }
  machine->copyIn(to, matrix.data, size_t(placedBytes(matrix)));
  if (matrix.scales)
    machine->copyIn(scales, matrix.scales, size_t(count / mxGroup));
}

GpuBackend::Resident GpuBackend::weight(const Matrix &matrix) {
  auto [found, fresh] = weights.try_emplace(matrix.data);
  Resident &resident = found->second;
  if (!fresh)
    return resident;
  resident.kind = placedKind(matrix);
  int64_t bytes = placedBytes(matrix), more = scaleBytes(matrix);
  auto *data = static_cast<std::byte *>(upload(size_t(bytes + more)));
  std::byte *scales = data + bytes;
  resident.data = data;
  resident.scales = reinterpret_cast<const uint8_t *>(scales);
  weightSum += bytes + more;
  if (machine->good())
    place(matrix, data, scales);
  return resident;
}

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

/// The lists of Tables for a pass with checkpoints.
struct GpuBackend::Steps {
  std::vector<int32_t> after, order, before, places, counting;
  std::vector<int64_t> rows;

  Steps(const Batch &batch, const StatePool &pool) {
    int64_t longest = 0;
    for (const Span &span : batch.spans) {
      longest = std::max(longest, span.length);
      counting.push_back(int32_t(counting.size()));
      for (int64_t t = 0; t < span.length; ++t)
        after.push_back(int32_t(pool.checkpointAt(counting.size() - 1, t)));
    }
    counting.push_back(int32_t(counting.size()));
    places.resize(batch.ids.size());
    for (int64_t t = 0; t < longest; ++t) {
      rows.push_back(0);
      for (size_t s = 0; s < batch.spans.size(); ++s) {
        const Span &span = batch.spans[s];
        if (t >= span.length)
          continue;
        places[size_t(span.begin + t)] = int32_t(order.size());
        order.push_back(int32_t(span.begin + t));
        before.push_back(int32_t(pool.checkpointAt(s, t - 1)));
        ++rows.back();
      }
    }
  }
};

void GpuBackend::fillTables(const Work &work, const Batch &batch,
                            Tables &tables) {
  int64_t rows = int64_t(batch.ids.size()), n = int64_t(batch.spans.size());
  std::vector<int32_t> numbers(batch.ids.begin(), batch.ids.end());
  std::vector<int32_t> sequence, begins{0}, slots, last, past;
  for (int64_t s = 0; s < n; ++s) {
    const Span &span = batch.spans[size_t(s)];
    for (int64_t t = 0; t < span.length; ++t)
      numbers.push_back(int32_t(span.past + t));
    sequence.insert(sequence.end(), size_t(span.length), int32_t(s));
    begins.push_back(int32_t(span.begin + span.length));
    slots.push_back(int32_t(span.slot));
    last.push_back(begins.back() - 1);
    past.push_back(int32_t(span.past));
  }
  std::optional<Steps> steps;
  if (work.checkpoints)
    steps.emplace(batch, *pool);
  for (const auto *list : {&sequence, &begins, &slots, &last, &past})
    numbers.insert(numbers.end(), list->begin(), list->end());
  if (steps)
    for (const auto *list : {&steps->after, &steps->order, &steps->before,
                             &steps->places, &steps->counting})
      numbers.insert(numbers.end(), list->begin(), list->end());
  numbers.resize((numbers.size() + 3) / 4 * 4);
  std::vector<int64_t> caches;
  for (size_t g = 0; g < pool->shape().growing.size(); ++g)
    for (const Span &span : batch.spans)
      caches.push_back(int64_t(reinterpret_cast<uintptr_t>(
          pool->extend(span.slot, int64_t(g), span.length))));
  size_t half = numbers.size() * sizeof(int32_t);
  size_t bytes = half + caches.size() * sizeof(int64_t);
  if (bytes > tables.bytes) {
    // An older one may be in use; it goes with the backend.
    tables.bytes = sizeClass(bytes);
    tables.block = static_cast<std::byte *>(upload(tables.bytes));
  }
  std::vector<std::byte> image(bytes);
  std::memcpy(image.data(), numbers.data(), half);
  if (!caches.empty())
    std::memcpy(image.data() + half, caches.data(), bytes - half);
  machine->copyIn(tables.block, image.data(), bytes);

  auto list = reinterpret_cast<const int32_t *>(tables.block);
  tables.rows = rows;
  tables.sequences = n;
  tables.ids = list;
  tables.position = list += rows;
  tables.sequence = list += rows;
  tables.begins = list += rows;
  tables.slots = list += n + 1;
  tables.last = list += n;
  tables.past = list += n;
  if (steps) {
    tables.after = list += n;
    tables.order = list += rows;
    tables.before = list += rows;
    tables.places = list += rows;
    tables.counting = list += rows;
    tables.stepRows = std::move(steps->rows);
  }
  tables.caches = reinterpret_cast<const int64_t *>(tables.block + half);
}

bool GpuBackend::begin(const Work &work, const Batch &batch) {
  bool even = true, alone = true; // As many tokens of each; one of each.
  longest = lastPosition = 0;
  for (const Span &span : batch.spans) {
    even &= span.length == batch.spans[0].length;
    alone &= span.length == 1;
    longest = std::max(longest, span.length);
    lastPosition = std::max(lastPosition, span.past + span.length - 1);
  }
  stepping = alone || work.checkpoints;
  growRotaryTables();
  spans = batch.spans;
  pool = work.states;
  wanted = batch.logits;
  current = nullptr;
  recording = false;
  if (stepping && even && options.record && !work.trace) {
    const void *pool =
        work.states->shape().fixed.empty() ? nullptr : work.states->fixed(0, 0);
    const void *checkpoints =
        work.checkpoints ? work.states->checkpointBlocks() : nullptr;
    auto key = std::make_tuple(pool, int64_t(batch.spans.size()), wanted,
                               longest, checkpoints);
    std::unique_ptr<Pass> &pass = passes[key];
    if (!pass)
      pass = std::make_unique<Pass>();
    current = pass.get();
  }
  tables = current ? &current->tables : &other;
  fillTables(work, batch, *tables);
  if (!current)
    return true;
  if (current->graph)
    return false;
  // The first time brings weights to the GPU and memory to the lists.
  if (current->runs++ > 0 && machine->good()) {
    recording = true;
    machine->record();
  }
  return true;
}

Rows GpuBackend::end(const Work &work, Rows x, const Matrix &head) {
  Rows result(0, head.rows);
  if (current && current->graph) {
    machine->replay(*current->graph);
    work.weightBytes += current->weightBytes;
  } else {
    Rows last;
    if (wanted == Logits::Last && tables->rows != tables->sequences) {
      last = Rows(*this, tables->sequences, x.width);
      kernels::GatherArgs args;
      args.table = rowsOf(x);
      args.y = rowsOf(last);
      args.ids = tables->last;
      args.rows = tables->sequences;
      args.width = x.width;
      args.tableRows = x.count;
      machine->run("gather", [&] {
        return gather(machine->kernels(), machine->stream(), args);
      });
      x = std::move(last);
    }
    Rows logits;
    if (wanted != Logits::None)
      logits = linear(work, x, head);
    if (recording) {
      recording = false;
      current->graph = machine->finish();
      current->weightBytes = work.weightBytes;
      if (current->graph)
        machine->replay(*current->graph);
    }
    if (!current || !current->graph) {
      if (wanted != Logits::None)
        result = download(logits);
    } else {
      current->logits = std::move(logits);
    }
  }
  if (current && current->graph && wanted != Logits::None)
    result = download(current->logits);
  if (Status status = machine->status(); !status)
    work.fail(status.error());
  current = nullptr;
  return result;
}

void GpuBackend::forget() {
  passes.clear(); // Their tables and logits stay with the backend.
}

} // namespace plum::model
