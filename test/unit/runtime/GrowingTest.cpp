//===- GrowingTest.cpp - Lists of rows through the executor ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyAttention.h"

#include "runtime/Errors.h"
#include "runtime/Inputs.h"
#include "runtime/ReferenceRun.h"

#include <cmath>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

using Counts = std::vector<int64_t>;

IndexView view(const Counts &values) {
  return {values.data(), DType::I64, int64_t(values.size())};
}

struct GrowingTest : ToyRun {
  void SetUp() override {
    writeAttentionBundle(dir / "toy");
    open();
  }
};

void expectNear(const std::vector<double> &a, const std::vector<double> &b,
                double limit = 1e-5) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], limit) << i;
}

/// Rows begin .. end of batch b against the recurrence from `before`, and the
/// states that it leaves in slot n.
void expectSequence(const AttentionTensors &x, int64_t b, int64_t begin,
                    int64_t end, const AttentionStates *before, int64_t past,
                    const AttentionStates *after, int64_t n) {
  std::vector<double> o(x.o.size()), norm(x.n.size());
  for (int64_t h = 0; h < x.heads; ++h) {
    AttentionHead state;
    if (before)
      state = before->head(n, h, past);
    x.truth(b, begin, end, h, state, o, norm);
    for (int64_t t = begin; t < end; ++t) {
      auto row = size_t((b * x.tokens + t) * x.heads + h);
      EXPECT_NEAR(x.n[row], norm[row], 1e-5);
      for (size_t c = 0; c < V; ++c)
        EXPECT_NEAR(x.o[row * V + c], o[row * V + c], 1e-5);
    }
    if (!after)
      continue;
    AttentionHead got = after->head(n, h, past + end - begin);
    EXPECT_EQ(got.keys, state.keys); // Copied, not computed.
    EXPECT_EQ(got.values, state.values);
    expectNear(got.z, state.z);
  }
}

/// Rows from `rows` on are as they were.
void expectUntouched(const AttentionStates &states, int64_t n, int64_t rows) {
  for (int64_t h = 0; h < states.heads; ++h) {
    AttentionHead all = states.head(n, h, states.room);
    for (size_t i = size_t(rows * K); i < all.keys.size(); ++i)
      EXPECT_EQ(all.keys[i], 777);
    for (size_t i = size_t(rows * V); i < all.values.size(); ++i)
      EXPECT_EQ(all.values[i], 777);
  }
}

} // namespace

TEST_F(GrowingTest, FromNothing) {
  for (int64_t tokens : {0, 1, 5, 11}) {
    AttentionTensors x(2, tokens, 3);
    AttentionStates after(2, 3, tokens + 2);
    RunArgs args = x.args();
    args.finalStates = after.views();
    run(args);
    for (int64_t b = 0; b < 2; ++b) {
      expectSequence(x, b, 0, tokens, nullptr, 0, &after, b);
      expectUntouched(after, b, tokens);
    }
  }
}

TEST_F(GrowingTest, SequencesWithDifferentPasts) {
  AttentionTensors x(3, 7, 2);
  AttentionStates before(3, 2, 6), after(3, 2, 12);
  Counts past{0, 3, 5};
  for (int64_t n = 0; n < 3; ++n)
    before.fill(n, past[size_t(n)]);
  RunArgs args = x.args();
  args.initialStates = before.views();
  args.finalStates = after.views();
  args.past = view(past);
  AttentionStates start = before;
  start.z = before.z;
  run(args);
  for (int64_t n = 0; n < 3; ++n) {
    expectSequence(x, n, 0, 7, &start, past[size_t(n)], &after, n);
    expectUntouched(after, n, past[size_t(n)] + 7);
  }
  EXPECT_EQ(before.keys, start.keys);
  EXPECT_EQ(before.values, start.values);
}

TEST_F(GrowingTest, WithoutPastAllInitialRowsCount) {
  AttentionTensors x(1, 4, 1);
  AttentionStates before(1, 1, 5), after(1, 1, 9);
  before.fill(0, 5);
  RunArgs args = x.args();
  args.initialStates = before.views();
  args.finalStates = after.views();
  run(args);
  expectSequence(x, 0, 0, 4, &before, 5, &after, 0);
}

