//===- gpu_chunk_test.cpp - Prefill kernels for GPUs, emulated ------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The chunk kernels of the shipped layers in the emulator, against float64:
// lengths around the chunk, packed sequences with empty ones, initial states,
// other dims, both chips, sequences split into segments.
//
//===----------------------------------------------------------------------===//

#include "test/integration/GpuEmulation.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::portableUniform;

namespace {

Data activations(const Layer &layer, Sizes sizes, uint32_t seed,
                 bool states = true, std::vector<int64_t> offsets = {}) {
  Data data(layer, sizes);
  if (!offsets.empty())
    data.pack(offsets);
  uint32_t tid = 1;
  for (const frontend::Symbol *input : layer.ast().inputs)
    data.fill(input->name, normal(seed, tid++));
  for (const frontend::Symbol *param : layer.ast().params) {
    ++tid;
    data.fill(param->name, [&](int64_t i) {
      double n = portableNormal(seed, tid, uint32_t(i));
      if (param->name == "A_log")
        return std::log(1 + 15 * portableUniform(seed, tid, uint32_t(i)));
      if (param->name == "dt_bias")
        return n - 3;
      if (param->name == "log_gamma")
        return std::log1p(-std::exp2(-5. - double(i)));
      return n;
    });
  }
  if (states)
    for (const frontend::Symbol *state : layer.ast().states) {
      ++tid;
      data.fill(state->name, normal(seed, tid, 0.25));
    }
  return data;
}

struct Run {
  std::string layer;
  Dims dims = {};
  int64_t chunk = 64;
  std::string target = "sm_90a";
  int64_t segments = 1;
};

void check(const Spec &spec, const Run &run, Sizes sizes, uint32_t seed,
           bool states, std::vector<int64_t> offsets = {}) {
  Layer &layer = Layer::get(spec);
  Data data = activations(layer, sizes, seed, states, offsets);
  Placing placing;
  placing.chunk = run.chunk;
  placing.target = run.target;
  placing.segments = run.segments;
  Values got = emulate(layer, data, placing);
  expectEmulated(data, placing, got, reference(layer, data), 5e-3, 5e-3,
                 spec.name + " T " + std::to_string(sizes.tokens) + " P " +
                     std::to_string(run.segments));
}

void check(Run run, Sizes sizes, uint32_t seed, bool states,
           std::vector<int64_t> offsets = {}) {
  if (run.layer == "deltaproduct") // Two rows a token.
    run.chunk = std::min<int64_t>(run.chunk, 32);
  check(shippedSpec(run.layer, run.dims), run, sizes, seed, states, offsets);
}

class GpuChunk : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuChunk, Lengths) {
  for (int64_t tokens : {1, 63, 64, 65, 130})
    check({GetParam()}, {1, tokens, 2}, 7, tokens > 1);
}
TEST_P(GpuChunk, Packed) {
  check({GetParam()}, {1, 211, 1}, 9, true, {0, 1, 1, 64, 128, 129, 200, 211});
}
TEST_P(GpuChunk, Ampere) {
  check({GetParam(), {}, 64, "sm_80"}, {1, 130, 1}, 11, true);
}

// Rows longer than 128 come in chunks of half the tokens. What the chips have
// in common is tested once, so not everything on both.
TEST_P(GpuChunk, LongKeys) {
  int64_t chunk = GetParam() == "deltaproduct" ? 16 : 32;
  const bool ampere = GetParam() == "kda" || GetParam() == "gated_deltanet" ||
                      GetParam() == "linear_attention";
  std::vector<std::tuple<int64_t, int64_t, std::string, int64_t>> runs{
      {192, 64, "sm_90a", 1}, {256, 96, "sm_90a", 3}};
  if (ampere) {
    runs.push_back({192, 96, "sm_80", 3});
    runs.push_back({256, 64, "sm_80", 1});
  }
  for (auto &[K, V, target, segments] : runs)
    check({GetParam(), {{"K", K}, {"V", V}}, chunk, target, segments},
          {1, 80, 1}, 27, true);
}

