//===- KernelFacts.h - What a manifest says of kernels ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_PIPELINES_KERNELFACTS_H
#define PLUM_LIB_PIPELINES_KERNELFACTS_H

#include "runtime/Manifest.h"

#include "mlir/IR/BuiltinOps.h"

namespace plum {

/// The kernels of a module of the last phase of IR, from the attributes that
/// Conversion/Passes.h names: step first, then in the order of `chunks`; within
/// one, in the module's order. Fails, with a diagnostic at the kernel, when an
/// attribute is missing.
mlir::LogicalResult
readKernelFacts(mlir::ModuleOp module, bool onGpu,
                const std::vector<int64_t> &chunks,
                std::vector<runtime::ManifestKernel> &kernels);

} // namespace plum

#endif // PLUM_LIB_PIPELINES_KERNELFACTS_H
