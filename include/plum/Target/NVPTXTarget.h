//===- NVPTXTarget.h - PTX and cubins for a GPU -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the `nvvm` phase (kernels of scf, arith, llvm and nvvm ops, see
// Conversion/GPU/Ptx.h) to PTX text, which any driver compiles, and on to a
// cubin with ptxas where there is one. What ptxas says about registers and
// spills is a result, not a log: tests hold every shipped kernel to it.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TARGET_NVPTXTARGET_H
#define PLUM_TARGET_NVPTXTARGET_H

#include "plum/Support/Result.h"
#include "plum/Target/GpuChip.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <string_view>
#include <vector>

namespace plum {

/// The translations to LLVM IR that translateToPTX needs.
void registerNVPTXTranslations(mlir::DialectRegistry &registry);

/// Compiles a copy of a module of kernels to PTX.
Result<std::string> translateToPTX(mlir::ModuleOp module, const GpuChip &chip);
/// The LLVM IR of the same, as the code generator gets it.
Result<std::string> translateToLLVMText(mlir::ModuleOp module,
                                        const GpuChip &chip);

/// What one kernel takes of a multiprocessor, per thread unless it says so.
struct KernelResources {
  std::string symbol;
  int64_t registers = 0;
  int64_t stackBytes = 0;
  int64_t spillStoreBytes = 0, spillLoadBytes = 0;
  int64_t barriers = 0;    ///< Named barriers of a block.
  int64_t sharedBytes = 0; ///< Static, of a block; ours is dynamic.
};

struct AssembledKernels {
  std::string cubin;
  std::vector<KernelResources> kernels; ///< In the order of the PTX.
  /// "C7514: wgmma serialised ...": what ptxas warns of, a line each.
  std::vector<std::string> warnings;
};

/// The ptxas to use: `preferred` when given, else that of PATH or of the CUDA
/// toolkit's usual place. The error says where it was looked for.
Result<std::string> findPtxas(const std::string &preferred);

/// Assembles PTX text with the program `ptxas`.
Result<AssembledKernels> assemblePTX(const std::string &ptx,
                                     const GpuChip &chip,
                                     const std::string &ptxas);

/// Reads the output of `ptxas -v`; assemblePTX calls it.
void parsePtxasLog(std::string_view log, AssembledKernels &into);

/// "NAME: 128 registers, 0 spilled bytes, ...".
std::string describe(const KernelResources &kernel);
/// A line per kernel and per warning.
std::string describe(const AssembledKernels &kernels);

} // namespace plum

#endif // PLUM_TARGET_NVPTXTARGET_H
