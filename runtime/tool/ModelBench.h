//===- ModelBench.h - plum-run bench of a model -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_MODELBENCH_H
#define PLUM_RUNTIME_TOOL_MODELBENCH_H

#include "runtime/tool/ModelChoice.h"

namespace plum::runtime::tool {

/// Times prompts (pp512: 512 tokens at once) and generation (tg128: 128 tokens,
/// one at a time; tg128x16 of each of 16 sequences at once).
struct ModelBench {
  ModelChoice choice;
  std::vector<int64_t> prompts{512}, generated{128}, batches{1};
  int64_t reps = 5, chunk = 512, context = 0;
  bool json = false, operations = false;

  /// All options but those of `choice`.
  void declare(CLI::App &verb);
  int run();

private:
  struct Line {
    std::string test;
    int64_t tokens;
    std::vector<double> seconds;
    int64_t bytes; ///< Of weights that were read.
    int64_t steps; ///< Forward passes.
  };
  Result<Line> time(const model::Model &model, int64_t tokens, bool oneByOne,
                    int64_t sequences);
  void print(const model::Model &model, const Line &line, double rate) const;
  /// A table of what a GPU's operations took in one run of each test.
  Status printOperations(const model::Model &model, int64_t tokens,
                         bool oneByOne, int64_t sequences);
};

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_MODELBENCH_H
