//===- Passes.td - From the recurrence to a plan -----------*- tablegen -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TRANSFORMS_PASSES_TD
#define PLUM_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def NormalizePass : Pass<"assoc-normalize", "::plum::assoc::LayerOp"> {
  let summary = "bring every update of a layer into its normal form";
  let description = [{
    Precondition: a valid `assoc.layer`. Postcondition: the only updates are
    `assoc.step` (and `assoc.map`, which has no chunkwise form). Exact: the same
    sums in the same order, but for `beta * v` being formed before the product.

    A step is a decay followed by writes that all read the same state. A new
    step begins at a decay after anything else, at an update that reads what an
    earlier one of the step wrote, and at every state that something else reads.

    The interval of each decay's expression is computed and attached; a remark
    says what was proven: with a bound on |log a| the factors of a sub-block of
    16 tokens can be formed apart, without one they are only ever formed
    together, as products that never exceed 1.

    Before:
    ```
    %S1 = assoc.decay %S by log %a
    %S2 = assoc.delta %S1, %k, %v, %beta
    ```
    After:
    ```
    %c = arith.negf %beta
    %u = arith.mulf %beta, %v
    %S2 = assoc.step %S decay log(%a) in <-5.0, 0.0>
        erase along(%k) by(%c) at(%k) of(%S) decayed [true] write keys(%k) values(%u)
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::vector::VectorDialect"];
  let statistics = [Statistic<"numSteps", "steps", "steps made">];
}

def ToChunkPass : Pass<"assoc-to-chunk", "::mlir::ModuleOp"> {
  let summary = "derive the chunkwise WY form of normalised layers";
  let description = [{
    Precondition: `assoc-normalize` has run. Postcondition: next to each layer
    whose updates are all steps stands a function per chunk size, a loop over
    chunks of C tokens in the `chunk` dialect. Reassociates sums (that is its
    purpose); equal to the recurrence in exact arithmetic.

    One derivation for every layer (docs/wy-form.md): erases become the rows of
    one unit lower triangular system, writes that share an erase's key join it,
    the others stay apart; a layer without erases has no system to solve.

    A layer with an `assoc.map`, or whose states read one another in a circle, is
    left alone with a remark.
  }];
  let options = [
    ListOption<"chunks", "chunks", "int64_t", "chunk sizes C in tokens, powers of two from 1 to 256 (default: 64)">
  ];
  let dependentDialects = ["::plum::chunk::ChunkDialect", "::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PlanPass : Pass<"chunk-plan", "::mlir::func::FuncOp"> {
  let summary = "split a chunk's work by what depends on the state";
  let description = [{
    Precondition: the loop of `assoc-to-chunk`. Postcondition: its body is a
    `chunk.stage prepare`, which holds every op that does not depend on a state,
    and a `chunk.stage scan`, which holds the rest. Exact: ops are only
    reordered. The split is the slice of the graph below the loop's states; no
    layer names what belongs where.
  }];
  let dependentDialects = ["::plum::chunk::ChunkDialect"];
  let statistics = [Statistic<"numPrepared", "prepared", "ops that do not depend on the state">];
}

#endif // PLUM_TRANSFORMS_PASSES_TD
