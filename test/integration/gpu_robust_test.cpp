//===- gpu_robust_test.cpp - Precision robust on GPUs, emulated -----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What two bf16 terms are for: keys that do not change (C05), where a chunk's
// solved blocks are large and their sum is small, and states that do not tell
// where a sequence was cut (C15). Layers that erase nothing keep both promises
// in default precision, so their kernels are the same.
//
//===----------------------------------------------------------------------===//

#include "test/integration/GpuEmulation.h"

#include "gtest/gtest.h"

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;

namespace {

struct Run {
  std::string layer, target = "sm_90a";
  int64_t chunk = 64, K = 128;
};

Layer &robust(const Run &run) {
  return Layer::get(shippedSpec(run.layer, {{"K", run.K}}), Precision::Robust);
}

/// What layers call a gate before its maths.
bool isGate(const std::string &name) { return name == "f" || name == "a"; }

/// C05: one key, next to no decay, and everything that was there is replaced.
/// The layers norm their keys.
Data identicalKeys(Layer &layer, int64_t K, int64_t tokens) {
  Data data(layer, {.tokens = tokens, .heads = 1});
  Fill key = normal(105, 2);
  for (const frontend::Symbol *input : layer.ast().inputs) {
    if (input->name == "q")
      data.fill("q", unitRows(105, 1, K));
    else if (input->name == "k")
      data.fill("k", [=](int64_t i) { return key(i % K); });
    else if (input->name == "v")
      data.fill("v", [](int64_t i) {
        return portableNormal(105, 3, uint32_t(i / 128 % 16 * 128 + i % 128));
      });
    else
      data.fill(input->name, constant(isGate(input->name) ? -12 : 8));
  }
  for (const frontend::Symbol *param : layer.ast().params)
    data.fill(param->name, constant(0));
  return data;
}

void checkIdenticalKeys(const Run &run, int64_t tokens) {
  Layer &layer = robust(run);
  Data data = identicalKeys(layer, run.K, tokens);
  Values truth = reference(layer, data);
  for (int64_t segments : {1, 4}) {
    Placing placing;
    placing.chunk = run.chunk;
    placing.target = run.target;
    placing.segments = segments;
    expectClose(data, emulate(layer, data, placing), truth, standard(layer),
                run.layer + " " + run.target + ", " + std::to_string(segments) +
                    " segments");
  }
}

TEST(GpuRobust, IdenticalKeys) {
  for (std::string layer : {"kda_k3", "kda", "gated_deltanet", "deltanet"})
    checkIdenticalKeys({layer}, 256);
  checkIdenticalKeys({"kda_k3"}, 64);
}
TEST(GpuRobust, IdenticalKeysOnAmpere) {
  for (std::string layer : {"kda_k3", "gated_deltanet", "deltanet"})
    checkIdenticalKeys({layer, "sm_80"}, 256);
}

// The state and two copies of it take most registers: another order of reads.
TEST(GpuRobust, LongKeys) {
  checkIdenticalKeys({"kda_k3", "sm_90a", 32, 192}, 128);
  checkIdenticalKeys({"gated_deltanet", "sm_80", 32, 192}, 128);
}

/// C15: segments leave the same states, wherever they begin. Decays are so slow
/// that a state still matters at the end of the next segment.
void checkCuts(const Run &run) {
  Layer &layer = robust(run);
  Data data(layer, {.tokens = 290, .heads = 1});
  uint32_t tid = 1;
  for (const frontend::Symbol *input : layer.ast().inputs) {
    data.fill(input->name, normal(115, tid));
    if (isGate(input->name))
      data.fill(input->name, [=](int64_t i) {
        return portableNormal(115, tid, uint32_t(i)) - 7;
      });
    ++tid;
  }
  for (const frontend::Symbol *param : layer.ast().params)
    data.fill(param->name, constant(0));
  for (const frontend::Symbol *state : layer.ast().states)
    data.fill(state->name, normal(115, 6, 0.25));
  Values whole;
  for (int64_t segments : {1, 2, 4}) {
    Placing placing;
    placing.chunk = run.chunk;
    placing.target = run.target;
    placing.segments = segments;
    placing.snapshotEvery = 64;
    Values got = emulate(layer, data, placing);
    const std::string what = run.layer + " " + run.target + ", " +
                             std::to_string(segments) + " segments";
    ASSERT_FALSE(got.empty()) << what;
    if (segments == 1) {
      whole = got;
      Values truth = reference(layer, data, {64, 128, 192, 256});
      expectEmulated(data, placing, got, truth, 5e-3, 5e-3, what);
      continue;
    }
    for (const auto &[name, tensor] : got) {
      double r = distance(tensor, whole.at(name));
      if (std::getenv("PLUM_PRINT_ERRORS"))
        std::printf("%s, %s beside one: R %.2e\n", what.c_str(), name.c_str(),
                    r);
      EXPECT_LE(r, name == "o" ? 1e-3 : 1e-4) << what << ", " << name;
    }
  }
}

TEST(GpuRobust, Cuts) {
  for (std::string layer :
       {"kda_k3", "gated_deltanet", "deltanet", "gla", "linear_attention"})
    checkCuts({layer});
}
TEST(GpuRobust, CutsOnAmpere) {
  for (std::string layer : {"kda_k3", "gated_deltanet", "deltanet", "gla"})
    checkCuts({layer, "sm_80"});
}

} // namespace
