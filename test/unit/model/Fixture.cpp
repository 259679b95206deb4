//===- Fixture.cpp - A small checkpoint and its expected results ----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/Fixture.h"

#include "runtime/Safetensors.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace plum::model::test {

std::string fixturePath(const std::string &name) {
  return std::string(PLUM_SOURCE_DIR "/test/fixtures/") + name;
}

double Difference::medianRow() const {
  std::vector<double> sorted = perRow;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

static std::vector<int32_t> integers(const runtime::FileTensor &tensor) {
  std::vector<double> values = *runtime::loadDoubles(tensor);
  return {values.begin(), values.end()};
}

Fixture readFixture(const std::string &name) {
  auto file = runtime::SafetensorsFile::open(fixturePath(name) +
                                             "/expected.safetensors");
  EXPECT_TRUE(file) << file.error().str();
  Fixture fixture;
  fixture.name = name;
  std::vector<int32_t> ids = integers(*file->find("input_ids"));
  fixture.tokens = int64_t(ids.size()) / 2;
  fixture.ids[0].assign(ids.begin(), ids.begin() + fixture.tokens);
  fixture.ids[1].assign(ids.begin() + fixture.tokens, ids.end());
  fixture.greedy = integers(*file->find("greedy_ids"));
  const runtime::FileTensor &logits = *file->find("logits");
  fixture.vocab = logits.shape[2];
  fixture.logits = *runtime::loadDoubles(logits);
  double sum = 0, squares = 0;
  for (double value : fixture.logits) {
    sum += value;
    squares += value * value;
  }
  double count = double(fixture.logits.size());
  fixture.spread = std::sqrt(squares / count - sum / count * sum / count);
  if (const runtime::FileTensor *hidden = file->find("hidden_states")) {
    fixture.layers = hidden->shape[0];
    fixture.hidden = hidden->shape[3];
    fixture.hiddenStates = *runtime::loadDoubles(*hidden);
  }
  return fixture;
}

Model openFixture(const std::string &name, const std::string &bundle,
                  Compute compute, std::shared_ptr<Backend> backend) {
  Result<Model> model = Model::open({.directory = fixturePath(name),
                                     .bundle = bundle,
                                     .compute = compute,
                                     .threads = 2,
                                     .backend = std::move(backend)});
  if (!model) {
    ADD_FAILURE() << model.error().str();
    std::abort();
  }
  return std::move(*model);
}

StatePool makePool(const Model &model, int64_t slots) {
  Result<StatePool> pool = model.makePool(slots);
  EXPECT_TRUE(pool);
  return std::move(*pool);
}

void Difference::add(const View &rows, const Fixture &fixture, int64_t b,
                     int64_t t) {
  for (int64_t i = 0; i < rows.count; ++i) {
    double worst = 0;
    for (int64_t c = 0; c < rows.width; ++c) {
      size_t at = size_t(((b * fixture.tokens) + t + i) * fixture.vocab + c);
      double error = std::fabs(double(rows.row(i)[c]) - fixture.logits[at]);
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
      squares += error * error;
      ++count;
    }
    largest = std::max(largest, worst);
    perRow.push_back(worst);
  }
}

double Difference::rms() const { return std::sqrt(squares / double(count)); }

static void expectClose(const Difference &difference, const Fixture &fixture) {
  EXPECT_LT(difference.largest, 1e-3) << fixture.name;
  EXPECT_LT(difference.rms(), 1e-4 * fixture.spread) << fixture.name;
  EXPECT_LT(difference.medianRow(), 2e-2) << fixture.name;
  if (std::getenv("PLUM_SHOW"))
    std::printf("%-18s max %.2e rms/spread %.2e median row %.2e\n",
                fixture.name.c_str(), difference.largest,
                difference.rms() / fixture.spread, difference.medianRow());
}

void expectFullForward(const Model &model, const Fixture &fixture) {
  StatePool pool = makePool(model, 2);
  Piece pieces[] = {{0, fixture.ids[0]}, {1, fixture.ids[1]}};
  double worst = 0;
  ForwardOptions options{.logits = Logits::All};
  if (fixture.layers > 0)
    options.trace = [&](int64_t layer, const View &rows) {
      const double *expected = fixture.hiddenStates.data() +
                               layer * 2 * fixture.tokens * fixture.hidden;
      for (int64_t i = 0; i < rows.count; ++i)
        for (int64_t c = 0; c < rows.width; ++c)
          worst =
              std::max(worst, std::fabs(double(rows.row(i)[c]) - *expected++));
    };
  Result<Rows> logits = model.forward(pool, pieces, options);
  ASSERT_TRUE(logits) << logits.error().str();
  Difference difference;
  difference.add(logits->rows(0, fixture.tokens), fixture, 0, 0);
  difference.add(logits->rows(fixture.tokens, fixture.tokens), fixture, 1, 0);
  expectClose(difference, fixture);
  EXPECT_LT(worst, 2e-3) << "hidden states";
}

void expectChunked(const Model &model, const Fixture &fixture, int64_t chunk) {
  StatePool pool = makePool(model, 3);
  Difference difference;
  // The second sequence starts a step later and takes a token less a step.
  int64_t at[2] = {0, 0}, sizes[2] = {chunk, std::max<int64_t>(chunk - 1, 1)};
  for (int64_t step = 0; at[0] < fixture.tokens || at[1] < fixture.tokens;
       ++step) {
    std::vector<Piece> pieces;
    std::vector<int64_t> which;
    for (int64_t b = 0; b < 2; ++b) {
      int64_t count = std::min(sizes[b], fixture.tokens - at[b]);
      if (count == 0 || (b == 1 && step == 0))
        continue;
      pieces.push_back(
          {2 - b,
           std::span(fixture.ids[b]).subspan(size_t(at[b]), size_t(count))});
      which.push_back(b);
    }
    Result<Rows> logits = model.forward(pool, pieces, {.logits = Logits::All});
    ASSERT_TRUE(logits) << logits.error().str();
    int64_t row = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      int64_t count = int64_t(pieces[i].ids.size()), b = which[i];
      difference.add(logits->rows(row, count), fixture, b, at[b]);
      row += count;
      at[b] += count;
    }
  }
  expectClose(difference, fixture);
}

void expectGreedy(const Model &model, const Fixture &fixture) {
  StatePool pool = makePool(model, 1);
  Result<Rows> logits = model.prefill(pool, 0, fixture.ids[0], 32);
  ASSERT_TRUE(logits) << logits.error().str();
  std::vector<int32_t> ids;
  while (ids.size() < fixture.greedy.size()) {
    const float *row = logits->row(0);
    ids.push_back(int32_t(std::max_element(row, row + fixture.vocab) - row));
    Piece piece{0, {&ids.back(), 1}};
    logits = model.forward(pool, {&piece, 1});
    ASSERT_TRUE(logits) << logits.error().str();
  }
  EXPECT_EQ(ids, fixture.greedy) << fixture.name;
}

} // namespace plum::model::test
