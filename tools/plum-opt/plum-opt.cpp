//===- plum-opt.cpp - Run passes on IR --------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mlir-opt with Plum's dialects and passes. `--phase-NAME` runs what leads from
// the phase before NAME to NAME, so any --stop-after output can be resumed.
// What follows the last phase of IR is text: `--emit-ptx=CHIP` and the like
// write it instead of the module, after the passes.
//
//===----------------------------------------------------------------------===//

#include "Emit.h"
#include "plum/Pipelines/Phases.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  plum::registerDialects(registry);
  plum::registerPipelines();
  plum::tool::EmitOptions emit;
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv, "Plum's pass driver\n", registry);
  if (emit.any())
    return mlir::asMainReturnCode(emit.run(input, output, registry));
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, input, output, registry));
}
