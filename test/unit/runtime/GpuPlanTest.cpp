//===- GpuPlanTest.cpp ----------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

#include "runtime/cuda/LaunchPlan.h"

#include <cstring>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::cuda;
using namespace plum::runtime::test;

namespace {

constexpr int processors = 132;

/// "plum_toy_scan 8; ..." of a plan.
std::string launches(const Manifest &manifest, const LaunchPlan &plan) {
  std::string text;
  for (const LaunchPlan::Launch &launch : plan.launches)
    text += (text.empty() ? "" : "; ") +
            manifest.kernels[launch.kernel].symbol.substr(9) + " " +
            std::to_string(launch.grid);
  return text;
}

struct GpuPlanTest : testing::Test {
  Manifest manifest = toyGpuManifest();

  std::string plan(const RunArgs &args, const GpuOptions &options = {},
                   int sms = processors) {
    Result<LaunchPlan> made = planLaunch(manifest, args, options, sms);
    return made ? launches(manifest, *made) : made.error().str();
  }
};

/// Views of B, T, H as torch would hand them over, without data.
RunArgs shapes(int64_t batch, int64_t tokens, int64_t heads,
               int64_t sequences) {
  auto rows = [&](DType dtype, int64_t d) {
    return TensorView::dense(nullptr, dtype, batch, tokens, heads, d);
  };
  RunArgs args;
  args.inputs = {rows(DType::F32, K), rows(DType::F32, K), rows(DType::BF16, V),
                 rows(DType::F32, 1)};
  args.params = {TensorView::dense(nullptr, DType::F32, 1, 1, heads, V)};
  args.outputs = {rows(DType::F32, V), rows(DType::F32, 1)};
  args.finalStates = {
      TensorView::dense(nullptr, DType::F32, sequences, heads, K, V),
      TensorView::dense(nullptr, DType::F32, sequences, heads, 1, K)};
  return args;
}
RunArgs shapes(int64_t batch, int64_t tokens, int64_t heads) {
  return shapes(batch, tokens, heads, batch);
}

const int64_t anywhere = 0;
IndexView indices(int64_t count, DType dtype = DType::I32) {
  return {&anywhere, dtype, count};
}

} // namespace

TEST_F(GpuPlanTest, GridsFollowTheContract) {
  // A batch: 3 * ceil(33 / 16) = 9 chunks of 5 heads.
  EXPECT_EQ(plan(shapes(3, 33, 5)), "prepare 45; scan 30");
  // Packed: at most floor(33 / 16) + 4 = 6 chunks.
  RunArgs packed = shapes(1, 33, 5, 4);
  packed.cuSeqlens = indices(5);
  EXPECT_EQ(plan(packed), "index 1; prepare 30; scan 40");
  // Split in three: summary 2 * 3 - 3 times, scan three times.
  EXPECT_EQ(plan(shapes(2, 48, 5), {.segments = 3}),
            "prepare 30; summary 30; combine 10; scan 60");
  EXPECT_EQ(plan(shapes(2, 48, 5), {.form = Form::Step}), "step 10");
  // Nothing to do, or only states to copy.
  EXPECT_EQ(plan(shapes(0, 48, 5)), "");
  EXPECT_EQ(plan(shapes(2, 0, 5), {.form = Form::Chunk}), "scan 20");
  packed = shapes(1, 0, 5, 0);
  packed.cuSeqlens = indices(1);
  EXPECT_EQ(plan(packed), "");
}

TEST_F(GpuPlanTest, FormAuto) {
  EXPECT_EQ(plan(shapes(64, 1, 2)), "step 128");
  EXPECT_EQ(plan(shapes(1, 2, 2)), "prepare 2; scan 4");
  RunArgs packed = shapes(1, 7, 2, 7);
  packed.cuSeqlens = indices(8);
  EXPECT_EQ(plan(packed), "step 14");
  packed = shapes(1, 8, 2, 7);
  packed.cuSeqlens = indices(8);
  EXPECT_EQ(plan(packed), "index 1; prepare 14; scan 28");
  manifest.kernels.erase(manifest.kernels.begin());
  EXPECT_EQ(plan(shapes(1, 1, 2)), "prepare 2; scan 4");
  EXPECT_EQ(plan(shapes(1, 1, 2), {.form = Form::Step}),
            "error: has no step kernel\nnote: it has form chunk, chunk 16");
  EXPECT_EQ(plan(shapes(1, 1, 2), {.chunk = 32}),
            "error: has no kernel for chunks of 32 tokens\nnote: it has form "
            "chunk, chunk 16");
  manifest = toyGpuManifest();
  manifest.kernels.resize(1);
  EXPECT_EQ(plan(shapes(1, 100, 2)), "step 2");
}

