//===- ModelChoice.h - MODEL and the options that all its verbs share -----===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_MODELCHOICE_H
#define PLUM_RUNTIME_TOOL_MODELCHOICE_H

#include "runtime/model/Model.h"
#include "runtime/model/gpu/GpuBackend.h"
#include "runtime/text/Tokenizer.h"
#include "runtime/tool/Common.h"

namespace plum::runtime::tool {

/// A bundle that `plum compile MODEL_DIR` wrote, or a model directory.
struct ModelChoice {
  std::string path, directory, precision = "default", target = "cpu";
  int threads = 0;
  bool randomWeights = false;

  void declare(CLI::App &verb);
  void declareDirectory(CLI::App &verb);
  void declareRandomWeights(CLI::App &verb);
  /// Whether `path` is a model or a bundle of one.
  static bool isModel(const std::string &path);
  /// Opens it; notes about it go to stderr. Fills in `directory`.
  Result<model::Model> open();
  bool onGpu() const { return target == "cuda"; }
  /// Where it runs, after `open` with a GPU.
  std::shared_ptr<model::GpuBackend> gpu;

private:
  Status findDirectory(std::string &bundle);
};

/// "1,2,3".
Result<std::vector<int32_t>> parseIds(const std::string &text);

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_MODELCHOICE_H
