//===- growing_test.cpp - Layers with growing states, against float64 -----===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax attention and its relatives as layer specs: compiled, run by the
// executor in every form, and compared with the float64 recurrence of the same
// spec. Lists lie in rows that are longer than they need be, with NaN around
// them: a kernel that reads a row which is not there shows. Heads that share
// lists each have the truth of a list of their own.
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

/// The same with a param, and inputs of one head beside those of all.
const Spec mla = shippedSpec("mla", {{"C", 40}, {"R", 12}});

/// Lists with and without sharing.
const Spec prefill =
    shippedSpec("mla_prefill", {{"N", 40}, {"R", 12}, {"V", 24}});

/// One sequence of H heads, that share `lists` lists of each kind.
struct Sizes1 {
  int64_t tokens, past, heads, lists = 0;
  bool alike = false;    ///< Heads have the same params.
  std::string only = {}; ///< The list that is shared, where not all are.
};

/// Everything of a run of one sequence, and of the truth.
class GrowingRun {
public:
  GrowingRun(Layer &layer, Sizes1 sizes, uint32_t seed = 1, double scale = 1);
  void reference();
  void execute(How how, int threads = 0);
  void expectClose(double limit, const std::string &what) const;

  /// Rows, [H, rows, d]: outputs and lists; a fixed state is [H, 1, K * V].
  struct Value {
    int64_t rows = 0, d = 0;
    std::vector<double> data;
    double *at(int64_t head, int64_t row) {
      return data.data() + (head * rows + row) * d;
    }
  };
  std::vector<Value> outputs, states;        ///< Of the last run.
  std::vector<Value> params, inputs, before; ///< before: with 0 rows in the
                                             ///< place of new ones.

private:
  static Value make(int64_t heads, int64_t rows, int64_t d, uint32_t seed,
                    double scale);
  /// Of an input or state: those of lists, or all.
  int64_t headsOf(const frontend::Symbol &symbol) const;

  Layer &layer;
  const frontend::Layer &ast;
  Sizes1 sizes;
  std::vector<Value> truths, trueStates;
};

GrowingRun::Value GrowingRun::make(int64_t heads, int64_t rows, int64_t d,
                                   uint32_t seed, double scale) {
  Value value{rows, d, {}};
  for (int64_t i = 0; i < heads * rows * d; ++i)
    value.data.push_back(
        float(scale * runtime::portableNormal(seed, 7, uint32_t(i))));
  return value;
}

int64_t GrowingRun::headsOf(const frontend::Symbol &symbol) const {
  for (const frontend::Symbol *state : ast.states)
    if (state->shape.kind == frontend::Shape::List &&
        (state == &symbol || ast.rowsOf(*state) == &symbol) &&
        (sizes.only.empty() || sizes.only == state->name))
      return sizes.lists ? sizes.lists : sizes.heads;
  return sizes.heads;
}

GrowingRun::GrowingRun(Layer &layer, Sizes1 sizes, uint32_t seed, double scale)
    : layer(layer), ast(layer.ast()), sizes(sizes) {
  for (const frontend::Symbol *param : ast.params) {
    Value value = make(sizes.heads, 1, param->shape.cols, ++seed, 0.2);
    for (size_t i = 0; sizes.alike && i < value.data.size(); ++i)
      value.data[i] = value.data[i % size_t(value.d)];
    params.push_back(std::move(value));
  }
  for (const frontend::Symbol *input : ast.inputs) {
    Value value =
        make(headsOf(*input), sizes.tokens, input->shape.cols, ++seed, scale);
    if (layer.storage(*input) == DType::BF16)
      for (double &x : value.data)
        x = bf16ToFloat(floatToBf16(float(x)));
    inputs.push_back(std::move(value));
  }
  for (const frontend::Symbol *state : ast.states) {
    bool list = state->shape.kind == frontend::Shape::List;
    before.push_back(list ? make(headsOf(*state), sizes.past, state->shape.cols,
                                 ++seed, scale)
                          : make(sizes.heads, 1,
                                 state->shape.rows * state->shape.cols, ++seed,
                                 scale));
  }
}

