//===- Emit.cpp - Text for a GPU instead of a module ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Emit.h"

#include "plum/Target/NVPTXTarget.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

#include <cstdlib>

using namespace plum;
using namespace plum::tool;

static Result<std::string> resourcesOf(mlir::ModuleOp module,
                                       const GpuChip &chip) {
  const char *named = std::getenv("PLUM_PTXAS");
  Result<std::string> ptxas = findPtxas(named ? named : "");
  if (!ptxas)
    return ptxas.error();
  Result<std::string> ptx = translateToPTX(module, chip);
  if (!ptx)
    return ptx.error();
  Result<AssembledKernels> kernels = assemblePTX(*ptx, chip, *ptxas);
  if (!kernels)
    return kernels.error();
  return describe(*kernels);
}

static Result<std::string> emitText(const EmitOptions &options,
                                    mlir::ModuleOp module) {
  const std::string &name = !options.ptx.empty()      ? options.ptx
                            : !options.llvmIR.empty() ? options.llvmIR
                                                      : options.resources;
  const GpuChip *chip = findGpuChip(name);
  if (!chip)
    return Error{
        "", "unknown chip '" + name + "', expected " + gpuChipNames(), {}};
  if (!options.ptx.empty())
    return translateToPTX(module, *chip);
  if (!options.llvmIR.empty())
    return translateToLLVMText(module, *chip);
  return resourcesOf(module, *chip);
}

llvm::LogicalResult EmitOptions::run(const std::string &input,
                                     const std::string &output,
                                     mlir::DialectRegistry &registry) const {
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file =
      mlir::openInputFile(input, &message);
  if (!file) {
    llvm::errs() << message << "\n";
    return mlir::failure();
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  if (!module)
    return mlir::failure();
  mlir::PassManager pm(&context);
  auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (mlir::failed(config.setupPassPipeline(pm)) ||
      mlir::failed(pm.run(*module)))
    return mlir::failure();
  Result<std::string> text = emitText(*this, *module);
  if (!text) {
    Error error = text.error();
    if (error.where.empty())
      error.where = input;
    llvm::errs() << error.str() << "\n";
    return mlir::failure();
  }
  auto out = mlir::openOutputFile(output, &message);
  if (!out) {
    llvm::errs() << message << "\n";
    return mlir::failure();
  }
  out->os() << *text;
  out->keep();
  return mlir::success();
}
