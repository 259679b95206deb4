//===- GrowingFilesTest.cpp - Growing states in files and at the tool -----===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyAttention.h"

#include "runtime/Inputs.h"
#include "runtime/LayerIO.h"

#include <nlohmann/json.hpp>

#include <sys/wait.h>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

struct GrowingFilesTest : testing::Test {
  TempDir dir;
  AttentionTensors tensors{1, 8, 2};
  ToyFile file = attentionFile(tensors);
  std::string out, err;

  void SetUp() override { writeAttentionBundle(dir / "toy"); }
  /// `plum-run ARGS` in the directory; the exit code.
  int tool(const std::string &args) {
    std::string command =
        "cd " + dir.path + " && " PLUM_RUN " " + args + " >stdout 2>stderr";
    int status = std::system(command.c_str());
    out = readFile(dir / "stdout");
    err = readFile(dir / "stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void run(const ToyFile &input, const std::string &name,
           const std::string &options = "") {
    input.write(dir / "in");
    ASSERT_EQ(tool("run toy --in in --out " + name + " " + options), 0) << err;
    EXPECT_EQ(err, "");
  }
  /// The error of the file as an input, without its name.
  std::string error() {
    file.write(dir / "in");
    EXPECT_EQ(tool("run toy --in in --out out"), 1);
    std::string prefix = "in: error: ";
    EXPECT_EQ(err.substr(0, prefix.size()), prefix);
    return err.substr(std::min(prefix.size(), err.size()));
  }
  std::vector<int64_t> shapeOf(const std::string &name,
                               const std::string &tensor) {
    Result<SafetensorsFile> opened = SafetensorsFile::open(dir / name);
    if (!opened || !opened->find(tensor))
      return {};
    return opened->find(tensor)->shape;
  }
  bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
  }
  /// States of `count` with `room` rows, as tensors of the file.
  void setStates(int64_t count, int64_t room) {
    AttentionStates states(count, 2, room);
    for (int64_t n = 0; n < count; ++n)
      states.fill(n, room);
    file.set("keys", DType::F32, {count, 2, room, K}, states.keys);
    file.set("z", DType::F32, {count, 2, K}, states.z);
    file.set("values", DType::F32, {count, 2, room, V}, states.values);
  }
};

/// Tokens begin .. end of every input.
ToyFile part(const ToyFile &file, int64_t tokens, int64_t begin, int64_t end) {
  ToyFile cut = file;
  for (const char *name : {"q", "k", "v"}) {
    ToyFile::Entry &entry = cut.tensors[name];
    size_t row = entry.bytes.size() / size_t(tokens);
    entry.bytes =
        entry.bytes.substr(size_t(begin) * row, size_t(end - begin) * row);
    entry.shape[0] = end - begin;
  }
  return cut;
}

/// The tensors of a file that are states, as inputs of the next run.
void feedBack(const std::string &path, ToyFile &to) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().str();
  for (const char *name : {"keys", "z", "values", "seqlens"}) {
    const FileTensor *tensor = file->find(name);
    ASSERT_TRUE(tensor) << name;
    to.tensors[name] = {
        *tensor->dtype, tensor->shape,
        std::string(reinterpret_cast<const char *>(tensor->data.data()),
                    tensor->data.size())};
  }
}

} // namespace

TEST_F(GrowingFilesTest, FiveTokensAndThreeMoreAreEight) {
  run(file, "whole");
  run(part(file, 8, 0, 5), "first");
  EXPECT_EQ(shapeOf("first", "keys"), (std::vector<int64_t>{1, 2, 5, K}));
  EXPECT_EQ(fileValues(dir / "first", "seqlens"), (std::vector<double>{5}));
  ToyFile rest = part(file, 8, 5, 8);
  feedBack(dir / "first", rest);
  run(rest, "second");
  EXPECT_EQ(shapeOf("second", "values"), (std::vector<int64_t>{1, 2, 8, V}));
  for (const char *name : {"keys", "z", "values", "seqlens"})
    EXPECT_EQ(fileValues(dir / "second", name), fileValues(dir / "whole", name))
        << name;
  std::vector<double> o = fileValues(dir / "first", "o");
  for (double value : fileValues(dir / "second", "o"))
    o.push_back(value);
  EXPECT_EQ(o, fileValues(dir / "whole", "o"));
}

