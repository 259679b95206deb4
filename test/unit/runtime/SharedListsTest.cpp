//===- SharedListsTest.cpp - Heads that share growing states --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// H heads that share L lists against H heads with copies of them: the outputs
// must have the same bits, and the lists too.
//
//===----------------------------------------------------------------------===//

#include "ToyAttention.h"

#include "runtime/Inputs.h"
#include "runtime/LayerIO.h"
#include "runtime/ReferenceRun.h"

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

constexpr int64_t H = 4;

/// [A, H, B, d] out of [A, L, B, d]: of each head, its list's.
template <typename T>
std::vector<T> repeated(const std::vector<T> &from, int64_t lists,
                        int64_t size) {
  std::vector<T> to;
  for (size_t i = 0; i < from.size(); i += size_t(lists * size))
    for (int64_t h = 0; h < H; ++h) {
      auto begin = from.begin() + int64_t(i) + h / (H / lists) * size;
      to.insert(to.end(), begin, begin + size);
    }
  return to;
}

/// Three packed sequences with a pool of five slots, one token to six each.
struct Case {
  int64_t lists;
  bool alike;              ///< Heads have the same params.
  std::vector<int64_t> cu; ///< Of four sequences, the third being padding.
};

struct SharedListsTest : ToyRun {
  std::vector<int64_t> slots{3, 0, -1, 1}, past{5, 2, 0, 3, 0};

  void start(const Manifest &manifest) {
    writeAttentionBundle(dir / "toy", manifest);
    open();
  }
  bool fixed() const { return bundle->manifest().states.size() == 3; }

  /// What both runs have in common.
  RunArgs args(AttentionTensors &x, const Case &c) {
    if (c.alike)
      x.scale.assign(H, 0.5f);
    RunArgs args = x.args();
    args.cuSeqlens = {c.cu.data(), DType::I64, int64_t(c.cu.size())};
    args.slots = {slots.data(), DType::I64, int64_t(slots.size())};
    args.past = {past.data(), DType::I64, int64_t(past.size())};
    if (!fixed())
      args.outputs.pop_back();
    return args;
  }
  std::vector<TensorView> views(AttentionStates &lists, AttentionStates &z) {
    std::vector<TensorView> all = lists.views();
    all[1] = z.views()[1];
    if (!fixed())
      all.erase(all.begin() + 1);
    return all;
  }

