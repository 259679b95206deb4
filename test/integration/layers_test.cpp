//===- layers_test.cpp - Every shipped layer at every kind of length ------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layer x (K, V) x C x T against float64, in one compile and one reference run
// for each layer and (K, V): outputs are causal, so the truth of a prefix is a
// prefix of the truth, and states are kept wherever some T ends.
//
//===----------------------------------------------------------------------===//

#include "test/integration/Harness.h"

#include "gtest/gtest.h"

#include <cmath>
#include <set>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::portableUniform;

static const std::vector<std::string> &shippedLayers() {
  static const std::vector<std::string> names = {
      "linear_attention", "retnet", "mamba2", "gla",  "deltanet",
      "gated_deltanet",   "kda",    "kda_k3", "gdn2", "rwkv7",
      "deltaproduct"};
  return names;
}

/// The truth of the first `tokens` tokens out of a run with states kept there.
static Values prefix(const Layer &layer, const Values &truth, int64_t tokens) {
  Values part;
  for (const frontend::Symbol *output : layer.ast().outputs)
    part[output->name] = slice(truth.at(output->name), 1, 0, tokens);
  for (const frontend::Symbol *state : layer.ast().states)
    part[state->name] = truth.at(state->name + '@' + std::to_string(tokens));
  return part;
}

namespace {
struct Setting {
  std::string layer;
  int64_t K, V;
};
using Layers = testing::TestWithParam<Setting>;

using LayersF32 = Layers;

using Pairs = std::vector<std::pair<int64_t, int64_t>>;
std::vector<Setting> settings(const Pairs &dims) {
  std::vector<Setting> list;
  for (const std::string &layer : shippedLayers())
    for (auto [K, V] : dims)
      list.push_back({layer, K, V});
  return list;
}

std::string settingName(const testing::TestParamInfo<Setting> &info) {
  return info.param.layer + "_" + std::to_string(info.param.K) + "x" +
         std::to_string(info.param.V);
}
} // namespace

INSTANTIATE_TEST_SUITE_P(
    Shipped, Layers,
    testing::ValuesIn(settings({{64, 64}, {128, 128}, {64, 128}, {96, 40}})),
    settingName);
INSTANTIATE_TEST_SUITE_P(Shipped, LayersF32,
                         testing::ValuesIn(settings({{64, 64}, {96, 40}})),
                         settingName);

TEST_P(Layers, EveryChunkAndLength) {
  auto [name, K, V] = GetParam();
  const std::vector<int64_t> chunks = {64, 1, 8, 16, 256};
  Layer &layer = Layer::get(shippedSpec(name, {{"K", K}, {"V", V}}),
                            Precision::Default, chunks);
  Sizes sizes = {.batch = 1, .tokens = 1000, .heads = 1};
  if (K == 64 && V == 64)
    sizes = {.batch = 2, .tokens = 1000, .heads = 2};
  if (K == 96)
    sizes.heads = 3;
  Data data = realistic(layer, sizes, uint32_t(300 + K + V));

  std::map<int64_t, std::set<int64_t>> lengths;
  std::set<int64_t> stops;
  for (int64_t C : chunks)
    for (int64_t T : {int64_t(0), int64_t(1), C - 1, C, C + 1, int64_t(1000)}) {
      lengths[C].insert(T);
      stops.insert(T);
    }
  Values truth = reference(layer, data, {stops.begin(), stops.end()});

  auto check = [&](How how, int64_t T) {
    Data part = data.tokens(0, T);
    expectClose(part, run(layer, part, how), prefix(layer, truth, T),
                standard(layer), how.str() + ", T = " + std::to_string(T));
  };
  for (int64_t C : chunks)
    for (int64_t T : lengths[C])
      check({runtime::Form::Chunk, C}, T);
  for (int64_t T : {0, 1, 17, 1000})
    check({runtime::Form::Step, 0}, T);
  for (int64_t T : {63, 65, 1000})
    check({runtime::Form::Auto, 64}, T);
}

TEST_P(LayersF32, StepAndChunk) {
  auto [name, K, V] = GetParam();
  Layer &layer = Layer::get(shippedSpec(name, {{"K", K}, {"V", V}}),
                            Precision::F32, {16, 64});
  Data data = realistic(layer, {.batch = 1, .tokens = 200, .heads = 2}, 41);
  Values truth = reference(layer, data);
  for (How how : everyForm(layer))
    expectClose(data, run(layer, data, how), truth, standard(layer), how.str());
}
