//===- SemaTest.cpp - Names, shapes and their errors ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/frontend/TestSpec.h"

#include "plum/Frontend/Affine.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;

/// The shape of a value in layerOf, or the errors.
static std::string shapeOf(const std::string &text) {
  Spec spec(layerOf("x = " + text),
            {.dims = {}, .layer = "", .stepOnly = true});
  if (!spec.layer) {
    std::string out;
    for (const Diagnostic &diagnostic : spec.diags.all())
      if (diagnostic.severity != Severity::Warning)
        out +=
            std::to_string(spec.source.place(diagnostic.range.begin).column) +
            ": " + diagnostic.message + "\n";
    return out;
  }
  return spec.layer->locals.front()->shape.str();
}

TEST(Shapes, FollowFromTheOperands) {
  EXPECT_EQ(shapeOf("a + 1"), "scalar");
  EXPECT_EQ(shapeOf("a * q"), "[4]");
  EXPECT_EQ(shapeOf("1 / q"), "[4]");
  EXPECT_EQ(shapeOf("q + k"), "[4]");
  EXPECT_EQ(shapeOf("q^T"), "[4]^T");
  EXPECT_EQ(shapeOf("a^T"), "scalar");
  EXPECT_EQ(shapeOf("S^T"), "[3, 4]");
  EXPECT_EQ(shapeOf("k^T @ v"), "[4, 3]");
  EXPECT_EQ(shapeOf("k @ q^T"), "scalar");
  EXPECT_EQ(shapeOf("k @ S"), "[3]");
  EXPECT_EQ(shapeOf("S @ v^T"), "[4]^T");
  EXPECT_EQ(shapeOf("S^T @ S"), "[3, 3]");
  EXPECT_EQ(shapeOf("diag(k)"), "diag [4]");
  EXPECT_EQ(shapeOf("2 * diag(k) / a"), "diag [4]");
  EXPECT_EQ(shapeOf("diag(k) @ diag(q)"), "diag [4]");
  EXPECT_EQ(shapeOf("diag(k) - k^T @ k"), "[4, 4]");
  EXPECT_EQ(shapeOf("diag(k) @ S @ diag(v)"), "[4, 3]");
  EXPECT_EQ(shapeOf("q @ diag(k)"), "[4]");
  EXPECT_EQ(shapeOf("diag(k) @ q^T"), "[4]^T");
  EXPECT_EQ(shapeOf("exp(S) + 1"), "[4, 3]");
  EXPECT_EQ(shapeOf("max(a, q, 1)"), "[4]");
  EXPECT_EQ(shapeOf("sum(q * k)"), "scalar");
  EXPECT_EQ(shapeOf("sum(S)"), "scalar");
  EXPECT_EQ(shapeOf("l2norm(q)^2"), "[4]");
}

TEST(Shapes, OfElementwiseOperatorsMustAgree) {
  EXPECT_EQ(shapeOf("q + v"), "9: '+' expects equal shapes, got [4] and [3]\n"
                              "5: the left side is [4]\n");
  EXPECT_EQ(shapeOf("(q - k) / v"), "15: '/' expects equal shapes, got [4] and "
                                    "[3]\n5: the left side is [4]\n");
  EXPECT_EQ(shapeOf("k^T * v"), "11: '*' expects equal shapes, got [4]^T and "
                                "[3]\n5: the left side is [4]^T\n"
                                "9: the outer product is written '@'\n");
  EXPECT_EQ(shapeOf("S - q"), "9: '-' expects equal shapes, got [4, 3] and "
                              "[4]\n5: the left side is [4, 3]\n");
  EXPECT_EQ(shapeOf("diag(q) * S"),
            "5: '*' is not defined for diag [4] and [4, 3]\n"
            "13: 'diag(w) @ S' scales the rows of 'S'\n");
  EXPECT_EQ(shapeOf("diag(q) + 1"),
            "5: '+' is not defined for diag [4] and scalar\n"
            "13: 'diag(w) @ S' scales the rows of 'S'\n");
}