TEST_F(GrowingFilesTest, PackedSequencesEndWhereTheyEnd) {
  setStates(3, 4);
  file.set("seqlens", DType::I32, {3}, std::vector<int32_t>{4, 0, 1});
  file.set("cu_seqlens", DType::I64, {4}, std::vector<int64_t>{0, 2, 2, 8});
  run(file, "out", "--state-dtype bf16 --states-every 3 --state-layout vk");
  EXPECT_EQ(fileValues(dir / "out", "seqlens"), (std::vector<double>{6, 0, 7}));
  EXPECT_EQ(shapeOf("out", "keys"), (std::vector<int64_t>{3, 2, 7, K}));
  EXPECT_EQ(shapeOf("out", "z.every"), (std::vector<int64_t>{2, 2, K}));
  EXPECT_EQ(shapeOf("out", "keys.every"), (std::vector<int64_t>{}));
  std::vector<double> values = fileValues(dir / "out", "values");
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t r = 0; r < 7; ++r) {
        int64_t rows = std::vector<int64_t>{6, 0, 7}[size_t(n)];
        EXPECT_EQ(values[size_t(((n * 2 + h) * 7 + r) * V)] == 0, r >= rows)
            << n << h << r;
      }
  // And through another run, by one token.
  ToyFile next = part(file, 8, 0, 3);
  feedBack(dir / "out", next);
  next.set("cu_seqlens", DType::I64, {4}, std::vector<int64_t>{0, 1, 2, 3});
  run(next, "next");
  EXPECT_EQ(fileValues(dir / "next", "seqlens"),
            (std::vector<double>{7, 1, 8}));
}

TEST_F(GrowingFilesTest, APoolKeepsItsOtherSlots) {
  setStates(4, 5);
  std::vector<double> before =
      fileValues((file.write(dir / "in"), dir / "in"), "keys");
  file.set("seqlens", DType::I64, {4}, std::vector<int64_t>{5, 3, 2, 0});
  file.set("slots", DType::I32, {3}, std::vector<int32_t>{0, -1, 2});
  file.set("cu_seqlens", DType::I64, {4}, std::vector<int64_t>{0, 4, 6, 8});
  run(file, "out");
  EXPECT_EQ(fileValues(dir / "out", "seqlens"),
            (std::vector<double>{9, 3, 4, 0}));
  EXPECT_EQ(shapeOf("out", "keys"), (std::vector<int64_t>{4, 2, 9, K}));
  std::vector<double> after = fileValues(dir / "out", "keys");
  for (int64_t pair = 0; pair < 8; ++pair)
    for (int64_t i = 0; i < 9 * K; ++i) {
      int64_t had = std::vector<int64_t>{5, 3, 2, 0}[size_t(pair / 2)];
      int64_t has = std::vector<int64_t>{9, 3, 4, 0}[size_t(pair / 2)];
      double value = after[size_t(pair * 9 * K + i)];
      if (i / K < had)
        EXPECT_EQ(value, before[size_t(pair * 5 * K + i)]);
      else
        EXPECT_EQ(value == 0, i / K >= has);
    }
}

TEST_F(GrowingFilesTest, WithoutTokensThereIsNoRow) {
  ToyFile none = part(file, 8, 0, 0);
  run(none, "out");
  EXPECT_EQ(shapeOf("out", "keys"), (std::vector<int64_t>{1, 2, 0, K}));
  feedBack(dir / "out", file);
  run(file, "next");
  EXPECT_EQ(fileValues(dir / "next", "seqlens"), (std::vector<double>{8}));
}

TEST_F(GrowingFilesTest, OnlyGrowingStatesHaveNoneInBetween) {
  Manifest manifest = attentionManifest();
  manifest.states.erase(manifest.states.begin() + 1);
  LayerOptions options;
  options.snapshotEvery = 2;
  file.write(dir / "in");
  Result<SafetensorsFile> opened = SafetensorsFile::open(dir / "in");
  ASSERT_TRUE(opened);
  Result<LayerRun> run = openLayerRun(manifest, *opened, options);
  ASSERT_TRUE(run) << run.error().str();
  LayerResult result = layerResult(manifest, *run);
  std::vector<std::string> names;
  for (const TensorToWrite &tensor : result.tensors)
    names.push_back(tensor.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"o", "n", "keys", "values", "seqlens"}));
}