TEST_P(GpuChunk, StatesInBetween) {
  Layer &layer = Layer::get(shippedSpec(GetParam(), {}));
  Data data = activations(layer, {2, 200, 1}, 15);
  Values truth = reference(layer, data, {64, 128, 192});
  for (int64_t segments : {1, 2}) {
    Placing placing;
    placing.chunk = GetParam() == "deltaproduct" ? 32 : 64;
    placing.segments = segments;
    placing.snapshotEvery = 64;
    Values got = emulate(layer, data, placing);
    ASSERT_FALSE(got.empty());
    for (const frontend::Symbol *state : layer.ast().states)
      for (std::string at : {"@64", "@128", "@192", ""})
        EXPECT_LE(
            distance(got.at(state->name + at), truth.at(state->name + at)),
            5e-3)
            << state->name << at << ", " << segments << " segments";
  }
}

// Empty sequences, and those around the chunk; of padding there are none, and
// places that are nobody's stay as they are.
TEST_P(GpuChunk, StatesInBetweenOfPacked) {
  Layer &layer = Layer::get(shippedSpec(GetParam(), {}));
  const int64_t C = GetParam() == "deltaproduct" ? 32 : 64;
  std::vector<int64_t> offsets{0};
  for (int64_t length : {0L, 1L, C - 1, C, C + 1, 0L, 2 * C, 3 * C + 5, C, 0L})
    offsets.push_back(offsets.back() + length);
  Data data = activations(layer, {1, offsets.back() + 3, 1}, 16, true, offsets);
  Values truth = reference(layer, data, {C, 2 * C, 3 * C});
  for (int64_t segments : {1, 3}) {
    Placing placing;
    placing.chunk = C;
    placing.segments = segments;
    placing.snapshotEvery = segments == 1 ? C : 2 * C;
    placing.wideIndices = segments == 1;
    if (segments == 1)
      placing.slots = {3, 0, 4, 9, -1, 5, 6, 7, 1, 8};
    expectEmulated(data, placing, emulate(layer, data, placing), truth, 5e-3,
                   5e-3, GetParam() + " P " + std::to_string(segments));
  }
}

TEST_P(GpuChunk, ManyShort) { check({GetParam()}, {3, 2, 30}, 13, false); }

// Segments of several lengths; with P = 2 nothing is left to combine, and of
// three chunks some of five segments have none.
TEST_P(GpuChunk, Segments) {
  for (auto [segments, tokens] :
       {std::pair(1, 257), std::pair(2, 257), std::pair(3, 300),
        std::pair(5, 320), std::pair(5, 150)})
    check({GetParam(), {}, 64, "sm_90a", segments}, {1, tokens, 1}, 17,
          tokens != 300);
}
TEST_P(GpuChunk, SegmentsOfManyHeads) {
  check({GetParam(), {}, 64, "sm_90a", 4}, {2, 319, 2}, 19, true);
}
TEST_P(GpuChunk, SegmentsOfPacked) {
  for (int64_t segments : {2, 3, 5})
    check({GetParam(), {}, 64, "sm_90a", segments}, {1, 580, 1}, 21, true,
          {0, 0, 1, 1, 130, 452, 516, 580, 580});
}
TEST_P(GpuChunk, SegmentsOnAmpere) {
  for (int64_t segments : {3, 5})
    check({GetParam(), {}, 64, "sm_80", segments}, {1, 300, 1}, 23,
          segments == 3);
}
// M has K columns, B has V: one kernel has slices of both.
TEST_P(GpuChunk, SegmentsOfOtherDims) {
  for (auto [K, V] :
       {std::pair(64, 128), std::pair(128, 64), std::pair(64, 192)})
    for (std::string target : {"sm_90a", "sm_80"}) {
      if (target == "sm_80" && V == 192)
        continue; // Its slices are those of 128.
      // RWKV-7 has the most tiles: see test/tools/no-chunk-gpu.test.
      bool large = GetParam() == "rwkv7" && target == "sm_80" && K == 128;
      check({GetParam(), {{"K", K}, {"V", V}}, large ? 32 : 64, target, 3},
            {1, 200, 1}, 25, true);
    }
}
// Half of the channels never decay, the others at once and by more than sums of
// logarithms can hold beside anything else.
TEST(GpuChunkDecays, ZeroBesideExtreme) {
  for (std::string name : {"kda", "gla"})
    for (std::string target : {"sm_90a", "sm_80"}) {
      Layer &layer = Layer::get(shippedSpec(name, {}));
      Data data = activations(layer, {1, 130, 1}, 31, /*states=*/false);
      const double forgets = std::ldexp(name == "kda" ? 1 : -1, 100);
      data.fill(name == "kda" ? "f" : "g",
                [&](int64_t i) { return i % 2 ? forgets : -forgets; });
      Placing placing;
      placing.chunk = 64;
      placing.target = target;
      Values got = emulate(layer, data, placing);
      expectEmulated(data, placing, got, reference(layer, data), 5e-3, 5e-3,
                     name + " " + target);
    }
}

