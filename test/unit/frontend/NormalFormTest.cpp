//===- NormalFormTest.cpp - Values that a chunkwise form computes ---------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In outputs and locals only reads x @ S of a plain state remain.
//
//===----------------------------------------------------------------------===//

#include "test/unit/frontend/TestSpec.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;

/// The output TEXT in normal form, or its errors.
static std::string output(const std::string &text, const std::string &body = "",
                          const std::string &type = "[V]") {
  Spec spec(layerOf(body, "output o : " + type + " f32 = " + text));
  if (!spec.layer)
    return spec.messages();
  return print(spec.layer->stmts.back().expr);
}

TEST(NormalForm, KeepsWhatIsInIt) {
  EXPECT_EQ(output("silu(u) * (q @ S) / (1 + a)"),
            "((silu(u) * (q @ S.0)) / (1 + a))");
  EXPECT_EQ(output("q @ S / (q @ z^T)"), "((q @ S.0) / (q @ z.0^T))");
  EXPECT_EQ(output("(q @ k^T) * v"), "((q @ k^T) * v)");
}

TEST(NormalForm, SharesTheNodesOfTheSpec) {
  Spec spec(layerOf("x = l2norm(q) * (k @ k^T)"));
  ASSERT_TRUE(spec.layer);
  EXPECT_EQ(spec.layer->stmts[0].expr, spec.layer->stmts[0].written);
}

TEST(NormalForm, MultipliesMatricesOut) {
  EXPECT_EQ(output("q @ (k^T @ v)"), "((q @ k^T) * v)");
  EXPECT_EQ(output("q @ (S + k^T @ v)"), "((q @ S.0) + ((q @ k^T) * v))");
  EXPECT_EQ(output("q @ (S - a * P)"), "((q @ S.0) - (a * (q @ P.0)))");
  EXPECT_EQ(output("q @ (diag(w) @ S)"), "((q * w) @ S.0)");
  EXPECT_EQ(output("q @ diag(w) @ S"), "((q * w) @ S.0)");
  EXPECT_EQ(output("q @ (k^T @ k) @ S"), "(((q @ k^T) * k) @ S.0)");
  EXPECT_EQ(output("q @ (k^T @ k @ S)"), "((q @ k^T) * (k @ S.0))");
  EXPECT_EQ(output("(S^T @ q^T)^T"), "(q @ S.0)");
  EXPECT_EQ(output("q @ (S + 1)"), "((q @ S.0) + ((q @ 1[4]^T) * 1[3]))");
  EXPECT_EQ(output("u @ diag(v)"), "(u * v)");
}

TEST(NormalForm, ReadsTheVersionOfAMatrixLocal) {
  EXPECT_EQ(output("q @ Sd", "Sd = a * S\nS = Sd + k^T @ v"),
            "(a * (q @ S.0))");
}

TEST(NormalForm, KeepsLocalsThatAreScalarsOrRows) {
  EXPECT_EQ(output("y * y + y", "y = q @ (S + k^T @ v)"), "((y * y) + y)");
  Spec spec(layerOf("y = q @ (S + k^T @ v)"));
  EXPECT_EQ(print(spec.layer->stmts[0].expr), "((q @ S.0) + ((q @ k^T) * v))");
  EXPECT_EQ(spec.layer->locals[0]->definition, spec.layer->stmts[0].expr);
}

TEST(NormalForm, HasNoLocalsOfOtherShapes) {
  Spec spec(layerOf("M = k^T @ v\nc = k^T\nD = diag(w)\nx = q @ D @ M\n"
                    "y = q @ c",
                    "output o : [V] f32 = x * y + q @ S"));
  ASSERT_TRUE(spec.layer);
  EXPECT_EQ(print(*spec.layer), "M = none\nc = none\nD = none\n"
                                "x = (((q * w) @ k^T) * v)\n"
                                "y = (q @ k^T)\n"
                                "o = ((x * y) + (q @ S.0))\n");
  EXPECT_EQ(spec.layer->locals[0]->definition, spec.layer->stmts[0].written);
}

TEST(NormalForm, TurnsColumnsIntoRows) {
  EXPECT_EQ(output("exp(q^T)^T @ S"), "(exp(q) @ S.0)");
  EXPECT_EQ(output("q @ (a * k^T + exp(r^T))", "", ""),
            "(q @ ((a * k) + exp(r))^T)");
  EXPECT_EQ(output("sum(k^T)", "", ""), "sum(k)");
  EXPECT_EQ(output("q @ (diag(w) @ k^T)", "", ""), "(q @ (k * w)^T)");
  EXPECT_EQ(output("(q @ k^T)^T", "", ""), "(q @ k^T)");
}

TEST(NormalForm, ReadsVectorStatesByDotProducts) {
  EXPECT_EQ(output("z @ q^T", "", ""), "(q @ z.0^T)");
  EXPECT_EQ(output("sum(q * z)", "", ""), "(q @ z.0^T)");
  EXPECT_EQ(output("sum(z)", "", ""), "(1[4] @ z.0^T)");
  EXPECT_EQ(output("q @ (a * z + k)^T", "", ""),
            "((a * (q @ z.0^T)) + (q @ k^T))");
  EXPECT_EQ(output("q @ zw^T", "zw = z * w", ""), "((q * w) @ z.0^T)");
}

TEST(NormalForm, KeepsWhatWasWrittenBeside) {
  Spec spec(layerOf("S += k^T @ v", "output o : [V] f32 = q @ (S + k^T @ v)"));
  EXPECT_EQ(print(spec.layer->stmts[0].written), "(S.0 + (k^T @ v))");
  EXPECT_EQ(print(spec.layer->stmts[1].written), "(q @ (S.1 + (k^T @ v)))");
}

TEST(NormalForm, IsNotUsedWhenTheLayerIsNotAffine) {
  Spec spec(layerOf("S = tanh(S)\nSd = a * S\nP += k^T @ v",
                    "output o : [V] f32 = q @ Sd + q @ P"),
            {.dims = {}, .layer = "", .stepOnly = true});
  ASSERT_TRUE(spec.layer) << spec.messages();
  EXPECT_FALSE(spec.layer->affine);
  EXPECT_FALSE(spec.layer->stmts[0].affine);
  EXPECT_TRUE(spec.layer->stmts[2].affine);
  for (const Stmt &stmt : spec.layer->stmts)
    EXPECT_EQ(stmt.expr, stmt.written);
}