TEST(Shapes, OfProductsMustFit) {
  EXPECT_EQ(shapeOf("a @ S"), "5: '@' expects rows, columns or matrices, got "
                              "scalar\n7: a scalar factor is written '*'\n");
  EXPECT_EQ(shapeOf("q @ k"),
            "9: '@' expects a column or a matrix to the right of a row, got "
            "[4]\n5: the left side is [4]\n"
            "7: the dot product is written 'x @ y^T'\n");
  EXPECT_EQ(shapeOf("S @ v"),
            "9: '@' expects a column or a matrix to the right of a matrix, got "
            "[3]\n5: the left side is [4, 3]\n");
  EXPECT_EQ(shapeOf("k^T @ S"), "11: '@' expects a row to the right of a "
                                "column, got [4, 3]\n"
                                "5: the left side is [4]^T\n");
  EXPECT_EQ(shapeOf("v @ S"), "9: '@' expects equal inner extents, got 3 and "
                              "4: [3] @ [4, 3]\n5: the left side is [3]\n");
}

/// A dim of 1 makes no new programs legal.
TEST(Shapes, DoNotDependOnADimBeingOne) {
  std::string text = "layer t(K = 1) { input k : [K] f32; state z : [K] f32; z "
                     "+= k @ k; output o : f32 = k @ z^T }";
  EXPECT_FALSE(Spec(text).layer);
}

TEST(Functions, CheckTheirArguments) {
  EXPECT_EQ(shapeOf("exp(a, b)"), "5: 'exp' expects 1 argument, got 2\n");
  EXPECT_EQ(shapeOf("max(a)"),
            "5: 'max' expects at least 2 arguments, got 1\n");
  EXPECT_EQ(shapeOf("max(a, q, v)"), "15: 'max' expects equal shapes, got [4] "
                                     "and [3]\n12: this argument is [4]\n");
  EXPECT_EQ(shapeOf("l2norm(a)"), "12: 'l2norm' expects a row, got scalar\n");
  EXPECT_EQ(shapeOf("rmsnorm(S)"), "13: 'rmsnorm' expects a row, got [4, 3]\n");
  EXPECT_EQ(shapeOf("diag(a)"), "10: 'diag' expects a row, got scalar\n");
  EXPECT_EQ(shapeOf("diag(q, k)"), "5: 'diag' expects 1 argument, got 2\n");
  EXPECT_EQ(shapeOf("exp(diag(q))"), "9: 'exp' is not defined for a diagonal "
                                     "matrix; write 'diag(exp(w))'\n");
  EXPECT_EQ(shapeOf("diag(q)^2"), "5: '^' is not defined for a diagonal "
                                  "matrix; write 'diag(w ^ n)'\n");
}

TEST(Functions, CheckEps) {
  EXPECT_EQ(shapeOf("exp(a, eps = 1)"), "12: 'exp' has no argument 'eps'\n");
  EXPECT_EQ(shapeOf("l2norm(q, esp = 1)"), "15: 'l2norm' has no argument "
                                           "'esp'\n15: did you mean 'eps'?\n");
  EXPECT_EQ(shapeOf("l2norm(q, eps = 1, eps = 2)"),
            "24: argument 'eps' is given twice\n15: it is first given here\n");
  EXPECT_EQ(shapeOf("l2norm(q, eps = -1)"),
            "21: 'eps' expects a constant >= 0, got -1\n");
  EXPECT_EQ(shapeOf("l2norm(q, eps = a)"),
            "21: 'eps' expects a constant >= 0\n");
  EXPECT_EQ(shapeOf("l2norm(q, eps = 1 / K)"), "[4]");
}

