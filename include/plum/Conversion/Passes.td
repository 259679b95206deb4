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

def ToTilePass : Pass<"chunk-to-tile", "::mlir::ModuleOp"> {
  let summary = "write the kernels of a planned chunk in the tile dialect";
  let description = [{
    Precondition: the functions of `chunk-plan`. Postcondition: for each a
    `tile.kernel` with the role `prepare`, one with the role `summary` and one
    with the role `scan`; tensors have no layout yet. A function that these
    kernels cannot do is dropped, with a warning that says why. lib/Conversion/Tile/
    ChunkGraph.h says how factors move into tiles, Prepare.cpp, Summary.cpp and
    Scan.cpp what the kernels do.

    bf16 products with fp32 accumulators; decays are exponentials of sums of
    logarithms relative to anchors, none of them above 1 unless a bound is
    proven. With `terms` = 2, where the layer erases, numbers that would be rounded on
    the way from state to state are two bf16 terms: Scan.cpp says which.
  }];
  let options = [
    Option<"slice", "slice", "int64_t", "0", "columns of V per team of the scan (0: 64, or all)">,
    Option<"stages", "stages", "int64_t", "0", "stages of the scan's rings (0: what fits)">,
    Option<"terms", "terms", "int64_t", "1", "bf16 terms of an fp32 operand, 1 or 2">,
    Option<"shared", "shared", "int64_t", "232448", "bytes of shared memory that a CTA can have">
  ];
  let dependentDialects = ["::plum::tile::TileDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def FoldMathsPass : Pass<"tile-fold-maths", "::plum::tile::KernelOp"> {
  let summary = "let constants and numbers of a head meet outside of the strips";
  let description = [{
    Precondition: tensors without encoding. What every element would be
    multiplied with is multiplied once:

      exp(x)                is  exp2(x log2 e)
      (x c) d, -x           is  x (c d), with constants c and d
      (x s) c               is  x (s c), s a number of the head, or of a row or
                                column of the tile
      s (x + r)             is  x s + r s, one fma, r the same for all rows

    Bits change by roundings in fp32.

      %a = arith.mulf %x, %s             %t = arith.mulf %number, %c : f32
      %b = arith.mulf %a, %c      ->     %s = tile.broadcast %t
                                         %b = arith.mulf %x, %s
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def AssignLayoutsPass : Pass<"tile-assign-layouts", "::plum::tile::KernelOp"> {
  let summary = "give every tensor of a kernel its layout";
  let description = [{
    Precondition: tensors without encoding. Postcondition: every tensor has one.
    Products, loads by blocks and writes fix the layouts of what they take; going
    backwards, an op whose layout is free gets those that its users want, and is
    repeated when they want several. There is no conversion between layouts: a
    value that is wanted in a layout in which it cannot be made is an error.
  }];
  let dependentDialects = ["::plum::tile::TileDialect"];
}

def TileToNVVMPass : Pass<"plum-tile-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "write what one thread of a tile kernel does";
  let description = [{
    Precondition: `tile-assign-layouts`. Postcondition: each `tile.kernel` is an
    `llvm.func` made of the instructions of lib/Conversion/GPU/Ptx.h; before a
    `prepare` stands the kernel that counts chunks, after a `summary` the one that
    combines segments. Shared memory is planned, strips are unrolled, products are
    issued as early and waited for as late as the order of the ops allows.
  }];
  let options = [Option<"sm", "sm", "int64_t", "90", "80 or 90 (sm_90a)">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect"];
}

def AttendToGPUPass : Pass<"plum-attend-to-gpu", "::mlir::ModuleOp"> {
  let summary = "write the GPU kernels of layers with growing states";
  let description = [{
    Precondition: `assoc.layer`s in normal form. Postcondition: those that have
    lists are `llvm.func` kernels that take plum_gpu_args
    (include/plum/ABI/GpuABI.h): for chunks of each size `index`, `carry`, `append`
    and `attend`, for single tokens `carry`, `append`, `attend` and `merge`
    (docs/gpu.md). Other layers are left alone. A layer that these kernels cannot do
    is an error at what is in the way: states of both kinds, more than one
    `attend`, rows that depend on what was attended to, sizes that do not fit.

    Products are bf16 with fp32 sums; scores are multiplied by the number that all
    queries have as a factor, so bf16 queries are not rounded again. Where rows
    that queries or lists are made of are not bf16 there are kernels for single
    tokens only, in fp32; chunks asked for are then a warning. The bits of
    a token depend neither on the batch nor on where rows lie, but on the form.
  }];
  let options = [
    Option<"sm", "sm", "int64_t", "90", "the GPU: 80, or 90 for sm_90a">,
    ListOption<"chunks", "chunks", "int64_t", "chunk sizes in tokens">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::math::MathDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def StepToGPUPass : Pass<"plum-step-to-gpu", "::mlir::ModuleOp"> {
  let summary = "turn layers into GPU kernels that run token by token";
  let description = [{
    Precondition: `assoc.layer`s in normal form. Postcondition: for each an
    `llvm.func` kernel `plum_<layer>_step` that takes plum_gpu_args
    (include/plum/ABI/GpuABI.h), with the attributes of
    include/plum/Conversion/Passes.h; the layers are gone. A block runs the
    tokens of one head of one sequence for one slice of V columns, the states
    in registers. Arithmetic is fp32; sums are reassociated, always in the same
    way: the bits do not depend on the batch.
  }];
  let options = [
    Option<"sm", "sm", "int64_t", "90", "the GPU: 80, or 90 for sm_90a">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::math::MathDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

#endif // PLUM_CONVERSION_PASSES_TD
