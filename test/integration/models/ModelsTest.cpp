//===- ModelsTest.cpp - The fixtures with compiled memories ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plum/Pipelines/Compiler.h"
#include "test/unit/model/Fixture.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

class Compiled : public testing::TestWithParam<const char *> {
protected:
  std::filesystem::path dir = std::filesystem::path(testing::TempDir()) /
                              ("plum_models_" + std::to_string(::getpid()));

  void SetUp() override {
    auto specs = memoriesOf(fixturePath(GetParam()));
    ASSERT_TRUE(specs) << specs.error().str();
    for (const MemorySpec &spec : *specs) {
      CompileOptions options;
      options.spec.dims = spec.dims;
      options.spec.layer = spec.layer;
      options.precision = Precision::F32;
      options.chunks = {16}; // Short texts shall see several.
      CompileReport report;
      Status status =
          compileBundle(Source(spec.layer, std::string(spec.text())), options,
                        (dir / spec.key()).string(), report);
      ASSERT_TRUE(status) << status.error().str();
    }
  }
  void TearDown() override { std::filesystem::remove_all(dir); }
};

TEST_P(Compiled, LogitsHiddenStatesAndChoices) {
  Fixture fixture = readFixture(GetParam());
  Model model = openFixture(GetParam(), dir.string());
  expectFullForward(model, fixture);
  for (int64_t chunk : {1, 7, 64})
    expectChunked(model, fixture, chunk);
  expectGreedy(model, fixture);
}

TEST_P(Compiled, RollBacksAreTheBitsOfDecoding) {
  Fixture fixture = readFixture(GetParam());
  Model model = openFixture(GetParam(), dir.string());
  StatePool pool = makePool(model, 2);
  ASSERT_TRUE(model.prefill(pool, 0, std::span(fixture.ids[0]).first(20)));
  pool.fork(0, 1);
  std::span<const int32_t> draft = std::span(fixture.ids[1]).first(6);
  Piece piece{0, draft};
  ASSERT_TRUE(model.forward(pool, {&piece, 1}, {.checkpoints = true}));
  ASSERT_TRUE(pool.rollBack(0, 4));
  for (size_t i = 0; i < 2; ++i) {
    Piece one{1, draft.subspan(i, 1)};
    ASSERT_TRUE(model.forward(pool, {&one, 1}));
  }
  EXPECT_EQ(pool.tokens(0), pool.tokens(1));
  int32_t next = 3;
  Piece both[] = {{0, {&next, 1}}, {1, {&next, 1}}};
  Result<Rows> logits = model.forward(pool, both);
  ASSERT_TRUE(logits);
  // Below the size at which products go to OpenBLAS nothing depends on how
  // many tokens there are.
  for (int64_t c = 0; c < fixture.vocab; ++c)
    ASSERT_EQ(logits->row(0)[c], logits->row(1)[c]);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Compiled, testing::ValuesIn(fixtures),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Bundle, OfAnotherSpecIsRefused) {
  auto path = std::filesystem::path(testing::TempDir()) / "plum_other_spec";
  auto specs = memoriesOf(fixturePath("k3-a"));
  ASSERT_TRUE(specs);
  CompileOptions options;
  options.spec.dims = (*specs)[0].dims;
  CompileReport report;
  ASSERT_TRUE(compileBundle(Source("kda", std::string((*specs)[0].text())),
                            options, // bf16 inputs
                            (path / (*specs)[0].key()).string(), report));
  Result<Model> model =
      Model::open({.directory = fixturePath("k3-a"), .bundle = path.string()});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message,
            "was compiled from another spec than this runtime has");
  std::filesystem::remove_all(path);
}

} // namespace

} // namespace plum::model::test