TEST(Functions, MustBeKnown) {
  EXPECT_EQ(shapeOf("sigmod(a)"),
            "5: unknown function 'sigmod'\n5: did you mean 'sigmoid'?\n");
  EXPECT_EQ(shapeOf("fft(a)"), "5: unknown function 'fft'\n");
  EXPECT_EQ(shapeOf("a (q - k)"),
            "5: 'a' is not a function; a product is written '*'\n"
            "9: 'a' is declared here\n");
}

TEST(Powers, NeedAConstantExponent) {
  EXPECT_EQ(shapeOf("a ^ b"), "9: the exponent of '^' must be a constant\n");
  EXPECT_EQ(shapeOf("a ^ (1 / (K - 4))"),
            "9: the exponent of '^' must be finite, got inf\n");
  EXPECT_EQ(shapeOf("q ^ sqrt(K)"), "[4]");
}

TEST(Constants, AreFolded) {
  Spec spec(layerOf("c = -K ^ 2 / 8 + max(1, 2) * exp(0)\nd = a * 2"));
  ASSERT_TRUE(spec.layer);
  EXPECT_EQ(spec.layer->locals[0]->constant, 0.0);
  EXPECT_EQ(spec.layer->locals[1]->constant, std::nullopt);
}

TEST(Names, MustBeKnown) {
  EXPECT_EQ(errorsOf("beta = a\nx = bets * beta\ny = nope * x"),
            "8:5: error: unknown name 'bets'\n"
            "8:5: note: did you mean 'beta'?\n"
            "9:5: error: unknown name 'nope'\n");
}

TEST(Names, MeanTheValueAtTheirPlace) {
  EXPECT_EQ(errorsOf("x = y + y\ny = a"),
            "7:5: error: unknown name 'y'\n"
            "8:1: note: 'y' is defined here, which is too late\n");
  EXPECT_EQ(errorsOf("x = x + 1"),
            "7:5: error: unknown name 'x'\n"
            "7:1: note: 'x' is defined here, which is too late\n");
  EXPECT_EQ(printLayerOf("x = q @ S\nS += k^T @ v\ny = q @ S",
                         "output o : [V] f32 = q @ S - y - x"),
            "x = (q @ S.0)\nS: keep; write k^T (v)\ny = (q @ S.1)\n"
            "o = (((q @ S.1) - y) - x)\n");
}

TEST(Names, AreDefinedOnce) {
  EXPECT_EQ(errorsOf("x = a\nx = b\ninput q : f32\na = 1\nK = 3\n"
                     "state x : [K] f32\noutput v : f32 = a"),
            "8:1: error: redefinition of 'x'\n"
            "7:1: note: 'x' is first defined here\n"
            "9:7: error: redefinition of 'q'\n"
            "2:9: note: 'q' is first defined here\n"
            "10:1: error: 'a' is an input and cannot be assigned\n"
            "4:9: note: 'a' is declared here\n"
            "11:1: error: 'K' is a dim and cannot be assigned\n"
            "1:9: note: 'K' is declared here\n"
            "12:7: error: redefinition of 'x'\n"
            "7:1: note: 'x' is first defined here\n"
            "13:8: error: redefinition of 'v'\n"
            "3:9: note: 'v' is first defined here\n");
}

TEST(Names, OfOutputsCannotBeRead) {
  EXPECT_EQ(errorsOf("output p : f32 = a\nx = p"),
            "8:5: error: output 'p' cannot be read; define a local and use it "
            "in both places\n"
            "7:8: note: 'p' is declared here\n");
}

/// One mistake is one message.
TEST(Names, WithAnErrorAreNotReportedAgain) {
  EXPECT_EQ(errorsOf("x = q + v\ny = x * 2\ninput c : [Q] f32\nd = c + y"),
            "7:9: error: '+' expects equal shapes, got [4] and [3]\n"
            "7:5: note: the left side is [4]\n"
            "9:12: error: unknown dim 'Q'\n");
}