TEST_F(GpuPlanTest, MoreThan65535SequenceHeads) {
  EXPECT_EQ(plan(shapes(2050, 2, 32), {.form = Form::Chunk}),
            "prepare 65600; scan 131200");
  EXPECT_EQ(plan(shapes(1024, 1, 64)), "step 65536");
  EXPECT_EQ(plan(shapes(1 << 20, 1, 1 << 12)),
            "error: kernel 'plum_toy_step' would need more than 2147483647 "
            "blocks\nnote: run fewer sequences or heads at a time");
}

TEST_F(GpuPlanTest, WorkspaceSections) {
  std::vector<KernelSet> sets = kernelSets(manifest);
  ASSERT_EQ(sets.size(), 2u);
  auto sections = [&](const GpuSizes &sizes, int64_t segments) {
    Result<WorkspaceSections> made =
        workspaceFor(manifest, sets[1], sizes, segments);
    EXPECT_TRUE(made);
    return std::vector<uint64_t>{made->chunkOffsets, made->blobs,
                                 made->segments, made->bytes};
  };
  using List = std::vector<uint64_t>;
  // 9 chunks * 5 heads * 320 B = 14400, rounded to 14592.
  EXPECT_EQ(sections({3, 33, 5, false}, 1), (List{0, 0, 14592, 14592}));
  // 3 * 5 * 2 * 192 B = 5760, rounded to 5888.
  EXPECT_EQ(sections({3, 33, 5, false}, 2), (List{0, 0, 14592, 20480}));
  // 2 * 65 offsets of 4 B = 520, rounded to 768; (33 / 16 + 64) * 320 = 21120.
  EXPECT_EQ(sections({64, 33, 1, true}, 1), (List{0, 768, 22016, 22016}));
  EXPECT_EQ(sections({0, 0, 1, false}, 1), (List{0, 0, 0, 0}));
  // 66,560 B a chunk of 64: 262,144 rows of 96 heads pass 2^32.
  manifest.kernels[2].blobBytes = 66560;
  EXPECT_EQ(sections({1, 262144, 96, false}, 1).back(),
            uint64_t(262144 / 16) * 96 * 66560);
  EXPECT_FALSE(workspaceFor(manifest, sets[1],
                            {1, int64_t(1) << 40, 1 << 20, false}, 1));
}

TEST_F(GpuPlanTest, SegmentsPayWhereHeadsAreFew) {
  auto segments = [&](int64_t n, int64_t t, int64_t h) {
    return segmentsFor({n, t, h, false}, 64, 2, processors);
  };
  EXPECT_EQ(segments(1, 8192, 8), 5);
  EXPECT_EQ(segments(1, 8192, 12), 4);
  EXPECT_EQ(segments(1, 8192, 22), 3);
  EXPECT_EQ(segments(1, 8192, 23), 1); // Two do not pay.
  EXPECT_EQ(segments(1, 8192, 64), 1);
  EXPECT_EQ(segments(2, 8192, 4), 5);
  EXPECT_EQ(segments(1, 1024, 8), 4); // 4 chunks each.
  EXPECT_EQ(segments(1, 64, 1), 1);
  EXPECT_EQ(segments(0, 64, 1), 1);
  EXPECT_EQ(segments(1, 1 << 20, 1), 34);
  EXPECT_EQ(segmentsFor({8, 8192, 1, true}, 64, 2, processors), 4);
  // The plan takes it, unless the caller or the bundle says otherwise.
  RunArgs args = shapes(1, 8192, 12);
  EXPECT_EQ(plan(args), "prepare 6144; summary 60; combine 12; scan 96");
  EXPECT_EQ(plan(args, {.segments = 1}), "prepare 6144; scan 24");
  EXPECT_EQ(plan(args, {.segments = 513}),
            "error: got 513 segments for 512 chunks, expected at most one for "
            "each");
  EXPECT_EQ(plan(args, {.segments = -1}),
            "error: got -1 segments, expected at least 1");
  manifest.kernels.erase(manifest.kernels.begin() + 3);
  EXPECT_EQ(plan(args), "prepare 6144; scan 24");
  EXPECT_EQ(plan(args, {.segments = 2}),
            "error: has no summary kernel for form chunk, chunk 16: a sequence "
            "cannot be split into 2 segments");
}

