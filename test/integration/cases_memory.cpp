//===- cases_memory.cpp - C15, C17, C21: where states and rows live -------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/integration/Cases.h"

#include <cstring>
#include <limits>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::TensorView;

namespace {
using MemoryCases = Cases;
}
PLUM_CASES(MemoryCases);

/// [N, H, K, V] -> [N, H, V, K].
static Tensor transposed(const Tensor &x) {
  Tensor y(x.shape[0], x.shape[1], x.shape[3], x.shape[2]);
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t h = 0; h < x.shape[1]; ++h)
      for (int64_t i = 0; i < x.shape[2]; ++i)
        for (int64_t j = 0; j < x.shape[3]; ++j)
          y.at(n, h, j, i) = x.at(n, h, i, j);
  return y;
}

static Fill shiftedGate(uint32_t seed, double shift) {
  return [=](int64_t i) {
    return -5 * sigmoid(portableNormal(seed, 4, uint32_t(i)) - shift);
  };
}

/// Calls [0,64) [64,128) [128,130) with the state handed over, rounded to
/// `handOver`. Gives the whole output, the last state and those at 64 and 128.
static Values inThreeCalls(Layer &kda, const Data &data, How how,
                           DType handOver) {
  Values all = {{"o", Tensor(1, 130, 2, 64)}};
  const int64_t cuts[] = {0, 64, 128, 130};
  Tensor state = data.tensors.at("S");
  for (int call = 0; call < 3; ++call) {
    Data part = data.tokens(cuts[call], cuts[call + 1]);
    part["S"] = state;
    Values values = run(kda, part, how);
    if (values.empty())
      return {};
    const Tensor &o = values.at("o");
    std::copy(o.values.begin(), o.values.end(),
              &all.at("o").at(0, cuts[call], 0, 0));
    state = values.at("S");
    if (call < 2)
      all["S@" + std::to_string(cuts[call + 1])] = state;
    Launch::Buffer rounded = Launch::allocate(handOver, 1, 2, 128, 64, 0, 0);
    Launch::store(rounded.view, state);
    all["S"] = state;
    state = Launch::load(rounded.view);
  }
  return all;
}

TEST_P(MemoryCases, C15ContinueFromAChunkBoundary) {
  Layer &kda = local("kda_raw", 128, 64);
  Data data = delta(kda, 115, {.tokens = 130, .heads = 2});
  data.fill("g", shiftedGate(115, 4));
  data.fill("S", normal(115, 6, 0.25));
  Values truth = reference(kda, data);
  published(truth, 0, 0.04788, 0, 0.4602);

  for (How how : everyForm(kda)) {
    if (how.chunk == 128)
      continue; // 64 is not a boundary of its chunks.
    SCOPED_TRACE(how.str());
    Values once = run(kda, data, how);
    expectClose(data, once, truth, standard(kda), "one call");
    Values split = inThreeCalls(kda, data, how, DType::F32);
    if (once.empty() || split.empty())
      return;
    expectSame({{"o", split.at("o")}, {"S", split.at("S")}}, once,
               "three calls");
    Values coarse = inThreeCalls(kda, data, how, DType::BF16);
    EXPECT_LE(distance(coarse.at("S"), truth.at("S")), 6e-3)
        << "bf16 hand-over";

    // One call that also returns the states after 64 and 128 tokens.
    Launch snapshots(kda, data);
    Launch::Buffer kept = Launch::allocate(
        DType::F32, 2, 2, 128, 64, 0, std::numeric_limits<double>::quiet_NaN());
    snapshots.args.snapshotEvery = 64;
    snapshots.args.snapshots = {kept.view};
    if (snapshots.go(how)) {
      expectSame(snapshots.values(), once, "with snapshots");
      Tensor states = Launch::load(kept.view);
      expectSame(
          {{"S@64", slice(states, 0, 0, 1)}, {"S@128", slice(states, 0, 1, 2)}},
          {{"S@64", split.at("S@64")}, {"S@128", split.at("S@128")}},
          "snapshots");
      EXPECT_GT(distance(slice(states, 0, 1, 2), once.at("S")), 1e-4)
          << "the state after 128 tokens is not the one after 130";
    }

    // The state stored as [V, K].
    Launch other(kda, data);
    Launch::Buffer in = Launch::allocate(DType::F32, 1, 2, 64, 128, 0, 0),
                   out = in;
    out.view.data = out.bytes.data();
    Launch::store(in.view, transposed(data["S"]));
    other.args.layout = runtime::StateLayout::VK;
    other.args.initialStates = {in.view};
    other.args.finalStates = {out.view};
    if (other.go(how)) {
      Values values = other.values();
      values["S"] = transposed(values["S"]);
      expectSame(values, once, "state as [V, K]");
    }
  }
}

