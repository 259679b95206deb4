//===- WeightsTest.cpp - Files of weights, good and bad -------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"

#include "runtime/Safetensors.h"
#include "runtime/model/Dots.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace plum::model::test {

namespace {

namespace fs = std::filesystem;
using runtime::TensorToWrite;

/// A copy of a fixture in a folder of its own, to be spoiled.
class Weights : public testing::Test {
protected:
  fs::path dir = fs::path(testing::TempDir()) /
                 ("plum_weights_" + std::to_string(::getpid()));

  void SetUp() override { fs::create_directories(dir); }
  void TearDown() override { fs::remove_all(dir); }

  void copy(const std::string &fixture) {
    for (const char *file : {"config.json", "model.safetensors"})
      fs::copy_file(fs::path(fixturePath(fixture)) / file, dir / file,
                    fs::copy_options::overwrite_existing);
  }
  std::string problem() {
    Result<Model> model = Model::open({.directory = dir.string()});
    if (model)
      return "";
    std::string text = model.error().str();
    for (size_t at; (at = text.find(dir.string() + "/")) != std::string::npos;)
      text.erase(at, dir.string().size() + 1);
    return text;
  }
  void write(const char *name, const std::string &text) {
    std::ofstream(dir / name, std::ios::binary) << text;
  }
  /// The tensors of the file, changed, in `shards` files and an index, or in
  /// one file.
  template <typename Fn>
  void rewrite(Fn change, int shards = 0,
               const std::vector<std::string> &extra = {}) {
    auto file = runtime::SafetensorsFile::open(dir / "model.safetensors");
    ASSERT_TRUE(file);
    std::vector<std::vector<TensorToWrite>> lists(size_t(std::max(shards, 1)));
    runtime::Json map;
    size_t at = 0;
    for (const runtime::FileTensor &tensor : file->tensors()) {
      TensorToWrite out{tensor.name, *tensor.dtype, tensor.shape,
                        tensor.data.data()};
      if (!change(out))
        continue;
      size_t shard = at++ % lists.size();
      map[out.name] = "part-" + std::to_string(shard) + ".safetensors";
      lists[shard].push_back(out);
    }
    const float value = 1;
    for (const std::string &name : extra)
      lists[0].push_back({name, DType::F32, {1}, &value});
    for (size_t shard = 0; shard < lists.size(); ++shard)
      ASSERT_TRUE(runtime::writeSafetensors(
          (dir / ("part-" + std::to_string(shard) + ".safetensors")).string(),
          lists[shard]));
    fs::remove(dir / "model.safetensors");
    if (shards > 0)
      write("model.safetensors.index.json",
            runtime::Json{{"weight_map", map}}.dump());
    else
      fs::rename(dir / "part-0.safetensors", dir / "model.safetensors");
  }
};

TEST_F(Weights, ShardsGiveTheSameModel) {
  copy("kimi-linear-a");
  rewrite([](TensorToWrite &) { return true; }, 3);
  ASSERT_EQ(problem(), "");
  Result<Model> sharded = Model::open({.directory = dir.string()});
  expectFullForward(*sharded, readFixture("kimi-linear-a"));
}

TEST_F(Weights, WhatIsNotUsedIsNoted) {
  copy("k3-a");
  rewrite([](TensorToWrite &) { return true; }, 0,
          {"vision_tower.a.weight", "mm_projector.b", "more.c"});
  Result<Model> model = Model::open({.directory = dir.string()});
  ASSERT_TRUE(model) << model.error().str();
  EXPECT_EQ(model->notes(),
            (std::vector<std::string>{"2 tensors of the vision part not used",
                                      "1 tensor not used, 'more.c' for one"}));
}

TEST_F(Weights, AMissingTensor) {
  copy("gpt2-a");
  rewrite([](TensorToWrite &tensor) {
    return tensor.name != "transformer.h.1.mlp.c_fc.bias";
  });
  EXPECT_NE(problem().find("error: has no tensor "
                           "'transformer.h.1.mlp.c_fc.bias'"),
            std::string::npos)
      << problem();
}

TEST_F(Weights, AWrongShape) {
  copy("mamba2-a");
  rewrite([](TensorToWrite &tensor) {
    if (tensor.name == "backbone.layers.2.mixer.out_proj.weight")
      std::swap(tensor.shape[0], tensor.shape[1]);
    return true;
  });
  EXPECT_EQ(problem(),
            "model.safetensors: error: tensor "
            "'backbone.layers.2.mixer.out_proj.weight' has shape [256,128], "
            "expected [128,256]\nnote: the expected shape is that of "
            "config.json");
}

TEST_F(Weights, AWrongType) {
  copy("gpt2-a");
  rewrite([](TensorToWrite &tensor) {
    if (tensor.name == "transformer.ln_f.weight")
      tensor.dtype = DType::I32;
    return true;
  });
  EXPECT_EQ(problem(), "model.safetensors: error: tensor "
                       "'transformer.ln_f.weight' has dtype I32, expected F32, "
                       "BF16 or F16");
}

TEST_F(Weights, ATruncatedFile) {
  copy("gpt2-a");
  fs::resize_file(dir / "model.safetensors",
                  fs::file_size(dir / "model.safetensors") - 100);
  EXPECT_NE(problem().find("model.safetensors: error: "), std::string::npos);
  EXPECT_NE(problem().find("the file is truncated"), std::string::npos)
      << problem();
}

TEST_F(Weights, APlainNetworkOfAnotherLayer) {
  auto with = [&](const char *key, const runtime::Json &value) {
    copy("plain-kda-a");
    runtime::Json config = *readConfig(dir.string());
    config[key] = value;
    std::ofstream(dir / "config.json") << config;
    return problem();
  };
  EXPECT_EQ(with("conv_inputs", runtime::Json{"q", "w"}),
            "config.json: error: 'conv_inputs' has 'w', which is no input of "
            "layer 'kda'");
  EXPECT_EQ(with("layer", "rwkv7"),
            "config.json: error: 'layer' is 'rwkv7', which has 2 outputs, "
            "expected one");
  EXPECT_NE(
      with("layer", "gla")
          .find("error: has no tensor 'model.layers.0.mixer.inputs.g.weight'"),
      std::string::npos);
}

TEST_F(Weights, NoFileAtAll) {
  copy("gpt2-a");
  fs::remove(dir / "model.safetensors");
  EXPECT_EQ(problem(),
            "model.safetensors: error: cannot be read: No such file or "
            "directory\nnote: nor is there model.safetensors.index.json");
}

TEST_F(Weights, AnIndexThatLeadsNowhere) {
  copy("gpt2-a");
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "model-1.safetensors"}})");
  EXPECT_NE(problem().find("model-1.safetensors: error: cannot be read"),
            std::string::npos)
      << problem();
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "model.safetensors"}})");
  EXPECT_NE(problem().find("model.safetensors: error: has no tensor 'a'"),
            std::string::npos)
      << problem();
}

