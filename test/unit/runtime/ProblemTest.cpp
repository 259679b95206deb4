//===- ProblemTest.cpp - What callers get wrong ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

/// B = 1, T = 6, H = 4 and three packed sequences.
struct ProblemTest : testing::Test {
  ToyTensors tensors{1, 6, 4};
  RunArgs args = tensors.args(3);
  std::vector<int32_t> cu{0, 2, 2, 6};
  std::vector<int64_t> slots{0, 2, -1};

  void SetUp() override { setCu(); }
  void setCu() { args.cuSeqlens = {cu.data(), DType::I32, int64_t(cu.size())}; }
  void setSlots() {
    args.slots = {slots.data(), DType::I64, int64_t(slots.size())};
  }
  std::string error() {
    Result<Problem> problem = checkProblem(toyManifest(), args);
    return problem ? "" : problem.error().str();
  }
};

} // namespace

TEST_F(ProblemTest, GoodOnesPass) {
  EXPECT_EQ(error(), "");
  setSlots();
  EXPECT_EQ(error(), "");
  args.initialStates = args.finalStates;
  EXPECT_EQ(error(), "");
  args.finalStates.clear();
  EXPECT_EQ(error(), "");
}

TEST_F(ProblemTest, SequencesAndSnapshots) {
  args.snapshotEvery = 2;
  auto problem = planProblem(toyManifest(), args);
  ASSERT_TRUE(problem);
  ASSERT_EQ(problem->sequences.size(), 3u);
  EXPECT_EQ(problem->sequences[2].begin, 2);
  EXPECT_EQ(problem->sequences[2].length, 4);
  EXPECT_EQ(problem->sequences[2].snapshot, 1);
  EXPECT_EQ(problem->snapshotCount, 3);
  EXPECT_EQ(problem->activeTokens(), 6);
}

TEST_F(ProblemTest, SizesThatDiffer) {
  args.inputs[1].shape[1] = 5;
  EXPECT_EQ(error(), "error: tensor 'k' has T = 5, expected 6\nnote: T = 6 "
                     "comes from 'q'");
  args = tensors.args(3);
  args.inputs[3].shape[0] = 2;
  EXPECT_EQ(error(), "error: tensor 'g' has B = 2, expected 1\nnote: B = 1 "
                     "comes from 'q'");
}

TEST_F(ProblemTest, HeadsThatDoNotDivide) {
  args.inputs[0].shape[2] = 3;
  EXPECT_EQ(error(), "error: tensor 'q' has H = 3, expected a divisor of "
                     "4\nnote: H = 4 comes from 'k'");
  args.inputs[0].shape[2] = 0;
  EXPECT_EQ(error(), "error: tensor 'q' has H = 0, expected a divisor of "
                     "4\nnote: H = 4 comes from 'k'");
  args = tensors.args(3);
  setCu();
  args.params[0].shape[2] = 2;
  EXPECT_EQ(error(), "error: tensor 'bias' has shape [1,1,2,3], expected "
                     "[1,1,4,3]");
}

TEST_F(ProblemTest, WrongTensors) {
  args.inputs[2].dtype = DType::F16;
  EXPECT_EQ(error(), "error: tensor 'v' has dtype f16, expected bf16");
  args = tensors.args(3);
  setCu();
  args.inputs[0].shape[3] = 5;
  EXPECT_EQ(error(),
            "error: tensor 'q' has shape [1,6,4,5], expected [1,6,4,4]");
  args = tensors.args(3);
  setCu();
  args.inputs[0].data = nullptr;
  EXPECT_EQ(error(), "error: tensor 'q' has no data");
  args = tensors.args(3);
  setCu();
  args.inputs[0].data = static_cast<char *>(args.inputs[0].data) + 2;
  EXPECT_EQ(error(), "error: tensor 'q' is not aligned to its element size");
  args = tensors.args(3);
  setCu();
  args.outputs[0].stride[3] = 2;
  EXPECT_EQ(error(),
            "error: tensor 'o' has stride 2, expected 1 along its last axis: "
            "the values of one token and head must be contiguous");
  args = tensors.args(3);
  setCu();
  args.outputs.pop_back();
  EXPECT_EQ(error(), "error: got 1 outputs, expected 2");
  args = tensors.args(3);
  args.inputs.pop_back();
  EXPECT_EQ(error(), "error: got 3 inputs, expected 4");
}

