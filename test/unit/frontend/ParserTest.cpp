//===- ParserTest.cpp - The grammar and its errors ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/frontend/TestSpec.h"

#include "gtest/gtest.h"

#include <algorithm>

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;

/// The value of local x = TEXT, printed.
static std::string parsed(const std::string &text) {
  Spec spec(layerOf("x = " + text, "output o : f32 = sum(x) + sum(q @ S)"));
  if (!spec.layer)
    return spec.messages();
  return print(spec.layer->stmts.front().written);
}

TEST(Parser, BindsAsUsual) {
  EXPECT_EQ(parsed("a + b * a - b"), "((a + (b * a)) - b)");
  EXPECT_EQ(parsed("a * b / a * b"), "(((a * b) / a) * b)");
  EXPECT_EQ(parsed("a - b - a"), "((a - b) - a)");
  EXPECT_EQ(parsed("-a * b"), "(-a * b)");
  EXPECT_EQ(parsed("a * -b"), "(a * -b)");
  EXPECT_EQ(parsed("--a"), "--a");
  EXPECT_EQ(parsed("a - -b"), "(a - -b)");
  EXPECT_EQ(parsed("(a - b) * a"), "((a - b) * a)");
  EXPECT_EQ(parsed("a * k^T @ v"), "((a * k^T) @ v)");
  EXPECT_EQ(parsed("k @ k^T * a"), "((k @ k^T) * a)");
}

TEST(Parser, PowersBindTighterThanSigns) {
  EXPECT_EQ(parsed("-a^2"), "-a^2");
  EXPECT_EQ(parsed("(-a)^2"), "-a^2"); // The print has no brackets for a sign.
  EXPECT_EQ(parsed("a * K^-0.5"), "(a * K^-0.5)");
  EXPECT_EQ(parsed("a^2^3"), "a^8");
  EXPECT_EQ(parsed("a^-2^2"), "a^-4");
  EXPECT_EQ(parsed("a^(K - 2)"), "a^2");
  EXPECT_EQ(parsed("a^K * b"), "(a^4 * b)");
  EXPECT_EQ(parsed("q^2^T"), "q^2^T");
  EXPECT_EQ(parsed("q^T^2"), "q^T^2");
  EXPECT_EQ(parsed("q^T^T"), "q^T^T");
}

TEST(Parser, ReadsNumbers) {
  EXPECT_EQ(parsed("1 + 2.5 + .5 + 3. + 1e3 + 2E-1 + 1.5e+2"),
            "((((((1 + 2.5) + 0.5) + 3) + 1000) + 0.2) + 150)");
  EXPECT_EQ(parsed("a + 12abc"), "7:9: error: malformed number '12abc'\n");
  EXPECT_EQ(parsed("a + 1.2.3"), "7:9: error: malformed number '1.2.3'\n");
  EXPECT_EQ(parsed("a + 1e999"), "7:9: error: number '1e999' is out of the "
                                 "range of float64\n");
}

TEST(Parser, ReadsCalls) {
  EXPECT_EQ(parsed("max(a, b, 1)"), "max(a, b, 1)");
  EXPECT_EQ(parsed("l2norm(q)"), "l2norm(q, eps = 1e-06)");
  EXPECT_EQ(parsed("rmsnorm(q, eps = 1e-3)"), "rmsnorm(q, eps = 0.001)");
  EXPECT_EQ(parsed("l2norm(q, eps = 0)"), "l2norm(q)");
}

TEST(Parser, NewlinesInsideBracketsMeanNothing) {
  EXPECT_EQ(parsed("(a +\n b\n) * max(a,\n# why\n b)"),
            "((a + b) * max(a, b))");
}

TEST(Parser, SemicolonsSeparateStatements) {
  Spec spec("layer t(K = 2) { input k : [K] f32; state z : [K] bf16; z += k; "
            "output o : f32 = k @ z^T }");
  EXPECT_EQ(spec.messages(), "");
  EXPECT_EQ(print(*spec.layer), "z: keep; write k^T (1)\no = (k @ z.1^T)\n");
}

