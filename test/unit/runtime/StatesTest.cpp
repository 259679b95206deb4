//===- StatesTest.cpp - Layouts, storage, pools, snapshots ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

#include "runtime/Inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

constexpr size_t KV = K * V;

struct StatesTest : testing::Test {
  TempDir dir;
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Executor> executor;

  void SetUp() override {
    writeToyBundle(dir / "toy");
    Result<Bundle> opened = Bundle::open(dir / "toy");
    ASSERT_TRUE(opened) << opened.error().str();
    bundle = std::make_unique<Bundle>(std::move(*opened));
    executor = std::make_unique<Executor>(*bundle);
  }
  void run(const RunArgs &args, const RunOptions &options = {}) {
    Status status = executor->run(args, options);
    EXPECT_TRUE(status) << status.error().str();
  }
};

std::vector<float> normals(size_t count, uint32_t tid) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(float(portableNormal(3, tid, uint32_t(i))) / 4);
  return values;
}

/// [n, rows, cols] to [n, cols, rows].
std::vector<float> transposed(const std::vector<float> &from, size_t rows,
                              size_t cols) {
  std::vector<float> to(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    size_t r = i / cols % rows, c = i % cols, n = i / (rows * cols);
    to[n * rows * cols + c * rows + r] = from[i];
  }
  return to;
}

/// Rows begin .. end of all views.
RunArgs sliced(RunArgs args, int64_t begin, int64_t end) {
  for (auto *list : {&args.inputs, &args.outputs})
    for (TensorView &view : *list) {
      view.data = view.at(0, begin, 0);
      view.shape[1] = end - begin;
    }
  return args;
}

} // namespace

TEST_F(StatesTest, ContinueWhereACallStopped) {
  ToyTensors x(2, 50, 3), y(2, 50, 3);
  run(x.args());
  RunArgs args = y.args();
  run(sliced(args, 0, 16));
  args.initialStates = args.finalStates; // In place.
  run(sliced(args, 16, 48));
  run(sliced(args, 48, 48));
  run(sliced(args, 48, 50));
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(x.n, y.n);
  EXPECT_EQ(x.S, y.S);
  EXPECT_EQ(x.z, y.z);
}

TEST_F(StatesTest, InitialStatesStayAsTheyAre) {
  ToyTensors x(2, 9, 2), y(2, 9, 2);
  std::vector<float> S = normals(4 * KV, 6), z = normals(4 * K, 7);
  const std::vector<float> keptS = S, keptZ = z;
  RunArgs args = x.args();
  args.initialStates = {TensorView::dense(S.data(), DType::F32, 2, 2, K, V),
                        TensorView::dense(z.data(), DType::F32, 2, 2, 1, K)};
  run(args);
  EXPECT_EQ(S, keptS);
  EXPECT_EQ(z, keptZ);
  // The same in place.
  RunArgs again = y.args();
  y.S = S;
  y.z = z;
  again.initialStates = again.finalStates;
  run(again);
  EXPECT_EQ(x.S, y.S);
  EXPECT_EQ(x.o, y.o);
  // And when nobody wants the final state.
  ToyTensors w(2, 9, 2);
  args = w.args();
  args.finalStates.clear();
  args.initialStates = {TensorView::dense(S.data(), DType::F32, 2, 2, K, V),
                        TensorView::dense(z.data(), DType::F32, 2, 2, 1, K)};
  run(args);
  EXPECT_EQ(x.o, w.o);
  EXPECT_EQ(S, keptS);
  EXPECT_EQ(w.S, std::vector<float>(w.S.size(), 777));
}

TEST_F(StatesTest, EmptySequencesPassTheirStateThrough) {
  ToyTensors x(1, 4, 2);
  std::vector<int32_t> cu{0, 0, 4};
  std::vector<float> S = normals(4 * KV, 6), z = normals(4 * K, 7);
  RunArgs args = x.args(2);
  args.cuSeqlens = {cu.data(), DType::I32, 3};
  args.initialStates = {TensorView::dense(S.data(), DType::F32, 2, 2, K, V),
                        TensorView::dense(z.data(), DType::F32, 2, 2, 1, K)};
  run(args);
  EXPECT_TRUE(std::equal(S.begin(), S.begin() + 2 * KV, x.S.begin()));
  EXPECT_TRUE(std::equal(z.begin(), z.begin() + 2 * K, x.z.begin()));
  EXPECT_NE(S[2 * KV], x.S[2 * KV]);
}

