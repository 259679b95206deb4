//===- Interpreted.h - Attention without a compiler -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_MODEL_INTERPRETED_H
#define PLUM_TEST_UNIT_MODEL_INTERPRETED_H

#include "runtime/model/Network.h"

namespace plum::model::test {

/// Gives an Attention or LatentAttention the memories that `specs` describe, in
/// float64 or as `open` says, with its state in `layout`.
template <typename T, typename Open = decltype(&MemoryKernel::reference)>
void loadInterpreted(T &attention, const std::vector<MemorySpec> &specs,
                     StateLayout &layout,
                     Open open = &MemoryKernel::reference) {
  WeightFiles none;
  Build build{Loader(none), layout, {}, {}};
  for (const MemorySpec &spec : specs)
    build.kernels[spec.key()] = *open(spec);
  attention.load(build, "cache");
}

} // namespace plum::model::test

#endif // PLUM_TEST_UNIT_MODEL_INTERPRETED_H
