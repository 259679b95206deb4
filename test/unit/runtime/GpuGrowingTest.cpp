//===- GpuGrowingTest.cpp - Growing states in plans and launches ----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of layer toy_lists: what is planned, and what the stand-in for the driver is
// given. What kernels make of it, test/integration/gpu_attend_test.cpp has.
//
//===----------------------------------------------------------------------===//

#include "ToyAttention.h"
#include "fake_cuda.h"

#include "runtime/cuda/HostRun.h"

#include <dlfcn.h>

#include <cstring>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::cuda;
using namespace plum::runtime::test;

namespace {

Manifest gpuManifest() {
  Manifest manifest = listsManifest();
  manifest.abi = PLUM_GPU_ABI;
  manifest.target = "sm_90a";
  manifest.object = "kernels.ptx";
  manifest.features = {};
  manifest.kernels = {};
  auto add = [&](KernelForm form, KernelRole role, KernelGrid grid,
                 int64_t slices) {
    ManifestKernel kernel;
    kernel.form = form;
    kernel.chunk = form == KernelForm::Step ? 1 : 16;
    kernel.role = role;
    kernel.grid = grid;
    kernel.slices = slices;
    kernel.threads = 32;
    kernel.symbol =
        "plum_lists_" + std::string(name(form)) + "_" + std::string(name(role));
    manifest.kernels.push_back(kernel);
  };
  using enum KernelRole;
  using enum KernelGrid;
  add(KernelForm::Step, Carry, Sequences, 8);
  add(KernelForm::Step, Append, Tokens, 1);
  add(KernelForm::Step, Attend, Tokens, 16);
  manifest.kernels.back().blobBytes = 320;
  add(KernelForm::Step, Merge, Tokens, 1);
  add(KernelForm::Chunk, Index, One, 1);
  add(KernelForm::Chunk, Carry, Sequences, 8);
  add(KernelForm::Chunk, Append, Chunks, 1);
  add(KernelForm::Chunk, Attend, Chunks, 1);
  return manifest;
}

/// B, T, H as torch would hand them over, of lists that are shared by `group`.
RunArgs shapes(int64_t batch, int64_t tokens, int64_t heads, int64_t group,
               int64_t sequences, int64_t room) {
  auto rows = [&](DType dtype, int64_t h, int64_t d) {
    return TensorView::dense(nullptr, dtype, batch, tokens, h, d);
  };
  const int64_t shared = heads / group;
  RunArgs args;
  args.inputs = {rows(DType::F32, heads, K), rows(DType::F32, shared, K),
                 rows(DType::BF16, shared, V)};
  args.params = {TensorView::dense(nullptr, DType::F32, 1, 1, heads, 1)};
  args.outputs = {rows(DType::F32, heads, V), rows(DType::F32, heads, 1)};
  args.outputs.resize(gpuManifest().outputs.size());
  args.finalStates = {
      TensorView::dense(nullptr, DType::F32, sequences, shared, room, K),
      TensorView::dense(nullptr, DType::BF16, sequences, shared, room, V)};
  return args;
}

const int64_t anywhere = 0;

std::string planned(const RunArgs &args, Form form = Form::Auto) {
  Manifest manifest = gpuManifest();
  GpuOptions options;
  options.form = form;
  Result<LaunchPlan> plan = planLaunch(manifest, args, options, 132);
  if (!plan)
    return plan.error().str();
  std::string text;
  for (const LaunchPlan::Launch &launch : plan->launches)
    text += (text.empty() ? "" : "; ") +
            std::string(name(manifest.kernels[launch.kernel].role)) +
            (launch.ifApart ? "? " : " ") + std::to_string(launch.grid);
  return text;
}

} // namespace

TEST(GpuGrowingPlan, GridsFollowTheContract) {
  // 12 heads share lists by 6: a block of attend has all 6 of a token.
  RunArgs args = shapes(3, 33, 12, 6, 3, 40);
  EXPECT_EQ(planned(args), "append 108; attend 108");
  EXPECT_EQ(planned(args, Form::Step), "append 1188; attend 3168; merge 1188");
  args.initialStates = args.finalStates;
  args.past = {&anywhere, DType::I64, 3};
  EXPECT_EQ(planned(args), "carry? 288; append 108; attend 108");
  RunArgs packed = shapes(1, 33, 12, 1, 4, 40);
  packed.cuSeqlens = {&anywhere, DType::I32, 5};
  EXPECT_EQ(planned(packed), "index 1; append 72; attend 72");
  EXPECT_EQ(planned(packed, Form::Step), "append 396; attend 6336; merge 396");
  // One token of each sequence is a step.
  EXPECT_EQ(planned(shapes(5, 1, 2, 1, 5, 9)),
            "append 10; attend 160; merge 10");
}

