//===- ProblemSizes.h - Sizes and sequences of a run ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For Problem.cpp, which checks every view against them.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_PROBLEMSIZES_H
#define PLUM_RUNTIME_PROBLEMSIZES_H

#include "runtime/Problem.h"

namespace plum::runtime {

/// B, T, H and what needs no look at the lengths of sequences.
Result<Problem> planSizes(const Manifest &manifest, const RunArgs &args);

/// As many views as tensors are declared; `optional` allows none at all.
Status checkCount(const char *what, size_t got, size_t expected,
                  bool optional = false);

/// That growingRows or rowTables stand for the views of this state.
bool hasRows(const ManifestTensor &state, const RunArgs &args);

/// The first axis of the first view that counts; all states share it.
std::optional<int64_t> firstExtent(const Manifest &manifest,
                                   const RunArgs &args,
                                   const std::vector<TensorView> &views);

/// "tensor 'TENSOR' has WHAT GOT, expected EXPECTED".
Error wrong(const std::string &tensor, const std::string &what, int64_t got,
            const std::string &expected);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_PROBLEMSIZES_H