TEST_F(GrowingFilesTest, BadFiles) {
  setStates(1, 4);
  file.set("seqlens", DType::I64, {1}, std::vector<int64_t>{5});
  EXPECT_EQ(error(), "'seqlens[0]' is 5, expected 0 to 4, the rows of "
                     "'keys'\n");
  file.set("seqlens", DType::I64, {1}, std::vector<int64_t>{-1});
  EXPECT_EQ(error(), "'seqlens[0]' is -1, expected 0 to 4, the rows of "
                     "'keys'\n");
  file.set("seqlens", DType::I64, {2}, std::vector<int64_t>{4, 4});
  EXPECT_EQ(error(), "tensor 'seqlens' has shape [2], expected [1]\n");
  file.set("seqlens", DType::F32, {1}, std::vector<float>{4});
  EXPECT_EQ(error(), "tensor 'seqlens' has dtype F32, expected I32 or I64\n");
  file.tensors.erase("seqlens");
  file.set("values", DType::F32, {1, 2, 3, V}, std::vector<float>(6 * V));
  EXPECT_EQ(error(), "tensor 'values' has 3 rows, expected 4, as 'keys' has\n");
  file.set("values", DType::F32, {1, 2, V}, std::vector<float>(2 * V));
  EXPECT_EQ(error(), "tensor 'values' has shape [1,2,3], expected "
                     "[N,H,L,3]\n");
  file.tensors.erase("values");
  EXPECT_EQ(error(), "tensor 'values' is missing, expected F32 [N,H,L,3], as "
                     "'z' is given\nnote: layer 'toy_attention' declares "
                     "it\n");
  file = attentionFile(tensors);
  file.set("seqlens", DType::I64, {1}, std::vector<int64_t>{0});
  EXPECT_EQ(error(), "tensor 'keys' is missing, expected F32 [N,H,L,4], whose "
                     "rows 'seqlens' count\nnote: layer 'toy_attention' "
                     "declares it\n");
  file.tensors.erase("seqlens");
  file.set("slots", DType::I64, {1}, std::vector<int64_t>{0});
  EXPECT_EQ(error(), "tensor 'keys' is missing, expected F32 [P,H,L,4], the "
                     "pool that 'slots' index\nnote: layer 'toy_attention' "
                     "declares it\n");
}

TEST_F(GrowingFilesTest, AnyShapesAreAnErrorOrARun) {
  Result<Bundle> bundle = Bundle::open(dir / "toy");
  ASSERT_TRUE(bundle) << bundle.error().str();
  Executor executor(*bundle);
  uint32_t count = 0;
  auto pick = [&](std::initializer_list<int64_t> from) {
    return from.begin()[portableHash(1, 1, count++) % from.size()];
  };
  auto numbers = [&](const std::string &name) {
    std::vector<int64_t> values(size_t(pick({0, 1, 2, 2, 3})));
    for (int64_t &value : values)
      value = pick({0, 0, 1, 1, 2, -1, 3, 8, int64_t(1) << 62});
    int64_t first = name == "cu_seqlens" ? 0 : pick({0, 1, 2});
    if (!values.empty())
      values[0] = first;
    file.set(name, DType::I64, {int64_t(values.size())}, values);
  };
  int runs = 0, errors = 0;
  for (int i = 0; i < 300; ++i) {
    file = attentionFile(tensors);
    int64_t slots = pick({1, 1, 1, 2, 3, 0}), heads = pick({2, 2, 2, 2, 1, 0});
    int64_t rows = pick({0, 1, 2, 3, int64_t(1) << 60});
    for (const auto &[name, d] : {std::pair("keys", K), {"values", V}}) {
      std::vector<int64_t> shape{slots, heads, rows, d};
      if (pick({0, 0, 0, 0, 0, 0, 0, 1}))
        shape[size_t(pick({0, 1, 2, 3}))] = pick({0, 1, 2, int64_t(1) << 61});
      // A file holds what it says, so large sizes go with a 0.
      if (shape[2] > 8 || shape[1] > 8 || shape[0] > 8 || shape[3] > 8)
        shape[shape[0] > 8 ? 1 : 0] = 0;
      int64_t size = 1;
      for (int64_t extent : shape)
        size = extent == 0 || size == 0 ? 0 : size * extent;
      file.set(name, DType::F32, shape, std::vector<float>(size_t(size)));
    }
    file.set("z", DType::F32, {slots, heads, K},
             std::vector<float>(size_t(slots * heads * K)));
    for (const char *name : {"seqlens", "cu_seqlens", "slots"})
      if (pick({0, 0, 0, 1}))
        numbers(name);
    file.write(dir / "in");
    Result<SafetensorsFile> opened = SafetensorsFile::open(dir / "in");
    if (!opened)
      continue;
    LayerOptions options;
    options.snapshotEvery = pick({0, 1, 3});
    if (pick({0, 1}))
      options.stateDtype = DType::BF16;
    Result<LayerRun> run = openLayerRun(bundle->manifest(), *opened, options);
    if (!run) {
      EXPECT_TRUE(run.error().str().starts_with(dir / "in: error: "));
      ++errors;
      continue;
    }
    Status status = executor.run(run->args, {.threads = 1});
    EXPECT_TRUE(status) << status.error().str();
    Status written = writeSafetensors(
        dir / "out", layerResult(bundle->manifest(), *run).tensors);
    EXPECT_TRUE(written) << written.error().str();
    ++runs;
  }
  EXPECT_GT(runs, 30);
  EXPECT_GT(errors, 30);
}

