//===- GpuBench.h - Time a layer on a GPU -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time of one replay of a CUDA graph that holds one run, between two
// events: what a serving engine pays. Inputs that fit in the GPU's cache would
// be read from it the second time, so then several sets of tensors, each with
// other values, take turns.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_GPUBENCH_H
#define PLUM_RUNTIME_TOOL_GPUBENCH_H

#include "runtime/tool/BenchLine.h"

#include <functional>

namespace plum::runtime::tool {

/// What `launches` puts on the stream, which records instead of running. Ends
/// the recording in any case.
Result<cuda::Graph> record(const cuda::Device &device, cuda::CUstream stream,
                           const std::function<Status()> &launches);

class GpuBench {
public:
  /// `runner` has a GPU and must outlive this.
  GpuBench(const Bundle &bundle, Runner &runner, const ShapeOption &shape,
           double seconds)
      : bundle(bundle), runner(runner), shape(shape), seconds(seconds) {}

  /// Makes the inputs and measures the rate at which memory is copied.
  Status prepare();
  Result<BenchLine> run(const RunOptions &options);

private:
  struct Set {
    cuda::DeviceTensors tensors;
    cuda::DeviceTensors::Pointers pointers;
  };
  Status addSet(uint32_t seed);
  Status measureCopy();
  Result<std::vector<double>> time(std::vector<cuda::Graph> &graphs,
                                   double limit);
  /// Graphs of one launch of the plan, or of all of it (index < 0).
  Result<std::vector<cuda::Graph>>
  capture(const cuda::GpuPlan &plan, void *workspace, int index, bool decode);

  const Bundle &bundle;
  Runner &runner;
  const ShapeOption &shape;
  double seconds;
  std::vector<Set> sets;
  cuda::Stream stream;
  cuda::Event begin, end;
  double rate = 0; ///< Bytes read and written, a millisecond.
};

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_GPUBENCH_H