TEST(Updates, AreOfStates) {
  EXPECT_EQ(errorsOf("x = a\nx += 1\na -= 1\nu1 += 1"),
            "8:3: error: '+=' updates a state, but 'x' is a local\n"
            "7:1: note: 'x' is first defined here\n"
            "9:3: error: '-=' updates a state, but 'a' is an input\n"
            "4:9: note: 'a' is declared here\n"
            "10:4: error: '+=' updates a state, but 'u1' is not declared\n"
            "10:1: note: did you mean 'u'?\n");
}

TEST(Updates, HaveTheShapeOfTheState) {
  EXPECT_EQ(errorsOf("S = k\nS += v^T @ k\nz = 0"),
            "7:5: error: the update of state 'S' expects [4, 3], got [4]\n"
            "5:9: note: 'S' is declared here\n"
            "8:6: error: the update of state 'S' expects [4, 3], got [3, 4]\n"
            "5:9: note: 'S' is declared here\n"
            "9:5: error: the update of state 'z' expects [4], got scalar\n"
            "6:9: note: 'z' is declared here\n");
}

TEST(Outputs, HaveTheirDeclaredShape) {
  EXPECT_EQ(errorsOf("", "output o : [K] f32 = q @ S"),
            "8:22: error: output 'o' expects [4], got [3]\n"
            "8:12: note: 'o' has this type\n");
  EXPECT_EQ(errorsOf("", "output o : [K, V] f32 = S"),
            "8:12: error: an output is a scalar or a row, got [4, 3]\n");
}

TEST(Declarations, CheckTheirTypes) {
  EXPECT_EQ(errorsOf("input c : [K, V] f32\nparam d : [2, 3] f32\n"
                     "state e : f32\ninput f : [0] f32\ninput g : [-2] f32\n"
                     "input h : [4097] f32\ninput i : [K, V, K] f32\n"
                     "input j : [q] f32"),
            "7:11: error: an input is a scalar or a row, got [4, 3]\n"
            "8:11: error: a param is a scalar or a row, got [2, 3]\n"
            "9:11: error: a state is a row or a matrix, got scalar; write "
            "'[1]'\n"
            "10:12: error: extent is 0, expected 1 to 4096\n"
            "11:12: error: extent is -2, expected 1 to 4096\n"
            "12:12: error: extent is 4097, expected 1 to 4096\n"
            "13:11: error: a type has at most two extents, got 3\n"
            "14:12: error: 'q' is an input, expected a dim or an integer\n"
            "2:9: note: 'q' is declared here\n");
}

TEST(Declarations, AllowSixtyFourStates) {
  std::string body;
  for (int i = 0; i < 62; ++i)
    body += "state s" + std::to_string(i) + " : [K] f32\n";
  EXPECT_EQ(errorsOf(body), "68:7: error: a layer has at most 64 states\n");
}

static std::string withDims(const std::string &dims,
                            const SpecOptions &options) {
  return Spec("layer t(" + dims +
                  ") { input k : [K] f32; state z : [K] f32; z "
                  "+= k; output o : f32 = k @ z^T }",
              options)
      .messages();
}

TEST(Dims, TakeTheirValueFromTheSpecOrTheOptions) {
  EXPECT_EQ(withDims("K = 3", {}), "");
  EXPECT_EQ(withDims("K", {.dims = {{"K", 4096}}, .layer = ""}), "");
  Spec spec("layer t(K = 3) { input k : [K] f32; state z : [K] f32; z += k; "
            "output o : f32 = k @ z^T }",
            {.dims = {{"K", 7}}, .layer = ""});
  ASSERT_TRUE(spec.layer);
  EXPECT_EQ(spec.layer->inputs[0]->shape, Shape::row(7));
}