TEST_F(GrowingFilesTest, InfoSaysThatTheyGrow) {
  ASSERT_EQ(tool("info toy"), 0) << err;
  EXPECT_TRUE(has(out, "state   keys         [*, 4] f32\n")) << out;
  EXPECT_TRUE(has(out, "state   z            [4] f32\n")) << out;
}

TEST_F(GrowingFilesTest, CheckComparesRows) {
  ASSERT_EQ(tool("check toy --shape B=3,T=20,H=2"), 0) << out << err;
  for (const char *part : {"step ", "chunk 4", "keys ", "values ", "z "})
    EXPECT_TRUE(has(out, part)) << out;
  ASSERT_EQ(tool("check toy --shape T=3,P=0"), 0) << out << err;
  // From a file, with what it expects.
  setStates(2, 4);
  file.set("seqlens", DType::I64, {2}, std::vector<int64_t>{4, 1});
  file.set("cu_seqlens", DType::I64, {3}, std::vector<int64_t>{0, 3, 8});
  run(file, "out");
  std::vector<double> keys = fileValues(dir / "out", "keys");
  std::vector<float> expected(keys.begin(), keys.end());
  ASSERT_EQ(expected.size(), size_t(2 * 2 * 7 * K));
  for (int64_t c = 0; c < K; ++c) // Behind the end of sequence 1.
    expected[size_t((2 * 7 + 6) * K + c)] = 55;
  file.set("expected.keys", DType::F32, {2, 2, 7, K}, expected);
  file.write(dir / "in");
  ASSERT_EQ(tool("check toy --in in"), 0) << out << err;
  EXPECT_TRUE(has(out, "expected.keys")) << out;
  expected[size_t((2 * 7 + 5) * K)] += 1;
  file.set("expected.keys", DType::F32, {2, 2, 7, K}, expected);
  file.write(dir / "in");
  ASSERT_EQ(tool("check toy --in in"), 1) << out << err;
}

TEST_F(GrowingFilesTest, CheckFindsABadKernel) {
  Manifest manifest = attentionManifest();
  manifest.kernels[1].symbol = "toy_attend_wrong"; // Forgets a row.
  writeAttentionBundle(dir / "toy", manifest);
  ASSERT_EQ(tool("check toy"), 1) << out << err;
  EXPECT_TRUE(has(out, "chunk 4    keys             nan")) << out;
  ASSERT_EQ(tool("check toy --form step"), 0) << out << err;
}

TEST_F(GrowingFilesTest, BenchCountsRowsOnceAndNoFlops) {
  ASSERT_EQ(tool("bench toy --json --all --shape B=2,T=3,H=2,P=10 --seconds "
                 "0.02 --threads 1"),
            0)
      << err;
  std::istringstream stream(out);
  int lines = 0;
  for (std::string line; std::getline(stream, line); ++lines) {
    nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_EQ(json["P"], 10);
    EXPECT_TRUE(json["flops"].is_null());
    EXPECT_TRUE(json["sgemm_ms"].is_null());
    EXPECT_LT(json["error"], 1e-5);
    // q, k, v, o, n; scale; z in and out; 13 and 12 rows of keys and values.
    EXPECT_EQ(json["bytes"], 12 * (16 + 16 + 6 + 12 + 4) + 2 * 4 + 2 * 4 * 16 +
                                 (13 + 12) * 2 * (K + V) * 4);
  }
  EXPECT_EQ(lines, 2);
  ASSERT_EQ(tool("bench toy --shape T=5,H=2 --seconds 0.02"), 0) << err;
  EXPECT_TRUE(has(out, "H=2 P=0,")) << out;
}

TEST_F(GrowingFilesTest, RowsBeforeARunAreForLayersThatHaveThem) {
  EXPECT_EQ(tool("check toy --shape P=-1"), 1);
  EXPECT_TRUE(has(err,
                  "--shape: error: 'P=-1' is none of B=n, T=n, H=n, L=n with "
                  "n >= 1 or P=n with n >= 0\n"))
      << err;
  EXPECT_EQ(tool("check toy --shape L=0"), 1);
  EXPECT_TRUE(has(err, "'L=0' is none of B=n, T=n, H=n, L=n")) << err;
  writeToyBundle(dir / "fixed");
  EXPECT_EQ(tool("check fixed --shape P=3"), 1);
  EXPECT_EQ(err, "--shape: error: 'P=3' is for growing states, which layer "
                 "'toy' does not have\n");
}
