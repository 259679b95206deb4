//===- PhaseRun.h - A layer, its data and its phases ------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the interpreter's tests share: a layer with random inputs and a random
// initial state, run by the recurrence and by the IR of a phase.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_INTERPRETER_PHASERUN_H
#define PLUM_TEST_UNIT_INTERPRETER_PHASERUN_H

#include "plum/Interpreter/PhaseProgram.h"
#include "runtime/Inputs.h"
#include "runtime/ReferenceRun.h"

namespace plum::test {

/// The text of docs/layers/NAME.plum.
std::string shippedLayer(const std::string &name);

class PhaseRun {
public:
  /// A failure of the test, and `ok()` false, when the layer does not parse.
  PhaseRun(const std::string &text, CompileOptions options);
  bool ok() const { return layer != nullptr; }

  /// Inputs that `plum check` would take, B = 1 and H = 1, and initial states
  /// of N(0, 1) / 4 (|N| for vectors); computes the truth.
  void makeData(int64_t tokens, uint32_t seed = 1);
  /// Again, after a change of the data.
  void computeTruth();

  std::string ir(const std::string &phase);
  /// Reads IR, with the spec's constants unless `exact` is false.
  std::optional<interpreter::PhaseProgram> read(const std::string &ir,
                                                bool exact = true);

  /// The largest R of all outputs and final states; a failure of the test when
  /// it does not run.
  double error(const interpreter::PhaseProgram &program,
               const interpreter::PhaseProgram::Entry &entry);

  const frontend::Layer &ast() const { return *layer; }

  Source source;
  CompileOptions options;
  runtime::Manifest manifest;
  runtime::RunArgs args;

private:
  Diagnostics diags;
  std::unique_ptr<frontend::Layer> layer;
  runtime::ThreadPool pool;
  std::vector<runtime::RandomProblem> random; ///< One or none.
  runtime::Problem problem;
  std::vector<runtime::ReferenceSequence> truth;
};

} // namespace plum::test

#endif // PLUM_TEST_UNIT_INTERPRETER_PHASERUN_H