TEST_F(StatesTest, LayoutVkIsTheTranspose) {
  ToyTensors x(2, 30, 2), y(2, 30, 2);
  std::vector<float> S = normals(4 * KV, 6), z = normals(4 * K, 7);
  RunArgs args = x.args();
  args.initialStates = {TensorView::dense(S.data(), DType::F32, 2, 2, K, V),
                        TensorView::dense(z.data(), DType::F32, 2, 2, 1, K)};
  run(args);
  std::vector<float> turned = transposed(S, K, V);
  RunArgs vk = y.args();
  vk.layout = StateLayout::VK;
  vk.finalStates[0] = TensorView::dense(y.S.data(), DType::F32, 2, 2, V, K);
  vk.initialStates = {TensorView::dense(turned.data(), DType::F32, 2, 2, V, K),
                      args.initialStates[1]};
  run(vk);
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(transposed(x.S, K, V), y.S);
  EXPECT_EQ(x.z, y.z);
}

TEST_F(StatesTest, Bf16StatesAreRoundedOnceAtTheEnd) {
  ToyTensors x(1, 30, 2), y(1, 30, 2);
  std::vector<uint16_t> initial, final(2 * KV, 0x7fc0), finalZ(2 * K);
  std::vector<float> S;
  for (float value : normals(2 * KV, 6)) {
    initial.push_back(floatToBf16(value));
    S.push_back(bf16ToFloat(initial.back()));
  }
  std::vector<float> z(2 * K, 0);
  std::vector<TensorView> wide = {
      TensorView::dense(S.data(), DType::F32, 1, 2, K, V),
      TensorView::dense(z.data(), DType::F32, 1, 2, 1, K)};
  RunArgs args = x.args();
  args.initialStates = wide;
  run(args);
  RunArgs narrow = y.args();
  narrow.initialStates = {
      TensorView::dense(initial.data(), DType::BF16, 1, 2, K, V), wide[1]};
  narrow.finalStates = {
      TensorView::dense(final.data(), DType::BF16, 1, 2, K, V),
      TensorView::dense(finalZ.data(), DType::BF16, 1, 2, 1, K)};
  run(narrow);
  EXPECT_EQ(x.o, y.o);
  for (size_t i = 0; i < 2 * KV; ++i)
    EXPECT_EQ(final[i], floatToBf16(x.S[i]));
  for (size_t i = 0; i < 2 * K; ++i)
    EXPECT_EQ(finalZ[i], floatToBf16(x.z[i]));
}