TEST_F(GrowingTest, WithoutFinalStatesOutputsAreTheSame) {
  AttentionTensors x(1, 9, 2), y(1, 9, 2);
  AttentionStates before(1, 2, 5), after(1, 2, 14);
  before.fill(0, 5);
  RunArgs args = x.args();
  args.initialStates = before.views();
  args.finalStates = after.views();
  run(args);
  args = y.args();
  args.initialStates = before.views();
  run(args);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(x.n, y.n);
}

TEST_F(GrowingTest, PackedWithEmptySequences) {
  AttentionTensors x(1, 12, 2);
  std::vector<int64_t> cu{0, 4, 4, 5, 11};
  AttentionStates before(4, 2, 3), after(4, 2, 9);
  Counts past{2, 3, 0, 1};
  for (int64_t n = 0; n < 4; ++n)
    before.fill(n, past[size_t(n)]);
  for (float &z : before.z) // Where fill put none.
    z = z == 777 ? 0 : z;
  RunArgs args = x.args();
  args.cuSeqlens = view(cu);
  args.initialStates = before.views();
  args.finalStates = after.views();
  args.past = view(past);
  run(args, {.threads = 3});
  for (size_t n = 0; n < 4; ++n) {
    expectSequence(x, 0, cu[n], cu[n + 1], &before, past[n], &after,
                   int64_t(n));
    expectUntouched(after, int64_t(n), past[n] + cu[n + 1] - cu[n]);
  }
  EXPECT_EQ(x.n[22], 777); // Of no sequence.
}

TEST_F(GrowingTest, SlotsOfAPoolWithPadding) {
  AttentionTensors x(1, 3, 2);
  std::vector<int64_t> cu{0, 1, 2, 3}, slots{3, -1, 1};
  AttentionStates pool(5, 2, 8);
  Counts past{-7, 4, 99, 2, -7}; // Of slots in use alone is it looked at.
  pool.fill(1, 4);
  pool.fill(3, 2);
  AttentionStates start = pool;
  RunArgs args = x.args();
  args.cuSeqlens = view(cu);
  args.slots = view(slots);
  args.initialStates = args.finalStates = pool.views();
  args.past = view(past);
  run(args);
  expectSequence(x, 0, 0, 1, &start, 2, &pool, 3);
  expectSequence(x, 0, 2, 3, &start, 4, &pool, 1);
  for (int64_t n : {0, 2, 4})
    expectUntouched(pool, n, 0);
  expectUntouched(pool, 3, 3);
  expectUntouched(pool, 1, 5);
  EXPECT_EQ(x.n[2], 777); // The padding row.
}

TEST_F(GrowingTest, InPlaceAndApartGiveTheSameBits) {
  AttentionTensors x(2, 6, 2), y(2, 6, 2);
  AttentionStates before(2, 2, 4), after(2, 2, 10), place(2, 2, 10);
  Counts past{4, 1};
  for (int64_t n = 0; n < 2; ++n) {
    before.fill(n, past[size_t(n)]);
    place.fill(n, past[size_t(n)]);
  }
  RunArgs args = x.args();
  args.initialStates = before.views();
  args.finalStates = after.views();
  args.past = view(past);
  run(args);
  args = y.args();
  args.initialStates = args.finalStates = place.views();
  args.past = view(past);
  run(args);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(after.keys, place.keys);
  EXPECT_EQ(after.values, place.values);
  EXPECT_EQ(after.z, place.z);
}

namespace {

/// Keys and values of each sequence as rows of one buffer, as models keep them:
/// [k of head 0, k of head 1, ..., v of head 0, ..., 2 unused].
struct Interleaved {
  Interleaved(const AttentionStates &from, int64_t count)
      : heads(from.heads), stride(heads * (K + V) + 2) {
    for (int64_t n = 0; n < count; ++n) {
      std::vector<float> &rows =
          sequences.emplace_back(size_t(from.room * stride), 777.0f);
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t r = 0; r < from.room; ++r) {
          int64_t pair = n * heads + h;
          std::copy_n(&from.keys[size_t((pair * from.room + r) * K)], K,
                      &rows[size_t(r * stride + h * K)]);
          std::copy_n(&from.values[size_t((pair * from.room + r) * V)], V,
                      &rows[size_t(r * stride + heads * K + h * V)]);
        }
    }
  }
  void give(RunArgs &args) {
    args.growingRows.resize(2);
    for (std::vector<float> &rows : sequences) {
      args.growingRows[0].push_back({rows.data(), stride * 4});
      args.growingRows[1].push_back({rows.data() + heads * K, stride * 4});
    }
    args.growingHeadStride = {K * 4, V * 4};
  }