// States are updated in place. B of the first segment starts from the initial
// state, as the scan would; a vector state is read by both slices of V.
void checkInPlace(const std::string &name, int64_t segments) {
  Layer &layer = Layer::get(shippedSpec(name, {{"K", 128}, {"V", 128}}));
  Data data = activations(layer, {3, 290, 2}, 27);
  Placing placing;
  placing.chunk = 64;
  placing.segments = segments;
  placing.columnMajor = true;
  placing.state = DType::BF16;
  placing.slots = {2, -1, 0};
  placing.slotPadding = 8;
  Values got = emulate(layer, data, placing);
  expectEmulated(data, placing, got, reference(layer, data), 5e-3, 5e-3, name);
}
TEST(GpuChunkSegments, InitialStates) { checkInPlace("kda", 4); }
TEST(GpuChunkVectorState, InPlace) {
  checkInPlace("linear_attention", 1);
  checkInPlace("linear_attention", 3);
}

// A normaliser that decays with the memory, and is written with a gate: keys as
// they lie in memory with one decay a token, rewritten with one a channel.
TEST(GpuChunkVectorState, Decays) {
  std::string inputs = R"(
  input  q, k : [K] bf16
  input  v    : [V] bf16
  input  i    : bf16
  state  S    : [K, V] f32
  state  z    : [K] f32
  g = -softplus(-f)
)";
  std::string rest = R"( + sigmoid(i) * k^T @ v
  z = exp(g) * z + 2 * sigmoid(i) * k
  n = q @ z^T
  output o : [V] bf16 = (q @ S) / (4 + abs(n))
})";
  Spec scalar{"scalar",
              "layer scalar(K = 32, V = 48) { input f : bf16" + inputs +
                  "  S = exp(g) * S" + rest,
              {}};
  Spec channel{"channel",
               "layer channel(K = 32, V = 48) { input f : [K] bf16" + inputs +
                   "  S = diag(exp(g)) @ S" + rest,
               {}};
  for (const Spec &spec : {scalar, channel})
    for (std::string target : {"sm_90a", "sm_80"}) {
      check(spec, {"", {}, 64, target}, {1, 65, 1}, 31, true);
      check(spec, {"", {}, 64, target, 3}, {1, 580, 1}, 33, true,
            {0, 0, 1, 1, 130, 452, 516, 580, 580});
    }
}

// Tokens of several updates: the same maths on other inputs becomes one, the
// rest a choice by the step; decays between updates, one or one a channel.
TEST(GpuChunkSteps, OfOneToken) {
  std::string three = R"(layer three(K = 32, V = 48) {
  input  q, k1, k2, k3 : [K] bf16
  input  v1, v2, v3    : [V] bf16
  input  a, b1, b2, b3 : bf16
  state  S : [K, V] f32
  S = exp(-softplus(a)) * S
  S += sigmoid(b1) * l2norm(k1, eps = 1e-6)^T @ (v1 - l2norm(k1, eps = 1e-6) @ S)
  S += sigmoid(b2) * l2norm(k2, eps = 1e-6)^T @ (v2 - l2norm(k2, eps = 1e-6) @ S)
  S += sigmoid(b3) * l2norm(k3, eps = 1e-6)^T @ (v3 - l2norm(k3, eps = 1e-6) @ S)
  output o : [V] bf16 = q @ S
})";
  std::string uneven = R"(layer uneven(K = 32, V = 48) {
  input  q, k1, k2, a : [K] bf16
  input  v1, v2       : [V] bf16
  input  c, b         : bf16
  state  S : [K, V] f32
  kn1 = l2norm(k1, eps = 1e-6)
  kn2 = l2norm(k2 + q, eps = 1e-4) * 0.5
  S = diag(exp(-softplus(a))) @ S
  S += sigmoid(b) * kn1^T @ (v1 - kn1 @ S)
  S = exp(-softplus(c)) * S
  S += kn2^T @ (2 * v2 - kn2 @ S)
  output o : [V] bf16 = q @ S
})";
  struct {
    Spec spec;
    int64_t chunk;
  } cases[] = {{{"three", three, {}}, 16}, {{"uneven", uneven, {}}, 32}};
  for (const auto &[spec, chunk] : cases)
    for (std::string target : {"sm_90a", "sm_80"}) {
      check(spec, {"", {}, chunk, target}, {1, chunk + 1, 2}, 41, true);
      check(spec, {"", {}, chunk, target, 3}, {1, 190, 1}, 43, true,
            {0, 0, 1, 30, 180, 180, 190});
    }
}

