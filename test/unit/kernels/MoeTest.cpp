//===- MoeTest.cpp - A mixture of experts against float64 -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gpu.h"

#include "runtime/cuda/Moe.h"
#include "runtime/cuda/kernels/MoeArgs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

using namespace plum;
using namespace plum::runtime::cuda;
using namespace plum::runtime::cuda::test;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

constexpr double codes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/// One projection of all experts, on the device and as numbers.
struct Projection {
  ExpertMatrix matrix;
  std::vector<double> values; ///< [experts, rows, columns].
  Buffer<char> packed;

  /// draw(): a weight for BF16, rounded to it; a nibble for MXFP4.
  Projection(const Gpu &gpu, ExpertFormat format, int64_t experts, int64_t rows,
             int64_t columns, const std::function<double()> &draw,
             const std::function<int()> &scale)
      : matrix{0, format, rows, columns},
        packed(gpu, size_t(experts * matrix.expertBytes())) {
    matrix.data = packed.address();
    for (int64_t e = 0; e < experts; ++e) {
      const size_t count = size_t(rows * columns);
      if (format == ExpertFormat::BF16) {
        std::vector<uint16_t> weights(count);
        for (uint16_t &weight : weights) {
          weight = floatToBf16(float(draw()));
          values.push_back(double(bf16ToFloat(weight)));
        }
        Buffer<uint16_t> source(gpu, weights);
        EXPECT_OK(
            packExpert(*gpu.kernels, nullptr, matrix, e, source.address()));
        continue;
      }
      std::vector<uint8_t> nibbles(count / 2), scales(count / 32);
      for (uint8_t &power : scales)
        power = uint8_t(scale());
      for (size_t i = 0; i < count; ++i) {
        int code = int(draw()) & 15;
        nibbles[i / 2] |= uint8_t(code << 4 * (i % 2));
        values.push_back((code & 8 ? -1 : 1) * codes[code & 7] *
                         std::ldexp(1.0, scales[i / 32] - 127));
      }
      Buffer<uint8_t> source(gpu, nibbles), powers(gpu, scales);
      EXPECT_OK(packExpert(*gpu.kernels, nullptr, matrix, e, source.address(),
                           powers.address()));
    }
  }
  double at(int64_t expert, int64_t row, int64_t column) const {
    return values[size_t((expert * matrix.rows + row) * matrix.columns +
                         column)];
  }
};

struct Choice {
  std::vector<int64_t> expert;
  std::vector<double> weight;
};

/// What model::Experts::choose does, in float64.
Choice choose(const MoeLayer &layer, const Matrix &logits, int64_t token,
              const std::vector<float> &bias) {
  std::vector<double> score(size_t(layer.experts));
  double largest = -INFINITY, sum = 0;
  for (int64_t e = 0; e < layer.experts; ++e)
    largest = std::max(largest, logits.at(token, e));
  for (int64_t e = 0; e < layer.experts; ++e) {
    double x = logits.at(token, e);
    score[size_t(e)] = layer.softmax ? std::exp(x - largest) : sigmoid(x);
    sum += score[size_t(e)];
  }
  for (double &value : score)
    value /= layer.softmax ? sum : 1;
  auto rank = [&](int64_t e) {
    return score[size_t(e)] + (bias.empty() ? 0 : double(bias[size_t(e)]));
  };
  Choice choice;
  choice.expert.resize(size_t(layer.experts));
  std::iota(choice.expert.begin(), choice.expert.end(), 0);
  std::sort(choice.expert.begin(), choice.expert.end(),
            [&](int64_t a, int64_t b) {
              return std::pair(-rank(a), a) < std::pair(-rank(b), b);
            });
  choice.expert.resize(size_t(layer.chosen));
  double total = 0;
  for (int64_t e : choice.expert)
    total += score[size_t(e)];
  for (int64_t e : choice.expert)
    choice.weight.push_back(double(layer.scale) * score[size_t(e)] /
                            (layer.renormalize ? total : 1));
  return choice;
}

