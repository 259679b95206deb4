//===- LayerTensors.h - Memory of a layer's tensors -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For LayerIO.cpp, which reads what a file holds, and LayerResult.cpp, which
// makes room for what a run leaves behind and names it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_LAYERTENSORS_H
#define PLUM_RUNTIME_LAYERTENSORS_H

#include "runtime/LayerIO.h"

namespace plum::runtime {

/// Zeros, which the run owns.
Result<void *> allocate(LayerRun &run, int64_t count, DType dtype);

/// Of `n` states as a file has them; `room` is for the rows of a growing one.
TensorView stateView(const ManifestTensor &state, StateLayout layout,
                     void *data, DType dtype, int64_t n, int64_t heads,
                     int64_t room);

/// Outputs, final states and snapshots of a run whose inputs are there; growing
/// states held `before` rows.
Status allocateResults(const Manifest &manifest, const LayerOptions &options,
                       const std::vector<int64_t> &before, LayerRun &run);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_LAYERTENSORS_H