TEST_F(StatesTest, DecodeFromAPool) {
  constexpr int64_t slotCount = 16, heads = 4;
  const std::vector<int32_t> slots{7, 0, 3, 12, 9, -1, -1, -1};
  const std::vector<int64_t> wideSlots(slots.begin(), slots.end());
  ToyTensors x(8, 1, heads);
  for (size_t i = 5 * heads; i < 8 * heads; ++i) // Padding rows.
    x.g[i] = x.q[i * K] = x.k[i * K] = std::numeric_limits<float>::quiet_NaN();

  // Slots that lie `stride` values apart.
  auto decode = [&](int64_t stride, bool wide, std::vector<float> &S,
                    std::vector<float> &z) {
    S.assign(size_t(slotCount * stride), 777);
    std::vector<float> values = normals(size_t(slotCount * heads) * KV, 6);
    for (int64_t slot = 0; slot < slotCount; ++slot)
      std::copy_n(values.begin() + slot * heads * int64_t(KV), heads * KV,
                  S.begin() + slot * stride);
    z = normals(slotCount * heads * K, 7);
    x.o.assign(x.o.size(), 777);
    RunArgs args = x.args(0);
    args.slots = wide ? IndexView{wideSlots.data(), DType::I64, 8}
                      : IndexView{slots.data(), DType::I32, 8};
    args.finalStates = {
        TensorView{S.data(),
                   DType::F32,
                   {slotCount, heads, K, V},
                   {stride, int64_t(KV), V, 1}},
        TensorView::dense(z.data(), DType::F32, slotCount, heads, 1, K)};
    args.initialStates = args.finalStates;
    run(args);
  };

  std::vector<float> S, z, paddedS, paddedZ;
  decode(heads * KV, false, S, z);
  std::vector<float> o = x.o;
  std::vector<float> before = normals(size_t(slotCount * heads) * KV, 6);
  for (int64_t slot = 0; slot < slotCount; ++slot) {
    bool used = std::count(slots.begin(), slots.end(), slot) > 0;
    auto begin = slot * heads * int64_t(KV);
    bool same = std::equal(S.begin() + begin, S.begin() + begin + heads * KV,
                           before.begin() + begin);
    EXPECT_EQ(same, !used) << slot;
  }
  // Row 1 is slot 0, a slot like any other.
  std::vector<double> oRef(x.o.size()), nRef(x.n.size());
  std::vector<double> SRef(before.begin(), before.begin() + KV), zRef(K);
  std::vector<float> zBefore = normals(K, 7);
  std::copy_n(zBefore.begin(), K, zRef.begin());
  toyRecurrence(x, 1, 0, 1, 0, SRef, zRef, oRef, nRef);
  for (size_t i = 0; i < KV; ++i)
    EXPECT_NEAR(S[i], SRef[i], 1e-6);
  EXPECT_NEAR(o[heads * V], oRef[heads * V], 1e-5);
  for (size_t i = 5 * heads * V; i < o.size(); ++i)
    EXPECT_EQ(o[i], 777);

  decode(heads * KV + 64, true, paddedS, paddedZ);
  EXPECT_EQ(x.o, o);
  EXPECT_EQ(paddedZ, z);
  for (int64_t slot = 0; slot < slotCount; ++slot) {
    auto *from = paddedS.data() + slot * (heads * KV + 64);
    EXPECT_TRUE(
        std::equal(from, from + heads * KV, S.begin() + slot * heads * KV));
    EXPECT_TRUE(std::count(from + heads * KV, from + heads * KV + 64, 777) ==
                64);
  }
}

TEST_F(StatesTest, SnapshotsEqualTheStatesOfSplitCalls) {
  ToyTensors x(1, 40, 2);
  std::vector<int32_t> cu{0, 5, 5, 33, 40}; // 0, 0, 4 and 1 snapshots.
  std::vector<float> S(5 * 2 * KV), z(5 * 2 * K);
  RunArgs args = x.args(4);
  args.cuSeqlens = {cu.data(), DType::I32, 5};
  args.snapshotEvery = 7;
  args.snapshots = {TensorView::dense(S.data(), DType::F32, 5, 2, K, V),
                    TensorView::dense(z.data(), DType::F32, 5, 2, 1, K)};
  run(args);
  for (int64_t snapshot = 0; snapshot < 5; ++snapshot) {
    int64_t begin = snapshot < 4 ? 5 : 33;
    int64_t end = begin + (snapshot < 4 ? 7 * (snapshot + 1) : 7);
    ToyTensors y(1, 40, 2);
    RunArgs part = y.args();
    // The pieces of 7 tokens, one call each.
    for (int64_t t = begin; t < end; t += 7) {
      run(sliced(part, t, t + 7));
      part.initialStates = part.finalStates;
    }
    EXPECT_TRUE(std::equal(y.S.begin(), y.S.end(),
                           S.begin() + snapshot * 2 * int64_t(KV)));
    EXPECT_TRUE(
        std::equal(y.z.begin(), y.z.end(), z.begin() + snapshot * 2 * K));
  }
  // The last snapshot of a sequence of 7 tokens is its final state.
  EXPECT_TRUE(std::equal(x.S.end() - 2 * KV, x.S.end(), S.end() - 2 * KV));
}

TEST_F(StatesTest, SnapshotsInBf16AndVk) {
  ToyTensors x(1, 6, 1), y(1, 3, 1);
  std::vector<uint16_t> S(2 * KV), z(2 * K);
  RunArgs args = x.args();
  args.layout = StateLayout::VK;
  args.finalStates[0] = TensorView::dense(x.S.data(), DType::F32, 1, 1, V, K);
  args.snapshotEvery = 3;
  args.snapshots = {TensorView::dense(S.data(), DType::BF16, 2, 1, V, K),
                    TensorView::dense(z.data(), DType::BF16, 2, 1, 1, K)};
  run(args, {.form = Form::Step});
  for (size_t i = 0; i < KV; ++i)
    EXPECT_EQ(S[KV + i], floatToBf16(x.S[i]));
}
