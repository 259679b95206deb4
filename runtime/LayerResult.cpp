//===- LayerResult.cpp - What a run leaves behind, for a file -------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/LayerTensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace plum::runtime {

TensorView stateView(const ManifestTensor &state, StateLayout layout,
                     void *data, DType dtype, int64_t n, int64_t heads,
                     int64_t room) {
  auto [rows, cols] = stateExtents(state, layout);
  return TensorView::dense(data, dtype, n, heads, state.grows ? room : rows,
                           cols);
}

Result<void *> allocate(LayerRun &run, int64_t count, DType dtype) {
  AlignedBuffer buffer;
  size_t bytes = 0;
  if (__builtin_mul_overflow(size_t(count), byteSize(dtype), &bytes) ||
      !buffer.reserve(bytes))
    return Error{"",
                 "no memory for a tensor of " + std::to_string(count) +
                     " values",
                 {}};
  std::memset(buffer.data(), 0, bytes);
  run.buffers.push_back(std::move(buffer));
  return static_cast<void *>(run.buffers.back().data());
}

static Status allocateView(LayerRun &run, TensorView &view) {
  int64_t count = 1;
  for (int64_t extent : view.shape)
    if (__builtin_mul_overflow(count, extent, &count))
      count = std::numeric_limits<int64_t>::max();
  Result<void *> data = allocate(run, count, view.dtype);
  if (!data)
    return data.error();
  view.data = *data;
  return Status::ok();
}
/// The slots that no sequence uses go through as they are.
static void copyPool(const TensorView &from, const TensorView &to) {
  if (from.elements() != to.elements())
    return; // checkProblem says what is wrong.
  if (from.dtype == to.dtype)
    std::memcpy(to.data, from.data,
                size_t(from.elements()) * byteSize(from.dtype));
  else
    for (size_t i = 0; i < size_t(from.elements()); ++i)
      storeFromDouble(to.data, to.dtype, i,
                      loadAsDouble(from.data, from.dtype, i));
}

/// The same of a growing state, which has `before` rows and then room for more.
static void copyRows(const TensorView &from, const std::vector<int64_t> &before,
                     const TensorView &to) {
  for (int64_t slot = 0; slot < from.shape[0]; ++slot)
    for (int64_t head = 0; head < from.shape[1]; ++head)
      for (int64_t i = 0; i < before[size_t(slot)] * from.shape[3]; ++i)
        storeFromDouble(
            to.at(slot, head, 0), to.dtype, size_t(i),
            loadAsDouble(from.at(slot, head, 0), from.dtype, size_t(i)));
}

Status allocateResults(const Manifest &manifest, const LayerOptions &options,
                       const std::vector<int64_t> &before, LayerRun &run) {
  const Problem &p = run.problem;
  for (const ManifestTensor &output : manifest.outputs) {
    TensorView view = TensorView::dense(nullptr, output.dtype, p.batch,
                                        p.tokens, p.heads, output.elements());
    if (Status s = allocateView(run, view); !s)
      return s;
    run.args.outputs.push_back(view);
  }
  int64_t room = 0;
  for (int64_t rows : run.rows)
    room = std::max(room, rows);
  for (size_t i = 0; i < manifest.states.size(); ++i) {
    const ManifestTensor &state = manifest.states[i];
    bool given = !run.args.initialStates.empty();
    DType dtype = options.stateDtype.value_or(
        given ? run.args.initialStates[i].dtype : DType::F32);
    int64_t count = run.args.slots ? run.args.initialStates[i].shape[0]
                                   : int64_t(p.sequences.size());
    TensorView view = stateView(state, options.layout, nullptr, dtype, count,
                                p.stateHeads(i), room);
    if (Status s = allocateView(run, view); !s)
      return s;
    run.args.finalStates.push_back(view);
    if (run.args.slots && state.grows)
      copyRows(run.args.initialStates[i], before, view);
    else if (run.args.slots)
      copyPool(run.args.initialStates[i], view);
    if (options.snapshotEvery > 0) {
      view = stateView(state, options.layout, nullptr, dtype, p.snapshotCount,
                       p.heads, 0);
      if (Status s = allocateView(run, view); !s)
        return s;
      run.args.snapshots.push_back(view);
    }
  }
  return Status::ok();
}
LayerResult layerResult(const Manifest &manifest, const LayerRun &run) {
  LayerResult result;
  const Problem &p = run.problem;
  for (size_t i = 0; i < manifest.outputs.size(); ++i) {
    std::vector<int64_t> shape;
    if (run.batched)
      shape.push_back(p.batch);
    shape.insert(shape.end(), {p.tokens, p.heads});
    shape.insert(shape.end(), manifest.outputs[i].shape.begin(),
                 manifest.outputs[i].shape.end());
    result.tensors.push_back({manifest.outputs[i].name,
                              manifest.outputs[i].dtype, std::move(shape),
                              run.args.outputs[i].data});
  }
  auto addState = [&](const ManifestTensor &state, const TensorView &view,
                      const std::string &name) {
    std::vector<int64_t> shape{view.shape[0], view.shape[1]};
    if (state.grows)
      shape.push_back(view.shape[2]);
    std::vector<int64_t> own = state.shape;
    if (run.args.layout == StateLayout::VK)
      std::reverse(own.begin(), own.end());
    shape.insert(shape.end(), own.begin(), own.end());
    result.tensors.push_back({name, view.dtype, std::move(shape), view.data});
  };
  for (size_t i = 0; i < manifest.states.size(); ++i)
    addState(manifest.states[i], run.args.finalStates[i],
             manifest.states[i].name);
  if (manifest.growingState()) {
    result.rows = run.rows;
    result.tensors.push_back({"seqlens",
                              DType::I64,
                              {int64_t(result.rows.size())},
                              result.rows.data()});
  }
  bool fixed =
      std::any_of(manifest.states.begin(), manifest.states.end(),
                  [](const ManifestTensor &state) { return !state.grows; });
  if (run.args.snapshotEvery == 0 || !fixed)
    return result;
  for (size_t i = 0; i < manifest.states.size(); ++i)
    if (!manifest.states[i].grows)
      addState(manifest.states[i], run.args.snapshots[i],
               manifest.states[i].name + ".every");
  for (const Sequence &sequence : p.sequences)
    result.snapshotOffsets.push_back(sequence.snapshot);
  result.snapshotOffsets.push_back(p.snapshotCount);
  result.tensors.push_back({"every.cu_seqlens",
                            DType::I64,
                            {int64_t(result.snapshotOffsets.size())},
                            result.snapshotOffsets.data()});
  return result;
}

} // namespace plum::runtime
