//===- DiagnosticsTest.cpp - Rendering of messages ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Support/Diagnostics.h"

#include "gtest/gtest.h"

using namespace plum;

TEST(Source, FindsLinesAndColumns) {
  Source source("x", "ab\r\n\nc");
  EXPECT_EQ(source.line(1), "ab");
  EXPECT_EQ(source.line(2), "");
  EXPECT_EQ(source.line(3), "c");
  EXPECT_EQ(source.line(0), "");
  EXPECT_EQ(source.line(9), "");
  EXPECT_EQ(source.place(1).column, 2u);
  EXPECT_EQ(source.place(5).line, 3u);
  EXPECT_EQ(source.place(4000000000u).line, 3u);
  EXPECT_EQ(source.place(4000000000u).column, 2u);
}

TEST(Diagnostics, RendersCaretAndTildes) {
  Source source("kda.plum", "first\n  S = tanh(S)\n");
  Diagnostics diags(source);
  diags.error({12, 19}, "no");
  diags.note({0, 5}, "see");
  EXPECT_TRUE(diags.hasErrors());
  EXPECT_EQ(diags.render(), "kda.plum:2:7: error: no\n"
                            "    2 |   S = tanh(S)\n"
                            "      |       ^~~~~~~\n"
                            "kda.plum:1:1: note: see\n"
                            "    1 | first\n"
                            "      | ^~~~~\n");
}

TEST(Diagnostics, DoesNotRepeatTheLineForANoteAtTheSamePlace) {
  Source source("x", "abc");
  Diagnostics diags(source);
  diags.warning({1, 2}, "one");
  diags.note({1, 2}, "two");
  EXPECT_FALSE(diags.hasErrors());
  EXPECT_EQ(diags.render(), "x:1:2: warning: one\n"
                            "    1 | abc\n"
                            "      |  ^\n"
                            "x:1:2: note: two\n");
}

TEST(Diagnostics, ShowsRemarksAndTheirNotesOnlyWhenAsked) {
  Source source("x", "abc");
  Diagnostics diags(source);
  diags.remark({0, 1}, "one");
  diags.note({1, 2}, "two");
  EXPECT_EQ(diags.render(), "");
  EXPECT_EQ(diags.render(/*remarks=*/true), "x:1:1: remark: one\n"
                                            "    1 | abc\n"
                                            "      | ^\n"
                                            "x:1:2: note: two\n"
                                            "    1 | abc\n"
                                            "      |  ^\n");
}

TEST(Diagnostics, MarksOnlyTheFirstOfSeveralLines) {
  Source source("x", "ab\ncd");
  Diagnostics diags(source);
  diags.error({1, 5}, "long");
  EXPECT_EQ(diags.render(), "x:1:2: error: long\n"
                            "    1 | ab\n"
                            "      |  ^\n");
}

TEST(Diagnostics, MarksTheEndOfTheFile) {
  Source source("x", "ab");
  Diagnostics diags(source);
  diags.error({2, 2}, "end");
  EXPECT_EQ(diags.render(), "x:1:3: error: end\n"
                            "    1 | ab\n"
                            "      |   ^\n");
}

TEST(Diagnostics, AlignsTabsAndCharactersOfSeveralBytes) {
  Source source("x", "\t\xc3\xa4 b");
  Diagnostics diags(source);
  diags.error({4, 5}, "here");
  EXPECT_EQ(diags.render(), "x:1:5: error: here\n"
                            "    1 | \t\xc3\xa4 b\n"
                            "      | \t  ^\n");
}

TEST(Diagnostics, ReplacesControlCharacters) {
  Source source("x", std::string("a\x1b[0m\0b", 7));
  Diagnostics diags(source);
  diags.error({0, 1}, "odd");
  EXPECT_EQ(diags.render(), "x:1:1: error: odd\n"
                            "    1 | a?[0m?b\n"
                            "      | ^\n");
}

TEST(Diagnostics, CutsLongLinesAroundTheCaret) {
  Source source("x", std::string(1000, 'a') + "b" + std::string(1000, 'c'));
  Diagnostics diags(source);
  diags.error({1000, 1001}, "far");
  EXPECT_EQ(diags.render(), "x:1:1001: error: far\n"
                            "    1 | ..." +
                                std::string(80, 'a') + "b" +
                                std::string(79, 'c') +
                                "...\n"
                                "      |    " +
                                std::string(80, ' ') + "^\n");
}