/// A pool of 16 slots, strided by `pad` elements more than a slot has.
static Launch::Buffer makePool(int64_t pad) {
  const int64_t slot = int64_t(4) * 128 * 128;
  Launch::Buffer pool =
      Launch::allocate(DType::F32, 16, 1, 1, slot + pad, 0, 777);
  pool.view = TensorView::dense(pool.bytes.data(), DType::F32, 16, 4, 128, 128);
  pool.view.stride[0] = slot + pad;
  auto *values = reinterpret_cast<float *>(pool.bytes.data());
  for (int64_t i = 0; i < 16 * slot; ++i)
    values[i / slot * (slot + pad) + i % slot] =
        float(0.25 * portableNormal(117, 6, uint32_t(i)));
  return pool;
}

TEST_P(MemoryCases, C17DecodeFromAnIndexedStatePool) {
  Layer &kda = local("kda_raw", 128, 128);
  const int64_t slots[] = {7, 0, 3, 12, 9, -1, -1, -1};
  const Launch::Buffer fresh = makePool(0);
  const Tensor before = Launch::load(fresh.view);

  Data data = delta(kda, 117, {.batch = 8, .tokens = 1, .heads = 4});
  data.fill("g", shiftedGate(117, 3));
  Data active = data; // The five rows that are no padding, for the truth.
  active.sizes.batch = 5;
  for (auto &[name, tensor] : active.tensors)
    tensor = slice(tensor, 0, 0, 5);
  active.tensors["S"] = Tensor(5, 4, 128, 128);
  for (int64_t row = 0; row < 5; ++row) {
    Tensor slot = slice(before, 0, slots[row], slots[row] + 1);
    std::copy(slot.values.begin(), slot.values.end(),
              &active["S"].at(row, 0, 0, 0));
  }
  Values truth = reference(kda, active);
  for (auto &[name, tensor] : data.tensors) // Padding rows hold NaN.
    std::fill(tensor.values.begin() + int64_t(tensor.values.size()) * 5 / 8,
              tensor.values.end(), std::numeric_limits<double>::quiet_NaN());

  Values first;
  for (int64_t pad : {0, 64})
    for (DType index : {DType::I32, DType::I64}) {
      SCOPED_TRACE(std::string(name(index)) + ", slot stride + " +
                   std::to_string(pad));
      Launch::Buffer pool = makePool(pad);
      Launch decode(kda, data);
      int32_t narrow[8];
      std::copy(slots, slots + 8, narrow);
      decode.args.slots = {
          index == DType::I64 ? static_cast<const void *>(slots) : narrow,
          index, 8};
      decode.args.initialStates = decode.args.finalStates = {pool.view};
      if (!decode.go({runtime::Form::Step, 0}))
        return;
      Values values = decode.values();
      expectClose(active,
                  {{"o", slice(values.at("o"), 0, 0, 5)},
                   {"S",
                    [&] {
                      Tensor S(5, 4, 128, 128);
                      for (int64_t row = 0; row < 5; ++row) {
                        Tensor slot = slice(values.at("S"), 0, slots[row],
                                            slots[row] + 1);
                        std::copy(slot.values.begin(), slot.values.end(),
                                  &S.at(row, 0, 0, 0));
                      }
                      return S;
                    }()}},
                  truth, {bf16() ? 3e-3 : 1e-5, 1e-2, 2e-2, 1e-6}, "decode");
      for (int64_t slot = 0; slot < 16; ++slot)
        if (std::find(slots, slots + 5, slot) == slots + 5)
          expectSame({{"S", slice(values.at("S"), 0, slot, slot + 1)}},
                     {{"S", slice(before, 0, slot, slot + 1)}},
                     "slot " + std::to_string(slot));
      Tensor padding = slice(values.at("o"), 0, 5, 8);
      for (double x : padding.values)
        ASSERT_EQ(x, padding.values[0]) << "a padding row was written";
      EXPECT_NEAR(padding.values[0], 777, 4);
      if (first.empty())
        first = values;
      expectSame(values, first, "as in the dense pool with int32 slots");
    }
}

