//===- growing_test.cpp - Layers with growing states, against float64 -----===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax attention and its relatives as layer specs: compiled, run by the
// executor in every form, and compared with the float64 recurrence of the same
// spec. Lists lie in rows that are longer than they need be, with NaN around
// them: a kernel that reads a row which is not there shows.
//
//===----------------------------------------------------------------------===//

#include "plum/Reference/Recurrence.h"
#include "test/integration/Harness.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace plum;
using namespace plum::test;
using runtime::TensorView;

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double untouched = 777;

const Spec attention = shippedSpec("attention", {{"K", 64}, {"V", 64}});

/// Keys of two parts, one of them the values: multi-head latent attention.
const Spec latent = {"latent",
                     R"(
layer latent(C = 40, R = 12) {
  input qc, c : [C] f32
  input qr, r : [R] f32
  state cs : [*, C] f32
  state rs : [*, R] f32
  cs = append(cs, c)
  rs = append(rs, r)
  output o : [C] f32 = attend(qc, cs, qr, rs, cs)
})",
                     {}};

/// Reads before its own row, behind a state of fixed size, and what it read is
/// appended to a second list.
const Spec levels = {"levels",
                     R"(
layer levels(K = 24, V = 8) {
  input q, k : [K] f32
  input v : [V] f32
  input a : f32
  state S : [K, V] f32
  state ks : [*, K] f32
  state vs : [*, V] f32
  state ys : [*, V] f32
  output old : [V] f32 = attend(q, ks, vs)
  ks = append(ks, k)
  vs = append(vs, v)
  y = attend(q, ks, vs)
  ys = append(ys, y)
  S = sigmoid(a) * S + 0.1 * k^T @ attend(k, ks, ys)
  output o : [V] f32 = q @ S
})",
                     {}};

/// One sequence of H heads.
struct Sizes1 {
  int64_t tokens, past, heads;
};

/// Everything of a run of one sequence, and of the truth.
class GrowingRun {
public:
  GrowingRun(Layer &layer, Sizes1 sizes, uint32_t seed = 1, double scale = 1);
  void reference();
  void execute(How how);
  void expectClose(double limit, const std::string &what) const;

  /// Rows, [H, rows, d]: outputs and lists; a fixed state is [H, 1, K * V].
  struct Value {
    int64_t rows = 0, d = 0;
    std::vector<double> data;
    double *at(int64_t head, int64_t row) {
      return data.data() + (head * rows + row) * d;
    }
  };
  std::vector<Value> outputs, states; ///< Of the last run.

private:
  Value make(int64_t rows, int64_t d, uint32_t seed, double scale) const;

  Layer &layer;
  const frontend::Layer &ast;
  Sizes1 sizes;
  std::vector<Value> params, inputs, before; ///< before: with 0 rows in the
                                             ///< place of new ones.
  std::vector<Value> truths, trueStates;
};

GrowingRun::Value GrowingRun::make(int64_t rows, int64_t d, uint32_t seed,
                                   double scale) const {
  Value value{rows, d, {}};
  for (int64_t i = 0; i < sizes.heads * rows * d; ++i)
    value.data.push_back(
        float(scale * runtime::portableNormal(seed, 7, uint32_t(i))));
  return value;
}

GrowingRun::GrowingRun(Layer &layer, Sizes1 sizes, uint32_t seed, double scale)
    : layer(layer), ast(layer.ast()), sizes(sizes) {
  for (const frontend::Symbol *param : ast.params)
    params.push_back(make(1, param->shape.cols, ++seed, 0.2));
  for (const frontend::Symbol *input : ast.inputs) {
    Value value = make(sizes.tokens, input->shape.cols, ++seed, scale);
    if (layer.storage(*input) == DType::BF16)
      for (double &x : value.data)
        x = bf16ToFloat(floatToBf16(float(x)));
    inputs.push_back(std::move(value));
  }
  for (const frontend::Symbol *state : ast.states) {
    bool list = state->shape.kind == frontend::Shape::List;
    before.push_back(
        list ? make(sizes.past, state->shape.cols, ++seed, scale)
             : make(1, state->shape.rows * state->shape.cols, ++seed, scale));
  }
}