/// A layer with random weights, its inputs and its float64 output.
struct Mixture {
  Gpu gpu;
  std::mt19937 random{17};
  int64_t width, wide;
  std::normal_distribution<double> normal{0, 1};
  Projection gate, up, down;
  MoeLayer layer;

  Mixture(ExpertFormat format, int64_t experts, int64_t chosen, int64_t width,
          int64_t wide, bool situ)
      : width(width), wide(wide), gate(make(format, experts, wide, width)),
        up(make(format, experts, wide, width)),
        down(make(format, experts, width, wide)) {
    layer.experts = experts;
    layer.chosen = chosen;
    layer.gate = gate.matrix;
    layer.up = up.matrix;
    layer.down = down.matrix;
    layer.situ = situ;
    layer.beta = 4;
    layer.lambda = 25;
  }
  Projection make(ExpertFormat format, int64_t experts, int64_t rows,
                  int64_t columns) {
    const double about = 1 / std::sqrt(double(columns));
    const bool packed = format == ExpertFormat::MXFP4;
    return Projection(
        gpu, format, experts, rows, columns,
        [this, packed, about] {
          return packed ? double(random() % 16) : about * normal(random);
        },
        [this, about] {
          return 125 + int(std::log2(about)) + int(random() % 3);
        });
  }

  Matrix logits(int64_t tokens) {
    return Matrix(gpu, tokens, layer.experts, Type::F32, 4, random, 2);
  }
  Matrix inputs(int64_t tokens) {
    return Matrix(gpu, tokens, width, Type::BF16, 8, random);
  }

  Matrix run(const Matrix &x, const Matrix &logits, Type type = Type::BF16) {
    Result<int64_t> bytes = moeWorkspace(layer, x.rows);
    EXPECT_TRUE(bytes) << bytes.error().str();
    Buffer<char> workspace(gpu, size_t(*bytes));
    Matrix y(gpu, x.rows, width, type, 8);
    EXPECT_OK(moeForward(*gpu.kernels, nullptr, layer, x.rows, x, logits, y,
                         workspace.address()));
    return y;
  }

  double act(double g, double u) const {
    if (layer.situ)
      return 4 * std::tanh(g / 4) * sigmoid(g) * 25 * std::tanh(u / 25);
    return g * sigmoid(g) * u;
  }

  std::vector<double> expected(const Matrix &x, int64_t token,
                               const Choice &choice) const {
    std::vector<double> y(size_t(width), 0.0), h(size_t(wide), 0.0);
    for (size_t i = 0; i < choice.expert.size(); ++i) {
      const int64_t e = choice.expert[i];
      for (int64_t r = 0; r < wide; ++r) {
        double g = 0, u = 0;
        for (int64_t c = 0; c < width; ++c) {
          g += gate.at(e, r, c) * x.at(token, c);
          u += up.at(e, r, c) * x.at(token, c);
        }
        h[size_t(r)] = bf16(act(bf16(g), bf16(u)));
      }
      for (int64_t r = 0; r < width; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < wide; ++c)
          sum += down.at(e, r, c) * h[size_t(c)];
        y[size_t(r)] += choice.weight[i] * bf16(sum);
      }
    }
    return y;
  }

  /// Each row to the roundings to bf16 that may fall the other way.
  void expectRows(const Matrix &x, const Matrix &logits, const Matrix &y,
                  const std::vector<float> &bias = {}) const {
    for (int64_t t = 0; t < x.rows; ++t) {
      std::vector<double> row = expected(x, t, choose(layer, logits, t, bias));
      double squares = 0;
      for (double value : row)
        squares += value * value;
      const double rms = std::sqrt(squares / double(row.size()));
      for (int64_t c = 0; c < width; ++c)
        ASSERT_NEAR(y.at(t, c), row[size_t(c)],
                    rms / 64 + std::abs(row[size_t(c)]) / 100)
            << "token " << t << ", column " << c;
    }
  }
};

