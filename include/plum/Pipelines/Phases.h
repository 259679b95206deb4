//===- Phases.h - The one table of phases -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every phase has a name, the targets it is for, a sentence and the passes that
// lead to it from the phase before. `--stop-after`, `--print-phases`,
// plum-opt's pipelines (`--phase-chunk`), the docs and the tests all read this
// table.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_PIPELINES_PHASES_H
#define PLUM_PIPELINES_PHASES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace mlir {
class OpPassManager;
class DialectRegistry;
} // namespace mlir

namespace plum {

/// What the passes of the phases need to know.
struct PhaseOptions {
  llvm::SmallVector<int64_t> chunks = {64}; ///< Chunk sizes; none: step only.
  int64_t lanes = 16;                       ///< f32 lanes of a vector register.
  int64_t registers = 32;                   ///< Vector registers.
  bool x86 = true;                          ///< The CPU is an x86.
  int64_t sm = 90;                          ///< The GPU: 80, or 90 for sm_90a.
  int64_t slice = 0, stages = 0, terms = 1; ///< Of a scan, see ToTilePass.
};

/// Kinds of targets; a phase is for one or for all.
enum class Machine : uint8_t { All, CPU, GPU };
llvm::StringRef stringify(Machine machine); ///< "all", "cpu", "gpu".

struct Phase {
  llvm::StringLiteral name;
  Machine machine;
  llvm::StringLiteral description;
  /// Appends the passes from the previous phase to this one; null for the
  /// first phase (the frontend makes it) and for `ptx` and `obj` (LLVM does).
  void (*build)(mlir::OpPassManager &, const PhaseOptions &);
};

/// In order: assoc, normal, chunk, plan; then llvm for a CPU and tile, nvvm,
/// ptx for a GPU; then obj.
llvm::ArrayRef<Phase> phases();
/// Those on the way to one kind of machine.
llvm::SmallVector<Phase> phasesFor(Machine machine);

/// Registers every pass and a pipeline `phase-NAME` per phase, for plum-opt.
void registerPipelines();

/// The dialects (with their translations to LLVM IR) that phases use.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace plum

#endif // PLUM_PIPELINES_PHASES_H
