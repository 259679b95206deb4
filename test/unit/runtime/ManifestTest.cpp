//===- ManifestTest.cpp ---------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyAttention.h"

#include <nlohmann/json.hpp>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;
using Json = nlohmann::ordered_json;

namespace {

std::string errorOf(const std::string &text) {
  Result<Manifest> manifest = parseManifest(text, "m.json");
  return manifest ? "" : manifest.error().str();
}

/// The error after one change of a good manifest, given as a JSON pointer;
/// a discarded value removes the field.
std::string errorAfter(const char *pointer, Json value,
                       const Manifest &manifest = toyManifest()) {
  Json json = Json::parse(writeManifest(manifest));
  Json::json_pointer place(pointer);
  if (value.is_discarded())
    json[place.parent_pointer()].erase(place.back());
  else
    json[place] = std::move(value);
  return errorOf(json.dump());
}

const Json removed(Json::value_t::discarded);

} // namespace

TEST(Manifest, RoundTrips) {
  Manifest manifest = toyManifest();
  Result<Manifest> back = parseManifest(writeManifest(manifest), "m.json");
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(*back, manifest);
}

TEST(Manifest, OfAGpuRoundTrips) {
  Manifest manifest = toyGpuManifest();
  Result<Manifest> back = parseManifest(writeManifest(manifest), "m.json");
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(*back, manifest);
}

TEST(Manifest, GrowingStatesRoundTripAndAreChecked) {
  Manifest manifest = attentionManifest();
  std::string text = writeManifest(manifest);
  Result<Manifest> back = parseManifest(text, "m.json");
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(*back, manifest);
  EXPECT_EQ(back->growingState()->name, "keys");
  EXPECT_EQ(toyManifest().growingState(), nullptr);
  // Written only where it is true.
  Json json = Json::parse(text);
  EXPECT_EQ(json["states"][0]["grows"], true);
  EXPECT_FALSE(json["states"][1].contains("grows"));
  EXPECT_EQ(json["states"][0]["rows"], "k");
  EXPECT_FALSE(json["states"][1].contains("rows"));
  EXPECT_EQ(back->rowsInput(0), 1u);
  EXPECT_EQ(back->rowsInput(1), std::nullopt);
  EXPECT_EQ(back->rowsInput(2), 2u);
  // Heads share all lists or none.
  back->states[2].rows = "";
  EXPECT_EQ(back->rowsInput(0), std::nullopt);
  EXPECT_EQ(errorAfter("/states/1/grows", false, manifest), "");

  struct Case {
    const char *pointer;
    Json value;
    const char *error;
  };
  const Case cases[] = {
      {"/states/0/grows", 1,
       "'states[0].grows' is number, expected true or false"},
      {"/states/0/grows", "true",
       "'states[0].grows' is string, expected true or false"},
      {"/states/0/shape", Json::array(),
       "'states[0].shape' has 0 axes, expected 1, of a row of a growing state"},
      {"/states/0/shape",
       {4, 4},
       "'states[0].shape' has 2 axes, expected 1, of a row of a growing state"},
      {"/states/0/shape/0", 0,
       "'states[0].shape[0]' is 0, expected at least 1"},
      {"/inputs/0/grows", true,
       "'inputs[0].grows' is true, which only a state's may be"},
      {"/states/0/rows", "v",
       "'states[0].rows' is 'v', expected an input of the shape of 'keys', a "
       "state that grows"},
      {"/states/0/rows", "scale",
       "'states[0].rows' is 'scale', expected an input of the shape of 'keys', "
       "a state that grows"},
      {"/states/1/rows", "k",
       "'states[1].rows' is 'k', expected an input of the shape of 'z', a "
       "state "
       "that grows"},
  };
  for (const Case &c : cases)
    EXPECT_EQ(errorAfter(c.pointer, c.value, manifest),
              std::string("m.json: error: ") + c.error)
        << c.pointer;
}

TEST(Manifest, WhatChoseTheScheduleRoundTrips) {
  Manifest manifest = toyManifest();
  manifest.tuning = {"database", "layer toy", "B=1,T=64,H=2",
                     "chunk 16", 0.25,        "2026-11-29"};
  Result<Manifest> back = parseManifest(writeManifest(manifest), "m.json");
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(*back, manifest);
  EXPECT_EQ(errorAfter("/tuning/ms", "fast", manifest),
            "m.json: error: 'tuning.ms' is string, expected a number");
}