TEST(Moe, AgreesWithFloat64) {
  // Rows and columns that are no multiples of blocks and of what warps have.
  for (ExpertFormat format : {ExpertFormat::MXFP4, ExpertFormat::BF16})
    for (MoeProducts products : {MoeProducts::Narrow, MoeProducts::Wide}) {
      Mixture mixture(format, 6, 3, 160, 96, true);
      mixture.layer.products = products;
      Matrix x = mixture.inputs(9), logits = mixture.logits(9);
      // Expert 2 for nobody, 3 for one token, 4 for all.
      for (int64_t t = 0; t < 9; ++t) {
        logits.set(t, 2, -20);
        logits.set(t, 3, t == 5 ? 8.0f : -19.0f);
        logits.set(t, 4, 9);
      }
      Matrix y = mixture.run(x, logits);
      mixture.expectRows(x, logits, y);
    }
}

TEST(Moe, HasOddShapesAndSilu) {
  Mixture mixture(ExpertFormat::BF16, 3, 2, 40, 24, false);
  mixture.layer.softmax = true;
  mixture.layer.renormalize = false;
  mixture.layer.scale = 2.446f;
  Matrix x = mixture.inputs(5), logits = mixture.logits(5);
  mixture.expectRows(x, logits, mixture.run(x, logits, Type::F32));
}

TEST(Moe, BitsDependOnNothingElse) {
  for (ExpertFormat format : {ExpertFormat::MXFP4, ExpertFormat::BF16}) {
    Mixture mixture(format, 3, 2, 160, 64, true);
    Matrix x = mixture.inputs(60), logits = mixture.logits(60);
    mixture.layer.tile = 8;
    Matrix first = mixture.run(x, logits);
    // Below 0: of wide products.
    for (int64_t tile : {16, 32, 48, 96, 128, -16, -96}) {
      mixture.layer.products =
          tile < 0 ? MoeProducts::Wide : MoeProducts::Narrow;
      mixture.layer.tile = std::abs(tile);
      Matrix y = mixture.run(x, logits);
      for (int64_t t = 0; t < x.rows; ++t)
        for (int64_t c = 0; c < mixture.width; ++c)
          ASSERT_EQ(y.at(t, c), first.at(t, c))
              << tile << " tokens a tile, token " << t << ", column " << c;
    }
    mixture.layer.products = MoeProducts::Narrow;
    mixture.layer.tile = 0;
    Matrix one(mixture.gpu, 1, mixture.width, Type::BF16),
        ask(mixture.gpu, 1, 3, Type::F32);
    for (int64_t c = 0; c < mixture.width; ++c)
      one.set(0, c, float(x.at(41, c)));
    for (int64_t e = 0; e < 3; ++e)
      ask.set(0, e, float(logits.at(41, e)));
    Matrix alone = mixture.run(one, ask);
    for (int64_t c = 0; c < mixture.width; ++c)
      ASSERT_EQ(alone.at(0, c), first.at(41, c)) << "column " << c;
  }
}

TEST(Moe, HasWideProductsOfEverySize) {
  // Several groups of rows, rings that go around, one expert's tokens in one
  // tile or two.
  for (ExpertFormat format : {ExpertFormat::MXFP4, ExpertFormat::BF16}) {
    Mixture mixture(format, 1, 1, 352, 160, false);
    for (int64_t tokens : {3, 12, 27, 48, 60, 77, 90, 111, 128, 150}) {
      if (format == ExpertFormat::BF16 && tokens % 10)
        continue;
      Matrix x = mixture.inputs(tokens), logits = mixture.logits(tokens);
      mixture.layer.products = MoeProducts::Narrow;
      Matrix first = mixture.run(x, logits);
      mixture.layer.products = MoeProducts::Wide;
      Matrix y = mixture.run(x, logits);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t c = 0; c < mixture.width; ++c)
          ASSERT_EQ(y.at(t, c), first.at(t, c))
              << "token " << t << " of " << tokens << ", column " << c;
    }
  }
}

TEST(Moe, PlansManyTokens) {
  // More pairs than one block of the plan looks at.
  Mixture mixture(ExpertFormat::BF16, 7, 3, 16, 8, false);
  Matrix x = mixture.inputs(700), logits = mixture.logits(700);
  mixture.expectRows(x, logits, mixture.run(x, logits));
}