TEST_F(ProblemTest, WrongStates) {
  args.finalStates[0].dtype = DType::F16;
  EXPECT_EQ(error(), "error: tensor 'S' has dtype f16, expected f32 or bf16");
  args = tensors.args(2);
  setCu();
  EXPECT_EQ(error(),
            "error: tensor 'S' has shape [2,4,4,3], expected [3,4,4,3]");
  args = tensors.args(3);
  setCu();
  args.layout = StateLayout::VK;
  EXPECT_EQ(error(),
            "error: tensor 'S' has shape [3,4,4,3], expected [3,4,3,4]");
  args.layout = StateLayout::KV;
  args.initialStates = {args.finalStates[0]};
  EXPECT_EQ(error(), "error: got 1 initial states, expected 2");
}

TEST_F(ProblemTest, WrongOffsets) {
  cu = {1, 2, 2, 6};
  EXPECT_EQ(error(), "error: 'cu_seqlens[0]' is 1, expected 0");
  cu = {0, 3, 2, 6};
  EXPECT_EQ(error(), "error: 'cu_seqlens[2]' is 2, expected at least 3, the "
                     "value before it");
  cu = {0, 2, 2, 7};
  EXPECT_EQ(error(), "error: 'cu_seqlens[3]' is 7, expected at most T = 6");
  cu = {0, -1, 2, 6};
  EXPECT_EQ(error(), "error: 'cu_seqlens[1]' is -1, expected at least 0, the "
                     "value before it");
  args.cuSeqlens.count = 0;
  EXPECT_EQ(error(), "error: 'cu_seqlens' is empty, expected N + 1 values");
  args.cuSeqlens.dtype = DType::F32;
  EXPECT_EQ(error(),
            "error: tensor 'cu_seqlens' has dtype f32, expected i32 or i64");
  ToyTensors two(2, 6, 4);
  args = two.args(3);
  setCu();
  EXPECT_EQ(error(), "error: 'cu_seqlens' packs sequences along T, but the "
                     "inputs have B = 2, expected 1");
}

TEST_F(ProblemTest, WrongSlots) {
  slots = {0, 3, -1};
  setSlots();
  EXPECT_EQ(error(), "error: 'slots[1]' is 3, expected -1 or a slot below 3");
  slots = {0, -2, -1};
  EXPECT_EQ(error(), "error: 'slots[1]' is -2, expected -1 or a slot below 3");
  slots = {2, 0, 2};
  EXPECT_EQ(error(), "error: 'slots[2]' is 2 as 'slots[0]' already is; "
                     "sequences cannot share a state");
  slots = {0, 1};
  setSlots();
  EXPECT_EQ(error(), "error: tensor 'slots' has length 2, expected 3, one for "
                     "each sequence");
  slots = {0, 1, 2};
  setSlots();
  args.initialStates = args.finalStates;
  for (TensorView &view : args.finalStates)
    view.shape[0] = 2;
  EXPECT_EQ(error(), "error: tensor 'S' has pool size 2, expected more than "
                     "slot 2");
  args.initialStates.clear();
  args.finalStates.clear();
  EXPECT_EQ(error(),
            "error: 'slots' index a pool of states, but there are none");
}

TEST_F(ProblemTest, WrongSnapshots) {
  args.snapshotEvery = -3;
  EXPECT_EQ(error(), "error: snapshots every -3 tokens, expected at least 1");
  args.snapshotEvery = 2;
  args.snapshots = args.finalStates;
  EXPECT_EQ(error(), "");
  args.snapshotEvery = 1;
  EXPECT_EQ(error(),
            "error: tensor 'S' has shape [3,4,4,3], expected [6,4,4,3]");
}