  int64_t heads, stride;
  std::vector<std::vector<float>> sequences;
};

} // namespace

TEST_F(GrowingTest, StridedRowsAreAppendedToInPlace) {
  AttentionTensors x(1, 9, 3), y(1, 9, 3);
  AttentionStates dense(1, 3, 12);
  dense.fill(0, 3);
  Counts past{3};
  Interleaved fused(dense, 1);
  AttentionStates z = dense;
  RunArgs args = x.args();
  args.initialStates = args.finalStates = dense.views();
  args.past = view(past);
  run(args);
  args = y.args();
  args.finalStates = z.views();
  int64_t stride = fused.stride;
  args.finalStates[0] = {
      fused.sequences[0].data(), DType::F32, {1, 3, 12, K}, {0, K, stride, 1}};
  args.finalStates[2] = {fused.sequences[0].data() + 3 * K,
                         DType::F32,
                         {1, 3, 12, V},
                         {0, V, stride, 1}};
  args.initialStates = args.finalStates;
  args.past = view(past);
  run(args);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(fused.sequences, Interleaved(dense, 1).sequences);
}

TEST_F(GrowingTest, RowsOfEachSequenceOnTheirOwn) {
  AttentionTensors x(1, 9, 2), y(1, 9, 2);
  std::vector<int64_t> cu{0, 4, 5, 5, 9}, slots{1, 0, 3, -1};
  AttentionStates pool(4, 2, 8), dense(4, 2, 8);
  Counts past{2, 3, 4, 0}, bySlot{3, 2, 0, 4};
  for (int64_t n = 0; n < 3; ++n) {
    dense.fill(n, past[size_t(n)]);
    int64_t slot = slots[size_t(n)];
    auto move = [&](std::vector<float> &to, const std::vector<float> &from,
                    int64_t size) {
      std::copy_n(from.begin() + n * size, size, to.begin() + slot * size);
    };
    move(pool.keys, dense.keys, 2 * 8 * K);
    move(pool.values, dense.values, 2 * 8 * V);
    move(pool.z, dense.z, 2 * K);
  }
  Interleaved own(dense, 4);
  AttentionStates zs = pool;
  RunArgs args = x.args();
  args.cuSeqlens = view(cu);
  args.slots = view(slots);
  args.initialStates = args.finalStates = pool.views();
  args.past = view(bySlot);
  run(args);

  args = y.args();
  args.cuSeqlens = view(cu);
  args.slots = view(slots);
  args.finalStates = zs.views();
  args.finalStates[0] = args.finalStates[2] = {}; // Nobody looks at these.
  args.initialStates = args.finalStates;
  args.past = view(past);
  own.give(args);
  args.growingRows[0][3] = args.growingRows[1][3] = {}; // Nor at padding's.
  run(args);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(pool.z, zs.z);
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t h = 0; h < 2; ++h) {
      int64_t rows = past[size_t(n)] + cu[size_t(n) + 1] - cu[size_t(n)];
      AttentionHead expected = pool.head(slots[size_t(n)], h, rows);
      const std::vector<float> &got = own.sequences[size_t(n)];
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < K; ++c)
          EXPECT_EQ(got[size_t(r * own.stride + h * K + c)],
                    expected.keys[size_t(r * K + c)]);
    }

  args.growingRows[1][0].data = nullptr;
  EXPECT_EQ(error(args),
            "error: the rows of 'values' of sequence 0 have no data");
  args.growingRows[1][0] = {reinterpret_cast<void *>(2), 4};
  EXPECT_EQ(error(args), "error: the rows of 'values' of sequence 0 are not "
                         "aligned to their element size");
  args.growingRows[0].pop_back();
  EXPECT_EQ(error(args),
            "error: got rows of 3 sequences for 'keys', expected 4");
  args.growingHeadStride.pop_back();
  EXPECT_EQ(error(args), "error: got rows or head strides of 1 growing states, "
                         "expected 2");
}

