//===- ErrorTable.h - Errors as a person reads them -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table that `plum-run check` prints for kernels and `plum check --after`
// for phases.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_ERRORTABLE_H
#define PLUM_RUNTIME_TOOL_ERRORTABLE_H

#include "runtime/Errors.h"

#include <string>
#include <vector>

namespace plum::runtime::tool {

struct ErrorRow {
  std::string what;   ///< Kernel or phase.
  std::string tensor; ///< Output or state.
  ErrorMeasures errors;
  bool state; ///< Only R is printed.
  bool pass;
};

/// Prints the table under a heading for `what`; true when all rows pass.
bool printErrors(const std::string &what, const std::vector<ErrorRow> &rows);

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_ERRORTABLE_H