void GrowingRun::reference() {
  truths.clear();
  trueStates.clear();
  for (const frontend::Symbol *output : ast.outputs)
    truths.push_back(make(sizes.tokens, output->shape.cols, 1, 0));
  for (size_t s = 0; s < before.size(); ++s) {
    bool list = ast.states[s]->shape.kind == frontend::Shape::List;
    Value value = before[s];
    if (list) {
      value = make(sizes.past + sizes.tokens, before[s].d, 1, 0);
      for (int64_t h = 0; h < sizes.heads; ++h)
        std::copy_n(before[s].at(h, 0), size_t(sizes.past * value.d),
                    value.at(h, 0));
    }
    trueStates.push_back(std::move(value));
  }
  for (int64_t h = 0; h < sizes.heads; ++h) {
    reference::Head head;
    head.tokens = sizes.tokens;
    head.past = sizes.past;
    auto part = [&](Value &value) {
      return std::span<double>(value.at(h, 0), size_t(value.rows * value.d));
    };
    for (Value &value : params)
      head.params.push_back(part(value));
    for (Value &value : inputs)
      head.inputs.push_back(part(value));
    for (Value &value : trueStates)
      head.states.push_back(part(value));
    for (Value &value : truths)
      head.outputs.push_back(part(value));
    reference::run(ast, head);
  }
}

/// Rows of `value` in storage with a stride that is not their width, NaN
/// between and behind them.
struct Storage {
  std::vector<char> bytes;
  TensorView view;
  bool headsFirst;

  Storage(const GrowingRun::Value &value, DType dtype, int64_t heads,
          int64_t capacity, bool headsFirst, double around = nan)
      : headsFirst(headsFirst) {
    int64_t d = value.d, wide = d + 3;
    bytes.resize(size_t((capacity + 2) * heads * wide) * byteSize(dtype));
    for (size_t i = 0; i < bytes.size() / byteSize(dtype); ++i)
      storeFromDouble(bytes.data(), dtype, int64_t(i), around);
    view.data = bytes.data();
    view.dtype = dtype;
    if (headsFirst) { // A state: [1, H, capacity, d].
      int64_t shape[4] = {1, heads, capacity, d};
      int64_t stride[4] = {heads * capacity * wide, capacity * wide, wide, 1};
      std::copy(shape, shape + 4, view.shape);
      std::copy(stride, stride + 4, view.stride);
    } else { // [1, T, H, d].
      int64_t shape[4] = {1, capacity, heads, d};
      int64_t stride[4] = {capacity * heads * wide, heads * wide, wide, 1};
      std::copy(shape, shape + 4, view.shape);
      std::copy(stride, stride + 4, view.stride);
    }
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t row = 0; row < value.rows; ++row)
        for (int64_t c = 0; c < d; ++c)
          storeFromDouble(bytes.data(), dtype, offset(h, row, c),
                          value.data[size_t((h * value.rows + row) * d + c)]);
  }
  int64_t offset(int64_t head, int64_t row, int64_t c) const {
    return head * view.stride[headsFirst ? 1 : 2] +
           row * view.stride[headsFirst ? 2 : 1] + c;
  }
};

void GrowingRun::execute(How how) {
  const runtime::Bundle *bundle = layer.bundle();
  ASSERT_NE(bundle, nullptr);
  int64_t heads = sizes.heads, after = sizes.past + sizes.tokens;
  std::deque<Storage> stored;
  runtime::RunArgs args;
  auto rows = [&](const Value &value, DType dtype, int64_t capacity,
                  bool headsFirst, double around) {
    return stored
        .emplace_back(value, dtype, heads, capacity, headsFirst, around)
        .view;
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    args.inputs.push_back(rows(inputs[i], layer.storage(*ast.inputs[i]),
                               sizes.tokens, false, nan));
  for (size_t i = 0; i < params.size(); ++i) {
    TensorView view =
        rows(params[i], layer.storage(*ast.params[i]), 1, false, nan);
    args.params.push_back(view);
  }
  size_t firstState = stored.size();
  for (size_t s = 0; s < before.size(); ++s) {
    const frontend::Shape &shape = ast.states[s]->shape;
    if (shape.kind == frontend::Shape::List) {
      args.initialStates.push_back(
          rows(before[s], DType::F32, after + 1, true, nan));
      continue;
    }
    Storage &dense = stored.emplace_back(before[s], DType::F32, heads, 1, true);
    dense.bytes.resize(before[s].data.size() * 4);
    for (size_t i = 0; i < before[s].data.size(); ++i)
      storeFromDouble(dense.bytes.data(), DType::F32, int64_t(i),
                      before[s].data[i]);
    args.initialStates.push_back(TensorView::dense(
        dense.bytes.data(), DType::F32, 1, heads, shape.rows, shape.cols));
  }
  args.finalStates = args.initialStates; // In place.
  args.past = {&sizes.past, DType::I64, 1};
  size_t firstOutput = stored.size();
  for (const frontend::Symbol *output : ast.outputs)
    args.outputs.push_back(rows({0, output->shape.cols, {}},
                                layer.storage(*output), sizes.tokens, false,
                                untouched));
  runtime::Executor executor(*bundle);
  runtime::RunOptions options;
  options.form = how.form;
  options.chunk = how.chunk;
  if (Status status = executor.run(args, options); !status)
    FAIL() << status.error().str();

  outputs.clear();
  states.clear();
  for (size_t o = 0; o < ast.outputs.size(); ++o) {
    const Storage &from = stored[firstOutput + o];
    Value value = make(sizes.tokens, ast.outputs[o]->shape.cols, 1, 0);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < sizes.tokens; ++t)
        for (int64_t c = 0; c < value.d; ++c)
          value.at(h, t)[c] = loadAsDouble(from.bytes.data(), from.view.dtype,
                                           from.offset(h, t, c));
    outputs.push_back(std::move(value));
  }
  for (size_t s = 0; s < before.size(); ++s) {
    const Storage &from = stored[firstState + s];
    bool list = ast.states[s]->shape.kind == frontend::Shape::List;
    Value value = make(list ? after : 1, before[s].d, 1, 0);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < value.rows; ++r)
        for (int64_t c = 0; c < value.d; ++c)
          value.at(h, r)[c] =
              loadAsDouble(from.bytes.data(), DType::F32,
                           list ? from.offset(h, r, c) : h * value.d + c);
    states.push_back(std::move(value));
    if (!list)
      continue;
    // The row behind the last is nobody's.
    for (int64_t h = 0; h < heads; ++h)
      EXPECT_TRUE(std::isnan(loadAsDouble(from.bytes.data(), DType::F32,
                                          from.offset(h, after, 0))));
  }
}

