//===- nonaffine_test.cpp - Layers that have no chunkwise form ------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An update that is not affine in the state is refused with its place and the
// way out, and the way out, the step form, works.
//
//===----------------------------------------------------------------------===//

#include "test/integration/Harness.h"

#include "gtest/gtest.h"

#include <filesystem>

using namespace plum;
using namespace plum::test;

namespace {
struct NonAffine {
  const char *name, *states, *update, *term;
};

class NonAffineLayers : public testing::TestWithParam<NonAffine> {
protected:
  Spec spec() const {
    std::string text = "layer strange(K = 20, V = 12) {\n"
                       "  input  q, k : [K] bf16\n"
                       "  input  v    : [V] bf16\n";
    text += std::string("  state  ") + GetParam().states + "\n";
    text += std::string("  ") + GetParam().update + "\n";
    text += "  output o : [V] bf16 = q @ S\n}\n";
    return {GetParam().name, text, {}};
  }
};
} // namespace

INSTANTIATE_TEST_SUITE_P(
    All, NonAffineLayers,
    testing::Values(
        NonAffine{"tanh", "S : [K, V] f32", "S = tanh(S + k^T @ v)", "tanh"},
        NonAffine{"square", "S : [K, V] f32", "S = 0.5 * S * S - 0.1 * k^T @ v",
                  "S * S"},
        NonAffine{"product", "S, R : [K, V] f32",
                  "R = 0.9 * R + k^T @ v; S = 0.1 * S * R + k^T @ v", "S * R"},
        NonAffine{"norm_of_read", "S : [K, V] f32",
                  "S += k^T @ (v - l2norm(k @ S, eps = 1e-6))", "l2norm"},
        NonAffine{
            "mutual", "S, R : [K, V] f32",
            "R = 0.9 * R + k^T @ (q @ S); S = 0.9 * S + k^T @ (v - q @ R)",
            "depend on each other"},
        NonAffine{"state_in_decay", "S : [K, V] f32",
                  "S = sigmoid(sum(k @ S)) * S + k^T @ v", "sigmoid"}),
    [](const testing::TestParamInfo<NonAffine> &info) {
      return std::string(info.param.name);
    });

TEST_P(NonAffineLayers, ChunkFormIsRefusedWithTheTermAndTheWayOut) {
  Spec layer = spec();
  Source source("strange.plum", layer.text);
  std::string dir =
      std::filesystem::temp_directory_path() / "plum-nonaffine-none";
  CompileReport report;
  Status status = compileBundle(source, {}, dir, report);
  ASSERT_FALSE(status) << "a chunkwise form of " << GetParam().update;
  std::string message = status.error().str();
  EXPECT_NE(message.find("strange.plum:5:"), std::string::npos) << message;
  EXPECT_NE(message.find(": error: "), std::string::npos) << message;
  EXPECT_NE(message.find("chunkwise"), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().term), std::string::npos) << message;
  EXPECT_NE(message.find("--form step"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(dir)) << "no bundle is left behind";
}

TEST_P(NonAffineLayers, StepFormEqualsTheReference) {
  for (Precision precision : {Precision::Default, Precision::F32}) {
    Layer &layer = Layer::get(spec(), precision, {});
    Data data(layer, {.batch = 2, .tokens = 40, .heads = 3});
    data.fill("q", unitRows(9, 1, 20));
    data.fill("k", unitRows(9, 2, 20));
    data.fill("v", normal(9, 3));
    data.fill("S", normal(9, 6, 0.25));
    if (layer.ast().states.size() > 1)
      data.fill("R", normal(9, 7, 0.25));
    expectClose(data, run(layer, data, {runtime::Form::Step, 0}),
                reference(layer, data), standard(layer), "step form");
  }
}