TEST(GpuGrowingPlan, ArgumentsOfLists) {
  RunArgs args = shapes(2, 5, 34, 34, 2, 9);
  args.initialStates = args.finalStates;
  args.initialStates[0].stride[2] += 4; // Rows 16 bytes longer.
  Result<LaunchPlan> plan =
      planLaunch(gpuManifest(), args, {.form = Form::Step}, 132);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().str(), "error: tensor 'keys' has room for 9 rows, "
                                "expected at least 14");
  args.past = {&anywhere, DType::I64, 2};
  plan = planLaunch(gpuManifest(), args, {.form = Form::Step}, 132);
  ASSERT_TRUE(plan) << plan.error().str();
  EXPECT_EQ(plan->args.head_block, 2u); // The most up to 16 that divides 34.
  EXPECT_EQ(plan->args.flags, PLUM_GPU_PAST64);
  EXPECT_EQ(plan->args.past_rows, 9u);
  EXPECT_TRUE(plan->past);
  EXPECT_EQ(plan->workspace.bytes, 2u * 5 * 34 * 320 / 256 * 256 + 0u);
  const plum_gpu_tensor
      before = {0, 144, 0, 144, 32, 0, PLUM_GPU_SHARE(34), PLUM_GPU_F32},
      after = {0, 54, 0, 54, 6, 0, PLUM_GPU_SHARE(34), PLUM_GPU_BF16};
  EXPECT_EQ(std::memcmp(&plan->args.tensors[4], &before, sizeof before), 0);
  EXPECT_EQ(std::memcmp(&plan->args.tensors[7], &after, sizeof after), 0);
}

TEST(GpuGrowingPlan, HeadsOfABlock) {
  Manifest manifest = gpuManifest();
  RunArgs args = shapes(2, 5, 96, 96, 2, 9);
  for (auto [most, expected] : {std::pair(16, 16u), std::pair(64, 48u)}) {
    manifest.kernels[2].headBlock = most;
    Result<LaunchPlan> plan =
        planLaunch(manifest, args, {.form = Form::Step}, 132);
    ASSERT_TRUE(plan) << plan.error().str();
    EXPECT_EQ(plan->args.head_block, expected);
    EXPECT_EQ(plan->launches[1].grid, 2u * 5 * 96 / expected * 16);
  }
}

TEST(GpuGrowingPlan, TablesOfLists) {
  RunArgs args = shapes(1, 9, 4, 2, 0, 0);
  args.finalStates = {};
  args.cuSeqlens = {&anywhere, DType::I32, 4};
  args.past = {&anywhere, DType::I32, 3};
  args.rowTables = {{nullptr, 48, DType::BF16, 96, 16},
                    {nullptr, 64, DType::F32, 96, 12}};
  GpuOptions options{.form = Form::Chunk};
  Result<LaunchPlan> plan = planLaunch(gpuManifest(), args, options, 132);
  ASSERT_TRUE(plan) << plan.error().str();
  // No carry: rows so far are where they shall be.
  EXPECT_EQ(planned(args), "index 1; append 12; attend 12");
  const plum_gpu_tensor keys = {
      0, 48, 0, 16, 96, 0, PLUM_GPU_SHARE(2), PLUM_GPU_BF16 | PLUM_GPU_TABLE};
  EXPECT_EQ(std::memcmp(&plan->args.tensors[6], &keys, sizeof keys), 0);
  EXPECT_EQ(plan->slots[6].alignment, 8u);
  EXPECT_FALSE(plan->slots[6].optional);
  args.appended = true;
  plan = planLaunch(gpuManifest(), args, options, 132);
  ASSERT_TRUE(plan) << plan.error().str();
  EXPECT_EQ(plan->launches.size(), 2u);
  EXPECT_FALSE(plan->slots[1].optional); // q
  EXPECT_TRUE(plan->slots[2].optional);  // k
  Manifest computed = gpuManifest();
  computed.states[1].rows = "";
  RunArgs own = shapes(1, 9, 4, 1, 3, 9);
  own.cuSeqlens = args.cuSeqlens;
  own.appended = true;
  plan = planLaunch(computed, own, options, 132);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().str(),
            "error: rows of 'values' are computed from the inputs, so they "
            "cannot be there before the run");
  RunArgs wrong = args;
  wrong.rowTables.pop_back();
  EXPECT_EQ(planned(wrong),
            "error: got tables of 1 growing states, expected 2");
  wrong = args;
  wrong.rowTables[1].dtype = DType::F16;
  EXPECT_EQ(planned(wrong), "error: the table of 'values' has rows of f16, "
                            "expected f32 or bf16");
  wrong = args;
  wrong.rowTables[0].rowStride = 7;
  EXPECT_EQ(planned(wrong), "error: the table of 'keys' has a stride or base "
                            "of 7 bytes, expected a multiple of 2");
}

