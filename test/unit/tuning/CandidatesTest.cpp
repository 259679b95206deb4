//===- CandidatesTest.cpp - What is not worth a try -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Tuning/Candidates.h"
#include "Samples.h"

#include <gtest/gtest.h>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

namespace {

/// Why a schedule was pruned: the word before the colon; "" when it was not.
std::string reasonOf(const Plan &plan, const std::string &schedule) {
  for (const Pruned &pruned : plan.pruned)
    if (pruned.schedule.text() == schedule)
      return pruned.reason.substr(0, pruned.reason.find(':'));
  for (const TuningResult &candidate : plan.candidates)
    if (candidate.schedule.text() == schedule)
      return "";
  return "no such candidate";
}

Plan planFor(const LayerFacts &facts, const TuningShape &shape) {
  CompileOptions options;
  options.target = facts.manifest.target;
  DeviceModel device = options.target == "cpu" ? cpuDevice("x86-64-v4", 2)
                                               : gpuDevice(options.target);
  return planShape(facts, schedulesOf(facts, options), shape, device);
}

TEST(TuningCandidates, EveryCandidateIsKeptOrHasAReason) {
  for (const char *target : {"cpu", "sm_80", "sm_90a"})
    for (int64_t tokens : {1, 60, 4096}) {
      LayerFacts facts = sampleFacts(128, 128, target);
      CompileOptions options;
      options.target = target;
      Plan plan = planFor(facts, {1, tokens, 8});
      EXPECT_EQ(plan.candidates.size() + plan.pruned.size(),
                schedulesOf(facts, options).size());
      EXPECT_FALSE(plan.candidates.empty());
      for (size_t i = 1; i < plan.candidates.size(); ++i)
        EXPECT_LE(plan.candidates[i - 1].estimateMs,
                  plan.candidates[i].estimateMs);
    }
}

TEST(TuningCandidates, Padding) {
  Plan plan = planFor(sampleFacts(64, 64, "cpu"), {1, 30, 2});
  EXPECT_EQ(reasonOf(plan, "chunk 64"), "padding");
  EXPECT_EQ(reasonOf(plan, "chunk 256"), "padding");
  EXPECT_NE(reasonOf(plan, "chunk 32"), "padding");
}

TEST(TuningCandidates, DecayRange) {
  LayerFacts facts = sampleFacts(64, 64, "sm_90a");
  facts.lowestLogDecay = -5;
  Plan bounded = planFor(facts, {1, 4096, 64});
  EXPECT_NE(reasonOf(bounded, "chunk 64 slice 64"), "decay range");
  facts.lowestLogDecay = -1000; // 64000 / 2^24 = 4e-3, 16000 / 2^24 = 1e-3
  Plan wide = planFor(facts, {1, 4096, 64});
  EXPECT_EQ(reasonOf(wide, "chunk 64 slice 64"), "decay range");
  EXPECT_NE(reasonOf(wide, "chunk 16 slice 64"), "decay range");
  facts.lowestLogDecay.reset(); // Nothing is proven: the error is measured.
  Plan unbounded = planFor(facts, {1, 4096, 64});
  EXPECT_NE(reasonOf(unbounded, "chunk 64 slice 64"), "decay range");
  // CPU kernels form products.
  facts = sampleFacts(64, 64, "cpu");
  facts.lowestLogDecay = -1000;
  EXPECT_NE(reasonOf(planFor(facts, {1, 4096, 64}), "chunk 64"), "decay range");
}

TEST(TuningCandidates, Rows) {
  LayerFacts facts = sampleFacts(128, 128, "sm_90a");
  EXPECT_EQ(reasonOf(planFor(facts, {1, 8192, 64}), "chunk 128 slice 64"),
            "rows");
  facts.steps = 2;
  EXPECT_EQ(reasonOf(planFor(facts, {1, 8192, 64}), "chunk 64 slice 64"),
            "rows");
  EXPECT_NE(reasonOf(planFor(facts, {1, 8192, 64}), "chunk 32 slice 64"),
            "rows");
  Plan plan = planFor(sampleFacts(192, 128, "sm_90a"), {1, 8192, 64});
  EXPECT_EQ(reasonOf(plan, "chunk 64 slice 64"), "rows");
  EXPECT_NE(reasonOf(plan, "chunk 32 slice 64"), "rows");
}

TEST(TuningCandidates, SharedMemory) {
  Plan plan = planFor(sampleFacts(128, 128, "sm_90a"), {1, 8192, 64});
  EXPECT_EQ(reasonOf(plan, "chunk 64 slice 64"), "");
  // The smaller CTA of sm_80 holds two stages of 64 tokens, not three.
  plan = planFor(sampleFacts(128, 128, "sm_80"), {1, 8192, 64});
  EXPECT_EQ(reasonOf(plan, "chunk 64 slice 64 stages 3"), "shared memory");
}

TEST(TuningCandidates, Work) {
  // One token at a time, for 8192 tokens in a row.
  Plan plan = planFor(sampleFacts(128, 128, "sm_90a"), {1, 8192, 1});
  EXPECT_EQ(reasonOf(plan, "step"), "waves and work");
  // One token: the step is what there is.
  plan = planFor(sampleFacts(128, 128, "cpu"), {1, 1, 8});
  EXPECT_EQ(plan.candidates[0].schedule.text(), "step");
}

TEST(TuningCandidates, ListsOfManyRowsAreForChunks) {
  LayerFacts facts = sampleFacts(128, 128, "cpu");
  ManifestTensor list = {"keys", {64}, DType::F32, DType::F32};
  list.grows = true;
  facts.manifest.states = {list, list};
  facts.erases = facts.writes = 0;
  EXPECT_EQ(planFor(facts, {1, 1, 8}).candidates[0].schedule.text(), "step");
  EXPECT_EQ(planFor(facts, {1, 4096, 8}).candidates[0].schedule.form, "chunk");
  // Twice the tokens, four times the work.
  auto ms = [&](int64_t tokens) {
    TuningSchedule chunk;
    chunk.form = "chunk";
    chunk.chunk = 64;
    return estimateMs(facts, chunk, {1, tokens, 8}, cpuDevice("x86-64-v4", 2));
  };
  EXPECT_GT(ms(8192), 3.5 * ms(4096));
}

TEST(TuningCandidates, WavesCountCtasPerProcessor) {
  DeviceModel device = gpuDevice("sm_90a");
  KernelNeeds needs;
  needs.slices = 2;
  needs.splits = false;
  needs.scanShared = 200000; // One CTA at a time.
  TuningSchedule schedule{"chunk", 64, 64, 0, 0};
  EXPECT_EQ(wavesOf(schedule, {1, 8192, 66}, device, needs), 1);
  EXPECT_EQ(wavesOf(schedule, {1, 8192, 67}, device, needs), 2);
  needs.splits = true;
  schedule.segments = 3;
  EXPECT_EQ(wavesOf(schedule, {1, 8192, 22}, device, needs), 1);
  EXPECT_EQ(wavesOf(schedule, {1, 8192, 23}, device, needs), 2);
  schedule.segments = 1;
  needs.scanShared = 50000; // Several hide each other's latency.
  EXPECT_LT(wavesOf(schedule, {1, 8192, 67}, device, needs), 2);
}

TEST(TuningCandidates, FormsThatWereAskedFor) {
  LayerFacts facts = sampleFacts(64, 64, "cpu");
  CompileOptions options;
  options.form = Form::Step;
  EXPECT_EQ(schedulesOf(facts, options).size(), 1u);
  options.form = Form::Chunk;
  for (const TuningSchedule &schedule : schedulesOf(facts, options))
    EXPECT_EQ(schedule.form, "chunk");
  options.form = Form::Auto;
  facts.chunked = false;
  EXPECT_EQ(schedulesOf(facts, options).size(), 1u);
}

TEST(TuningCandidates, SlicesDivideV) {
  CompileOptions options;
  options.target = "sm_90a";
  for (const TuningSchedule &schedule :
       schedulesOf(sampleFacts(64, 192, "sm_90a"), options))
    EXPECT_NE(schedule.slice, 128) << schedule.text();
  for (const TuningSchedule &schedule :
       schedulesOf(sampleFacts(64, 96, "sm_90a"), options))
    EXPECT_EQ(schedule.slice, 0) << schedule.text();
}

TEST(TuningCandidates, ModelLeavesDetailsToTheCompiler) {
  LayerFacts facts = sampleFacts(128, 128, "sm_90a");
  CompileOptions options;
  options.target = "sm_90a";
  TuningSchedule choice =
      *modelChoice(facts, options, {1, 8192, 32}, gpuDevice("sm_90a"), nullptr);
  EXPECT_EQ(choice.form, "chunk");
  EXPECT_EQ(choice.slice, 0);
  EXPECT_EQ(choice.stages, 0);
  EXPECT_LE(choice.chunk, 64);
}

TEST(TuningCandidates, DescriptionCountsAndExplains) {
  Plan plan = planFor(sampleFacts(64, 64, "cpu"), {1, 20, 2});
  std::string text = describe(plan);
  EXPECT_EQ(text.find("B=1,T=20,H=2: 7 candidates, "), 0u) << text;
  EXPECT_NE(text.find("  pruned 3 (chunk 64, chunk 128, chunk 256): padding: "
                      "half the chunk holds all 20 tokens\n"),
            std::string::npos)
      << text;
}

} // namespace
