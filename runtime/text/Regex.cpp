//===- Regex.cpp - Unicode regular expressions ----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace plum::text {

struct Regex::Code {
  pcre2_code *code;
  ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(const std::string &pattern,
                             const std::string &where) {
  int number = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code *code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &number, &offset,
      nullptr);
  if (!code) {
    char text[256] = "";
    pcre2_get_error_message(number, reinterpret_cast<PCRE2_UCHAR *>(text),
                            sizeof(text));
    return Error{where,
                 "has a regular expression that is not valid at character " +
                     std::to_string(offset) + ": " + text,
                 {pattern}};
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // Slower without, not wrong.
  Regex regex;
  regex.code = std::shared_ptr<const Code>(new Code{code});
  return regex;
}

std::vector<Regex::Match> Regex::matches(std::string_view text) const {
  std::vector<Match> list;
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data *)> data(
      pcre2_match_data_create_from_pattern(code->code, nullptr),
      pcre2_match_data_free);
  auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; data && at < text.size();) {
    int found = pcre2_match(code->code, subject, text.size(), at,
                            PCRE2_NOTEMPTY, data.get(), nullptr);
    if (found < 0) // No further match, or the limits are reached.
      break;
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(data.get());
    if (place[1] <= place[0])
      break;
    list.push_back({place[0], place[1]});
    at = place[1];
  }
  return list;
}

} // namespace plum::text
