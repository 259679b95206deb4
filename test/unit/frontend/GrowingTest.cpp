//===- GrowingTest.cpp - Lists of rows: append and attend -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/frontend/TestSpec.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;

/// A layer with q, k : [2], v : [3], a matrix S : [2, 3], lists A : [*, 2] and
/// B : [*, 3], around `body`, which begins on line 6.
static std::string growing(const std::string &body) {
  return "layer t(K = 2, V = 3) {\n"
         "input q, k : [K] f32; input v : [V] f32\n"
         "state S : [K, V] f32\n"
         "state A : [*, K] f32\n"
         "state B : [*, V] f32\n" +
         body + "\n}\n";
}
static std::string growingErrors(const std::string &body) {
  Spec spec(growing(body));
  std::string out;
  for (const Diagnostic &diagnostic : spec.diags.all())
    if (diagnostic.severity == Severity::Error)
      out += std::to_string(spec.source.place(diagnostic.range.begin).line) +
             ":" +
             std::to_string(spec.source.place(diagnostic.range.begin).column) +
             ": " + diagnostic.message + "\n";
  return out;
}
static const std::string grow = "A = append(A, k); B = append(B, v)\n";

TEST(Growing, IsAppendedToAndAttended) {
  Spec spec(growing(grow + "o1 = attend(2 * q, A, B)\n"
                           "S += k^T @ o1\n"
                           "output o : [V] f32 = q @ S"));
  ASSERT_TRUE(spec.layer) << spec.messages();
  const Layer &layer = *spec.layer;
  EXPECT_TRUE(layer.affine);
  EXPECT_EQ(layer.states[1]->shape, Shape::list(2));
  EXPECT_EQ(layer.states[1]->shape.str(), "[*, 2]");
  EXPECT_EQ(layer.locals[0]->shape, Shape::row(3));
  ASSERT_EQ(layer.stmts[0].kind, Stmt::Update);
  EXPECT_FALSE(layer.stmts[0].affine);
  EXPECT_EQ(print(layer.stmts[0].expr), "append(A.0, k)");
  EXPECT_EQ(print(layer.stmts[2].expr), "attend((2 * q), A.1, B.1)");
}

TEST(Growing, MayBeReadBeforeItsRowIsThere) {
  Spec spec(growing("output o : [V] f32 = attend(q, A, B)\n" + grow +
                    "S += k^T @ v\noutput p : [V] f32 = q @ S"));
  ASSERT_TRUE(spec.layer) << spec.messages();
  EXPECT_EQ(print(spec.layer->stmts[0].expr), "attend(q, A.0, B.0)");
}

TEST(Growing, AddsUpTheScoresOfSeveralPairs) {
  Spec spec(growing(grow + "output o : [K] f32 = attend(q, A, v, B, A)"));
  EXPECT_TRUE(spec.layer) << spec.messages();
}

TEST(Growing, IsNothingElse) {
  auto errors = [](const std::string &text) {
    return growingErrors(grow + "output o : [V] f32 = attend(q, A, B)\n" +
                         text);
  };
  const std::string never = "a growing state is not a matrix: it is written "
                            "by 'append' and read by 'attend'\n";
  EXPECT_EQ(errors("x = q @ A"), "8:9: " + never);
  EXPECT_EQ(errors("x = A + A"), "8:5: " + never);
  EXPECT_EQ(errors("x = exp(A)"), "8:9: " + never);
  EXPECT_EQ(errors("x = A^T"), "8:5: " + never);
  EXPECT_EQ(errors("x = A"), "8:5: a growing state is not a local: it "
                             "is written by 'append' and read by 'attend'\n");
  EXPECT_EQ(errors("x = append(A, k)"),
            "8:5: a growing state is not a local: it is written by "
            "'append' and read by 'attend'\n");
}