TEST(Parser, TakesWindowsLineEndsAndAMissingLastNewline) {
  Spec spec("layer t(K = 2)\r\n{\r\n input k : [K] f16\r\n state z : [2] f32"
            "\r\n z += k\r\n output o : f32 = k @ z^T\r\n}");
  EXPECT_EQ(spec.messages(), "");
}

TEST(Parser, NeedsBracketsToContinueALine) {
  EXPECT_EQ(parsed("a +\n  b"),
            "7:8: error: expected an expression, got the end of the line\n"
            "7:8: note: a statement ends at the end of its line unless a "
            "bracket is open\n"
            "8:4: error: expected '=', '+=' or '-=', got the end of the "
            "line\n");
}

TEST(Parser, ReportsSeveralErrorsInOneRun) {
  EXPECT_EQ(errorsOf("x = (a + b\ny = a b\nz = \n3 = a\nw : a\n = 2"),
            "7:11: error: expected ')', got 'y'\n"
            "7:5: note: to match this '('\n"
            "8:7: error: expected the end of the statement, got 'b'\n"
            "9:4: error: expected an expression, got the end of the line\n"
            "9:4: note: a statement ends at the end of its line unless a "
            "bracket is open\n"
            "10:1: error: expected a statement, got '3'\n"
            "11:3: error: expected '=', '+=' or '-=', got ':'\n"
            "12:2: error: expected a statement, got '='\n");
}

TEST(Parser, StopsAfterManyErrors) {
  std::string body;
  for (int i = 0; i < 100; ++i)
    body += "+\n";
  std::string errors = errorsOf(body);
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 21);
  EXPECT_NE(errors.find("too many errors, stopping here"), std::string::npos);
}

TEST(Parser, ReportsStrayCharacters) {
  EXPECT_EQ(errorsOf("x = a $$ b\ny = \x80\x01"),
            "7:7: error: unexpected '$$'\n"
            "8:5: error: unexpected '\\x80\\x01'\n"
            "7:10: error: expected the end of the statement, got 'b'\n"
            "8:4: error: expected an expression, got the end of the line\n"
            "8:4: note: a statement ends at the end of its line unless a "
            "bracket is open\n");
}

TEST(Parser, ReportsWrongDeclarations) {
  EXPECT_EQ(errorsOf("input x\ninput y : [K f32\ninput c : [K]\n"
                     "input d : [K] i32\ninput e : [1.5] f32\n"
                     "input f : [99999999999999999999] f32\ninput : f32\n"
                     "input T : f32\ninput input : f32\noutput : f32 = a\n"
                     "output y : f32"),
            "7:8: error: expected ':', got the end of the line\n"
            "8:14: error: expected ']', got 'f32'\n"
            "8:11: note: to match this '['\n"
            "9:14: error: expected 'f32', 'f16' or 'bf16', got the end of the "
            "line\n"
            "10:15: error: expected 'f32', 'f16' or 'bf16', got 'i32'\n"
            "11:12: error: expected an integer, got '1.5'\n"
            "12:12: error: integer '99999999999999999999' is too large\n"
            "13:7: error: expected a name, got ':'\n"
            "14:7: error: 'T' cannot be a name: '^T' is the transpose\n"
            "15:7: error: expected a name, got the keyword 'input'\n"
            "16:8: error: expected the output's name, got ':'\n"
            "17:15: error: expected '=', got the end of the line\n");
}

TEST(Parser, ReportsWrongCalls) {
  EXPECT_EQ(errorsOf("x = exp()\ny = l2norm(q, eps = )\n"
                     "c = l2norm(eps = 1, q)\nd = exp(a b)"),
            "7:9: error: expected an expression, got ')'\n"
            "8:21: error: expected an expression, got ')'\n"
            "9:21: error: an argument without a name cannot follow a named "
            "one\n"
            "10:11: error: expected ')', got 'b'\n"
            "10:8: note: to match this '('\n");
}