// What stands behind the memory: a gate, whose rows wait for the outputs that a
// delta rule puts off; a norm, for which warps add up their rows.
TEST(GpuChunkOutputs, GatesAndNorms) {
  auto delta = [](std::string name, std::string output) {
    return Spec{name,
                "layer " + name + R"((K = 64, V = 64) {
  param  w      : [V] f32
  input  q, k   : [K] bf16
  input  v, g   : [V] bf16
  input  a, b   : bf16
  state  S      : [K, V] f32
  kn = l2norm(k, eps = 1e-6)
  S  = exp(-softplus(a)) * S
  S += sigmoid(b) * kn^T @ (v - kn @ S)
  output o : [V] bf16 = )" +
                    output + "\n}",
                {}};
  };
  Spec gate = delta("gate", "(l2norm(q, eps = 1e-6) @ S) * silu(g) + w * v");
  Spec norm =
      delta("norm", "rmsnorm(q @ S, eps = 1e-3) * w * sigmoid(g) + sum(v * g)");
  Spec added{"added",
             R"(layer added(K = 32, V = 96) {
  input  q, k, a : [K] bf16
  input  v, g    : [V] bf16
  state  S       : [K, V] f32
  S  = diag(exp(-softplus(a))) @ S
  S += k^T @ v
  output o : [V] bf16 = l2norm(q @ S, eps = 1e-3) * silu(g)
  output n : [V] bf16 = q @ S
})",
             {}};
  for (const Spec &spec : {gate, norm, added})
    for (std::string target : {"sm_90a", "sm_80"}) {
      check(spec, {"", {}, 64, target}, {1, 130, 2}, 45, true);
      check(spec, {"", {}, 32, target, 3}, {1, 301, 1}, 47, true,
            {0, 0, 1, 65, 290, 290, 301});
    }
  for (Spec spec : {gate, norm}) {
    spec.dims = {{"K", 128}, {"V", 128}};
    check(spec, {"", {}, 64, "sm_90a"}, {1, 200, 1}, 49, true);
  }
}

// Write strengths that depend on the key, as in an implicit step (Longhorn, Liu
// et al. 2024, arXiv 2407.14207): a sum over an input that is otherwise read as
// it is.
TEST(GpuChunkFactors, SumsOfRawKeys) {
  Spec longhorn{"longhorn",
                R"(layer longhorn(K = 64, V = 32) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  input  b, a : bf16
  state  S    : [K, V] f32
  beta = sigmoid(b)
  d = beta / (1 + beta * sum(k * k))
  S = exp(-softplus(a)) * S
  S += d * k^T @ (v - k @ S)
  output o : [V] bf16 = q @ S
})",
                {}};
  for (std::string target : {"sm_90a", "sm_80"})
    check(longhorn, {"", {}, 64, target}, {1, 130, 2}, 51, true);
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuChunk,
                         ::testing::Values("kda_k3", "kda", "gated_deltanet",
                                           "deltanet", "gla", "mamba2",
                                           "retnet", "gdn2", "linear_attention",
                                           "rwkv7", "deltaproduct"),
                         [](const auto &info) { return info.param; });

} // namespace
