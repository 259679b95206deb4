//===- ModelInfo.h - plum-run info of a model -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_MODELINFO_H
#define PLUM_RUNTIME_TOOL_MODELINFO_H

#include "runtime/tool/ModelChoice.h"

namespace plum::runtime::tool {

/// Prints what a bundle of a model, or a model directory, is; the exit code.
int modelInfo(const ModelChoice &choice);

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_MODELINFO_H