  void compare(const Case &c) {
    int64_t tokens = c.cu.back(), L = c.lists, room = 12;
    // Shared.
    AttentionTensors x(1, tokens, H), few(1, tokens, L);
    AttentionStates lists(5, L, room), z(5, H, room);
    for (int64_t n = 0; n < 5; ++n) {
      lists.fill(n, past[size_t(n)]);
      z.fill(n, 0);
    }
    AttentionStates before = lists, zBefore = z;
    RunArgs shared = args(x, c);
    for (size_t i : {1, 2})
      shared.inputs[i] = few.args().inputs[i];
    shared.initialStates = shared.finalStates = views(lists, z);
    run(shared, {.threads = 3});
    // Of each head.
    AttentionTensors y(1, tokens, H);
    y.k = repeated(few.k, L, K);
    y.v = repeated(few.v, L, V);
    AttentionStates own(5, H, room), z2 = zBefore;
    own.keys = repeated(before.keys, L, room * K);
    own.values = repeated(before.values, L, room * V);
    RunArgs apart = args(y, c);
    apart.initialStates = apart.finalStates = views(own, z2);
    run(apart);
    EXPECT_EQ(x.o, y.o);
    EXPECT_EQ(x.n, y.n);
    EXPECT_EQ(z.z, z2.z);
    EXPECT_EQ(repeated(lists.keys, L, room * K), own.keys);
    EXPECT_EQ(repeated(lists.values, L, room * V), own.values);

    // Not in place: another buffer, one of bf16 or with gaps, none.
    AttentionStates other(5, L, room);
    std::vector<uint16_t> narrow(size_t(5 * L * room * V), 0x1234);
    AttentionTensors o(1, tokens, H);
    shared = args(o, c);
    for (size_t i : {1, 2})
      shared.inputs[i] = few.args().inputs[i];
    for (int kind = 0; kind < 3; ++kind) {
      AttentionStates z3 = zBefore;
      shared.finalStates.clear();
      shared.initialStates = views(before, zBefore);
      if (kind < 2)
        shared.finalStates = views(other, z3);
      if (kind == 1)
        shared.finalStates.back() =
            TensorView::dense(narrow.data(), DType::BF16, 5, L, room, V);
      run(shared, {.threads = 3});
      EXPECT_EQ(x.o, o.o) << kind;
    }
    for (auto [slot, n] : {std::pair<int64_t, size_t>{3, 0}, {0, 1}, {1, 3}})
      for (int64_t l = 0; l < L; ++l) {
        int64_t rows = past[size_t(slot)] + c.cu[n + 1] - c.cu[n];
        EXPECT_EQ(other.head(slot, l, rows).keys,
                  lists.head(slot, l, rows).keys);
        std::vector<double> values = lists.head(slot, l, rows).values;
        for (size_t i = 0; i < values.size(); ++i)
          EXPECT_EQ(narrow[size_t((slot * L + l) * room * V) + i],
                    floatToBf16(float(values[i])));
      }

    // The truth.
    Result<Problem> problem = checkProblem(bundle->manifest(), shared);
    ASSERT_TRUE(problem) << problem.error().str();
    Result<Reference> reference = Reference::load(*bundle);
    ASSERT_TRUE(reference) << reference.error().str();
    ThreadPool pool;
    AttentionStates z4 = zBefore, result(5, L, room);
    shared.finalStates = views(result, z4);
    for (const ReferenceSequence &truth :
         reference->run(shared, *problem, pool)) {
      std::vector<double> o = sequenceRows(apart.outputs[0], truth.sequence);
      for (size_t i = 0; i < o.size(); ++i)
        EXPECT_NEAR(o[i], truth.outputs[0][i], 1e-5);
      EXPECT_EQ(truth.states[0].size(), size_t(L * truth.sequence.rows() * K));
      storeFinalStates(bundle->manifest(), shared, *problem, truth);
    }
    EXPECT_EQ(result.head(3, L - 1, 6).keys, lists.head(3, L - 1, 6).keys);
  }
};

} // namespace

TEST_F(SharedListsTest, BesideAFixedState) {
  start(attentionManifest());
  for (int64_t lists : {1, 2})
    for (bool alike : {false, true})
      compare({lists, alike, {0, 1, 7, 9, 11}});
}

TEST_F(SharedListsTest, AlonePerHeadOrTogether) {
  start(listsManifest());
  for (int64_t lists : {1, 2})
    for (bool alike : {false, true})
      for (const std::vector<int64_t> &cu :
           {std::vector<int64_t>{0, 1, 7, 9, 11}, {0, 1, 2, 3, 4}})
        compare({lists, alike, cu});
}

TEST_F(SharedListsTest, FewTokensRunTheirHeadsTogether) {
  start(listsManifest());
  auto calls = [&](int64_t tokens, int64_t lists, bool alike) {
    AttentionTensors x(1, tokens, H), few(1, tokens, lists);
    if (alike)
      x.scale.assign(H, 0.5f);
    RunArgs args = x.args();
    args.outputs.pop_back();
    for (size_t i : {1, 2})
      args.inputs[i] = few.args().inputs[i];
    log.reset();
    run(args, {.threads = 1});
    return log.calls();
  };
  EXPECT_EQ(calls(1, 1, true), "4x4");
  EXPECT_EQ(calls(2, 1, true), "4x4 4x4");
  EXPECT_EQ(calls(1, 2, true), "4x2 4x2");
  // More tokens than heads, heads that differ, heads by themselves.
  EXPECT_EQ(calls(6, 1, true), "4x6 4x6 4x6 4x6");
  EXPECT_EQ(calls(1, 1, false), "4x1 4x1 4x1 4x1");
  EXPECT_EQ(calls(1, 4, true), "1x1 1x1 1x1 1x1");
}