TEST_F(GrowingTest, Bf16RowsAndRowsThatAreNotContiguous) {
  Counts past{3, 5};
  AttentionStates before(2, 2, 5);
  for (int64_t n = 0; n < 2; ++n)
    before.fill(n, past[size_t(n)]);
  for (auto *list : {&before.keys, &before.values})
    for (float &value : *list)
      value = bf16ToFloat(floatToBf16(value));
  for (bool inPlace : {false, true})
    for (bool narrow : {false, true}) {
      AttentionTensors x(2, 4, 2), y(2, 4, 2);
      AttentionStates place(2, 2, 9);
      // Every second element, backwards from head to head.
      std::vector<float> wide(2 * 2 * 9 * K * 2, 777);
      std::vector<uint16_t> small(2 * 2 * 9 * V, 0x1234);
      auto views = [&](AttentionStates &states) {
        std::vector<TensorView> list = states.views();
        if (narrow)
          list[2] = TensorView::dense(small.data(), DType::BF16, 2, 2, 9, V);
        else
          list[0] = {wide.data() + 9 * K * 2,
                     DType::F32,
                     {2, 2, 9, K},
                     {2 * 9 * K * 2, -9 * K * 2, K * 2, 2}};
        return list;
      };
      // The rows so far where they shall be, in whatever the views are.
      std::vector<TensorView> from = before.views(), to = views(place);
      for (size_t s : {0, 2})
        for (int64_t n = 0; n < 2; ++n)
          for (int64_t h = 0; h < 2; ++h)
            for (int64_t r = 0; inPlace && r < past[size_t(n)]; ++r)
              for (int64_t c = 0; c < to[s].shape[3]; ++c)
                storeFromDouble(
                    to[s].at(n, h, r, c), to[s].dtype, 0,
                    loadAsDouble(from[s].at(n, h, r, c), DType::F32, 0));
      place.z = before.z;
      RunArgs args = x.args();
      args.past = view(past);
      args.initialStates = inPlace ? to : before.views();
      args.finalStates = to;
      run(args);
      AttentionStates after(2, 2, 9);
      args = y.args();
      args.past = view(past);
      args.initialStates = before.views();
      args.finalStates = after.views();
      run(args);
      EXPECT_EQ(x.o, y.o); // The kernel's rows are the same.
      std::vector<TensorView> same = after.views();
      for (size_t s : {0, 2})
        for (int64_t n = 0; n < 2; ++n)
          for (int64_t h = 0; h < 2; ++h)
            for (int64_t r = 0; r < past[size_t(n)] + 4; ++r)
              for (int64_t c = 0; c < to[s].shape[3]; ++c) {
                double value =
                    loadAsDouble(same[s].at(n, h, r, c), DType::F32, 0);
                if (s == 2 && narrow)
                  value = bf16ToFloat(floatToBf16(float(value)));
                EXPECT_EQ(loadAsDouble(to[s].at(n, h, r, c), to[s].dtype, 0),
                          value);
              }
    }
}

TEST_F(GrowingTest, PiecesOfARunKnowTheirRows) {
  AttentionTensors x(1, 13, 2), y(1, 13, 2);
  AttentionStates before(1, 2, 3), after(1, 2, 16), snapshots(3, 2, 0);
  before.fill(0, 3);
  RunArgs args = x.args();
  args.initialStates = before.views();
  args.finalStates = after.views();
  run(args, {.threads = 1});
  EXPECT_EQ(log.calls(), "4x12 1x1 4x12 1x1");
  expectSequence(x, 0, 0, 13, &before, 3, &after, 0);
  log.reset();
  args = y.args();
  AttentionStates again(1, 2, 16);
  args.initialStates = before.views();
  args.finalStates = again.views();
  args.snapshotEvery = 4;
  args.snapshots = {{}, snapshots.views()[1], {}}; // Of z alone.
  run(args, {.threads = 1});
  EXPECT_EQ(log.calls(), "4x4 4x4 4x4 1x1 4x4 4x4 4x4 1x1");
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(after.keys, again.keys);
  EXPECT_EQ(after.values, again.values);
  for (int64_t h = 0; h < 2; ++h) {
    AttentionHead state = before.head(0, h, 3);
    std::vector<double> o(x.o.size()), n(x.n.size());
    x.truth(0, 0, 8, h, state, o, n);
    expectNear(snapshots.head(1, h, 0).z, state.z);
  }
}