/// Copies `tensor` into columns [column, ...) of a buffer with `width` columns
/// and gives the view of it.
static TensorView column(Launch::Buffer &fused, int64_t width, int64_t column,
                         const Tensor &tensor) {
  TensorView view = fused.view;
  view.data = fused.bytes.data() + column * int64_t(byteSize(view.dtype));
  int64_t d = tensor.shape[3];
  const int64_t shape[] = {1, tensor.shape[1], tensor.shape[2], d};
  const int64_t stride[] = {width * tensor.shape[1], width, d, 1};
  std::copy(shape, shape + 4, view.shape);
  std::copy(stride, stride + 4, view.stride);
  Launch::store(view, tensor);
  return view;
}

TEST_P(MemoryCases, C21ColumnSlicesOfAFusedBuffer) {
  Layer &kda = local("kda_raw", 64, 64);
  Data data = delta(kda, 121, {.tokens = 97, .heads = 8});
  data.fill("g", shiftedGate(121, 3));
  Values truth = reference(kda, data);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const DType narrow = bf16() ? DType::BF16 : DType::F32;
  Launch::Buffer qkv = Launch::allocate(narrow, 1, 97, 1, 3 * 512 + 64, 0, nan);
  Launch::Buffer betas = Launch::allocate(DType::F32, 1, 97, 1, 40, 0, nan);
  Launch::Buffer gates = Launch::allocate(DType::F32, 1, 97, 1, 600, 0, nan);
  std::map<std::string, TensorView> views = {
      {"q", column(qkv, 1600, 0, data["q"])},
      {"k", column(qkv, 1600, 512, data["k"])},
      {"v", column(qkv, 1600, 1024, data["v"])},
      {"beta", column(betas, 40, 8, data["beta"])},
      {"g", column(gates, 600, 44, data["g"])}};

  for (How how : everyForm(kda)) {
    SCOPED_TRACE(how.str());
    Values dense = run(kda, data, how);
    expectClose(data, dense, truth, standard(kda), "contiguous");
    Launch sliced(kda, data);
    for (size_t i = 0; i < sliced.args.inputs.size(); ++i)
      sliced.args.inputs[i] = views.at(kda.ast().inputs[i]->name);
    if (sliced.go(how))
      expectSame(sliced.values(), dense, "prefill");
  }

  // The first three rows as three sequences of one token.
  Data rows = data.tokens(0, 3);
  rows.pack({0, 1, 2, 3});
  How step = {runtime::Form::Step, 0};
  Values dense = run(kda, rows, step);
  expectClose(rows, dense, reference(kda, rows), standard(kda), "decode");
  Launch sliced(kda, rows);
  for (size_t i = 0; i < sliced.args.inputs.size(); ++i) {
    sliced.args.inputs[i] = views.at(kda.ast().inputs[i]->name);
    sliced.args.inputs[i].shape[1] = 3;
  }
  if (sliced.go(step))
    expectSame(sliced.values(), dense, "decode");
}