TEST(Manifest, EachFieldOfAGpuKernelIsChecked) {
  struct Case {
    const char *pointer;
    Json value;
    const char *error;
  };
  const Case cases[] = {
      {"/target", "sm90", "'target' is 'sm90', expected cpu or sm_NN"},
      {"/target", "sm_90x", "'target' is 'sm_90x', expected cpu or sm_NN"},
      {"/kernels/2/role", removed, "'kernels[2].role' is missing"},
      {"/kernels/2/role", "sum",
       "'kernels[2].role' is 'sum', expected index, prepare, scan, summary, "
       "combine, step, carry, append, attend or merge"},
      {"/kernels/0/role", "scan",
       "'kernels[0].role' is 'scan', which no kernel of form step has"},
      {"/kernels/2/role", "step",
       "'kernels[2].role' is 'step', which no kernel of form chunk has"},
      {"/kernels/2/role", "index",
       "'kernels[2]' is a second kernel of form chunk, chunk 16, role index"},
      {"/kernels/2/grid", "heads",
       "'kernels[2].grid' is 'heads', expected one, chunks, sequences or "
       "tokens"},
      {"/kernels/2/slices", 0, "'kernels[2].slices' is 0, expected at least 1"},
      {"/kernels/2/threads", 1025,
       "'kernels[2].threads' is 1025, expected at most 1024"},
      {"/kernels/2/shared_bytes", -1,
       "'kernels[2].shared_bytes' is -1, expected at least 0"},
      {"/kernels/2/blob_bytes", removed, "'kernels[2].blob_bytes' is missing"},
      {"/kernels/2/segment_bytes", removed,
       "'kernels[2].segment_bytes' is missing"},
      {"/kernels/2/head_block", 65,
       "'kernels[2].head_block' is 65, expected at most 64"},
  };
  for (const Case &c : cases)
    EXPECT_EQ(errorAfter(c.pointer, c.value, toyGpuManifest()),
              std::string("m.json: error: ") + c.error)
        << c.pointer;
  // Written only where it is not what it is as a rule.
  Manifest manifest = toyGpuManifest();
  manifest.kernels[0].headBlock = 64;
  std::string text = writeManifest(manifest);
  EXPECT_EQ(Json::parse(text)["kernels"][0]["head_block"], 64);
  EXPECT_FALSE(Json::parse(text)["kernels"][1].contains("head_block"));
  Result<Manifest> back = parseManifest(text, "m.json");
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(*back, manifest);
  // Nobody asks a CPU kernel for them.
  EXPECT_EQ(errorAfter("/kernels/1/role", "sum"), "");
}

TEST(Manifest, OptionalFieldsMayBeMissingAndUnknownOnesAreIgnored) {
  for (const char *field : {"/features", "/log_decays", "/kernels/0/matmuls",
                            "/kernels/0/flops_per_chunk"})
    EXPECT_EQ(errorAfter(field, removed), "") << field;
  EXPECT_EQ(errorAfter("/tuned", 3), "");
}

TEST(Manifest, EachFieldIsChecked) {
  struct Case {
    const char *pointer;
    Json value;
    const char *error;
  };
  const Case cases[] = {
      {"/abi", removed, "'abi' is missing"},
      {"/abi", 99, "'abi' is 99, this runtime runs 3: compile the layer again"},
      {"/abi", "1", "'abi' is string, expected an integer"},
      {"/layer", 3, "'layer' is number, expected a string"},
      {"/layer", "a b", "'layer' is 'a b', expected a name"},
      {"/target", removed, "'target' is missing"},
      {"/cpu", removed, "'cpu' is missing"},
      {"/plum", removed, "'plum' is missing"},
      {"/llvm", removed, "'llvm' is missing"},
      {"/features", "avx", "'features' is string, expected an array"},
      {"/precision", "tf32",
       "'precision' is 'tf32', expected default, robust or f32"},
      {"/dims/K", 0, "'dims.K' is 0, expected at least 1"},
      {"/dims", Json::array(), "'dims' is array, expected an object"},
      {"/inputs", removed, "'inputs' is missing"},
      {"/inputs/0/name", "k", "'inputs[1]' is a second tensor named 'k'"},
      {"/inputs/1/shape",
       {4, 4, 4},
       "'inputs[1].shape' has 3 axes, expected at most 2"},
      {"/inputs/1/shape/0", 1.5,
       "'inputs[1].shape[0]' is number, expected an integer"},
      {"/inputs/1/shape/0", 18446744073709551615u,
       "'inputs[1].shape[0]' is 18446744073709551615, expected at most "
       "1048576"},
      {"/outputs/0/dtype", "i32",
       "'outputs[0].dtype' is 'i32', expected f32, f16 or bf16"},
      {"/states/0/declared", removed, "'states[0].declared' is missing"},
      {"/log_decays/0", "x",
       "'log_decays[0]' is 'x', which is no input or param"},
      {"/object", "../kernel.so",
       "'object' is '../kernel.so', expected a plain file name"},
      {"/source", "", "'source' is '', expected a plain file name"},
      {"/kernels", Json::array(),
       "'kernels' is empty, expected at least one kernel"},
      {"/kernels/0/form", "scan",
       "'kernels[0].form' is 'scan', expected step or chunk"},
      {"/kernels/1/chunk", removed, "'kernels[1].chunk' is missing"},
      {"/kernels/1/chunk", 16,
       "'kernels[2]' is a second kernel of form chunk, chunk 16"},
      {"/kernels/0/chunk", 2, "'kernels[0].chunk' is 2, expected at most 1"},
      {"/kernels/1/symbol", "a-b",
       "'kernels[1].symbol' is 'a-b', expected a "
       "name"},
      {"/kernels/1/workspace_bytes", -1,
       "'kernels[1].workspace_bytes' is -1, expected at least 0"},
      {"/kernels/2/matmuls/0/n", removed,
       "'kernels[2].matmuls[0].n' is missing"},
  };
  for (const Case &c : cases)
    EXPECT_EQ(errorAfter(c.pointer, c.value),
              std::string("m.json: error: ") + c.error)
        << c.pointer;
}

