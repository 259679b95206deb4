//===- Passes.td - From plans to code for one kind of machine -*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_CONVERSION_PASSES_TD
#define PLUM_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def LowerToCPUPass : Pass<"plum-lower-to-cpu", "::mlir::ModuleOp"> {
  let summary = "turn planned chunk loops and layers into CPU kernels";
  let description = [{
    Precondition: `assoc.layer`s in normal form and the functions of
    `chunk-plan`. Postcondition: for each a function that takes a pointer to
    plum_kernel_args (include/plum/ABI/KernelABI.h) and is made of scf loops,
    vector arithmetic and llvm loads and stores; nothing of `assoc` or `chunk`
    is left. Products are fp32 fused multiply-adds; sums are reassociated.

    Tensors live in the caller's workspace; two that are never alive together
    share memory. A kernel carries its workspace size and the matrix products
    of one chunk as attributes.
  }];
  let options = [
    Option<"lanes", "lanes", "int64_t", "16", "f32 lanes of a vector register">,
    Option<"registers", "registers", "int64_t", "32", "vector registers">,
    Option<"x86", "x86", "bool", "true", "the CPU is an x86: flush subnormals through MXCSR">
  ];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
                           "::mlir::math::MathDialect", "::mlir::LLVM::LLVMDialect"];
}

def ExpandMathsPass : Pass<"plum-expand-maths"> {
  let summary = "replace exp, log and friends by polynomials";
  let description = [{
    Precondition: `math` ops on f32 scalars or vectors (exp also on f64). Postcondition:
    what the spec language can say is made of arithmetic, `fma`, `sqrt`, `rsqrt`,
    `absf` and `floor`, so that no kernel calls libm and every function is
    vectorised; `powf`, which no spec produces, is left alone. exp is within 1 ulp on the
    range that is not flushed: below -87.3 it gives 0, above 88.7 infinity; NaN
    stays NaN; exp(0) is exactly 1. The others are upstream's approximations,
    within a few ulp.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect"];
}

#endif // PLUM_CONVERSION_PASSES_TD
