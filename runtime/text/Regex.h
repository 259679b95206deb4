//===- Regex.h - Unicode regular expressions --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PCRE2, with Unicode classes. Bytes that are no UTF-8 match nothing.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TEXT_REGEX_H
#define PLUM_RUNTIME_TEXT_REGEX_H

#include "plum/Support/Result.h"

#include <memory>
#include <string_view>

namespace plum::text {

class Regex {
public:
  static Result<Regex> compile(const std::string &pattern,
                               const std::string &where);

  struct Match {
    size_t begin, end;
  };
  /// All matches that are not empty, from left to right.
  std::vector<Match> matches(std::string_view text) const;

private:
  struct Code;
  std::shared_ptr<const Code> code;
};

} // namespace plum::text

#endif // PLUM_RUNTIME_TEXT_REGEX_H
