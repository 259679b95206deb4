//===- CApiTest.cpp -------------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/plumrt.h"

#include "ToyAttention.h"

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

extern "C" int toyInC(const char *directory, float *result, char *error,
                      size_t size);

extern "C" int attentionInC(const char *directory, float *result, char *error,
                            size_t size);

namespace {

std::vector<plumrt_tensor> convert(const std::vector<TensorView> &views) {
  std::vector<plumrt_tensor> tensors;
  for (const TensorView &view : views) {
    plumrt_tensor tensor = {view.data, int32_t(view.dtype), 0, {}, {}};
    std::copy_n(view.shape, 4, tensor.shape);
    std::copy_n(view.stride, 4, tensor.stride);
    tensors.push_back(tensor);
  }
  return tensors;
}

struct CApiTest : testing::Test {
  TempDir dir;
  plumrt_bundle *bundle = nullptr;
  char error[256] = "";

  void SetUp() override {
    writeToyBundle(dir / "toy");
    ASSERT_EQ(plumrt_open((dir / "toy").c_str(), &bundle, error, sizeof error),
              0)
        << error;
  }
  void TearDown() override { plumrt_close(bundle); }
};

} // namespace

TEST_F(CApiTest, IsC) {
  float result = 0;
  ASSERT_EQ(toyInC((dir / "toy").c_str(), &result, error, sizeof error), 0)
      << error;
  EXPECT_EQ(result, 4);
}

TEST_F(CApiTest, RunsAsTheExecutorDoes) {
  ToyTensors x(1, 40, 2), y(1, 40, 2);
  std::vector<int64_t> cu{0, 17, 17, 40};
  std::vector<float> S(9 * 2 * K * V), z(9 * 2 * K);
  RunArgs args = x.args(3);
  args.cuSeqlens = {cu.data(), DType::I64, 4};
  args.snapshotEvery = 4;
  args.snapshots = {TensorView::dense(S.data(), DType::F32, 9, 2, K, V),
                    TensorView::dense(z.data(), DType::F32, 9, 2, 1, K)};
  Result<Bundle> opened = Bundle::open(dir / "toy");
  ASSERT_TRUE(opened);
  Executor executor(*opened);
  Status status = executor.run(args, {.form = Form::Chunk, .chunk = 16});
  ASSERT_TRUE(status) << status.error().str();

  RunArgs other = y.args(3);
  std::vector<float> S2(S.size()), z2(z.size());
  other.snapshots = args.snapshots;
  other.snapshots[0].data = S2.data();
  other.snapshots[1].data = z2.data();
  auto inputs = convert(other.inputs), params = convert(other.params),
       outputs = convert(other.outputs), finals = convert(other.finalStates),
       snapshots = convert(other.snapshots);
  plumrt_run_args c = {};
  c.size = sizeof c;
  c.inputs = inputs.data();
  c.params = params.data();
  c.outputs = outputs.data();
  c.final_states = finals.data();
  c.cu_seqlens = cu.data();
  c.cu_count = 4;
  c.cu_dtype = PLUMRT_I64;
  c.form = PLUMRT_CHUNK;
  c.chunk = 16;
  c.threads = 3;
  c.states_every = 4;
  c.snapshots = snapshots.data();
  ASSERT_EQ(plumrt_run(bundle, &c, error, sizeof error), 0) << error;
  EXPECT_EQ(x.o, y.o);
  EXPECT_EQ(x.S, y.S);
  EXPECT_EQ(S, S2);
  EXPECT_EQ(z, z2);
}

TEST_F(CApiTest, StatesGrowInC) {
  writeAttentionBundle(dir / "attention");
  float result[6] = {};
  ASSERT_EQ(
      attentionInC((dir / "attention").c_str(), result, error, sizeof error), 0)
      << error;
  // Keys are 0, so the output is the mean of the values so far: 1 and 2,
  // then of 1, 2 and 6. These are in the caller's buffer, which has more room.
  EXPECT_EQ(result[0], 1.5f);
  EXPECT_EQ(result[1], 3);
  EXPECT_EQ(result[2], 1);
  EXPECT_EQ(result[3], 2);
  EXPECT_EQ(result[4], 6);
  EXPECT_EQ(result[5], 777);
}

