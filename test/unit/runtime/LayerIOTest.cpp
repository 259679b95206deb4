//===- LayerIOTest.cpp - Tensors of a run in files ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/LayerIO.h"

#include "ToyLayer.h"

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

struct LayerIOTest : testing::Test {
  TempDir dir;
  ToyTensors tensors{1, 6, 4};
  ToyFile file = toyFile(tensors);
  LayerOptions options;
  Manifest manifest = toyManifest();

  /// The error without the file's name, which it must start with.
  std::string error() {
    std::string path = dir / "in";
    file.write(path);
    Result<SafetensorsFile> opened = SafetensorsFile::open(path);
    if (!opened)
      return opened.error().str();
    Result<LayerRun> run = openLayerRun(manifest, *opened, options);
    if (run)
      return "";
    std::string text = run.error().str(), prefix = path + ": error: ";
    EXPECT_EQ(text.substr(0, prefix.size()), prefix);
    return text.substr(prefix.size());
  }
  void reshape(const std::string &name, std::vector<int64_t> shape) {
    auto &tensor = file.tensors[name];
    tensor.shape = std::move(shape);
    int64_t bytes = int64_t(byteSize(tensor.dtype));
    for (int64_t extent : tensor.shape)
      bytes *= extent;
    tensor.bytes.resize(size_t(bytes));
  }
};

} // namespace

TEST_F(LayerIOTest, GoodFilesOpen) {
  EXPECT_EQ(error(), "");
  // A batch axis everywhere.
  reshape("q", {2, 3, 4, K});
  reshape("k", {2, 3, 4, K});
  reshape("v", {2, 3, 4, V});
  reshape("g", {2, 3, 4});
  EXPECT_EQ(error(), "");
}

TEST_F(LayerIOTest, MissingTensors) {
  file.tensors.erase("k");
  EXPECT_EQ(error(), "tensor 'k' is missing, expected F32 [T,H,4] or "
                     "[B,T,H,4]\nnote: layer 'toy' declares it");
  file = toyFile(tensors);
  file.tensors.erase("bias");
  EXPECT_EQ(error(), "tensor 'bias' is missing, expected F32 [H,3]\nnote: "
                     "layer 'toy' declares it");
}

TEST_F(LayerIOTest, WrongDtypes) {
  file.tensors["v"].dtype = DType::F16;
  EXPECT_EQ(error(), "tensor 'v' has dtype F16, expected BF16");
  file = toyFile(tensors);
  file.tensors["bias"].dtype = DType::I32;
  EXPECT_EQ(error(), "tensor 'bias' has dtype I32, expected F32");
  file = toyFile(tensors);
  file.set("cu_seqlens", DType::F32, {2}, std::vector<float>{0, 6});
  EXPECT_EQ(error(), "tensor 'cu_seqlens' has dtype F32, expected I32 or I64");
}

TEST_F(LayerIOTest, WrongShapes) {
  reshape("q", {6, 4, 5});
  EXPECT_EQ(error(), "tensor 'q' has shape [6,4,5], expected [T,H,4] or "
                     "[B,T,H,4]");
  reshape("q", {4});
  EXPECT_EQ(error(), "tensor 'q' has shape [4], expected [T,H,4] or [B,T,H,4]");
  file = toyFile(tensors);
  reshape("g", {6});
  EXPECT_EQ(error(), "tensor 'g' has shape [6], expected [T,H] or [B,T,H]");
  file = toyFile(tensors);
  reshape("g", {1, 6, 4});
  EXPECT_EQ(error(), "tensor 'g' has shape [1,6,4], expected [T,H], as 'q' has "
                     "no batch axis");
  file = toyFile(tensors);
  reshape("bias", {3});
  EXPECT_EQ(error(), "tensor 'bias' has shape [3], expected [H,3]");
}

TEST_F(LayerIOTest, SizesThatDisagree) {
  reshape("k", {5, 4, K});
  EXPECT_EQ(error(), "tensor 'k' has T = 5, expected 6\nnote: T = 6 comes from "
                     "'q'");
  file = toyFile(tensors);
  reshape("k", {6, 3, K});
  EXPECT_EQ(error(), "tensor 'k' has H = 3, expected a divisor of 4\nnote: H = "
                     "4 comes from 'q'");
  file = toyFile(tensors);
  reshape("bias", {2, V});
  EXPECT_EQ(error(), "tensor 'bias' has shape [2,3], expected [4,3]");
}