TEST_F(SharedListsTest, ListsHaveTheHeadsOfTheirInput) {
  start(listsManifest());
  AttentionTensors x(1, 3, H), few(1, 3, 2);
  AttentionStates wide(1, H, 3);
  RunArgs args = x.args();
  args.outputs.pop_back();
  args.inputs[1] = few.args().inputs[1];
  args.finalStates = {wide.views()[0], wide.views()[2]};
  EXPECT_EQ(error(args),
            "error: tensor 'keys' has shape [1,4,3,4], expected [1,2,3,4]");
  // Values have four heads, keys two.
  AttentionStates narrow(1, 2, 3);
  args.finalStates[0] = narrow.views()[0];
  run(args);
  EXPECT_EQ(wide.head(0, 3, 3).values[0], bf16ToFloat(x.v[3 * V]));
  EXPECT_EQ(narrow.head(0, 1, 3).keys[0], few.k[K]);

  // Rows that are computed are each head's own.
  Manifest manifest = listsManifest();
  manifest.states[1].rows = "";
  Result<Problem> problem = checkProblem(manifest, args);
  ASSERT_FALSE(problem);
  EXPECT_EQ(problem.error().str(),
            "error: tensor 'keys' has shape [1,2,3,4], expected [1,4,3,4]");
}

TEST_F(SharedListsTest, FilesHaveTheirHeads) {
  start(listsManifest());
  AttentionTensors x(1, 5, H), few(1, 5, 2);
  ToyFile file = attentionFile(x);
  file.set("k", DType::F32, {5, 2, K}, few.k);
  file.set("v", DType::BF16, {5, 2, V}, few.v);
  file.set("keys", DType::F32, {1, 2, 1, K}, std::vector<float>(2 * K));
  file.set("values", DType::F32, {1, 2, 1, V}, std::vector<float>(2 * V));
  file.write(dir / "in");
  Result<SafetensorsFile> opened = SafetensorsFile::open(dir / "in");
  ASSERT_TRUE(opened);
  Result<LayerRun> loaded = openLayerRun(bundle->manifest(), *opened, {});
  ASSERT_TRUE(loaded) << loaded.error().str();
  run(loaded->args);
  LayerResult result = layerResult(bundle->manifest(), *loaded);
  EXPECT_EQ(result.tensors[1].name, "keys");
  EXPECT_EQ(result.tensors[1].shape, (std::vector<int64_t>{1, 2, 6, K}));
  EXPECT_EQ(static_cast<const float *>(result.tensors[1].data)[7 * K],
            few.k[K]);
  file.set("keys", DType::F32, {1, 4, 1, K}, std::vector<float>(4 * K));
  file.write(dir / "in");
  opened = SafetensorsFile::open(dir / "in");
  loaded = openLayerRun(bundle->manifest(), *opened, {});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message,
            "tensor 'keys' has shape [1,4,1,4], expected [1,2,1,4]");
}

TEST_F(SharedListsTest, RandomProblems) {
  start(listsManifest());
  ThreadPool pool;
  Result<RandomProblem> random =
      randomProblem(bundle->manifest(), 2, 5, 6, 9, pool, 3, /*listHeads=*/2);
  ASSERT_TRUE(random) << random.error().str();
  EXPECT_EQ(random->args.inputs[0].shape[2], 6);
  EXPECT_EQ(random->args.inputs[1].shape[2], 2);
  EXPECT_EQ(random->args.finalStates[1].shape[1], 2);
  run(random->args);
  std::string check = PLUM_RUN " check " + dir.path + "/toy --shape ";
  EXPECT_EQ(std::system((check + "B=2,T=5,H=6,L=2 >/dev/null").c_str()), 0);
  EXPECT_EQ(std::system((check + "B=2,T=1,H=6,L=1,P=9 >/dev/null").c_str()), 0);
}
