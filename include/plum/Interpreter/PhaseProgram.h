//===- PhaseProgram.h - A layer at one phase, to be run ---------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interpreter for callers that see no MLIR: the driver and tests. A program
// is made from the text that `plum compile --stop-after` writes, read back as
// plum-opt would, so the check covers what a person sees of the phase.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_INTERPRETER_PHASEPROGRAM_H
#define PLUM_INTERPRETER_PHASEPROGRAM_H

#include "plum/Pipelines/Compiler.h"
#include "plum/Reference/Recurrence.h"

#include <memory>

namespace plum::interpreter {

/// The phases whose IR has a meaning in float64: assoc, normal, chunk, plan.
/// What comes after them is code for a machine.
std::vector<std::string> interpretedPhases();

class PhaseProgram {
public:
  /// Reads IR of the phases assoc, normal, chunk or plan. `constants` are those
  /// of the spec, see Interpreter.h.
  static Result<PhaseProgram> parse(std::string_view ir,
                                    std::vector<double> constants = {});
  /// Compiles the spec up to `phase` and reads the result.
  static Result<PhaseProgram> compile(const Source &source,
                                      const CompileOptions &options,
                                      std::string_view phase,
                                      CompileReport &report);
  PhaseProgram(PhaseProgram &&) noexcept;
  ~PhaseProgram();

  struct Entry {
    std::string name;  ///< Symbol of a layer or a chunk function.
    int64_t chunk = 0; ///< C; 0: the layer, token by token.
  };
  /// The layers of the module, then its chunk functions by C.
  const std::vector<Entry> &entries() const;

  /// Runs one head; may be called from several threads.
  Status run(const Entry &entry, reference::Head &head) const;

private:
  PhaseProgram();
  struct Module;
  std::unique_ptr<Module> module;
};

/// Every constant that the layer's equations hold, folded as the frontend folds
/// them, in float64.
std::vector<double> constantsOf(const frontend::Layer &layer);

} // namespace plum::interpreter

#endif // PLUM_INTERPRETER_PHASEPROGRAM_H
