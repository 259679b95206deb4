//===- HarnessRun.cpp - The two ways to get results -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The float64 recurrence, head by head, and a bundle run by the executor. They
// share no indexing code: the first gathers rows of dense tensors here, the
// second is the runtime's.
//
//===----------------------------------------------------------------------===//

#include "plum/Reference/Recurrence.h"
#include "test/integration/Harness.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace plum;
using namespace plum::test;
using runtime::TensorView;

static constexpr double untouched = 777;

//===----------------------------------------------------------------------===//
// Reference
//===----------------------------------------------------------------------===//

namespace {
/// One head of one sequence: its rows gathered, its states carried along.
struct HeadRun {
  const Layer &layer;
  const Data &data;
  int64_t sequence, batch, begin, head;
  std::vector<std::vector<double>> params, states;

  /// Runs tokens [from, to) and puts the outputs into `values`.
  void advance(int64_t from, int64_t to, Values &values) {
    const frontend::Layer &ast = layer.ast();
    reference::Head call;
    call.tokens = to - from;
    for (const std::vector<double> &param : params)
      call.params.push_back(param);
    std::vector<std::vector<double>> inputs, outputs;
    for (const frontend::Symbol *symbol : ast.inputs) {
      const Tensor &tensor = data.tensors.at(symbol->name);
      int64_t group = data.sizes.heads / tensor.shape[2], d = tensor.shape[3];
      std::vector<double> &rows = inputs.emplace_back();
      for (int64_t t = begin + from; t < begin + to; ++t)
        for (int64_t c = 0; c < d; ++c)
          rows.push_back(tensor.at(batch, t, head / group, c));
    }
    for (const frontend::Symbol *symbol : ast.outputs)
      outputs.emplace_back(size_t(call.tokens * symbol->shape.cols));
    for (const auto &rows : inputs)
      call.inputs.push_back(rows);
    for (auto &state : states)
      call.states.push_back(state);
    for (auto &rows : outputs)
      call.outputs.push_back(rows);
    reference::run(ast, call);
    for (size_t o = 0; o < outputs.size(); ++o) {
      Tensor &tensor = values.at(ast.outputs[o]->name);
      int64_t d = tensor.shape[3];
      for (size_t i = 0; i < outputs[o].size(); ++i)
        tensor.at(batch, begin + from + int64_t(i) / d, head, int64_t(i) % d) =
            outputs[o][i];
    }
  }

  void keep(const std::string &suffix, Values &values) const {
    for (size_t s = 0; s < states.size(); ++s) {
      Tensor &tensor = values.at(layer.ast().states[s]->name + suffix);
      std::copy(states[s].begin(), states[s].end(),
                &tensor.at(sequence, head, 0, 0));
    }
  }
};
} // namespace

