//===- AffineErrorsTest.cpp - Why there is no chunkwise form --------------===//
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

/// The error of a body, which must be accepted step by step.
static std::string refused(const std::string &body,
                           const std::string &output = "") {
  Spec steps(layerOf(body, output),
             {.dims = {}, .layer = "", .stepOnly = true});
  EXPECT_TRUE(steps.layer) << steps.messages();
  EXPECT_TRUE(!steps.layer || !steps.layer->affine);
  std::string errors = errorsOf(body, output);
  EXPECT_NE(errors.find("note: '--form step' runs it token by token\n"),
            std::string::npos)
      << errors;
  return errors.substr(0, errors.find('\n'));
}

TEST(NotAffine, IsExplained) {
  EXPECT_EQ(Spec("layer t(K = 4, V = 3) {\n"
                 "  input q, k : [K] bf16\n"
                 "  input v    : [V] bf16\n"
                 "  state S    : [K, V] f32\n"
                 "  S = tanh(S + k^T @ v)\n"
                 "  output o : [V] bf16 = q @ S\n"
                 "}\n")
                .rendered(),
            "t.plum:5:7: error: 'tanh' of state 'S' is not affine in 'S'\n"
            "    5 |   S = tanh(S + k^T @ v)\n"
            "      |       ^~~~~~~~~~~~~~~~~\n"
            "t.plum:5:7: note: a chunkwise form needs the affine step S -> "
            "diag(w) @ S + x^T @ (y @ S) + k^T @ v, and w, x, y, k, v free of "
            "'S'\n"
            "t.plum:4:9: note: 'S' is declared here\n"
            "    4 |   state S    : [K, V] f32\n"
            "      |         ^\n"
            "t.plum:5:3: note: '--form step' runs it token by token\n"
            "    5 |   S = tanh(S + k^T @ v)\n"
            "      |   ^~~~~~~~~~~~~~~~~~~~~\n");
}

TEST(NotAffine, PointsIntoALocalAndAtItsUse) {
  EXPECT_EQ(errorsOf("y = sigmoid(k @ S)\nS += k^T @ y"),
            "7:5: error: 'sigmoid' of a read of state 'S' is not affine in "
            "'S'\n"
            "8:1: note: in this update of 'S'\n"
            "7:5: note: a chunkwise form needs the affine step S -> diag(w) @ "
            "S + x^T @ (y @ S) + k^T @ v, and w, x, y, k, v free of 'S'\n"
            "5:9: note: 'S' is declared here\n"
            "8:1: note: '--form step' runs it token by token\n");
}

TEST(NotAffine, Functions) {
  EXPECT_EQ(refused("S = exp(S)"),
            "7:5: error: 'exp' of state 'S' is not affine in 'S'");
  EXPECT_EQ(refused("S = S ^ 2"),
            "7:5: error: '^' of state 'S' is not affine in 'S'");
  EXPECT_EQ(refused("S += k^T @ tanh(k @ S)"),
            "7:12: error: 'tanh' of a read of state 'S' is not affine in 'S'");
  EXPECT_EQ(refused("S += k^T @ (v - l2norm(k @ S))"),
            "7:17: error: 'l2norm' of a read of state 'S' is not affine in "
            "'S'");
  EXPECT_EQ(refused("S = max(S, 0)"),
            "7:5: error: 'max' of state 'S' is not affine in 'S'");
  EXPECT_EQ(refused("z = relu(z + k)"),
            "7:5: error: 'relu' of state 'z' is not affine in 'z'");
  EXPECT_EQ(refused("z += exp(k @ z^T) * k"),
            "7:6: error: 'exp' of a read of state 'z' is not affine in 'z'");
}

