//===- InterpreterTest.cpp - Edges of the float64 interpreter -------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PhaseRun.h"

#include "plum/Frontend/Frontend.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::test;
using interpreter::PhaseProgram;

static CompileOptions small(Form form = Form::Auto) {
  CompileOptions options;
  options.spec.dims = {{"K", 8}, {"V", 4}};
  options.chunks = {8};
  options.form = form;
  return options;
}

/// Every phase of `run`'s layer that has an entry, on its present data.
static void expectPhases(PhaseRun &run, size_t entries) {
  size_t found = 0;
  for (const std::string &phase : interpreter::interpretedPhases()) {
    auto program = run.read(run.ir(phase));
    ASSERT_TRUE(program);
    for (const PhaseProgram::Entry &entry : program->entries()) {
      bool perToken = phase == "assoc" || phase == "normal";
      if (perToken != (entry.chunk == 0))
        continue;
      ++found;
      EXPECT_LE(run.error(*program, entry), 1e-11) << phase;
    }
  }
  EXPECT_EQ(found, entries);
}

//===----------------------------------------------------------------------===//
// Layers without a chunkwise form
//===----------------------------------------------------------------------===//

class StepOnly : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(
    All, StepOnly,
    testing::Values("S = tanh(S + k^T @ v)", "S = 0.5 * S * S - 0.1 * k^T @ v",
                    "S += k^T @ (v - l2norm(k @ S, eps = 1e-6))",
                    "S = sigmoid(sum(k @ S)) * S + k^T @ v",
                    "S = 0.5 * tanh(S) @ diag(v) + sigmoid(q)^T @ v",
                    "R = 0.9 * R + k^T @ v; S = 0.1 * S * R + k^T @ v",
                    "h = tanh(h + q); S = diag(sigmoid(h)) @ S + k^T @ v"));