Values test::reference(const Layer &layer, const Data &data,
                       const std::vector<int64_t> &at) {
  const frontend::Layer &ast = layer.ast();
  int64_t heads = data.sizes.heads, count = data.sequences();
  Values values;
  for (const frontend::Symbol *output : ast.outputs)
    values[output->name] =
        Tensor(data.sizes.batch, data.sizes.tokens, heads, output->shape.cols);
  std::vector<std::string> suffixes = {""};
  for (int64_t t : at)
    suffixes.push_back('@' + std::to_string(t));
  for (const frontend::Symbol *state : ast.states)
    for (const std::string &suffix : suffixes)
      values[state->name + suffix] =
          Tensor(count, heads, state->shape.rows, state->shape.cols);

  auto runHead = [&](int thread, int64_t item) {
    int64_t n = item / heads;
    bool packed = !data.cuSeqlens.empty();
    HeadRun run{layer,
                data,
                n,
                packed ? 0 : n,
                packed ? data.cuSeqlens[size_t(n)] : 0,
                item % heads,
                {},
                {}};
    int64_t length =
        packed ? data.cuSeqlens[size_t(n) + 1] - run.begin : data.sizes.tokens;
    for (const frontend::Symbol *param : ast.params) {
      const Tensor &tensor = data.tensors.at(param->name);
      run.params.emplace_back(&tensor.at(0, 0, run.head, 0),
                              &tensor.at(0, 0, run.head, 0) + tensor.shape[3]);
    }
    for (const frontend::Symbol *state : ast.states) {
      size_t size = size_t(state->shape.rows * state->shape.cols);
      if (!data.has(state->name)) {
        run.states.emplace_back(size);
        continue;
      }
      const double *begin = &data.tensors.at(state->name).at(n, run.head, 0, 0);
      run.states.emplace_back(begin, begin + size);
    }
    std::vector<int64_t> stops = at;
    std::sort(stops.begin(), stops.end());
    int64_t done = 0;
    for (int64_t stop : stops) {
      run.advance(done, std::min(stop, length), values);
      run.keep('@' + std::to_string(stop), values);
      done = std::min(stop, length);
    }
    run.advance(done, length, values);
    run.keep("", values);
  };
  static runtime::ThreadPool pool;
  pool.run(runtime::ThreadPool::available(), count * heads, runHead);
  return values;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

Launch::Buffer Launch::allocate(DType dtype, int64_t a, int64_t b, int64_t c,
                                int64_t d, int64_t spare, double poison) {
  Buffer buffer;
  size_t elements = size_t(a * (b + spare) * c * d);
  buffer.bytes.resize(std::max<size_t>(elements, 1) * byteSize(dtype));
  for (size_t i = 0; i < elements; ++i)
    storeFromDouble(buffer.bytes.data(), dtype, i, poison);
  buffer.view =
      TensorView::dense(buffer.bytes.data(), dtype, a, b + spare, c, d);
  buffer.view.shape[1] = b;
  return buffer;
}

void Launch::store(const TensorView &view, const Tensor &tensor) {
  for (int64_t a = 0; a < view.shape[0]; ++a)
    for (int64_t b = 0; b < view.shape[1]; ++b)
      for (int64_t c = 0; c < view.shape[2]; ++c)
        for (int64_t d = 0; d < view.shape[3]; ++d)
          storeFromDouble(view.at(a, b, c, d), view.dtype, 0,
                          tensor.at(a, b, c, d));
}

Tensor Launch::load(const TensorView &view) {
  Tensor tensor(view.shape[0], view.shape[1], view.shape[2], view.shape[3]);
  for (int64_t a = 0; a < view.shape[0]; ++a)
    for (int64_t b = 0; b < view.shape[1]; ++b)
      for (int64_t c = 0; c < view.shape[2]; ++c)
        for (int64_t d = 0; d < view.shape[3]; ++d)
          tensor.at(a, b, c, d) =
              loadAsDouble(view.at(a, b, c, d), view.dtype, 0);
  return tensor;
}

Launch::Launch(Layer &layer, const Data &data, bool ownStates) : layer(layer) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const frontend::Layer &ast = layer.ast();
  const int64_t spareRows = data.sizes.batch > 64 ? 1 : 64;
  auto add = [&](std::vector<Buffer> &buffers, std::vector<TensorView> &views,
                 Buffer buffer, const Tensor *tensor) {
    if (tensor)
      store(buffer.view, *tensor);
    views.push_back(buffer.view);
    buffers.push_back(std::move(buffer));
  };
  auto like = [&](const frontend::Symbol &symbol, int64_t spare) {
    const Tensor &t = data.tensors.at(symbol.name);
    return allocate(layer.storage(symbol), t.shape[0], t.shape[1], t.shape[2],
                    t.shape[3], spare, nan);
  };
  for (const frontend::Symbol *symbol : ast.inputs)
    add(inputs, args.inputs, like(*symbol, spareRows),
        &data.tensors.at(symbol->name));
  for (const frontend::Symbol *symbol : ast.params)
    add(params, args.params, like(*symbol, 0), &data.tensors.at(symbol->name));
  for (const frontend::Symbol *symbol : ast.outputs)
    add(outputs, args.outputs,
        allocate(layer.storage(*symbol), data.sizes.batch, data.sizes.tokens,
                 data.sizes.heads, symbol->shape.cols, spareRows, untouched),
        nullptr);
  bool given = std::any_of(
      ast.states.begin(), ast.states.end(),
      [&](const frontend::Symbol *state) { return data.has(state->name); });
  for (const frontend::Symbol *symbol : ast.states) {
    if (given)
      add(initial, args.initialStates, like(*symbol, 0),
          &data.tensors.at(symbol->name));
    if (ownStates)
      add(final, args.finalStates,
          allocate(DType::F32, data.sequences(), data.sizes.heads,
                   symbol->shape.rows, symbol->shape.cols, 0, nan),
          nullptr);
  }
  if (data.cuSeqlens.empty())
    return;
  for (int64_t offset : data.cuSeqlens)
    offsets.insert(offsets.end(), reinterpret_cast<const char *>(&offset),
                   reinterpret_cast<const char *>(&offset) + sizeof(offset));
  args.cuSeqlens = {offsets.data(), DType::I64, int64_t(data.cuSeqlens.size())};
}

bool Launch::go(How how) {
  const runtime::Bundle *bundle = layer.bundle();
  if (!bundle)
    return false;
  runtime::Executor executor(*bundle);
  runtime::RunOptions options;
  options.form = how.form;
  options.chunk = how.chunk;
  Status status = executor.run(args, options);
  EXPECT_TRUE(status) << how.str() << ": " << status.error().str();
  return bool(status);
}

Values Launch::values() const {
  Values values;
  const frontend::Layer &ast = layer.ast();
  for (size_t i = 0; i < outputs.size(); ++i) {
    values[ast.outputs[i]->name] = load(args.outputs[i]);
    // Where the test did not put the view elsewhere, look behind its end.
    const TensorView &own = outputs[i].view;
    if (own.data != args.outputs[i].data)
      continue;
    char expected[8];
    storeFromDouble(expected, own.dtype, 0, untouched);
    double clean = loadAsDouble(expected, own.dtype, 0);
    int64_t rows = own.stride[0] / own.stride[1], touched = 0;
    for (int64_t b = 0; b < own.shape[0]; ++b)
      for (int64_t t = own.shape[1]; t < rows; ++t)
        for (int64_t c = 0; c < own.stride[1]; ++c)
          touched += loadAsDouble(own.at(b, t, 0, c), own.dtype, 0) != clean;
    EXPECT_EQ(touched, 0) << "values behind the last token of "
                          << ast.outputs[i]->name << " were written";
  }
  for (size_t i = 0; i < args.finalStates.size(); ++i)
    values[ast.states[i]->name] = load(args.finalStates[i]);
  return values;
}

Values test::run(Layer &layer, const Data &data, How how) {
  Launch run(layer, data);
  return run.go(how) ? run.values() : Values();
}
