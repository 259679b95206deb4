//===- spec_fuzzer.cpp - Any text as a layer spec -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The frontend must answer every input with a layer or with errors, and what it
// accepts the reference must run. A layer that has a chunkwise form must be one
// that also runs step by step.
//
//===----------------------------------------------------------------------===//

#include "plum/Frontend/Frontend.h"
#include "plum/Reference/Recurrence.h"

#include <cstdint>
#include <cstdlib>

using namespace plum;
using namespace plum::frontend;

/// Elements of all values of a layer: what running it takes.
static int64_t sizeOf(const Layer &layer) {
  int64_t size = 0;
  for (const Symbol &symbol : layer.symbols)
    size += symbol.shape.rows * symbol.shape.cols;
  for (const Expr &expr : layer.exprs)
    size += expr.shape.rows * expr.shape.cols * (expr.args.empty() ? 1 : 8);
  return size;
}

static void runTokens(const Layer &layer, int64_t tokens) {
  using Values = std::vector<std::vector<double>>;
  Values params, inputs, states, outputs;
  auto fill = [](Values &values, const auto &symbols, int64_t times) {
    for (const Symbol *symbol : symbols)
      values.emplace_back(
          size_t(symbol->shape.rows * symbol->shape.cols * times), 0.5);
  };
  fill(params, layer.params, 1);
  fill(inputs, layer.inputs, tokens);
  fill(states, layer.states, 1);
  for (const Symbol *state : layer.states)
    if (state->shape.kind == Shape::List) // A row for each token.
      states[state->index].assign(size_t(tokens * state->shape.cols), 0.5);
  fill(outputs, layer.outputs, tokens);
  reference::Head head;
  head.tokens = tokens;
  for (const auto &value : params)
    head.params.emplace_back(value);
  for (const auto &value : inputs)
    head.inputs.emplace_back(value);
  for (auto &value : states)
    head.states.emplace_back(value);
  for (auto &value : outputs)
    head.outputs.emplace_back(value);
  reference::run(layer, head);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Source source("fuzz.plum",
                std::string(reinterpret_cast<const char *>(data), size));
  bool accepted[2];
  for (bool stepOnly : {false, true}) {
    Diagnostics diags(source);
    SpecOptions options;
    options.stepOnly = stepOnly;
    std::unique_ptr<Layer> layer = parseSpec(diags, options);
    if (!layer != diags.hasErrors() || diags.render(true).size() > (1 << 20))
      std::abort();
    accepted[stepOnly] = layer != nullptr;
    if (layer && sizeOf(*layer) < 100000)
      runTokens(*layer, 2);
  }
  if (accepted[false] && !accepted[true])
    std::abort();
  return 0;
}