TEST_P(StepOnly, RunsTokenByToken) {
  PhaseRun run(std::string("layer t(K = 8, V = 4) {\n  input q, k : [K] f32\n"
                           "  input v : [V] f32\n  state S, R : [K, V] f32\n"
                           "  state h : [K] f32\n  ") +
                   GetParam() + "\n  output o : [V] f32 = q @ S\n" +
                   "  output g : [K] f32 = h + sum(k @ R)\n}\n",
               small(Form::Step));
  if (!run.ok())
    return;
  run.makeData(20);
  expectPhases(run, 2);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

TEST(Interpreter, LinearDecaysMayBeZeroOrNegative) {
  PhaseRun run(
      "layer t(K = 8, V = 4) {\n  input q, k, w : [K] f32\n  input v : [V] "
      "f32\n"
      "  state S : [K, V] f32\n  S = diag(w) @ S\n"
      "  S += 0.5 * k^T @ (v - k @ S)\n  output o : [V] f32 = q @ S\n}\n",
      small());
  ASSERT_TRUE(run.ok());
  run.makeData(30);
  auto *w = static_cast<float *>(run.args.inputs[2].data);
  for (int i = 0; i < 30 * 8; ++i)
    w[i] = i % 5 == 0 ? 0 : w[i] > 1 ? 1 : w[i] < -1 ? -1 : w[i];
  run.computeTruth();
  expectPhases(run, 4);
}

TEST(Interpreter, DecaysMayUnderflow) {
  PhaseRun run(
      "layer t(K = 8, V = 4) {\n  input q, k, a : [K] f32\n  input v : [V] "
      "f32\n"
      "  state S : [K, V] f32\n  S = diag(exp(a)) @ S\n"
      "  S += 0.5 * k^T @ (v - k @ S)\n  output o : [V] f32 = q @ S\n}\n",
      small());
  ASSERT_TRUE(run.ok());
  run.makeData(30);
  auto *a = static_cast<float *>(run.args.inputs[2].data);
  for (int i = 0; i < 30 * 8; ++i)
    a[i] *= i % 7 == 0 ? 1000 : 0.01f;
  run.computeTruth();
  expectPhases(run, 4);
}

/// One value as a log decay in one step and a factor in another.
TEST(Interpreter, DecaysOfOneValueInBothDomains) {
  PhaseRun run("layer t(K = 8, V = 4) {\n  input q, k : [K] f32\n"
               "  input v : [V] f32\n  input b : f32\n"
               "  state S : [K, V] f32\n  a = -sigmoid(b)\n"
               "  S = exp(a) * S + l2norm(k)^T @ v\n  S = a * S\n"
               "  output o : [V] f32 = q @ S\n}\n",
               small());
  ASSERT_TRUE(run.ok());
  run.makeData(30);
  expectPhases(run, 4);
}

/// A read whose key is another read of the same state has a chunkwise form.
TEST(Interpreter, ReadsMayFollowReads) {
  CompileOptions options = small();
  options.spec.dims["V"] = 8;
  PhaseRun run("layer t(K = 8, V = 8) {\n  input q, k : [K] f32\n"
               "  input v : [V] f32\n  state S : [K, V] f32\n"
               "  S = 0.9 * S + 0.1 * l2norm(k)^T @ v\n  y = q @ S\n"
               "  z = l2norm(y) @ S\n  output o : [V] f32 = y + z\n}\n",
               options);
  ASSERT_TRUE(run.ok());
  run.makeData(30);
  expectPhases(run, 4);
}

TEST(Interpreter, ConstantsAreThoseOfTheSpec) {
  CompileOptions options = small();
  PhaseRun run(shippedLayer("kda_k3"), options);
  ASSERT_TRUE(run.ok());
  run.makeData(30);
  std::string ir = run.ir("normal");
  auto exact = run.read(ir), rounded = run.read(ir, /*exact=*/false);
  ASSERT_TRUE(exact && rounded);
  EXPECT_LE(run.error(*exact, exact->entries().front()), 1e-14);
  double r = run.error(*rounded, rounded->entries().front());
  EXPECT_GT(r, 1e-10);
  EXPECT_LT(r, 1e-6);
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

static std::string errorOf(const std::string &ir, const std::string &entry,
                           reference::Head head) {
  Result<PhaseProgram> program = PhaseProgram::parse(ir);
  if (!program)
    return program.error().message;
  Status status = program->run({entry, 0}, head);
  return status ? "" : status.error().message;
}

static const char kLayer[] = R"(
assoc.layer @t args [#assoc.arg<input "x">] outputs ["o"] {
^bb0(%x: f32):
  %o = OP %x : f32
  assoc.yield %o : f32
})";

static std::string layerWith(const std::string &op) {
  std::string text = kLayer;
  return text.replace(text.find("OP"), 2, op);
}

TEST(Interpreter, RunsOneToken) {
  std::vector<double> x = {3}, o = {0};
  reference::Head head{1, {}, {x}, {}, {o}};
  EXPECT_EQ(errorOf(layerWith("arith.negf"), "t", head), "");
  EXPECT_EQ(o.front(), -3);
}

TEST(Interpreter, RefusesWhatItDoesNotKnow) {
  std::vector<double> x = {3}, o = {0};
  reference::Head head{1, {}, {x}, {}, {o}};
  EXPECT_EQ(errorOf(layerWith("math.cos"), "t", head),
            "'math.cos' is not interpreted");
  EXPECT_EQ(errorOf(layerWith("arith.negf"), "u", head),
            "the module has no layer or chunk function 'u'");
  EXPECT_NE(errorOf("assoc.layer", "t", head).find("the IR cannot be read: "),
            std::string::npos);
}

TEST(Interpreter, RefusesAHeadOfOtherSizes) {
  std::vector<double> x = {3, 4, 5}, o = {0, 0};
  EXPECT_EQ(errorOf(layerWith("arith.negf"), "t", {2, {}, {x}, {}, {o}}),
            "'assoc.layer' expects 2 values of input 0, got 3");
  EXPECT_EQ(errorOf(layerWith("arith.negf"), "t", {1, {}, {}, {}, {o}}),
            "'assoc.layer' has more arguments than the head: input 0");
}
