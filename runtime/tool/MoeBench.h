//===- MoeBench.h - A random mixture of experts on a GPU --------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights are made on the GPU from a seed for each expert and projection, and
// packed there. The same seeds make them again when an output is checked on the
// host, in float64, expert by expert.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_MOEBENCH_H
#define PLUM_RUNTIME_TOOL_MOEBENCH_H

#include "runtime/cuda/Moe.h"

#include <vector>

namespace plum::runtime::tool {

struct MoeSizes {
  int64_t experts = 896, chosen = 16, width = 3584, wide = 3072;
  bool mxfp4 = true;
};

/// The layer, resident.
class MoeWeights {
public:
  Status make(const cuda::Kernels &kernels, const MoeSizes &sizes);
  const cuda::MoeLayer &layer() const { return made; }
  int64_t expertBytes() const;

  enum Which { Gate, Up, Down };
  /// An expert's matrix as numbers, [rows, columns].
  Result<std::vector<float>> values(const cuda::Kernels &kernels,
                                    int64_t expert, Which which) const;

private:
  /// An expert's matrix as a checkpoint has it, in the scratch memory.
  Status fill(const cuda::Kernels &kernels, int64_t expert, Which which) const;
  const cuda::ExpertMatrix &matrix(Which which) const;

  cuda::MoeLayer made;
  cuda::Memory memory[3], numbers, scales;
};

/// Inputs and outputs of a forward pass.
struct MoeRun {
  int64_t tokens = 0;
  cuda::Memory x, logits, y, workspace;
  std::vector<cuda::MoePass> pass; ///< One.

  Status make(const cuda::Kernels &kernels, const cuda::MoeLayer &layer,
              int64_t tokens, uint32_t seed);
  /// The experts of its tokens, [tokens, chosen], after it has run.
  Result<std::vector<int32_t>> chosen(const cuda::Kernels &kernels,
                                      const cuda::MoeLayer &layer) const;
  /// The largest difference of a token's output from float64, in parts of the
  /// root of its mean square.
  Result<double> error(const cuda::Kernels &kernels, const MoeWeights &weights,
                       int64_t token) const;
};

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_MOEBENCH_H