TEST_F(LayerIOTest, WrongSequences) {
  auto cu = [&](std::vector<int32_t> values) {
    file.set("cu_seqlens", DType::I32, {int64_t(values.size())}, values);
  };
  cu({0, 4, 3, 6});
  EXPECT_EQ(error(), "'cu_seqlens[2]' is 3, expected at least 4, the value "
                     "before it");
  cu({0, 7});
  EXPECT_EQ(error(), "'cu_seqlens[1]' is 7, expected at most T = 6");
  cu({});
  EXPECT_EQ(error(), "'cu_seqlens' is empty, expected N + 1 values");
  cu({0, 6});
  reshape("cu_seqlens", {1, 2});
  EXPECT_EQ(error(), "tensor 'cu_seqlens' has shape [1,2], expected one axis");
}

TEST_F(LayerIOTest, WrongStates) {
  file.set("S", DType::F32, {1, 4, K, V}, std::vector<float>(4 * K * V));
  EXPECT_EQ(error(), "tensor 'z' is missing, expected F32 [N,H,4], as 'S' is "
                     "given\nnote: layer 'toy' declares it");
  file.set("z", DType::F32, {1, 4, K}, std::vector<float>(4 * K));
  EXPECT_EQ(error(), "");
  options.layout = StateLayout::VK;
  EXPECT_EQ(error(), "tensor 'S' has shape [1,4,4,3], expected [N,H,3,4]");
  options.layout = StateLayout::KV;
  file.set("S", DType::F32, {2, 4, K, V}, std::vector<float>(8 * K * V));
  EXPECT_EQ(error(), "tensor 'S' has shape [2,4,4,3], expected [1,4,4,3]");
  file.set("S", DType::F16, {1, 4, K, V}, std::vector<uint16_t>(4 * K * V));
  EXPECT_EQ(error(), "tensor 'S' has dtype F16, expected F32 or BF16");
}

TEST_F(LayerIOTest, SlotsNeedAPool) {
  file.set("slots", DType::I32, {1}, std::vector<int32_t>{0});
  EXPECT_EQ(error(), "tensor 'S' is missing, expected F32 [P,H,4,3], the pool "
                     "that 'slots' index\nnote: layer 'toy' declares it");
  file.set("S", DType::F32, {3, 4, K, V}, std::vector<float>(12 * K * V));
  file.set("z", DType::F32, {3, 4, K}, std::vector<float>(12 * K));
  EXPECT_EQ(error(), "");
  file.set("slots", DType::I32, {1}, std::vector<int32_t>{3});
  EXPECT_EQ(error(), "'slots[0]' is 3, expected -1 or a slot below 3");
  file.set("z", DType::F32, {2, 4, K}, std::vector<float>(8 * K));
  file.set("slots", DType::I32, {1}, std::vector<int32_t>{2});
  EXPECT_EQ(error(), "tensor 'z' has shape [2,4,4], expected [3,4,4]");
}

TEST_F(LayerIOTest, PrecisionF32TakesBothWidths) {
  manifest.inputs[2].dtype = DType::F32; // v, declared bf16.
  EXPECT_EQ(error(), "");
  std::vector<float> wide;
  for (uint16_t bits : tensors.v)
    wide.push_back(bf16ToFloat(bits));
  file.set("v", DType::F32, {6, 4, V}, wide);
  EXPECT_EQ(error(), "");
  file.tensors["v"].dtype = DType::I32;
  EXPECT_EQ(error(), "tensor 'v' has dtype I32, expected BF16 or F32");
}

TEST_F(LayerIOTest, UnknownTensorsAreNamedAndExpectedOnesAreNot) {
  file.set("expected.o", DType::F32, {1}, std::vector<float>{0});
  file.set("w", DType::F32, {1}, std::vector<float>{0});
  file.write(dir / "in");
  Result<SafetensorsFile> opened = SafetensorsFile::open(dir / "in");
  ASSERT_TRUE(opened);
  Result<LayerRun> run = openLayerRun(manifest, *opened, options);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->warnings,
            std::vector<std::string>{"tensor 'w' is not used: layer 'toy' "
                                     "declares no such input"});
}

TEST_F(LayerIOTest, MisalignedDataIsCopied) {
  // A header whose length is no multiple of anything.
  file.write(dir / "in");
  std::string bytes = readFile(dir / "in");
  uint64_t length;
  memcpy(&length, bytes.data(), 8);
  ++length;
  memcpy(bytes.data(), &length, 8);
  bytes.insert(size_t(length) + 7, " ");
  writeFile(dir / "odd", bytes);
  Result<SafetensorsFile> opened = SafetensorsFile::open(dir / "odd");
  ASSERT_TRUE(opened) << opened.error().str();
  Result<LayerRun> run = openLayerRun(manifest, *opened, options);
  ASSERT_TRUE(run) << run.error().str();
  EXPECT_EQ(
      memcmp(run->args.inputs[0].data, tensors.q.data(), tensors.q.size() * 4),
      0);
}