TEST(Dims, AreChecked) {
  EXPECT_EQ(withDims("K", {}), "1:9: error: dim 'K' has no value; give it one "
                               "with '--set K=...'\n");
  EXPECT_EQ(withDims("K = 0", {}),
            "1:13: error: dim 'K' is 0, expected 1 to 4096\n");
  EXPECT_EQ(withDims("K = -8", {}),
            "1:13: error: dim 'K' is -8, expected 1 to 4096\n");
  EXPECT_EQ(withDims("K = 4097", {}),
            "1:13: error: dim 'K' is 4097, expected 1 to 4096\n");
  EXPECT_EQ(withDims("K = 3", {.dims = {{"K", 0}}, .layer = ""}),
            "1:9: error: dim 'K' is 0 by '--set K=0', expected 1 to 4096\n");
  EXPECT_EQ(withDims("K = 3", {.dims = {{"k", 5}}, .layer = ""}),
            "1:7: error: layer 't' has no dim 'k', set by '--set k=5'\n"
            "1:7: note: did you mean 'K'?\n");
  EXPECT_EQ(withDims("K = 3, K = 4", {}),
            "1:16: error: redefinition of 'K'\n"
            "1:9: note: 'K' is first defined here\n");
}

TEST(Layers, NeedAStateAndAnOutput) {
  EXPECT_EQ(Spec("layer t() { input a : f32 }").messages(),
            "1:7: error: layer 't' has no state\n"
            "1:7: error: layer 't' has no output\n"
            "1:19: warning: unused input 'a'\n");
}

TEST(Layers, WarnOfWhatIsUnused) {
  Spec spec(
      "layer t(K = 2) {\n input k, i : [K] f32\n param p : f32\n"
      " state z, y, x, w : [K] f32\n z += k\n y += k\n y = 2 * y\n l = k\n"
      " output o : f32 = k @ z^T + k @ x^T\n}");
  EXPECT_TRUE(spec.layer);
  EXPECT_EQ(spec.messages(), "2:11: warning: unused input 'i'\n"
                             "3:8: warning: unused param 'p'\n"
                             "4:11: warning: state 'y' is never read\n"
                             "4:14: warning: state 'x' is never updated\n"
                             "4:17: warning: state 'w' is never updated or "
                             "read\n"
                             "8:2: warning: unused local 'l'\n");
}

TEST(Layers, RefuseHostileChainsOfLocals) {
  std::string body = "x0 = a\n";
  for (int i = 1; i < 2000; ++i)
    body += "x" + std::to_string(i) + " = x" + std::to_string(i - 1) + "\n";
  EXPECT_EQ(errorsOf(body), "1007:9: error: definitions are nested deeper than "
                            "1000 levels\n");
}

TEST(Layers, KeepTheOrderOfDeclarations) {
  Spec spec(layerOf(""));
  ASSERT_TRUE(spec.layer);
  const Layer &layer = *spec.layer;
  ASSERT_EQ(layer.inputs.size(), 8u);
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    EXPECT_EQ(layer.inputs[i]->index, i);
  EXPECT_EQ(layer.inputs[4]->name, "v");
  EXPECT_EQ(layer.states[2]->name, "z");
  EXPECT_EQ(layer.states[2]->shape, Shape::row(4));
  EXPECT_EQ(layer.outputs[0]->dtype, DType::F32);
}

TEST(Errors, RenderAsClangDoes) {
  Spec spec("layer t(K = 4, V = 3) {\n"
            "  input q : [K] bf16\n"
            "  input v : [V] bf16\n"
            "  state S : [K, V] f32\n"
            "  S += q^T @ (v - v @ S)\n"
            "  output o : [V] f32 = q @ S\n"
            "}\n");
  EXPECT_EQ(spec.rendered(),
            "t.plum:5:23: error: '@' expects equal inner extents, got 3 and 4: "
            "[3] @ [4, 3]\n"
            "    5 |   S += q^T @ (v - v @ S)\n"
            "      |                       ^\n"
            "t.plum:5:19: note: the left side is [3]\n"
            "    5 |   S += q^T @ (v - v @ S)\n"
            "      |                   ^\n");
}