TEST(Moe, ReadsEveryCodeAndScale) {
  // Tokens are unit vectors, down is the identity: y[k, r] = act(gate[r, k],
  // up[r, k]) to its roundings, for all codes and scales far apart.
  Gpu gpu;
  std::mt19937 random(3);
  constexpr int64_t size = 192;
  int code = 0;
  auto any = [&] { return double(code++ * 7 % 16); };
  Projection gate(gpu, ExpertFormat::MXFP4, 1, size, size, any,
                  [&] { return 115 + int(random() % 13); }),
      up(
          gpu, ExpertFormat::MXFP4, 1, size, size,
          [&] { return double(random() % 16); },
          [&] { return 67 + int(random() % 109); }),
      down(
          gpu, ExpertFormat::MXFP4, 1, size, size,
          [at = int64_t(0)]() mutable {
            int64_t i = at++;
            return i / size == i % size ? 2.0 : 0.0;
          },
          [] { return 127; });
  MoeLayer layer;
  layer.experts = layer.chosen = 1;
  layer.gate = gate.matrix;
  layer.up = up.matrix;
  layer.down = down.matrix;
  Matrix x(gpu, size, size, Type::BF16), logits(gpu, size, 1, Type::F32),
      y(gpu, size, size, Type::BF16);
  for (int64_t t = 0; t < size; ++t) {
    logits.set(t, 0, 1);
    for (int64_t c = 0; c < size; ++c)
      x.set(t, c, t == c);
  }
  for (MoeProducts products : {MoeProducts::Narrow, MoeProducts::Wide}) {
    layer.products = products;
    Result<int64_t> bytes = moeWorkspace(layer, size);
    ASSERT_TRUE(bytes);
    Buffer<char> workspace(gpu, size_t(*bytes));
    EXPECT_OK(moeForward(*gpu.kernels, nullptr, layer, size, x, logits, y,
                         workspace.address()));
    for (int64_t k = 0; k < size; ++k)
      for (int64_t r = 0; r < size; ++r) {
        double g = gate.at(0, r, k);
        double value = g * sigmoid(g) * up.at(0, r, k);
        ASSERT_NEAR(y.at(k, r), value, std::abs(value) / 120)
            << "row " << r << ", column " << k;
      }
  }
}

TEST(Moe, RefusesWhatItCannotRun) {
  Mixture mixture(ExpertFormat::BF16, 4, 2, 16, 8, false);
  auto error = [&](const MoeLayer &layer) {
    Result<int64_t> bytes = moeWorkspace(layer, 3);
    return bytes ? "" : bytes.error().str();
  };
  MoeLayer layer = mixture.layer;
  layer.chosen = 5;
  EXPECT_EQ(error(layer), "error: a token chooses 1 to 32 of 4 experts, got 5");
  layer = mixture.layer;
  layer.experts = 2000;
  EXPECT_EQ(error(layer), "error: a mixture has 1 to 1024 experts, got 2000");
  layer = mixture.layer;
  layer.down.columns = 16;
  EXPECT_EQ(error(layer),
            "error: down of experts is [16, 16], expected [16, 8]");
  layer = mixture.layer;
  layer.up.format = ExpertFormat::MXFP4;
  EXPECT_EQ(error(layer), "error: an expert's up has 16 columns, expected a "
                          "multiple of 32");
  layer = mixture.layer;
  layer.tile = 48;
  layer.products = MoeProducts::Wide;
  EXPECT_EQ(error(layer), "error: wide products of experts have tiles of 16 or "
                          "96 tokens, not 48");
  layer = mixture.layer;
  layer.tile = 24;
  EXPECT_EQ(error(layer), "error: products of experts have tiles of 8, 16, 32, "
                          "48, 96 or 128 tokens, not 24");
}

