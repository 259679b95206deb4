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

/// Gives an Attention or LatentAttention the memory that `spec` describes, in
/// float64, with its state in `layout`.
template <typename T>
void loadInterpreted(T &attention, const MemorySpec &spec,
                     StateLayout &layout) {
  WeightFiles none;
  auto kernel = MemoryKernel::reference(spec);
  Build build{Loader(none), layout, {{spec.key(), *kernel}}};
  attention.load(build, "cache");
}

} // namespace plum::model::test

#endif // PLUM_TEST_UNIT_MODEL_INTERPRETED_H