TEST(Index, NamesStayInTheDirectory) {
  auto error = [](const char *text) {
    auto map = parseIndex(text, "i.json");
    return map ? std::string() : map.error().message;
  };
  EXPECT_EQ(error(R"({"weight_map": {"a": "b.safetensors"}})"), "");
  EXPECT_EQ(error(R"({"weight_map": {"a": "../b"}})"),
            "'weight_map.a' is '../b', expected the name of a file");
  EXPECT_EQ(error(R"({"weight_map": {"a": ".."}})"),
            "'weight_map.a' is '..', expected the name of a file");
  EXPECT_EQ(error(R"({"weight_map": {"a": 3}})"),
            "'weight_map.a' is number, expected a string");
  EXPECT_EQ(error("{}"), "'weight_map' is missing");
  EXPECT_EQ(error(R"({"weight_map": {}})"), "'weight_map' names no tensors");
}

TEST(Mxfp4, EveryCodeAndTheScales) {
  const float values[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  std::vector<std::byte> codes(16);
  for (size_t i = 0; i < 8; ++i) // Low nibble first.
    codes[i] = std::byte(2 * i | (2 * i + 1) << 4);
  for (size_t i = 8; i < 16; ++i)
    codes[i] = codes[i - 8];
  for (int scale : {0, 1, 100, 127, 130, 254}) {
    uint8_t byte = uint8_t(scale);
    Matrix w(WeightType::MXFP4, 1, 32, codes.data(), &byte);
    std::vector<float> wide(32);
    DotKernels::get().widen(w, wide.data());
    for (int i = 0; i < 32; ++i) {
      float value = std::ldexp(values[i % 8], scale - 127);
      EXPECT_EQ(wide[size_t(i)], i % 16 < 8 ? value : -value) << scale;
    }
  }
}

TEST(Dots, AreExactForSmallIntegersAndDoNotDependOnTheBatch) {
  for (int64_t cols : {1, 15, 16, 33, 128, 200})
    for (int64_t rows : {1, 3, 4, 9}) {
      std::vector<float> wide(size_t(rows * cols));
      std::vector<uint16_t> narrow(wide.size());
      Rows x(9, cols), y(9, rows), alone(1, rows);
      for (size_t i = 0; i < wide.size(); ++i) {
        wide[i] = float(int(i * 7 % 17) - 8);
        narrow[i] = floatToBf16(wide[i]);
      }
      for (int64_t i = 0; i < 9 * cols; ++i)
        x.row(0)[i] = float(int(i * 5 % 13) - 6);
      Matrix matrices[] = {
          {WeightType::F32, rows, cols,
           reinterpret_cast<const std::byte *>(wide.data())},
          {WeightType::BF16, rows, cols,
           reinterpret_cast<const std::byte *>(narrow.data())}};
      for (const Matrix &w : matrices) {
        DotKernels::get().dots(w, x, y);
        for (int64_t t = 0; t < 9; ++t) {
          DotKernels::get().dots(w, x.rows(t, 1), alone);
          for (int64_t r = 0; r < rows; ++r) {
            float sum = 0;
            for (int64_t c = 0; c < cols; ++c)
              sum += wide[size_t(r * cols + c)] * x.row(t)[c];
            EXPECT_EQ(y.row(t)[r], sum);
            EXPECT_EQ(alone.row(0)[r], sum);
          }
        }
      }
    }
}

} // namespace

} // namespace plum::model::test