TEST(Growing, GetsOneRowATokenAndAllOfIt) {
  EXPECT_EQ(
      growingErrors("A = append(A, k)\noutput o : [K] f32 = attend(q, A, A)"),
      "5:7: growing state 'B' is never appended to, expected one "
      "row a token\n");
  EXPECT_EQ(growingErrors(grow + "A = append(A, k)\n"
                                 "output o : [V] f32 = attend(q, A, B)"),
            "7:1: growing state 'A' is appended to twice, expected one "
            "row a token\n");
  const std::string update = "the update of growing state 'A' expects 'A = "
                             "append(A, row)'\n";
  EXPECT_EQ(growingErrors("A += k\nB = append(B, v)\n"
                          "output o : [V] f32 = attend(q, A, B)"),
            "6:1: " + update);
  EXPECT_EQ(growingErrors("A = A\nB = append(B, v)\n"
                          "output o : [V] f32 = attend(q, A, B)"),
            "6:1: " + update);
  EXPECT_EQ(growingErrors("A = append(B, v)\nB = append(B, v)\n"
                          "output o : [V] f32 = attend(q, A, B)"),
            "6:1: " + update);
  EXPECT_EQ(growingErrors("A = append(A, v)\nB = append(B, v)\n"
                          "output o : [V] f32 = attend(q, A, B)"),
            "6:15: 'append' expects [2], got [3]\n");
  EXPECT_EQ(growingErrors("A = append(A)\nB = append(B, v)\n"
                          "output o : [V] f32 = attend(q, A, B)"),
            "6:5: 'append' expects a growing state and a row, got 1 "
            "argument\n");
  EXPECT_EQ(growingErrors("A = append(S, v)\nB = append(B, v)\n"
                          "output o : [V] f32 = attend(q, A, B)"),
            "6:12: 'append' expects a growing state [*, d], got [2, 3]"
            "\n");
}

TEST(Growing, IsAttendedWithRowsOfItsWidth) {
  auto errors = [](const std::string &text) {
    return growingErrors(grow + "S += k^T @ v; output o : [V] f32 = " + text);
  };
  EXPECT_EQ(errors("attend(v, A, B)"), "7:43: 'attend' expects [2], got [3]\n");
  EXPECT_EQ(errors("attend(q, S, B)"),
            "7:46: 'attend' expects a growing state [*, d] as keys, got "
            "[2, 3]\n");
  EXPECT_EQ(errors("attend(q, A, v)"),
            "7:49: 'attend' expects a growing state [*, d] as values, "
            "got [3]\n");
  EXPECT_EQ(errors("attend(q, A)"),
            "7:36: 'attend' expects pairs of a query and keys, then "
            "values, got 2 arguments\n");
  EXPECT_EQ(errors("attend(q, A, B, scale = 2)"),
            "7:52: 'attend' has no argument 'scale'\n");
  EXPECT_EQ(
      growingErrors("A = append(A, k)\noutput o : [V] f32 = attend(q, A, B)\n"
                    "B = append(B, v)"),
      "7:32: 'A' has this token's row here and 'B' has not\n");
}

TEST(Growing, HasNoChunkOfRowsThatDependOnIt) {
  EXPECT_EQ(
      growingErrors("B = append(B, v + attend(q, A, B))\nA = append(A, k)\n"
                    "output o : [V] f32 = attend(q, A, B)"),
      "6:15: the row appended to 'B' depends on 'B'\n");
  Spec step(growing("B = append(B, v + attend(q, A, B))\nA = append(A, k)\n"
                    "output o : [V] f32 = attend(q, A, B)"),
            {.dims = {}, .layer = "", .stepOnly = true});
  ASSERT_TRUE(step.layer) << step.messages();
  EXPECT_FALSE(step.layer->affine);
}

TEST(Growing, IsAStateAndItsStarComesFirst) {
  EXPECT_EQ(growingErrors("input x : [*, K] f32"),
            "6:11: an input is a scalar or a row, got [*, 2]\n");
  EXPECT_EQ(growingErrors("state x : [K, *] f32"),
            "6:15: '*' is the first of two extents: '[*, K]' is a list "
            "of rows\n");
  EXPECT_EQ(growingErrors("state x : [*] f32"),
            "6:12: '*' is the first of two extents: '[*, K]' is a list "
            "of rows\n");
  EXPECT_EQ(growingErrors("state x : [*, *] f32"),
            "6:15: '*' is the first of two extents: '[*, K]' is a list "
            "of rows\n");
  EXPECT_EQ(growingErrors(grow + "output o : [*, K] f32 = attend(q, A, B)"),
            "7:12: an output is a scalar or a row, got [*, 2]\n");
}
