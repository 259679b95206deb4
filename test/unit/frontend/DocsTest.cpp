//===- DocsTest.cpp - The examples of the language page are true ----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every ```plum block of docs/spec-language.md is parsed; its messages must be
// the ```text block that follows it, or none.
//
//===----------------------------------------------------------------------===//

#include "plum/Frontend/Frontend.h"

#include "gtest/gtest.h"

#include <fstream>
#include <sstream>

using namespace plum;
using namespace plum::frontend;

/// Takes the text up to and with `end` off `rest`.
static std::string take(std::string &rest, const std::string &end) {
  size_t at = rest.find(end);
  std::string taken = rest.substr(0, at);
  rest = at == std::string::npos ? "" : rest.substr(at + end.size());
  return taken;
}

TEST(Docs, ExamplesOfTheLanguagePageAreTrue) {
  std::ifstream file(PLUM_DOCS_DIR "/spec-language.md");
  std::stringstream stream;
  stream << file.rdbuf();
  std::string rest = stream.str();
  int examples = 0;
  for (take(rest, "```plum\n"); !rest.empty(); take(rest, "```plum\n")) {
    std::string spec = take(rest, "```\n"), expected;
    if (rest.starts_with("```text\n")) {
      take(rest, "```text\n");
      expected = take(rest, "```\n");
    }
    std::string name = spec.substr(6, spec.find('(') - 6); // "layer NAME("
    Source source(name + ".plum", spec);
    Diagnostics diags(source);
    bool accepted = parseSpec(diags, {}) != nullptr;
    EXPECT_EQ(diags.render(), expected);
    EXPECT_EQ(accepted, expected.empty());
    ++examples;
  }
  EXPECT_GE(examples, 5);
}
