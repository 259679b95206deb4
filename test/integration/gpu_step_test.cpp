//===- gpu_step_test.cpp - Decode kernels for GPUs, emulated --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The step kernel of every shipped layer, of layers nobody ships and of drawn
// ones against float64, with states as an inference engine keeps them: in a
// pool of slots, updated in place, in either layout and as f32 or bf16. Case
// C17's limits: states within 1e-6, outputs (bf16) within 3e-3; with f32 inputs
// and outputs 2e-6.
//
//===----------------------------------------------------------------------===//

#include "plum/ABI/GpuABI.h"
#include "test/integration/GpuEmulation.h"
#include "test/integration/RandomSpec.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::portableUniform;

static constexpr double kStateR = 1e-6, kOutputR = 3e-3;
/// A state that is rounded to bf16 once, at the end.
static constexpr double kBFloatR = 3e-3;

static const std::vector<std::string> &shippedLayers() {
  static const std::vector<std::string> names = {
      "linear_attention", "retnet", "mamba2", "gla",  "deltanet",
      "gated_deltanet",   "kda",    "kda_k3", "gdn2", "rwkv7",
      "deltaproduct"};
  return names;
}

//===----------------------------------------------------------------------===//
// Shipped layers
//===----------------------------------------------------------------------===//

namespace {
class ShippedSteps : public testing::TestWithParam<std::string> {
protected:
  Layer &layer(int64_t K, int64_t V) const {
    // rwkv7's paper has one head dim, its spec two.
    return Layer::get(shippedSpec(GetParam(), {{"K", K}, {"V", V}}));
  }
};
} // namespace

INSTANTIATE_TEST_SUITE_P(All, ShippedSteps, testing::ValuesIn(shippedLayers()),
                         [](const auto &info) { return info.param; });

/// Both layouts and types of states in a pool.
static void checkPool(const Layer &layer, int64_t tokens) {
  Data data = realistic(layer, {.batch = 3, .tokens = tokens, .heads = 2}, 31,
                        /*keyHeads=*/1);
  Data rounded = data; // as a pool of bf16 holds them
  for (const frontend::Symbol *symbol : layer.ast().states)
    for (double &x : rounded[symbol->name].values)
      x = bf16ToFloat(floatToBf16(float(x)));
  Values truth = reference(layer, data), after = reference(layer, rounded);
  for (bool columnMajor : {false, true})
    for (DType state : {DType::F32, DType::BF16}) {
      bool exact = state == DType::F32;
      Placing placing{.columnMajor = columnMajor,
                      .state = state,
                      .slots = {2, -1, 0},
                      .slotPadding = 64,
                      .wideIndices = columnMajor,
                      .seed = uint64_t(tokens)};
      const Data &start = exact ? data : rounded;
      expectEmulated(start, placing, emulate(layer, start, placing),
                     exact ? truth : after, exact ? kStateR : kBFloatR,
                     kOutputR,
                     std::string(name(state)) + (columnMajor ? " [V, K]" : "") +
                         ", T = " + std::to_string(tokens));
    }
}

TEST_P(ShippedSteps, SlotsLayoutsAndTypes) {
  for (int64_t tokens : {1, 3})
    checkPool(layer(64, 96), tokens);
}

// Groups of four elements that lie behind the end of a row or column.
TEST_P(ShippedSteps, RaggedSlices) { checkPool(layer(60, 36), 2); }

TEST_P(ShippedSteps, OddSizesFromNothing) {
  Layer &layer = this->layer(20, 37);
  Data data = realistic(layer, {.batch = 2, .tokens = 2, .heads = 3}, 32);
  for (const frontend::Symbol *state : layer.ast().states)
    data.tensors.erase(state->name);
  Placing placing{.rowPadding = 3};
  expectEmulated(data, placing, emulate(layer, data, placing),
                 reference(layer, data), kStateR, kOutputR, "from nothing");
}

TEST_P(ShippedSteps, PackedSequences) {
  Layer &layer = this->layer(64, 64);
  Values narrow;
  for (bool wide : {false, true}) {
    Data data = realistic(layer, {.batch = 1, .tokens = 6, .heads = 2}, 33);
    data.pack({0, 1, 1, 4, 6});
    for (const frontend::Symbol *state : layer.ast().states)
      data.fill(state->name, [&](int64_t i) {
        return 1 + std::abs(portableNormal(34, 5, uint32_t(i)));
      });
    Placing placing{.wideIndices = wide};
    Values got = emulate(layer, data, placing);
    expectEmulated(data, placing, got, reference(layer, data), kStateR,
                   kOutputR, "packed");
    // A sequence of no tokens keeps its state.
    for (const frontend::Symbol *state : layer.ast().states)
      EXPECT_EQ(distance(slice(got[state->name], 0, 1, 2),
                         slice(data[state->name], 0, 1, 2)),
                0);
    if (wide)
      expectSame(got, narrow, "int32 and int64 offsets");
    narrow = got;
  }
}

