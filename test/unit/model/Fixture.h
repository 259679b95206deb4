//===- Fixture.h - A small checkpoint and its expected results --*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_MODEL_FIXTURE_H
#define PLUM_TEST_UNIT_MODEL_FIXTURE_H

#include "runtime/model/Model.h"

namespace plum::model::test {

inline constexpr const char *fixtures[] = {
    "gpt2-a",        "mamba2-a",         "qwen3-next-a",
    "kimi-linear-a", "kimi-linear-hf-a", "k3-a",
    "k3-a-mxfp4",    "plain-linear-a",   "plain-kda-a"};

std::string fixturePath(const std::string &name);

/// expected.safetensors: two sequences.
struct Fixture {
  std::string name;
  std::vector<int32_t> ids[2];
  std::vector<int32_t> greedy; ///< What follows the first sequence.
  int64_t vocab = 0, tokens = 0;
  std::vector<double> logits; ///< [2, T, vocab].
  double spread = 0;          ///< Standard deviation of the logits.
  int64_t layers = 0, hidden = 0;
  std::vector<double> hiddenStates; ///< [layers, 2, T, hidden], or empty.
};
Fixture readFixture(const std::string &name);

/// Opens the fixture; `bundle` empty: memories are interpreted.
Model openFixture(const std::string &name, const std::string &bundle,
                  Compute compute = Compute::F32,
                  std::shared_ptr<Backend> backend = nullptr);

StatePool makePool(const Model &model, int64_t slots);

/// Adds to running measures of logits against those of sequence `b` from token
/// `t` on.
struct Difference {
  double largest = 0, squares = 0;
  int64_t count = 0;
  void add(const View &rows, const Fixture &fixture, int64_t b, int64_t t);
  double rms() const;
  /// Of the largest difference of each row.
  double medianRow() const;
  std::vector<double> perRow;
};

/// Both sequences at once; all logits and, where there are any, hidden states.
void expectFullForward(const Model &model, const Fixture &fixture);
/// Pieces of `chunk` tokens, the two sequences at different places.
void expectChunked(const Model &model, const Fixture &fixture, int64_t chunk);
/// Prefill, then a token at a time.
void expectGreedy(const Model &model, const Fixture &fixture);

} // namespace plum::model::test

#endif // PLUM_TEST_UNIT_MODEL_FIXTURE_H
