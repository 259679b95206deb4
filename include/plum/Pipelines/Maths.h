//===- Maths.h - A chunk function as printed equations ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_PIPELINES_MATHS_H
#define PLUM_PIPELINES_MATHS_H

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace plum {

/// The equations of every chunk loop in `module`, one a line, as `//` comments
/// with the shape and the products of each. Empty when there are none.
std::string describeChunks(mlir::ModuleOp module);

} // namespace plum

#endif // PLUM_PIPELINES_MATHS_H
