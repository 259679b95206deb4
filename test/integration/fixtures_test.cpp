//===- fixtures_test.cpp - KDA on tensors from inside the Kimi networks ---===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files hold what the model's own code fed one KDA layer, and the outputs
// and states of a float64 recurrence that is not ours.
//
//===----------------------------------------------------------------------===//

#include "runtime/Safetensors.h"
#include "test/integration/Harness.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::test;

/// A file tensor in the harness's axes: `rank` axes of the shape end in d.
static Tensor tensorOf(const runtime::SafetensorsFile &file,
                       const std::string &name) {
  const runtime::FileTensor *found = file.find(name);
  if (!found) {
    ADD_FAILURE() << file.path() << " has no '" << name << "'";
    return {};
  }
  Tensor tensor;
  std::vector<int64_t> shape = found->shape;
  if (name == "b") // [B, T, H]
    shape.push_back(1);
  if (name == "A_log") // [H]
    shape = {1, 1, shape[0], 1};
  if (name == "dt_bias") // [H, K]
    shape = {1, 1, shape[0], shape[1]};
  std::copy(shape.begin(), shape.end(), tensor.shape);
  tensor.values = *runtime::loadDoubles(*found);
  return tensor;
}

static void checkFixture(const std::string &layerName,
                         const std::string &fileName) {
  Layer &layer = Layer::get(shippedSpec(layerName, {{"K", 32}, {"V", 32}}));
  auto file = runtime::SafetensorsFile::open(
      PLUM_SOURCE_DIR "/test/integration/fixtures/" + fileName);
  ASSERT_TRUE(file) << file.error().str();
  Data data(layer, {.batch = 2, .tokens = 75, .heads = 4});
  for (const char *name : {"q", "k", "v", "f", "b", "A_log", "dt_bias"})
    data.tensors[name] = tensorOf(*file, name);
  Values expected = {{"o", tensorOf(*file, "expected.o")},
                     {"S", tensorOf(*file, "expected.S")}};

  // Stored as f32: half an ulp is 6e-8.
  expectClose(data, reference(layer, data), expected, {1e-7, 1e-6, 1e-6, 1e-7},
              "our float64 recurrence");
  for (How how : everyForm(layer))
    expectClose(data, run(layer, data, how), expected, standard(layer),
                how.str());
}

TEST(Fixtures, KimiK3BoundedGate) {
  checkFixture("kda_k3", "kda-bounded.safetensors");
}

TEST(Fixtures, KimiLinearSoftplusGate) {
  checkFixture("kda", "kda-softplus.safetensors");
}

// The two gates must be told apart: a checkpoint of one kind run with the other
// is wrong, visibly.
TEST(Fixtures, GatesAreDifferentFunctions) {
  Layer &layer = Layer::get(shippedSpec("kda", {{"K", 32}, {"V", 32}}));
  auto file = runtime::SafetensorsFile::open(
      PLUM_SOURCE_DIR "/test/integration/fixtures/kda-bounded.safetensors");
  ASSERT_TRUE(file) << file.error().str();
  Data data(layer, {.batch = 2, .tokens = 75, .heads = 4});
  for (const char *name : {"q", "k", "v", "f", "b", "A_log", "dt_bias"})
    data.tensors[name] = tensorOf(*file, name);
  EXPECT_GT(
      distance(reference(layer, data).at("o"), tensorOf(*file, "expected.o")),
      0.05);
}