TEST(GpuGrowingPlan, WhatCannotRunIsSaid) {
  RunArgs args = shapes(2, 5, 4, 1, 2, 9);
  RunArgs wrong = args;
  wrong.finalStates = {};
  EXPECT_EQ(planned(wrong),
            "error: state 'keys' grows and has no final view: on a GPU rows "
            "are appended to the caller's memory");
  wrong = args;
  wrong.finalStates[1].stride[3] = 2;
  EXPECT_EQ(planned(wrong),
            "error: tensor 'values' has stride 2 along its last axis, expected "
            "1: on a GPU the rows of a growing state must be contiguous");
  wrong = args;
  wrong.finalStates[0].stride[2] = 5;
  EXPECT_EQ(
      planned(wrong).substr(0, 77),
      "error: final state 'keys' has a stride of 20 bytes along its third "
      "axis, expe");
  wrong = args;
  wrong.past = {&anywhere, DType::I64, 3};
  EXPECT_EQ(planned(wrong), "error: tensor 'past' has length 3, expected 2, "
                            "one for each sequence");
  wrong = args;
  wrong.growingRows.resize(2);
  EXPECT_EQ(planned(wrong),
            "error: rows of each sequence on their own do not "
            "run on a GPU, expected views of 'keys' or tables of "
            "where they are");
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

namespace {

struct GpuGrowing : testing::Test {
  TempDir dir;
  void *library = nullptr;
  fake_state *fake = nullptr;

  void SetUp() override {
    setenv("PLUM_LIBCUDA", FAKE_CUDA, 1);
    setenv("PLUM_CACHE", (dir / "cache").c_str(), 1);
    library = dlopen(FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake = reinterpret_cast<fakeCudaFunction>(dlsym(library, "fakeCuda"))();
    reinterpret_cast<fakeResetFunction>(dlsym(library, "fakeReset"))();
    writeAttentionBundle(dir / "toy", gpuManifest());
    writeFile(dir / "toy/kernels.ptx", "// kernels of layer toy_lists\n");
  }
  void TearDown() override {
    reinterpret_cast<fakeResetFunction>(dlsym(library, "fakeReset"))();
    dlclose(library);
    unsetenv("PLUM_LIBCUDA");
    unsetenv("PLUM_CACHE");
  }
  /// Roles of the launches of a run.
  std::string run(const RunArgs &args) {
    Result<Bundle> bundle = Bundle::open(dir / "toy");
    EXPECT_TRUE(bundle) << bundle.error().str();
    Result<HostRunner> runner = HostRunner::open(*bundle, *Device::open());
    EXPECT_TRUE(runner) << runner.error().str();
    fake->launchCount = 0;
    if (Status status = runner->run(args, {}); !status)
      return status.error().str();
    std::string roles;
    for (int i = 0; i < fake->launchCount; ++i) {
      std::string symbol = fake->launches[i].symbol;
      roles += (i ? " " : "") + symbol.substr(symbol.rfind('_') + 1);
    }
    return roles;
  }
};

} // namespace

TEST_F(GpuGrowing, RowsAreCarriedOnlyWhereTheyMustBe) {
  AttentionTensors x(2, 7, 2);
  AttentionStates before(2, 2, 12), after(2, 2, 12);
  auto lists = [](AttentionStates &states) {
    std::vector<TensorView> views = states.views();
    return std::vector<TensorView>{views[0], views[2]};
  };
  std::vector<int64_t> past{3, 4};
  RunArgs args = x.args();
  args.outputs.resize(gpuManifest().outputs.size());
  // Nobody wants to see the rows: the runner has a place for them.
  EXPECT_EQ(run(args), "append attend");
  EXPECT_NE(fake->launches[0].args.tensors[6].data, 0u);
  EXPECT_EQ(fake->launches[0].args.past, 0u);
  args.finalStates = lists(after);
  EXPECT_EQ(run(args), "append attend");
  args.initialStates = lists(before);
  args.past = {past.data(), DType::I64, 2};
  EXPECT_EQ(run(args), "carry append attend");
  const plum_gpu_args &got = fake->launches[0].args;
  EXPECT_EQ(got.flags, PLUM_GPU_PAST64);
  EXPECT_NE(got.past, 0u);
  EXPECT_NE(got.tensors[4].data, got.tensors[6].data);
  args.initialStates = args.finalStates;
  EXPECT_EQ(run(args), "append attend");
  EXPECT_EQ(got.tensors[4].data, got.tensors[6].data);
}
