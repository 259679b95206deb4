//===- ErrorTable.cpp - Errors as a person reads them ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/ErrorTable.h"

#include <fmt/format.h>

namespace plum::runtime::tool {

bool printErrors(const std::string &what, const std::vector<ErrorRow> &rows) {
  bool pass = true;
  fmt::print("{:<10} {:<10} {:>9} {:>9} {:>9}  {}\n", what, "tensor", "R", "W",
             "M", "result");
  for (const ErrorRow &row : rows) {
    pass &= row.pass;
    std::string result = row.pass ? "pass" : "FAIL";
    if (row.errors.nonFinite > 0)
      result += fmt::format(", {} values not finite", row.errors.nonFinite);
    auto number = [](double x) { return fmt::format("{:.2e}", x); };
    fmt::print("{:<10} {:<10} {:>9} {:>9} {:>9}  {}\n", row.what, row.tensor,
               number(row.errors.r), row.state ? "" : number(row.errors.w),
               row.state ? "" : number(row.errors.m), result);
  }
  return pass;
}

} // namespace plum::runtime::tool
