//===- MoeLayer.h - What a mixture of experts may be ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For Moe.cpp: the checks of a layer, its packed matrices, and how its products
// are cut up.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_MOELAYER_H
#define PLUM_RUNTIME_CUDA_MOELAYER_H

#include "runtime/cuda/Moe.h"

#include "runtime/cuda/kernels/MoeArgs.h"

namespace plum::runtime::cuda {

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline Error refuse(const std::string &what) { return {"", what, {}}; }

/// Of packed weights, of kExpertRows rows.
struct ExpertBlock {
  int64_t columns, bytes;
};
ExpertBlock blockOf(ExpertFormat format);
const char *nameOf(ExpertFormat format);

/// All that can be wrong with a layer but its tile.
Status checkLayer(const MoeLayer &layer);

/// On average.
double pairsOfExpert(const MoeLayer &layer, int64_t tokens);

/// By the tile asked for or else by the pairs that an expert has on average:
/// few, and memory is the bound; many, and it is the tensor cores.
const kernels::MoeShape &shapeOf(const MoeLayer &layer, int64_t tokens);
const kernels::WideShape &wideShapeOf(const MoeLayer &layer, int64_t tokens);

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_MOELAYER_H
