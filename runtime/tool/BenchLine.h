//===- BenchLine.h - What plum-run bench prints -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One result, the same for CPU and GPU, as a line of JSON or of a table.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_BENCHLINE_H
#define PLUM_RUNTIME_TOOL_BENCHLINE_H

#include "runtime/tool/Common.h"
#include "runtime/tool/Runner.h"

namespace plum::runtime::tool {

struct BenchLine {
  std::string form;
  std::optional<int64_t> chunk;
  double ms = 0, minMs = 0, spread = 0, floorMs = 0, error = 0;
  std::optional<double> sgemmMs;
  int64_t bytes = 0, reps = 0;
  int64_t flops = 0; ///< 0 when not known.
  // GPU only.
  int64_t segments = 1, sets = 1;
  std::string code; ///< "cubin", "cache" or "ptx": where it came from.
  struct Kernel {
    std::string symbol;
    uint32_t grid;
    double ms;
  };
  std::vector<Kernel> kernels; ///< Each alone.
};

/// Fills reps, ms, minMs and spread.
void summarize(std::vector<double> times, BenchLine &line);
/// Of a list, linear between neighbours.
double median(std::vector<double> values);

/// Bytes of inputs, params and outputs once and of the states that are read or
/// written; of growing ones the rows there are in the end, which are read or
/// written once.
int64_t bytesOnce(const Manifest &manifest, const RunArgs &args);

/// R of the outputs on a small random problem: at most 2 heads and 256 tokens,
/// 256 in each segment where the options ask for several.
Result<double> smallError(const Bundle &bundle, Runner &runner,
                          const ShapeOption &shape, const RunOptions &options);

/// `gpu` names the GPU, `place` that or "8 threads".
void printJson(const Manifest &manifest, const ShapeOption &shape, int threads,
               const std::string &gpu, const BenchLine &line);
void printTable(const Manifest &manifest, const ShapeOption &shape,
                const std::string &place, const std::vector<BenchLine> &lines);

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_BENCHLINE_H
