//===- AffineRunTest.cpp - Multiplying out keeps the meaning --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layers by hand and at random, run by their normal forms and by the
// reference: equal to rounding, in float64.
//
//===----------------------------------------------------------------------===//

#include "AffineRun.h"
#include "test/unit/frontend/TestSpec.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace plum;
using namespace plum::frontend;
using namespace plum::test;

static void expectNear(const std::vector<std::vector<double>> &got,
                       const std::vector<std::vector<double>> &expected,
                       const std::string &what) {
  for (size_t n = 0; n < got.size(); ++n) {
    double scale = 1;
    for (double x : expected[n])
      scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < got[n].size(); ++i)
      ASSERT_NEAR(got[n][i], expected[n][i], 1e-9 * scale)
          << what << " " << n << " at " << i;
  }
}

/// False when the layer has no chunkwise form; then only that must be said.
static bool agrees(const std::string &text) {
  SCOPED_TRACE(text);
  Spec spec(text);
  if (!spec.layer) {
    EXPECT_NE(spec.messages().find("'--form step'"), std::string::npos)
        << spec.messages();
    Spec steps(text, {.dims = {}, .layer = "", .stepOnly = true});
    EXPECT_TRUE(steps.layer && !steps.layer->affine) << steps.messages();
    return false;
  }
  HeadData written(*spec.layer, 4, 1), affine(*spec.layer, 4, 1);
  reference::Head a = written.head(), b = affine.head();
  reference::run(*spec.layer, a);
  runAffine(*spec.layer, b);
  expectNear(affine.outputs, written.outputs, "output");
  expectNear(affine.states, written.states, "state");
  return true;
}

TEST(AffineRun, AgreesOnUpdatesOfEveryKind) {
  for (const char *body :
       {"S = a * S + k^T @ v",
        "S = diag(exp(w)) @ S\nS += a * k^T @ (v - k @ S)",
        "Sd = diag(exp(w)) @ S\nS = Sd + a * k^T @ (v - k @ Sd)",
        "Sd = exp(a) * S / b\nS = Sd - k^T @ (r @ Sd - v) * 2",
        "S = diag(w) @ S - (w * r)^T @ (r @ S) + k^T @ v",
        "S = (diag(w) - a * k^T @ k) @ S + (v^T @ k)^T / b",
        "y = k @ S\nS = a * S\nS += k^T @ (v - y - k @ S)",
        "M = S + k^T @ v\nS = M - r^T @ (r @ M)\nS -= 0.5 * S",
        "S = 2 * S - diag(w) @ S - a * S + 1", "S = k^T @ v - q^T @ (k @ S)",
        "P = 0.5 * P + k^T @ (k @ S)", "c = (a * k)^T\nS += c @ (r @ S - v)",
        "z = a * z + k - b * (k @ z^T) * k", "z = w * z + 1 - sum(k * z) * r",
        "zd = z / 2 * w\nz = zd + k * (a - r @ zd^T)\nP += k^T @ v * (q @ z^T)",
        "z = z @ (diag(w) - k^T @ r) + (r^T @ k @ q^T)^T",
        "S = diag(w) @ diag(r) @ (S - k^T @ (v @ (u^T @ v)))",
        "S += k^T @ ((v - k @ S) @ diag(1 + 0 * v))"})
    agrees(layerOf(body, "output o : [V] f32 = (q @ S - 0.5 * q @ (P + k^T @ "
                         "v)) / (1 + exp(r @ z^T))\n"
                         "output y2 : f32 = sum(z) + q @ (z * w - k)^T"));
}

//===----------------------------------------------------------------------===//
// Random layers
//===----------------------------------------------------------------------===//

namespace {
/// Draws expressions of a shape: most are affine, some are not.
class Writer {
public:
  explicit Writer(uint32_t seed) : random(seed) {}

  std::string layer() {
    std::string body;
    for (size_t i = 0, count = 1 + below(4); i < count; ++i)
      body += statement() + "\n";
    std::string output = "output o : [V] f32 = " + rowV(3) +
                         "\noutput p : f32 = " + scalar(3) +
                         " + r @ z^T + sum(q @ S) - q @ P @ v^T";
    return layerOf(body, output);
  }

private:
  size_t below(size_t n) { return random() % n; }
  std::string pick(std::initializer_list<const char *> list) {
    return list.begin()[below(list.size())];
  }
  std::string with(const std::string &kind, const std::string &otherwise) {
    std::vector<std::string> fitting;
    for (const auto &[name, shape] : locals)
      if (shape == kind)
        fitting.push_back(name);
    return fitting.empty() || below(2) ? otherwise
                                       : fitting[below(fitting.size())];
  }