// Of a batch, where padding keeps its place; and of more packed sequences than
// a warp has lanes, where it has none.
TEST_P(ShippedSteps, Snapshots) {
  Layer &layer = this->layer(32, 20);
  Data batch = realistic(layer, {.batch = 3, .tokens = 5, .heads = 2}, 36);
  Placing placing{.snapshotEvery = 2, .slots = {2, -1, 0}};
  expectEmulated(batch, placing, emulate(layer, batch, placing),
                 reference(layer, batch, {2, 4}), kStateR, kOutputR, "batch");

  std::vector<int64_t> offsets{0}, slots;
  for (int64_t n = 0; n < 70; ++n) {
    offsets.push_back(offsets.back() + (n * n) % 4 + (n == 40 ? 2 : 0));
    slots.push_back(n % 11 == 5 ? -1 : (n + 3) % 70);
  }
  Data packed =
      realistic(layer, {.batch = 1, .tokens = offsets.back(), .heads = 1}, 37);
  packed.pack(offsets);
  for (const frontend::Symbol *state : layer.ast().states)
    packed.fill(state->name, [&](int64_t i) {
      return 1 + std::abs(portableNormal(38, 5, uint32_t(i)));
    });
  for (int64_t every : {1, 2}) {
    Placing placing{.snapshotEvery = every,
                    .columnMajor = every == 2,
                    .slots = every == 1 ? slots : std::vector<int64_t>{},
                    .wideIndices = every == 2};
    expectEmulated(packed, placing, emulate(layer, packed, placing),
                   reference(layer, packed, {1, 2, 3}), kStateR, kOutputR,
                   "packed, every " + std::to_string(every));
  }
}

TEST_P(ShippedSteps, BitsDoNotDependOnTheBatch) {
  Layer &layer = this->layer(64, 64);
  Data data = realistic(layer, {.batch = 4, .tokens = 2, .heads = 2}, 35);
  Values all = emulate(layer, data);
  for (int64_t half : {0, 2}) {
    Data part = data;
    part.sizes.batch = 2;
    Values expected;
    for (auto &[name, tensor] : part.tensors)
      if (tensor.shape[0] == 4)
        tensor = slice(tensor, 0, half, half + 2);
    for (const auto &[name, tensor] : all)
      expected[name] = slice(tensor, 0, half, half + 2);
    expectSame(emulate(layer, part, {.rowPadding = 8, .seed = 7}), expected,
               "half a batch in strided rows");
  }
}

//===----------------------------------------------------------------------===//
// The numbered cases
//===----------------------------------------------------------------------===//

TEST(StepCases, C17DecodeFromAnIndexedPool) {
  Layer &layer = Layer::get(localSpec("kda_raw", {{"K", 128}, {"V", 128}}));
  Data data(layer, {.batch = 8, .tokens = 1, .heads = 4});
  data.fill("q", unitRows(117, 1, 128));
  data.fill("k", unitRows(117, 2, 128));
  data.fill("v", normal(117, 3));
  data.fill("beta", gate01(117, 5));
  data.fill("g", [](int64_t i) {
    return -5 * sigmoid(portableNormal(117, 4, uint32_t(i)) - 3);
  });
  data.fill("S", normal(117, 6, 0.25));
  Values truth = reference(layer, data);
  Values dense;
  for (bool wide : {false, true})
    for (int64_t padding : {0, 64}) {
      Placing placing{.slots = {7, 0, 3, 12, 9, -1, -1, -1},
                      .slotPadding = padding,
                      .wideIndices = wide};
      Values got = emulate(layer, data, placing);
      expectEmulated(data, placing, got, truth, kStateR, kOutputR, "C17");
      if (!dense.empty())
        expectSame(got, dense, "other indices, padded slots");
      dense = got;
    }
}

