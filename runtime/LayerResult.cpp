//===- LayerResult.cpp - What a run leaves behind, for a file -------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/LayerIO.h"

#include <algorithm>

namespace plum::runtime {

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