TEST_F(GrowingTest, ARunInTwoHalvesIsTheWholeOne) {
  AttentionTensors whole(1, 8, 2), parts(1, 8, 2);
  AttentionStates once(1, 2, 8), twice(1, 2, 8);
  RunArgs args = whole.args();
  args.finalStates = once.views();
  run(args);
  Counts past{0};
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 8}}) {
    args = parts.args();
    for (auto *list : {&args.inputs, &args.outputs})
      for (TensorView &tensor : *list) {
        tensor.data = tensor.at(0, begin, 0);
        tensor.shape[1] = end - begin;
      }
    args.finalStates = twice.views();
    if (begin > 0)
      args.initialStates = args.finalStates;
    past = {begin};
    args.past = view(past);
    run(args);
  }
  EXPECT_EQ(whole.o, parts.o);
  EXPECT_EQ(once.keys, twice.keys);
  EXPECT_EQ(once.values, twice.values);
  EXPECT_EQ(once.z, twice.z);
}

TEST_F(GrowingTest, WhatCannotBeIsRefused) {
  AttentionTensors x(2, 5, 2);
  AttentionStates before(2, 2, 4), after(2, 2, 9);
  Counts past{4, 2};
  auto good = [&] {
    RunArgs args = x.args();
    args.initialStates = before.views();
    args.finalStates = after.views();
    args.past = view(past);
    return args;
  };
  EXPECT_EQ(error(good()), "");
  std::fill(x.n.begin(), x.n.end(), 777.0f);

  RunArgs args = good();
  args.finalStates[2].shape[2] = 8;
  EXPECT_EQ(error(args),
            "error: tensor 'values' has room for 8 rows, expected at least 9: "
            "sequence 0 holds 4 and adds 5");
  args = good();
  past = {4, 5};
  EXPECT_EQ(error(args),
            "error: 'past[1]' is 5, expected at most 4, the rows of 'keys'");
  past = {-1, 2};
  EXPECT_EQ(error(args), "error: 'past[0]' is -1, expected at least 0");
  past = {4, 2};
  args.initialStates[2].shape[2] = 3;
  EXPECT_EQ(error(args),
            "error: 'past[0]' is 4, expected at most 3, the rows of 'values'");
  args.past = {};
  EXPECT_EQ(error(args),
            "error: tensor 'values' has 3 rows, expected 4, as 'keys' has");
  args = good();
  args.initialStates.clear();
  EXPECT_EQ(
      error(args),
      "error: 'past[0]' is 4, expected 0, as no initial states are given");
  args = good();
  args.past.count = 1;
  EXPECT_EQ(error(args), "error: tensor 'past' has length 1, expected 2, one "
                         "for each sequence");
  args.past.dtype = DType::F32;
  EXPECT_EQ(error(args),
            "error: tensor 'past' has dtype f32, expected i32 or i64");
  args = good();
  Counts slots{0, 1};
  args.slots = view(slots);
  args.past.count = 1;
  EXPECT_EQ(error(args), "error: tensor 'past' has length 1, expected 2, one "
                         "for each slot");
  args = good();
  args.initialStates[0].shape[3] = 5;
  EXPECT_EQ(error(args),
            "error: tensor 'keys' has shape [2,2,4,5], expected [2,2,4,4]");
  args = good();
  args.finalStates[0].shape[0] = 1;
  EXPECT_EQ(error(args),
            "error: tensor 'keys' has shape [1,2,9,4], expected [2,2,9,4]");
  args = good();
  args.finalStates[0].shape[2] = -1;
  EXPECT_EQ(error(args),
            "error: tensor 'keys' has shape [2,2,-1,4], expected [2,2,0,4]");
  args = good();
  args.appended = true;
  EXPECT_EQ(error(args), "error: tables of where rows are, and rows that are "
                         "there before a run, are for a GPU only");
  args = good();
  args.rowTables.resize(2);
  EXPECT_EQ(error(args), "error: tables of where rows are, and rows that are "
                         "there before a run, are for a GPU only");
  EXPECT_EQ(x.n, std::vector<float>(x.n.size(), 777));

  // More rows than bytes can be counted, in a scratch.
  AttentionTensors one(1, 5, 1);
  AttentionStates few(1, 1, 1);
  past = {int64_t(1) << 60};
  args = one.args();
  args.past = view(past);
  args.initialStates = few.views();
  for (size_t s : {0, 2}) {
    args.initialStates[s].shape[2] = past[0];
    args.initialStates[s].stride[2] = 0;
  }
  EXPECT_EQ(error(args), "error: no memory for a workspace of "
                         "18446744073709551615 bytes");

  ToyTensors other(1, 5, 2);
  args = other.args();
  args.past = view(past);
  for (bool appended : {false, true}) {
    if (appended)
      args.past = {};
    args.appended = appended;
    Result<Problem> problem = checkProblem(toyManifest(), args);
    ASSERT_FALSE(problem);
    EXPECT_EQ(problem.error().str(), "error: rows of growing states are given, "
                                     "but layer 'toy' has no such state");
  }
}

