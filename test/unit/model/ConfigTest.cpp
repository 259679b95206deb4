//===- ConfigTest.cpp - config.json, good and hostile ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"

#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

using runtime::Json;

Json configOf(const std::string &fixture) {
  Result<Json> json = readConfig(fixturePath(fixture));
  EXPECT_TRUE(json);
  return *json;
}

/// The error of a config, "" when it is accepted.
std::string problem(const Json &config) {
  auto network = makeNetwork(config, "config.json");
  return network ? "" : network.error().str();
}

TEST(Config, FixturesAreAccepted) {
  for (const char *name : fixtures)
    EXPECT_EQ(problem(configOf(name)), "") << name;
}

TEST(Config, UnknownArchitecture) {
  EXPECT_EQ(problem(Json{{"model_type", "llama"}}),
            "config.json: error: 'model_type' is 'llama', which this runtime "
            "does not know\nnote: it knows gpt2, mamba2, qwen3_next, "
            "kimi_linear, kimi_k3, plum_plain");
  EXPECT_NE(problem(Json::object()).find("'model_type' is missing"),
            std::string::npos);
}

TEST(Config, EveryNumberIsChecked) {
  for (const char *name : fixtures) {
    Json config = configOf(name);
    Json &fields =
        config.contains("text_config") ? config["text_config"] : config;
    for (const auto &[key, value] : fields.items()) {
      if (!value.is_number_integer() || value.get<int64_t>() < 2)
        continue;
      for (const Json &hostile :
           {Json(int64_t(1) << 40), Json(-1), Json("many"), Json(1e300),
            Json(uint64_t(-1))}) {
        Json changed = config;
        (changed.contains("text_config") ? changed["text_config"]
                                         : changed)[key] = hostile;
        std::string message = problem(changed);
        // Refused, or a field that nothing depends on.
        if (!message.empty())
          EXPECT_NE(message.find("config.json: error: '"), std::string::npos)
              << message;
      }
    }
  }
}

TEST(Config, SizesAreRefusedWithTheirNames) {
  auto with = [](const char *fixture, const char *key, const Json &value) {
    Json config = configOf(fixture);
    config[key] = value;
    return problem(config);
  };
  EXPECT_EQ(with("gpt2-a", "n_embd", -128),
            "config.json: error: 'n_embd' is -128, expected at least 1");
  EXPECT_EQ(with("gpt2-a", "n_layer", int64_t(1) << 40),
            "config.json: error: 'n_layer' is 1099511627776, expected at most "
            "65536");
  EXPECT_EQ(with("gpt2-a", "n_head", 5),
            "config.json: error: 'n_head' is 5, which does not divide n_embd = "
            "128");
  EXPECT_EQ(with("mamba2-a", "state_size", 1 << 20),
            "config.json: error: 'state_size' is 1048576, expected at most "
            "4096");
  EXPECT_EQ(with("mamba2-a", "time_step_limit", Json{0.1, 3.0}),
            "config.json: error: 'time_step_limit' is no [0, Infinity], the "
            "only one that this runtime computes");
  EXPECT_EQ(with("qwen3-next-a", "layer_types", Json{"full_attention"}),
            "config.json: error: 'layer_types' has 1 entries, expected "
            "num_hidden_layers = 4");
  EXPECT_EQ(with("kimi-linear-a", "num_experts_per_token", 17),
            "config.json: error: 'num_experts_per_token' is 17, expected at "
            "most num_experts = 16");
  EXPECT_EQ(with("kimi-linear-a", "mla_use_nope", false),
            "config.json: error: 'mla_use_nope' is false, this runtime "
            "computes only models where it is true");
  EXPECT_EQ(with("kimi-linear-a", "hidden_act", "relu"),
            "config.json: error: 'hidden_act' is 'relu', expected silu or "
            "situ");
  EXPECT_EQ(with("plain-kda-a", "layer", "kda2"),
            "config.json: error: 'layer' is 'kda2', which is no layer that "
            "this runtime has");
  EXPECT_EQ(with("plain-kda-a", "layer_dims", Json{{"K", 32}}),
            "config.json: error: 'layer_dims.V' is missing");
}

TEST(Config, MissingSizes) {
  for (const char *name : fixtures) {
    Json config = configOf(name);
    (config.contains("text_config") ? config["text_config"] : config)
        .erase("vocab_size");
    EXPECT_NE(problem(config).find("vocab_size' is missing"), std::string::npos)
        << name;
  }
}

TEST(Config, PythonsInfinityIsRead) {
  auto json = parseConfig(
      R"({"time_step_limit": [0.0, Infinity], "a": "Infinity \" NaN", "b": NaN})",
      "config.json");
  ASSERT_TRUE(json) << json.error().str();
  EXPECT_EQ((*json)["a"], "Infinity \" NaN");
  Config config(*json, "config.json");
  std::vector<double> limits = config.numbers({"time_step_limit"});
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[1], HUGE_VAL);
  EXPECT_FALSE(config.any());
}

TEST(Config, TextsThatAreNoConfig) {
  EXPECT_FALSE(parseConfig("", "config.json"));
  EXPECT_FALSE(parseConfig("[]", "config.json"));
  EXPECT_FALSE(parseConfig("{\"a\": ", "config.json"));
  EXPECT_FALSE(parseConfig("{\"a\": 1, \"a\": 2}", "config.json"));
}

TEST(Config, MemoriesThatModelsNeed) {
  auto specs = memoriesOf(fixturePath("k3-a"));
  ASSERT_TRUE(specs);
  ASSERT_EQ(specs->size(), 3u);
  EXPECT_EQ((*specs)[0].key(), "kda_k3.K32.V32");
  EXPECT_EQ((*specs)[1].key(), "mla.C32.R8");
  EXPECT_FALSE((*specs)[1].passing);
  EXPECT_EQ((*specs)[2].key(), "mla_prefill.N16.R8.V16");
  EXPECT_TRUE((*specs)[2].passing);
  EXPECT_FALSE((*specs)[0].text().empty());
  auto lists = memoriesOf(fixturePath("gpt2-a"));
  ASSERT_TRUE(lists);
  ASSERT_EQ(lists->size(), 1u);
  EXPECT_EQ((*lists)[0].layer, "attention");
}

} // namespace

} // namespace plum::model::test