void GrowingRun::reference() {
  truths.clear();
  trueStates.clear();
  for (const frontend::Symbol *output : ast.outputs)
    truths.push_back(make(sizes.heads, sizes.tokens, output->shape.cols, 1, 0));
  for (size_t s = 0; s < before.size(); ++s) {
    Value value = before[s];
    if (ast.states[s]->shape.kind == frontend::Shape::List) {
      int64_t heads = headsOf(*ast.states[s]);
      value = make(heads, sizes.past + sizes.tokens, before[s].d, 1, 0);
      for (int64_t h = 0; h < heads; ++h)
        std::copy_n(before[s].at(h, 0), size_t(sizes.past * value.d),
                    value.at(h, 0));
    }
    trueStates.push_back(std::move(value));
  }
  for (int64_t h = 0; h < sizes.heads; ++h) {
    reference::Head head;
    head.tokens = sizes.tokens;
    head.past = sizes.past;
    auto part = [&](Value &value, const frontend::Symbol &symbol) {
      int64_t own = h / (sizes.heads / headsOf(symbol));
      return std::span<double>(value.at(own, 0), size_t(value.rows * value.d));
    };
    for (size_t i = 0; i < params.size(); ++i)
      head.params.push_back(part(params[i], *ast.params[i]));
    for (size_t i = 0; i < inputs.size(); ++i)
      head.inputs.push_back(part(inputs[i], *ast.inputs[i]));
    for (size_t i = 0; i < trueStates.size(); ++i)
      head.states.push_back(part(trueStates[i], *ast.states[i]));
    for (size_t i = 0; i < truths.size(); ++i)
      head.outputs.push_back(part(truths[i], *ast.outputs[i]));
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

void GrowingRun::execute(How how, int threads) {
  const runtime::Bundle *bundle = layer.bundle();
  ASSERT_NE(bundle, nullptr);
  int64_t heads = sizes.heads, after = sizes.past + sizes.tokens;
  std::deque<Storage> stored;
  runtime::RunArgs args;
  auto rows = [&](const Value &value, const frontend::Symbol &symbol,
                  int64_t capacity, bool headsFirst, double around) {
    DType dtype = headsFirst ? DType::F32 : layer.storage(symbol);
    return stored
        .emplace_back(value, dtype, headsOf(symbol), capacity, headsFirst,
                      around)
        .view;
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    args.inputs.push_back(
        rows(inputs[i], *ast.inputs[i], sizes.tokens, false, nan));
  for (size_t i = 0; i < params.size(); ++i)
    args.params.push_back(rows(params[i], *ast.params[i], 1, false, nan));
  size_t firstState = stored.size();
  for (size_t s = 0; s < before.size(); ++s) {
    const frontend::Shape &shape = ast.states[s]->shape;
    if (shape.kind == frontend::Shape::List) {
      args.initialStates.push_back(
          rows(before[s], *ast.states[s], after + 1, true, nan));
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
    args.outputs.push_back(rows({0, output->shape.cols, {}}, *output,
                                sizes.tokens, false, untouched));
  runtime::Executor executor(*bundle);
  runtime::RunOptions options;
  options.form = how.form;
  options.chunk = how.chunk;
  options.threads = threads;
  if (Status status = executor.run(args, options); !status)
    FAIL() << status.error().str();

  outputs.clear();
  states.clear();
  for (size_t o = 0; o < ast.outputs.size(); ++o) {
    const Storage &from = stored[firstOutput + o];
    Value value = make(heads, sizes.tokens, ast.outputs[o]->shape.cols, 1, 0);
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
    int64_t own = headsOf(*ast.states[s]);
    Value value = make(own, list ? after : 1, before[s].d, 1, 0);
    for (int64_t h = 0; h < own; ++h)
      for (int64_t r = 0; r < value.rows; ++r)
        for (int64_t c = 0; c < value.d; ++c)
          value.at(h, r)[c] =
              loadAsDouble(from.bytes.data(), DType::F32,
                           list ? from.offset(h, r, c) : h * value.d + c);
    states.push_back(std::move(value));
    if (!list)
      continue;
    // The row behind the last is nobody's.
    for (int64_t h = 0; h < own; ++h)
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

void expectAll(Layer &layer, double limit, double scale = 1,
               Sizes1 heads = {0, 0, 2}) {
  for (int64_t past : {0, 1, 63, 64, 100})
    for (int64_t tokens : {0, 1, 15, 16, 17, 64, 65, 130}) {
      Sizes1 sizes = heads;
      sizes.tokens = tokens;
      sizes.past = past;
      GrowingRun run(layer, sizes, uint32_t(past + tokens), scale);
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

// Heads run one by one, where their params differ or there are more tokens, and
// else together.
TEST(Growing, HeadsShareLists) {
  Layer &layer = Layer::get(attention, Precision::F32, {16, 64});
  for (int64_t lists : {1, 2})
    for (bool alike : {false, true}) {
      expectAll(layer, 2e-6, 1, {0, 0, 4, lists, alike});
      for (int64_t tokens : {1, 2, 3, 7}) {
        GrowingRun run(layer, {tokens, 70, 4, lists, alike});
        run.reference();
        run.execute({runtime::Form::Auto, 0});
        run.expectClose(2e-6, "T = " + std::to_string(tokens));
      }
    }
  expectAll(Layer::get(attention, Precision::Default, {16, 64}), 5e-3, 1,
            {0, 0, 4, 2, true});
}

TEST(Growing, AllHeadsShareTheLatents) {
  Layer &layer = Layer::get(mla, Precision::F32, {16, 64});
  // More heads than a chunk has rows, and than a thread gets.
  for (int64_t tokens : {1, 3, 20, 25})
    for (bool alike : {false, true}) {
      GrowingRun run(layer, {tokens, 90, 21, 1, alike});
      run.reference();
      for (How how : everyForm(layer)) {
        run.execute(how, 3);
        run.expectClose(2e-6, how.str() + ", T = " + std::to_string(tokens));
      }
    }
}

TEST(Growing, HeadsShareOneOfTheLists) {
  Layer &layer = Layer::get(prefill, Precision::F32, {16, 64});
  for (int64_t lists : {1, 2})
    for (bool alike : {false, true})
      for (int64_t tokens : {1, 3, 80}) {
        GrowingRun run(layer, {tokens, 70, 6, lists, alike, "places"});
        run.reference();
        for (How how : everyForm(layer)) {
          run.execute(how, 3);
          run.expectClose(2e-6, how.str() + ", T = " + std::to_string(tokens));
        }
      }
}

// A row's bits are its own: not those of the heads beside it, of the threads or
// of the number of tokens.
TEST(Growing, SharedListsGiveTheBitsOfLists) {
  Layer &layer = Layer::get(attention, Precision::F32, {16, 64});
  How chunk{runtime::Form::Chunk, 64};
  for (int64_t tokens : {1, 5, 80}) {
    GrowingRun shared(layer, {tokens, 70, 12, 1, true});
    shared.execute(chunk, 1);
    auto bits = shared.outputs[0].data;
    shared.execute(chunk, 5);
    EXPECT_EQ(shared.outputs[0].data, bits);
    GrowingRun own(layer, {tokens, 70, 12, 0, true});
    own.inputs[0] = shared.inputs[0];
    auto repeat = [](GrowingRun::Value &to, const GrowingRun::Value &from) {
      for (size_t i = 0; i < to.data.size(); ++i)
        to.data[i] = from.data[i % from.data.size()];
    };
    for (size_t i : {1, 2})
      repeat(own.inputs[i], shared.inputs[i]);
    for (size_t i : {0, 1})
      repeat(own.before[i], shared.before[i]);
    own.execute(chunk);
    EXPECT_EQ(own.outputs[0].data, bits);
  }
}

TEST(Growing, ListsAndStatesFeedOneAnother) {
  expectAll(Layer::get(levels, Precision::F32, {16, 64}), 5e-6, 0.5);
}