TEST_F(GrowingTest, TheReferenceRunsTheSameProblem) {
  AttentionTensors x(1, 10, 2);
  std::vector<int64_t> cu{0, 4, 4, 10}, slots{2, -1, 0};
  AttentionStates before(3, 2, 4), after(3, 2, 12);
  Counts past{4, 0, 1};
  before.fill(0, 4);
  before.fill(2, 1);
  RunArgs args = x.args();
  args.cuSeqlens = view(cu);
  args.slots = view(slots);
  args.initialStates = before.views();
  args.finalStates = after.views();
  args.past = view(past);
  run(args);
  Result<Problem> problem = checkProblem(bundle->manifest(), args);
  ASSERT_TRUE(problem) << problem.error().str();
  Result<Reference> reference = Reference::load(*bundle);
  ASSERT_TRUE(reference) << reference.error().str();
  ThreadPool pool;
  std::vector<ReferenceSequence> truth = reference->run(args, *problem, pool);
  ASSERT_EQ(truth.size(), 2u);
  AttentionStates stored(3, 2, 12);
  RunArgs other = args;
  other.finalStates = stored.views();
  for (const ReferenceSequence &result : truth) {
    expectNear(sequenceRows(args.outputs[0], result.sequence),
               result.outputs[0]);
    for (size_t s = 0; s < 3; ++s)
      expectNear(
          finalState(bundle->manifest(), args, *problem, result.sequence, s),
          result.states[s]);
    EXPECT_EQ(result.states[0].size(), size_t(2 * result.sequence.rows() * K));
    storeFinalStates(bundle->manifest(), other, *problem, result);
  }
  EXPECT_EQ(stored.keys, after.keys);
  EXPECT_EQ(stored.values, after.values);
}

TEST_F(GrowingTest, RandomProblemsHaveRowsAndRoom) {
  ThreadPool pool;
  Result<RandomProblem> random =
      randomProblem(bundle->manifest(), 3, 5, 2, 9, pool, /*past=*/1);
  ASSERT_TRUE(random) << random.error().str();
  Result<Problem> problem = checkProblem(bundle->manifest(), random->args);
  ASSERT_TRUE(problem) << problem.error().str();
  EXPECT_EQ(problem->sequences[0].past, 1);
  EXPECT_EQ(problem->sequences[1].past, 0);
  EXPECT_EQ(problem->sequences[2].past, 0);
  const TensorView &values = random->args.finalStates[2];
  EXPECT_EQ(values.data, random->args.initialStates[2].data);
  EXPECT_EQ(values.shape[2], 6);
  // A number of bf16, since v is: rows as they will be appended.
  uint16_t rounded;
  storeFromDouble(&rounded, DType::BF16, 0, portableNormal(9, 34, 1 * V + 2));
  EXPECT_EQ(*reinterpret_cast<float *>(values.at(0, 1, 0, 2)),
            float(loadAsDouble(&rounded, DType::BF16, 0)));
  EXPECT_TRUE(std::isnan(*reinterpret_cast<float *>(values.at(0, 1, 1, 0))));
  EXPECT_TRUE(std::isnan(*reinterpret_cast<float *>(values.at(1, 0, 0, 0))));
  run(random->args);
  EXPECT_FALSE(std::isnan(*reinterpret_cast<float *>(values.at(0, 1, 5, 0))));
  EXPECT_FALSE(std::isnan(*static_cast<float *>(random->args.outputs[0].data)));
  EXPECT_FALSE(randomProblem(bundle->manifest(), 1, 5, 2, 9, pool,
                             std::numeric_limits<int64_t>::max()));
}