TEST(NotAffine, Products) {
  std::string product = "product of two values that depend on state 'S' is not "
                        "affine in 'S'";
  EXPECT_EQ(refused("S = S * S"), "7:5: error: " + product);
  EXPECT_EQ(refused("S = S^T^T @ (S^T @ S)"), "7:5: error: " + product);
  EXPECT_EQ(refused("S = sum(k @ S) * S"), "7:5: error: " + product);
  EXPECT_EQ(refused("S += (k @ S @ v^T) * (k^T @ (k @ S))"),
            "7:6: error: " + product);
  EXPECT_EQ(refused("S += k^T @ ((k @ S) * (q @ S))"),
            "7:12: error: " + product);
  EXPECT_EQ(refused("P = k^T @ v\nS = S * P"),
            "8:5: error: product of states 'S' and 'P' is not affine");
  EXPECT_EQ(refused("z = z * z"),
            "7:5: error: product of two values that depend on state 'z' is not "
            "affine in 'z'");
}

TEST(NotAffine, Divisions) {
  EXPECT_EQ(refused("S += k^T @ v / (1 + sum(k @ S))"),
            "7:6: error: division by a value that depends on state 'S' is not "
            "affine in 'S'");
  EXPECT_EQ(refused("z = k / z"),
            "7:5: error: division by a value that depends on state 'z' is not "
            "affine in 'z'");
}

TEST(NotAffine, KeysAndDecaysThatReadTheState) {
  Spec square("layer t(K = 4) { input q, k : [K] f32; state S : [K, K] f32; S "
              "+= (k @ S)^T @ k; output o : [K] f32 = q @ S }");
  EXPECT_EQ(square.messages().substr(0, 71),
            "1:67: error: a key that depends on state 'S' is not affine in "
            "'S'\n"
            "1:67:");
  EXPECT_EQ(refused("y = k @ S\nx = y @ v^T\nS = diag(k * x) @ S"),
            "9:5: error: a decay that depends on state 'S' is not affine in "
            "'S'");
}

TEST(NotAffine, TheLastAxis) {
  std::string along = "state 'S' is scaled or mixed along its last axis";
  EXPECT_EQ(refused("S = S @ diag(v)"), "7:5: error: " + along);
  EXPECT_EQ(refused("S = S @ (v^T @ u)"), "7:5: error: " + along);
  EXPECT_EQ(refused("S += k^T @ (k @ S) @ diag(v)"), "7:6: error: " + along);
  EXPECT_EQ(refused("S += k^T @ (u * (k @ S))"), "7:12: error: " + along);
  EXPECT_EQ(refused("S += (k @ S @ v^T) * (k^T @ v)"), "7:6: error: " + along);
  EXPECT_EQ(refused("S += sum(k @ S) * k^T @ v"), "7:6: error: " + along);
  EXPECT_EQ(refused("S += sum(S) * k^T @ v"), "7:6: error: " + along);
}

TEST(NotAffine, MatricesThatAreNotLowRank) {
  EXPECT_EQ(refused("S += tanh(k^T @ v)"),
            "7:6: error: 'tanh' of a matrix is not low rank");
  EXPECT_EQ(refused("S += (k^T @ v) * (q^T @ u)"),
            "7:6: error: elementwise '*' of two matrices is not low rank");
  EXPECT_EQ(refused("S = S * (k^T @ v)"),
            "7:5: error: elementwise '*' of state 'S' with a matrix is not "
            "'diag(w) @ S'");
  EXPECT_EQ(refused("S = S / (k^T @ v)"),
            "7:5: error: elementwise '/' of state 'S' with a matrix is not "
            "'diag(w) @ S'");
  Spec square("layer t(K = 4) { input q, k : [K] f32; state S : [K, K] f32; S "
              "+= diag(k); output o : [K] f32 = q @ S }");
  EXPECT_EQ(square.messages().substr(0, 47),
            "1:67: error: a diagonal matrix is not low rank\n");
}