TEST(Router, ChoosesAsTheModelDoes) {
  Gpu gpu;
  std::mt19937 random(5);
  for (int64_t experts : {7, 128, 896, 1024})
    for (bool softmax : {false, true}) {
      const int64_t tokens = 6,
                    chosen = std::min<int64_t>(experts, experts > 512 ? 16 : 5);
      Matrix logits(gpu, tokens, experts, Type::F32, 3, random, 2);
      std::normal_distribution<float> normal(0, 0.1f);
      std::vector<float> bias;
      for (int64_t e = 0; e < experts; ++e)
        bias.push_back(normal(random));
      Buffer<float> biases(gpu, bias), weights(gpu, size_t(tokens * chosen));
      Buffer<int32_t> chosenOnes(gpu, size_t(tokens * chosen));
      MoeLayer layer;
      layer.experts = experts;
      layer.chosen = chosen;
      layer.softmax = softmax;
      layer.scale = 2;
      kernels::MoeRouteArgs args;
      args.logits = logits;
      args.bias = biases.data();
      args.experts = chosenOnes.data();
      args.weights = weights.data();
      args.tokens = tokens;
      args.count = int32_t(experts);
      args.chosen = int32_t(chosen);
      args.softmax = softmax;
      args.scale = 2;
      EXPECT_OK(gpu.kernels->launch(nullptr, "plum_moe_route", {2}, args));
      for (int64_t t = 0; t < tokens; ++t) {
        Choice choice = choose(layer, logits, t, bias);
        for (int64_t i = 0; i < chosen; ++i) {
          ASSERT_EQ(chosenOnes.data()[t * chosen + i], choice.expert[size_t(i)])
              << experts << " experts, token " << t << ", slot " << i;
          ASSERT_NEAR(double(weights.data()[t * chosen + i]),
                      choice.weight[size_t(i)], 1e-6);
        }
      }
    }
}

TEST(Router, BreaksTiesAndPassesOverNaN) {
  Gpu gpu;
  Matrix logits(gpu, 1, 70, Type::F32);
  for (int e = 0; e < 70; ++e)
    logits.set(0, e, e == 3 ? NAN : e == 69 ? 2.0f : 1.0f);
  Buffer<int32_t> experts(gpu, 4);
  Buffer<float> weights(gpu, 4);
  kernels::MoeRouteArgs args;
  args.logits = logits;
  args.experts = experts.data();
  args.weights = weights.data();
  args.tokens = 1;
  args.count = 70;
  args.chosen = 4;
  EXPECT_OK(gpu.kernels->launch(nullptr, "plum_moe_route", {1}, args));
  EXPECT_EQ(experts.read(), (std::vector<int32_t>{69, 0, 1, 2}));
}

/// Exit code of plum-run on the host as a GPU, and what it printed.
std::pair<int, std::string> plumRun(const std::string &arguments) {
  const std::string command = std::string("PLUM_LIBCUDA=") + HOST_CUDA +
                              " PLUM_CACHE=/nonexistent " + PLUM_RUN + " " +
                              arguments + " 2>&1";
  FILE *pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof buffer, pipe))
    text.append(buffer, count);
  return {pclose(pipe) >> 8, text};
}

TEST(MoeTool, TimesAndChecks) {
  for (const char *format : {"mxfp4", "bf16"}) {
    auto [code, text] = plumRun(
        std::string(
            "moe --experts 6 --chosen 2 --width 96 --wide 64 --tokens "
            "1,9 --products auto,wide --checks 2 --seconds 0 --format ") +
        format);
    EXPECT_EQ(code, 0) << text;
    EXPECT_NE(text.find("6 experts, 2 a token, 96 -> 64, "), text.npos) << text;
    EXPECT_NE(text.find("\n     1 narrow    8 "), text.npos) << text;
    EXPECT_NE(text.find("\n     9   wide   16 "), text.npos) << text;
  }
}

TEST(MoeTool, RefusesSizes) {
  auto [code, text] = plumRun("moe --experts 6 --chosen 9");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text,
            "GPU 0: error: a token chooses 1 to 32 of 6 experts, got 9\n");
  EXPECT_EQ(
      plumRun("moe --width 100 --wide 64 --experts 4 --chosen 1").second,
      "GPU 0: error: an expert's gate has 100 columns, expected a multiple "
      "of 32\n");
}

} // namespace