TEST_F(GpuPlanTest, ArgumentsOfABatch) {
  // q and k are slices of one buffer with 20 floats for each token and head.
  RunArgs args = shapes(2, 40, 6);
  for (size_t i : {0, 1}) {
    args.inputs[i].shape[2] = 3; // Shared by two heads.
    args.inputs[i].stride[2] = 20;
    args.inputs[i].stride[1] = 60;
    args.inputs[i].stride[0] = 2400;
  }
  args.snapshotEvery = 32;
  args.snapshots = {TensorView::dense(nullptr, DType::BF16, 2, 6, K, V),
                    TensorView::dense(nullptr, DType::F32, 2, 6, 1, K)};
  Result<LaunchPlan> made =
      planLaunch(manifest, args, {.segments = 3}, processors);
  ASSERT_TRUE(made) << made.error().str();

  plum_gpu_args expected = {};
  expected.sequences = 2;
  expected.tokens = 40;
  expected.heads = 6;
  expected.chunks = 3;
  expected.segments = 3;
  expected.snapshot_every = 2;
  // data, sequence, token, head, row, column, share, dtype.
  constexpr uint32_t one = PLUM_GPU_SHARE(1), two = PLUM_GPU_SHARE(2);
  const plum_gpu_tensor tensors[] = {
      {0, 0, 0, 12, 0, 0, one, 0},                 // bias
      {0, 9600, 240, 80, 0, 0, two, 0},            // q
      {0, 9600, 240, 80, 0, 0, two, 0},            // k
      {0, 1440, 36, 6, 0, 0, one, 0},              // v
      {0, 960, 24, 4, 0, 0, one, 0},               // g
      {0, 0, 0, 0, 0, 0, one, 0},                  // initial S
      {0, 0, 0, 0, 0, 0, one, 0},                  // initial z
      {0, 288, 0, 48, 12, 4, one, 0},              // final S
      {0, 96, 0, 16, 4, 4, one, 0},                // final z: one index
      {0, 2880, 72, 12, 0, 0, one, 0},             // o
      {0, 960, 24, 4, 0, 0, one, 0},               // n
      {0, 144, 144, 24, 6, 2, one, PLUM_GPU_BF16}, // S.every: one a sequence
      {0, 96, 96, 16, 4, 4, one, 0}};              // z.every
  std::copy(std::begin(tensors), std::end(tensors), expected.tensors);
  for (size_t i = 0; i < std::size(tensors); ++i)
    EXPECT_EQ(std::memcmp(&made->args.tensors[i], &expected.tensors[i],
                          sizeof(plum_gpu_tensor)),
              0)
        << i;
  EXPECT_EQ(std::memcmp(&made->args, &expected, sizeof expected), 0);
}

TEST_F(GpuPlanTest, ArgumentsOfAPackedPool) {
  RunArgs args = shapes(1, 50, 2, 3);
  args.cuSeqlens = indices(4, DType::I64);
  args.slots = indices(3, DType::I64);
  args.layout = StateLayout::VK;
  // 9 slots, each with 64 floats more than it needs.
  TensorView S = TensorView::dense(nullptr, DType::F32, 9, 2, V, K);
  S.stride[0] += 64;
  args.finalStates = {S, TensorView::dense(nullptr, DType::BF16, 9, 2, 1, K)};
  args.initialStates = args.finalStates;
  Result<LaunchPlan> made = planLaunch(manifest, args, {}, 1);
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_EQ(made->args.flags, PLUM_GPU_CU64 | PLUM_GPU_SLOTS64);
  EXPECT_EQ(made->args.sequences, 3u);
  EXPECT_EQ(made->args.tokens, 50u);
  EXPECT_EQ(made->args.chunks, 6u); // 50 / 16 + 3
  EXPECT_EQ(made->args.segments, 1u);
  plum_gpu_tensor expected = {0,           352, 0, 48, 4, 16, PLUM_GPU_SHARE(1),
                              PLUM_GPU_F32};
  EXPECT_EQ(std::memcmp(&made->args.tensors[5], &expected, sizeof expected), 0);
  EXPECT_EQ(std::memcmp(&made->args.tensors[7], &expected, sizeof expected), 0);
  expected = {0, 16, 0, 8, 2, 2, PLUM_GPU_SHARE(1), PLUM_GPU_BF16};
  EXPECT_EQ(std::memcmp(&made->args.tensors[6], &expected, sizeof expected), 0);
  EXPECT_TRUE(made->pool);

  args.cuSeqlens.dtype = args.slots.dtype = DType::I32;
  made = planLaunch(manifest, args, {}, 1);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->args.flags, 0u);
}

TEST_F(GpuPlanTest, SnapshotsOfPackedSequences) {
  RunArgs args = shapes(1, 50, 2, 4);
  args.cuSeqlens = indices(5);
  auto made = [&](int64_t every, int64_t room, Form form) {
    args.snapshotEvery = every;
    args.snapshots = {TensorView::dense(nullptr, DType::F32, room, 2, K, V),
                      TensorView::dense(nullptr, DType::F32, room, 2, 1, K)};
    Result<LaunchPlan> plan = planLaunch(manifest, args, {.form = form}, 1);
    EXPECT_TRUE(plan) << plan.error().str();
    EXPECT_EQ(plan->args.tensors[11].token, 2 * K * V * 4);
    EXPECT_TRUE(plan->slots[11].given);
    return plan->args.snapshot_every;
  };
  EXPECT_EQ(made(16, 3, Form::Chunk), 1u);
  EXPECT_EQ(made(32, 9, Form::Chunk), 2u); // More room than is needed.
  EXPECT_EQ(made(5, 10, Form::Step), 5u);
  EXPECT_EQ(made(int64_t(1) << 36, 1, Form::Chunk), 0u); // There are none.
  made(16, 3, Form::Chunk);
  args.snapshots[1].shape[0] = 2;
  EXPECT_EQ(plan(args).substr(0, 48),
            "error: there is room for 2 snapshots of state 'z");
  args.snapshots.clear(); // Not wanted.
  EXPECT_EQ(plan(args), "index 1; prepare 14; scan 16");
}