TEST(Manifest, TextThatIsNoManifest) {
  EXPECT_EQ(errorOf("{"), "m.json: error: is not valid JSON");
  EXPECT_EQ(errorOf("[]"), "m.json: error: is not a JSON object");
  EXPECT_EQ(errorOf("{\"abi\":1,\"abi\":1}"),
            "m.json: error: 'abi' appears twice");
  EXPECT_EQ(errorOf(std::string(100000, '[')),
            "m.json: error: is not valid JSON");
}

TEST(Bundle, OpensAndFindsKernels) {
  TempDir dir;
  writeToyBundle(dir / "toy");
  Result<Bundle> bundle = Bundle::open(dir / "toy");
  ASSERT_TRUE(bundle) << bundle.error().str();
  EXPECT_EQ(bundle->kernels().size(), 3u);
  EXPECT_EQ(bundle->step()->info->symbol, "toy_step");
  EXPECT_EQ(bundle->chunk()->info->chunk, 4);
  EXPECT_EQ(bundle->chunk(16)->info->symbol, "toy_chunk16");
  EXPECT_EQ(bundle->chunk(5), nullptr);
}

TEST(Bundle, OfAGpuOpensButHasNoCpuKernels) {
  TempDir dir;
  writeToyBundle(dir / "toy", toyGpuManifest());
  Result<Bundle> bundle = Bundle::open(dir / "toy");
  ASSERT_TRUE(bundle) << bundle.error().str();
  EXPECT_TRUE(bundle->kernels().empty());
  Result<KernelChoice> choice = chooseKernels(*bundle, {});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().str(),
            dir / "toy: error: has no cpu kernel, it was compiled for sm_90a");
}

TEST(Bundle, EachThingThatCanBeWrongIsNamed) {
  TempDir dir;
  auto errorOf = [&](const Manifest &manifest) {
    writeToyBundle(dir / "toy", manifest);
    Result<Bundle> bundle = Bundle::open(dir / "toy");
    return bundle ? "" : bundle.error().str();
  };
  Manifest manifest = toyManifest();
  manifest.kernels[1].symbol = "nowhere";
  EXPECT_EQ(errorOf(manifest),
            dir / "toy/kernel.so: error: has no symbol 'nowhere'\nnote: "
                  "manifest.json names it as a kernel");
  manifest = toyManifest();
  manifest.object = "other.so";
  EXPECT_EQ(errorOf(manifest),
            dir / "toy/other.so: error: does not exist\nnote: manifest.json "
                  "names it as 'object'");
  manifest = toyManifest();
  manifest.object = "spec.plum";
  EXPECT_NE(errorOf(manifest).find("spec.plum: error: cannot be loaded: "),
            std::string::npos);
  Result<Bundle> none = Bundle::open(dir / "none");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().str(),
            dir / "none: error: is not a bundle: it has no manifest.json");
}

TEST(Bundle, FeaturesAreCheckedAgainstThisCpu) {
  EXPECT_EQ(missingFeature({}), "");
  EXPECT_EQ(missingFeature({"sse3", "no-such-feature"}), "");
#if defined(__x86_64__)
  // Find one that this CPU lacks, if any.
  for (const char *feature : {"amx-int8", "avx512fp16", "avx512f", "avx2"})
    if (!missingFeature({feature}).empty()) {
      TempDir dir;
      Manifest manifest = toyManifest();
      manifest.features = {"sse3", feature};
      manifest.cpu = "other-cpu";
      writeToyBundle(dir / "toy", manifest);
      Result<Bundle> bundle = Bundle::open(dir / "toy");
      ASSERT_FALSE(bundle);
      EXPECT_EQ(bundle.error().str(),
                dir / "toy: error: needs the CPU feature '" + feature +
                    "', which this CPU lacks\nnote: it was compiled for "
                    "'other-cpu'; compile the layer on this machine");
      return;
    }
#endif
}