  std::string statement() {
    switch (below(8)) {
    case 0:
      return define("matrix", matrix(2));
    case 1:
      return define("rowK", rowK(2));
    case 2:
      return define("rowV", rowV(2));
    case 3:
      return define("scalar", scalar(2));
    case 4:
      return define("diag", diag(2));
    case 5:
      return "z = " + pick({"", "z * ", "0.5 * "}) + "(" + rowK(3) + ") + " +
             scalar(1) + " * z";
    case 6:
      return pick({"S", "P"}) + pick({" += ", " -= "}) + matrix(3);
    default:
      return pick({"S = ", "P = "}) + matrix(4);
    }
  }
  std::string define(const std::string &shape, const std::string &value) {
    std::string name = "t" + std::to_string(locals.size());
    locals.emplace_back(name, shape);
    return name + " = " + value;
  }

  std::string matrix(size_t depth) {
    if (depth == 0)
      return with("matrix", pick({"S", "S", "P", "k^T @ v", "r^T @ u"}));
    switch (below(8)) {
    case 0:
      return scalar(depth - 1) + " * (" + matrix(depth - 1) + ")";
    case 1:
      return "(" + diag(depth - 1) + ") @ (" + matrix(depth - 1) + ")";
    case 2:
    case 3:
      return "(" + matrix(depth - 1) + " + " + matrix(depth - 1) + ")";
    case 4:
      return "(" + matrix(depth - 1) + " - (" + matrix(depth - 1) + "))";
    case 5:
      return "(" + rowK(depth - 1) + ")^T @ (" + rowV(depth - 1) + ")";
    case 6:
      return "((" + rowK(1) + ")^T @ (" + rowK(1) + ")) @ (" +
             matrix(depth - 1) + ")";
    default:
      return "((" + rowV(depth - 1) + ")^T @ (" + rowK(depth - 1) + "))^T";
    }
  }
  std::string diag(size_t depth) {
    if (depth == 0 || below(2))
      return with("diag", "diag(" + rowK(depth ? depth - 1 : 0) + ")");
    return "(" + pick({"", "-"}) + scalar(depth - 1) + " * " + diag(depth - 1) +
           ")";
  }
  std::string rowV(size_t depth) {
    if (depth == 0)
      return with("rowV", pick({"v", "u", "(k @ S)", "(q @ P)", "l2norm(v)",
                                "silu(u)"}));
    switch (below(6)) {
    case 0:
      return scalar(depth - 1) + " * (" + rowV(depth - 1) + ")";
    case 1:
    case 2:
      return "(" + rowK(depth - 1) + ") @ (" + matrix(depth - 1) + ")";
    case 3:
      return "((" + rowV(depth - 1) + ") - (" + rowV(depth - 1) + "))";
    case 4:
      return "(" + rowV(depth - 1) + ") / (2 + exp(a))";
    default:
      return "((" + matrix(depth - 1) + ")^T @ (" + rowK(depth - 1) + ")^T)^T";
    }
  }
  std::string rowK(size_t depth) {
    if (depth == 0)
      return with("rowK", pick({"k", "q", "r", "w", "exp(w)", "l2norm(k)"}));
    switch (below(5)) {
    case 0:
      return scalar(depth - 1) + " * (" + rowK(depth - 1) + ")";
    case 1:
      return "(" + rowK(depth - 1) + ") * (" + rowK(depth - 1) + ")";
    case 2:
      return "(" + rowK(depth - 1) + " + " + rowK(depth - 1) + ")";
    case 3:
      return "(" + rowK(depth - 1) + ") @ " + diag(depth - 1);
    default:
      return rowK(0);
    }
  }
  std::string scalar(size_t depth) {
    if (depth == 0)
      return with("scalar", pick({"a", "b", "0.5", "K^-0.5", "exp(a)", "2"}));
    switch (below(6)) {
    case 0:
      return "(" + scalar(depth - 1) + " - " + scalar(depth - 1) + ")";
    case 1:
      return "((" + rowK(depth - 1) + ") @ (" + rowK(depth - 1) + ")^T)";
    case 2:
      return "sigmoid(" + scalar(depth - 1) + ")";
    case 3:
      return "((" + rowK(depth - 1) + ") @ z^T)";
    case 4:
      return "sum(" + rowK(depth - 1) + ")";
    default:
      return scalar(0);
    }
  }

  std::mt19937 random;
  std::vector<std::pair<std::string, std::string>> locals;
};
} // namespace

TEST(AffineRun, AgreesOnRandomLayers) {
  int affine = 0;
  for (uint32_t seed = 0; seed < 3000 && !HasFailure(); ++seed)
    affine += agrees(Writer(seed).layer());
  EXPECT_GT(affine, 1000); // Most are refused for a product of reads.
}