TEST_F(GpuPlanTest, SharedHeadsAreFoundWithoutADivision) {
  auto own = [](uint64_t h, uint64_t g) {
    return 2 * h * PLUM_GPU_SHARE(g) >> 32;
  };
  for (uint64_t g : {1, 2, 3, 5, 6, 7, 12, 48, 96, 1000, 4097, 46340, 65536}) {
    uint64_t last = (uint64_t(1) << 31) / g - 1;
    for (uint64_t h = 0; h <= last; h += h < 5000 ? 1 : last / 977 + 1)
      ASSERT_EQ(own(h, g), h / g) << h << " of groups of " << g;
    ASSERT_EQ(own(last, g), last / g) << g;
    if (last >= g) // The last head before a multiple is the hardest.
      ASSERT_EQ(own(last / g * g - 1, g), last / g - 1) << g;
  }
  RunArgs args = shapes(1, 1, 1 << 17);
  args.inputs[0].shape[2] = 4;
  EXPECT_EQ(plan(args),
            "error: input 'q' has 4 heads for 131072, expected more where "
            "there are so many\nnote: a kernel finds a shared head of at most "
            "2^31 / 32768 heads");
}

TEST_F(GpuPlanTest, RowsMustBeAligned) {
  // A scalar's column and a row of 6 bytes may lie anywhere.
  RunArgs args = shapes(1, 40, 2);
  args.inputs[3].stride[1] = 3;
  args.inputs[2].stride[1] = 7;
  EXPECT_EQ(plan(args), "prepare 6; scan 4");
  // A row of 16 bytes must not.
  args.inputs[0].stride[1] = 9;
  EXPECT_EQ(plan(args),
            "error: input 'q' has a stride of 36 bytes along its token axis, "
            "expected a multiple of 16\nnote: kernels read 16 bytes at a time: "
            "pad the buffer so that every row of 'q' starts on a 16-byte "
            "boundary, or make the tensor contiguous");
  // An axis of one element is never stepped along.
  args = shapes(1, 1, 1);
  args.inputs[0].stride[0] = args.inputs[0].stride[1] = 1;
  args.inputs[0].stride[2] = 3;
  EXPECT_EQ(plan(args), "step 1");
}

TEST_F(GpuPlanTest, WhatCannotRunIsSaid) {
  RunArgs args = shapes(1, 40, 2);
  args.snapshotEvery = 24;
  args.snapshots = {TensorView::dense(nullptr, DType::F32, 1, 2, K, V),
                    TensorView::dense(nullptr, DType::F32, 1, 2, 1, K)};
  EXPECT_EQ(plan(args), "error: states every 24 tokens, expected a multiple of "
                        "the chunk, 16\nnote: step kernels keep states after "
                        "any number of tokens");
  args.cuSeqlens = indices(2);
  args.snapshotEvery = 16;
  EXPECT_EQ(plan(args),
            "error: there is room for 1 snapshots of state 'S', expected at "
            "least 2\nnote: packed sequences of 40 tokens have at most T / 16; "
            "how many, only the GPU knows");
  args.snapshotEvery = 0;
  manifest.kernels.erase(manifest.kernels.begin() + 1);
  EXPECT_EQ(plan(args),
            "error: has no index kernel, so it runs no packed sequences");
  args = shapes(1, 40, 2);
  args.inputs[0].dtype = DType::BF16;
  EXPECT_EQ(plan(args), "error: tensor 'q' has dtype bf16, expected f32");
  args = shapes(1, 40, 2);
  args.slots = indices(2);
  EXPECT_EQ(plan(args), "error: tensor 'slots' has length 2, expected 1, one "
                        "for each sequence");
  args = shapes(1, 40, 2, 2);
  EXPECT_EQ(plan(args), "error: tensor 'S' has shape [2,2,4,3], expected "
                        "[1,2,4,3]");
  while (manifest.params.size() < 21)
    manifest.params.push_back(manifest.params[0]);
  args = shapes(1, 40, 2);
  args.params.resize(21, args.params[0]);
  EXPECT_EQ(plan(args),
            "error: the layer has 33 tensors, kernels take at most 32");
}