TEST(Parser, ReportsWrongHeaders) {
  EXPECT_EQ(Spec("x = 1").messages(),
            "1:1: error: expected 'layer', got 'x'\n");
  EXPECT_EQ(Spec("layer (K = 1) {}").messages(),
            "1:7: error: expected the layer's name, got '('\n");
  EXPECT_EQ(Spec("layer t {}").messages(),
            "1:9: error: expected '(', got '{'\n");
  EXPECT_EQ(Spec("layer t(K = ) {}").messages(),
            "1:13: error: expected an integer, got ')'\n");
  EXPECT_EQ(Spec("layer t(K = 1 {}").messages(),
            "1:15: error: expected ')', got '{'\n"
            "1:8: note: to match this '('\n");
  EXPECT_EQ(Spec("layer t(K,) {}").messages(),
            "1:11: error: expected a dim's name, got ')'\n");
  EXPECT_EQ(Spec("layer t()\n").messages(),
            "1:10: error: expected '{', got the end of the file\n");
  EXPECT_EQ(Spec("layer t() {\ninput a : f32\n").messages(),
            "3:1: error: expected '}', got the end of the file\n"
            "1:11: note: to match this '{'\n");
  EXPECT_EQ(Spec("layer t() {\nlayer u() {}").messages(),
            "2:1: error: expected '}', got 'layer'\n"
            "1:11: note: to match this '{'\n");
}

TEST(Parser, RefusesHostileDepth) {
  auto times = [](int n, const std::string &text) {
    std::string out;
    for (int i = 0; i < n; ++i)
      out += text;
    return out;
  };
  std::string error = "error: expression is nested deeper than 200 levels\n";
  for (const std::string &text :
       {times(100000, "("), times(100000, "-") + "a", times(100000, "exp("),
        "a" + times(100000, " + a"), "a" + times(100000, "^2"),
        "a" + times(100000, "^-2"), "a" + times(100000, "^T"),
        "a" + times(100000, "/a"), "max(a" + times(10000, ", eps = max(a")}) {
    std::string errors = errorsOf("x = " + text);
    size_t at = errors.find(error);
    ASSERT_NE(at, std::string::npos) << text.substr(0, 20);
    EXPECT_EQ(errors.find("error:"), at) << errors.substr(0, 200);
  }
}

TEST(Parser, TakesReasonableDepth) {
  std::string sum = "a";
  for (int i = 0; i < 150; ++i)
    sum += " + a";
  EXPECT_EQ(errorsOf("x = " + sum), "");
  EXPECT_EQ(
      errorsOf("x = " + std::string(150, '(') + "a" + std::string(150, ')')),
      "");
}

TEST(Parser, RefusesHugeFiles) {
  Spec spec(std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(spec.messages(), "1:1: error: the file has 1048577 bytes, expected "
                             "at most 1048576\n");
}

static const char twoLayers[] =
    "layer one(K = 2) { input k : [K] f32; state z : [K] f32; z += k; output o "
    ": f32 = k @ z^T }\n"
    "layer two(K = 2) { input k : [K] f32; state z : [K] f32; z -= k; output o "
    ": f32 = k @ z^T }\n";

TEST(Parser, ChoosesALayerByName) {
  Spec spec(twoLayers, {.dims = {}, .layer = "two"});
  ASSERT_TRUE(spec.layer);
  EXPECT_EQ(spec.layer->name, "two");
  EXPECT_EQ(print(*spec.layer), "z: keep; write -1 * k^T (1)\n"
                                "o = (k @ z.1^T)\n");
}

TEST(Parser, AsksForALayerWhenThereAreSeveral) {
  EXPECT_EQ(Spec(twoLayers).messages(),
            "1:7: error: the file has 2 layers, 'one' and 'two'; choose one "
            "with '--layer NAME'\n");
  EXPECT_EQ(Spec(twoLayers, {.dims = {}, .layer = "three"}).messages(),
            "1:7: error: the file has no layer 'three', only 'one' and "
            "'two'\n");
  EXPECT_EQ(Spec(" # nothing\n").messages(),
            "1:1: error: the file has no layer\n");
  EXPECT_EQ(Spec("layer a() {}\nlayer a() {}").messages(),
            "2:7: error: redefinition of layer 'a'\n"
            "1:7: note: 'a' is first defined here\n");
}
