//===- GpuEmulation.h - GPU kernels on a CPU --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a layer's kernels for a GPU and runs them in the emulator, with
// tensors laid out as a test asks for. As in Harness.h every run is hostile:
// inputs of padding rows are NaN, outputs start as 777, slots that nobody names
// hold NaN and must keep every bit.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_INTEGRATION_GPUEMULATION_H
#define PLUM_TEST_INTEGRATION_GPUEMULATION_H

#include "test/integration/Harness.h"

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace plum::test {

/// For the kernels of all tests.
mlir::MLIRContext &kernelContext();

/// How the tensors of an emulated run lie in memory.
struct Placing {
  int64_t chunk = 0; ///< Chunk kernels of that size; 0: the step kernel.
  std::string target = "sm_90a"; ///< Of chunk kernels.
  int64_t segments = 1;          ///< That each sequence is split into.
  int64_t snapshotEvery = 0;     ///< Tokens between states that are kept.
  bool columnMajor = false;      ///< States are [V, K].
  DType state = DType::F32;
  /// Of each sequence; -1: padding. Empty: there is no pool, states before and
  /// after are different tensors.
  std::vector<int64_t> slots = {};
  int64_t slotPadding = 0;  ///< Elements between slots.
  bool wideIndices = false; ///< slots and cu_seqlens are int64.
  int64_t rowPadding = 0; ///< Elements between the rows of inputs and outputs.
  uint64_t seed = 0;      ///< Of the warps' interleaving.
};

/// Outputs, final states and, as S@64, snapshots, NaN where a sequence is
/// shorter; what a padding row has is left as it was. Empty, with a test
/// failure, when the kernel does not compile or is found wrong.
Values emulate(const Layer &layer, const Data &data,
               const Placing &placing = {});

/// The error that refuses a layer; empty, with a test failure, if none does.
std::string refused(const Layer &layer);

/// R of every sequence's states, outputs and snapshots that is not padding.
void expectEmulated(const Data &data, const Placing &placing, const Values &got,
                    const Values &truth, double stateR, double outputR,
                    const std::string &what);

} // namespace plum::test

#endif // PLUM_TEST_INTEGRATION_GPUEMULATION_H