TEST_F(CApiTest, WhereStatesGrowErrorsAreTextsToo) {
  writeAttentionBundle(dir / "attention");
  plumrt_bundle *attention = nullptr;
  ASSERT_EQ(
      plumrt_open((dir / "attention").c_str(), &attention, error, sizeof error),
      0)
      << error;
  AttentionTensors x(1, 4, 2);
  AttentionStates before(1, 2, 3), after(1, 2, 6);
  before.fill(0, 3);
  RunArgs args = x.args();
  auto inputs = convert(args.inputs), params = convert(args.params),
       outputs = convert(args.outputs), initial = convert(before.views()),
       finals = convert(after.views());
  plumrt_run_args c = {};
  c.size = sizeof c;
  c.inputs = inputs.data();
  c.params = params.data();
  c.outputs = outputs.data();
  c.initial_states = initial.data();
  c.final_states = finals.data();
  EXPECT_EQ(plumrt_run(attention, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "error: tensor 'keys' has room for 6 rows, expected at "
                      "least 7: sequence 0 holds 3 and adds 4");
  int32_t past = 2;
  c.past = &past;
  c.past_count = 1;
  c.past_dtype = PLUMRT_F32;
  EXPECT_EQ(plumrt_run(attention, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "plumrt: error: args.past has count 1 and dtype 0, "
                      "expected a count and PLUMRT_I32 or PLUMRT_I64");
  c.past_dtype = PLUMRT_I32;
  c.past_count = 2;
  EXPECT_EQ(plumrt_run(attention, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "error: tensor 'past' has length 2, expected 1, one for "
                      "each sequence");
  c.past_count = 1;
  EXPECT_EQ(plumrt_run(attention, &c, error, sizeof error), 0) << error;
  // An older caller, who knows of no past: all rows count.
  c.size = offsetof(plumrt_run_args, past);
  EXPECT_EQ(plumrt_run(attention, &c, error, sizeof error), 1);
  plumrt_close(attention);
  // The layer of others does not grow.
  ToyTensors toy(1, 4, 2);
  args = toy.args();
  inputs = convert(args.inputs);
  params = convert(args.params);
  outputs = convert(args.outputs);
  c = {};
  c.size = sizeof c;
  c.inputs = inputs.data();
  c.params = params.data();
  c.outputs = outputs.data();
  c.past = &past;
  c.past_count = 1;
  c.past_dtype = PLUMRT_I32;
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "error: rows of growing states are given, but layer "
                      "'toy' has no such state");
}

TEST_F(CApiTest, ErrorsAreTexts) {
  plumrt_bundle *none = bundle;
  EXPECT_EQ(plumrt_open("nowhere", &none, error, sizeof error), 1);
  EXPECT_EQ(none, nullptr);
  EXPECT_STREQ(error, "nowhere: error: is not a bundle: it has no "
                      "manifest.json");
  char little[8];
  EXPECT_EQ(plumrt_open("nowhere", &none, little, sizeof little), 1);
  EXPECT_STREQ(little, "nowhere");
  EXPECT_EQ(plumrt_open("nowhere", &none, nullptr, 0), 1);
  EXPECT_EQ(plumrt_open(nullptr, &none, error, sizeof error), 1);

  ToyTensors x(1, 4, 2);
  RunArgs args = x.args();
  auto inputs = convert(args.inputs), params = convert(args.params),
       outputs = convert(args.outputs);
  plumrt_run_args c = {};
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "plumrt: error: args.size is 0, expected at most 152");
  c.size = sizeof c;
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "plumrt: error: args.inputs is NULL, expected 4 tensors");
  c.inputs = inputs.data();
  c.params = params.data();
  c.outputs = outputs.data();
  c.size = offsetof(plumrt_run_args, initial_states); // An older caller.
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 0) << error;
  c.size = sizeof c;
  c.layout = 7;
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "plumrt: error: args.layout is 7, expected 0 to 1");
  c.layout = PLUMRT_KV;
  inputs[2].dtype = 9;
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "plumrt: error: args.inputs[2].dtype is 9, expected a "
                      "PLUMRT_ dtype");
  inputs[2].dtype = PLUMRT_F32;
  EXPECT_EQ(plumrt_run(bundle, &c, error, sizeof error), 1);
  EXPECT_STREQ(error, "error: tensor 'v' has dtype f32, expected bf16");
}

TEST_F(CApiTest, ManifestIsJson) {
  Result<Manifest> manifest = parseManifest(plumrt_manifest(bundle), "c");
  ASSERT_TRUE(manifest);
  EXPECT_EQ(*manifest, toyManifest());
}
