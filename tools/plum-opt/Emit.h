//===- Emit.h - Text for a GPU instead of a module --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TOOLS_PLUM_OPT_EMIT_H
#define PLUM_TOOLS_PLUM_OPT_EMIT_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/LLVM.h"
#include "llvm/Support/CommandLine.h"

#include <string>

namespace plum::tool {

/// plum-opt's options that turn a module of the `nvvm` phase into text.
struct EmitOptions {
  llvm::cl::opt<std::string> ptx{
      "emit-ptx", llvm::cl::value_desc("sm_80|sm_90a"),
      llvm::cl::desc("after the passes, write PTX for this chip")};
  llvm::cl::opt<std::string> llvmIR{
      "emit-llvm", llvm::cl::value_desc("sm_80|sm_90a"),
      llvm::cl::desc(
          "after the passes, write the LLVM IR that PTX comes from")};
  llvm::cl::opt<std::string> resources{
      "emit-resources", llvm::cl::value_desc("sm_80|sm_90a"),
      llvm::cl::desc("after the passes, write what each kernel takes, which "
                     "ptxas says (PLUM_PTXAS names it)")};

  bool any() const {
    return !ptx.empty() || !llvmIR.empty() || !resources.empty();
  }
  /// Reads `input`, runs the passes of the command line, writes `output`.
  llvm::LogicalResult run(const std::string &input, const std::string &output,
                          mlir::DialectRegistry &registry) const;
};

} // namespace plum::tool

#endif // PLUM_TOOLS_PLUM_OPT_EMIT_H