/// With inputs in f32 (--precision f32) nothing is rounded to 16 bits: C23.
TEST(StepCases, C23ReflectionsInF32) {
  Layer &layer = Layer::get(localSpec("deltanet_raw", {{"K", 64}, {"V", 64}}),
                            Precision::F32);
  Data data(layer, {.tokens = 256, .heads = 2});
  data.fill("q", unitRows(123, 1, 64));
  data.fill("k", unitRows(123, 2, 64));
  data.fill("v", normal(123, 3));
  data.fill("beta", [](int64_t i) {
    return i / 2 % 8 ? 2 * sigmoid(2 * portableNormal(123, 5, uint32_t(i))) : 2;
  });
  Placing placing;
  expectEmulated(data, placing, emulate(layer, data, placing),
                 reference(layer, data), 2e-6, 2e-6, "C23");
}

//===----------------------------------------------------------------------===//
// What no shipped layer does
//===----------------------------------------------------------------------===//

static void checkText(const std::string &name, const std::string &text,
                      double outputR = kOutputR) {
  Layer layer({name, text, {}}, Precision::Default, {});
  Data data = realistic(layer, {.batch = 2, .tokens = 3, .heads = 2}, 41);
  expectEmulated(data, {.seed = 1}, emulate(layer, data, {.seed = 1}),
                 reference(layer, data), kStateR, outputR, name);
}

TEST(StepForms, RowsOfVThatAreNeededWhole) {
  checkText("normed", R"(
layer normed(K = 32, V = 48) {
  input q, k : [K] bf16
  input v : [V] bf16
  state S : [K, V] f32
  S = 0.9 * S + l2norm(k)^T @ v
  output o : [V] bf16 = rmsnorm(q @ S)
  output most : bf16 = sum(abs(q @ S))
})");
}

TEST(StepForms, StatesOfSeveralSizesThatUseEachOther) {
  checkText("several", R"(
layer several(K = 24, V = 64, M = 40) {
  input  q, k : [K] bf16
  input  m    : [M] bf16
  input  v    : [V] bf16
  input  w    : [V] f32
  state  S    : [K, V] f32
  state  R    : [M, V] f32
  kn = l2norm(k)
  mn = l2norm(m)
  before = kn @ S
  R = 0.8 * R + mn^T @ (v - before)
  S = sigmoid(sum(mn)) * S + kn^T @ (w - 0.5 * (mn @ R))
  output o : [V] bf16 = q @ S + mn @ R
  output keys : [K] f32 = kn
  output first : bf16 = sum(kn * q)
})");
}

TEST(StepForms, EarlierStatesReadAndErasedLater) {
  checkText("earlier", R"(
layer earlier(K = 32, V = 32) {
  input  q, k, e, f : [K] bf16
  input  v, u       : [V] bf16
  input  w          : [K] bf16
  state  S          : [K, V] f32
  en = l2norm(e)
  fn = l2norm(f)
  old = fn @ S
  S = diag(sigmoid(w)) @ S - 0.5 * en^T @ (fn @ S) + l2norm(k)^T @ v
  S += 0.3 * en^T @ (u - en @ S)
  S += 0.1 * fn^T @ (fn @ S)
  output o : [V] bf16 = q @ S + old
})");
}

// The next token writes rows that this one's last instructions read.
TEST(StepForms, TokensThatEndInAnUpdate) {
  checkText("ends", R"(
layer ends(K = 64, V = 64) {
  input  k : [K] bf16
  input  v : [V] bf16
  state  S : [K, V] f32
  S = 0.5 * S + k^T @ v
  output o : [V] bf16 = v * sum(k)
})");
}

TEST(StepForms, VectorStatesUsedWhole) {
  checkText("whole", R"(
layer whole(K = 72) {
  input  x, g : [K] bf16
  state  h    : [K] f32
  h = sigmoid(g) * h + (1 - sigmoid(g)) * x
  output o : [K] bf16 = h * rmsnorm(h)
})");
}

TEST(StepForms, UpdatesThatAreNotAffine) {
  checkText("tanh", R"(
layer tanh(K = 20, V = 12) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  state  S    : [K, V] f32
  S = tanh(S + l2norm(k)^T @ v)
  output o : [V] bf16 = l2norm(q) @ S
})");
  checkText("product", R"(
layer product(K = 20, V = 12) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  state  S, R : [K, V] f32
  R = 0.9 * R + l2norm(k)^T @ v
  S = 0.1 * S * R + l2norm(k)^T @ v
  output o : [V] bf16 = q @ S
})");
  checkText("norm_of_read", R"(
layer norm_of_read(K = 20, V = 12) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  state  S : [K, V] f32
  S += l2norm(k)^T @ (v - l2norm(l2norm(k) @ S, eps = 1e-6))
  output o : [V] bf16 = q @ S
})");
}