/// rms(error) / rms(truth), of all and of every 16 rows, NaN not passing.
void GrowingRun::expectClose(double limit, const std::string &what) const {
  auto close = [&](const Value &value, const Value &truth,
                   const std::string &name) {
    ASSERT_EQ(value.data.size(), truth.data.size());
    auto measure = [&](size_t begin, size_t end, double bound) {
      double error = 0, size = 0;
      for (size_t i = begin; i < end; ++i) {
        error += std::pow(value.data[i] - truth.data[i], 2);
        size += std::pow(truth.data[i], 2);
      }
      EXPECT_TRUE(std::sqrt(error) <= bound * std::sqrt(size) + 1e-30)
          << what << ": " << name << " from " << begin << ": "
          << std::sqrt(error) << " of " << std::sqrt(size);
    };
    size_t window = size_t(16 * value.d);
    measure(0, value.data.size(), limit);
    for (size_t i = 0; i < value.data.size(); i += window)
      measure(i, std::min(i + window, value.data.size()), 3 * limit);
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    close(outputs[i], truths[i], ast.outputs[i]->name);
  for (size_t i = 0; i < states.size(); ++i)
    close(states[i], trueStates[i], ast.states[i]->name);
}

void expectAll(Layer &layer, double limit, double scale = 1) {
  for (int64_t past : {0, 1, 63, 64, 100})
    for (int64_t tokens : {0, 1, 15, 16, 17, 64, 65, 130}) {
      GrowingRun run(layer, {tokens, past, 2}, uint32_t(past + tokens), scale);
      run.reference();
      for (How how : everyForm(layer)) {
        run.execute(how);
        run.expectClose(limit, how.str() + ", T = " + std::to_string(tokens) +
                                   ", past = " + std::to_string(past));
      }
    }
}

} // namespace

TEST(Growing, AttentionIsTheRecurrence) {
  expectAll(Layer::get(attention, Precision::Default, {16, 64}), 5e-3);
  expectAll(Layer::get(attention, Precision::F32, {16, 64}), 2e-6);
}

// Widths that are no multiple of a register, K != V.
TEST(Growing, AttentionOfAnyWidth) {
  Spec odd = attention;
  odd.dims = {{"K", 19}, {"V", 37}};
  expectAll(Layer::get(odd, Precision::F32, {1, 256}), 3e-6);
}

// Scores of hundreds: the largest is taken off, block by block. Their own
// rounding, 2^-24 of some hundreds and its like in each sum, becomes a relative
// error of the weights.
TEST(Growing, LargeScoresNeitherOverflowNorVanish) {
  expectAll(Layer::get(attention, Precision::F32, {16, 64}), 2e-4, 12);
}

TEST(Growing, LatentAttentionAddsTheScoresOfTwoParts) {
  expectAll(Layer::get(latent, Precision::F32, {16, 64}), 2e-6, 0.5);
}

TEST(Growing, ListsAndStatesFeedOneAnother) {
  expectAll(Layer::get(levels, Precision::F32, {16, 64}), 5e-6, 0.5);
}