TEST(NotAffine, WholeStates) {
  EXPECT_EQ(refused("S = S + P"),
            "7:9: error: state 'P' is added to state 'S' as a whole");
  EXPECT_EQ(refused("Old = S\nS = a * S\nS = S + Old"),
            "7:7: error: state 'S' of before an earlier update is used as a "
            "whole");
  EXPECT_EQ(refused("S += z^T @ v"),
            "7:6: error: state 'z' is used as a whole, not read as 'x @ z^T'");
  EXPECT_EQ(refused("z = z @ (k^T @ z)").substr(0, 12), "7:5: error: ");
  EXPECT_EQ(refused("", "output o : [K] f32 = z"),
            "8:22: error: state 'z' is used as a whole, not read as 'x @ "
            "z^T'");
  EXPECT_EQ(refused("zn = l2norm(z)", "output o : [V] f32 = zn @ S"),
            "7:6: error: 'l2norm' of state 'z' is not affine in 'z'");
  EXPECT_EQ(refused("z += k", "output o : [V] f32 = z @ S"),
            "8:22: error: product of states 'z' and 'S' is not affine");
  EXPECT_EQ(refused("", "output o : f32 = sum(S)"),
            "8:18: error: state 'S' is scaled or mixed along its last axis");
  EXPECT_EQ(refused("", "output o : [V] f32 = q @ tanh(S)"),
            "8:26: error: 'tanh' of state 'S' is not affine in 'S'");
}

TEST(NotAffine, OutputsAreExplainedToo) {
  EXPECT_EQ(errorsOf("z += k", "output o : [K] f32 = z * 2"),
            "8:22: error: state 'z' is used as a whole, not read as 'x @ "
            "z^T'\n"
            "8:22: note: a chunkwise form never holds 'z' of each token, only "
            "its reads x @ z^T\n"
            "6:9: note: 'z' is declared here\n"
            "8:1: note: '--form step' runs it token by token\n");
}

TEST(NotAffine, UpdatesFromAnotherStateAreExplainedByThatState) {
  EXPECT_EQ(errorsOf("zn = l2norm(z)\nz += k\nS += zn^T @ v"),
            "7:6: error: 'l2norm' of state 'z' is not affine in 'z'\n"
            "9:1: note: in this update of 'S'\n"
            "7:6: note: a chunkwise form never holds 'z' of each token, only "
            "its reads x @ z^T\n"
            "6:9: note: 'z' is declared here\n"
            "9:1: note: '--form step' runs it token by token\n");
}

TEST(NotAffine, StatesThatDependOnEachOther) {
  EXPECT_EQ(errorsOf("S += k^T @ (k @ P)\nP += k^T @ (k @ S)"),
            "7:1: error: the updates of states 'S' and 'P' depend on each "
            "other\n"
            "7:1: note: a chunkwise form computes one state for a whole chunk "
            "before the next\n"
            "8:1: note: 'P' is updated here\n"
            "7:1: note: '--form step' runs it token by token\n");
  EXPECT_EQ(refused("y = k @ P\nS += k^T @ y\nP = exp(k @ z^T) * P\n"
                    "z += sum(q @ S) * k"),
            "8:1: error: the updates of states 'S', 'P' and 'z' depend on each "
            "other");
}

TEST(NotAffine, SumsThatExplode) {
  std::string body = "M0 = S\n";
  for (int i = 1; i < 40; ++i) {
    std::string before = "M" + std::to_string(i - 1);
    body += "M" + std::to_string(i) + " = " + before + " + k^T @ (r @ " +
            before + ")\n";
  }
  EXPECT_EQ(refused(body + "S = M39"),
            "16:6: error: multiplied out this has 512 terms, expected at most "
            "256");
}

TEST(NotAffine, IsSaidOncePerPlace) {
  std::string errors =
      errorsOf("y = sum(q @ tanh(S)) * v\nS += k^T @ y\nS += r^T @ y");
  EXPECT_EQ(errors.find("error:"), errors.rfind("error:")) << errors;
}