TEST(StepForms, EveryFunction) {
  checkText("functions", R"(
layer functions(K = 16, V = 32) {
  input  q, k : [K] f32
  input  v    : [V] f32
  state  S    : [K, V] f32
  a = exp(-softplus(0.3 * v)) + log(1 + v^2) + sqrt(abs(v)) + rsqrt(1 + v^2)
  b = tanh(v) + silu(v) + relu(v) + elu(v) + min(v, 0.5 * v, 1) + max(v, 0)
  c = (1 + v^2)^0.3 + v^3 / (2 + v^2) + sigmoid(-8 * v)
  S += 0.1 * l2norm(k)^T @ (a + b + c)
  output o : [V] f32 = a + b + c + l2norm(q) @ S
  output small : [V] f32 = softplus(-20 - v) * 1000000
  output near : [V] f32 = elu(-0.001 * abs(v)) + tanh(0.001 * v)
})",
            /*outputR=*/1e-6);
}

TEST(StepForms, HugeAndTinyDims) {
  checkText("huge", R"(
layer huge(K = 2048, V = 8) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  state  S    : [K, V] f32
  S += l2norm(k)^T @ (v - l2norm(k) @ S)
  output o : [V] bf16 = l2norm(q) @ S
})");
  checkText("tiny", R"(
layer tiny(K = 1, V = 2) {
  input  q, k : [K] bf16
  input  v    : [V] bf16
  state  S    : [K, V] f32
  S = 0.5 * S + k^T @ v
  output o : [V] bf16 = q @ S
})");
}

TEST(StepForms, StatesThatDoNotFitAreRefused) {
  Layer layer({"wide",
               "layer wide(K = 512, V = 512) {\n"
               "  input q, k : [K] bf16\n"
               "  input v : [V] bf16\n"
               "  state S : [K, V] f32\n"
               "  S += k^T @ v\n"
               "  output o : [V] bf16 = rmsnorm(q @ S)\n}\n",
               {}},
              Precision::Default, {});
  std::string error = refused(layer);
  EXPECT_NE(error.find("a thread would hold"), std::string::npos) << error;
  EXPECT_NE(error.find("a row of V is reduced"), std::string::npos) << error;
}

//===----------------------------------------------------------------------===//
// Drawn layers
//===----------------------------------------------------------------------===//

/// PLUM_RANDOM_SPECS=N and PLUM_RANDOM_FIRST=S as in random_specs_test.cpp.
static uint32_t fromEnvironment(const char *name, uint32_t otherwise) {
  const char *text = std::getenv(name);
  return text ? uint32_t(std::strtoul(text, nullptr, 10)) : otherwise;
}

static void checkSpecs(Precision precision, uint32_t stride, double outputR) {
  uint32_t first = fromEnvironment("PLUM_RANDOM_FIRST", 1);
  uint32_t count = fromEnvironment("PLUM_RANDOM_SPECS", 30);
  for (uint32_t seed = first; seed < first + count; seed += stride) {
    Spec spec = randomSpec(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" + spec.text);
    Dice dice(seed + 200000);
    Layer layer(spec, precision, {});
    const frontend::Layer &ast = layer.ast();
    if (ast.params.size() + ast.inputs.size() + ast.outputs.size() +
            3 * ast.states.size() >
        PLUM_GPU_MAX_TENSORS)
      continue; // a kernel's arguments have a size
    Data data(
        layer,
        {.batch = 1 + dice.below(2), .tokens = 1 + dice.below(8), .heads = 2});
    uint32_t tid = 1;
    for (const frontend::Symbol *input : ast.inputs)
      data.fill(input->name, normal(seed, tid++), dice.chance(0.2) ? 1 : 0);
    for (const frontend::Symbol *param : ast.params)
      data.fill(param->name, normal(seed, tid++));
    for (const frontend::Symbol *state : ast.states) {
      ++tid;
      data.fill(state->name, [=](int64_t i) {
        double n = portableNormal(seed, tid, uint32_t(i));
        return state->shape.kind == frontend::Shape::Row ? std::abs(n)
                                                         : 0.25 * n;
      });
    }
    Placing placing{.columnMajor = dice.chance(0.5), .seed = seed};
    expectEmulated(data, placing, emulate(layer, data, placing),
                   reference(layer, data), 1e-5, outputR, "drawn");
  }
}

TEST(StepRandomSpecs, Default) { checkSpecs(Precision::Default, 2, 5e-3); }
TEST(StepRandomSpecs, F32) { checkSpecs(Precision::F32, 1, 1e-5); }
