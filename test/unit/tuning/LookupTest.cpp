//===- LookupTest.cpp - Which schedule a run gets ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Tuning/Lookup.h"
#include "Samples.h"

#include <gtest/gtest.h>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

namespace {

struct TuningLookup : testing::Test {
  LayerFacts facts = sampleFacts(128, 128, "cpu");
  CompileOptions options;
  DeviceModel device = cpuDevice("x86-64-v4", 2);
  TuningDatabase database;

  Result<Choice> lookUp(const TuningShape &shape = {1, 4000, 8}) {
    return chooseSchedule(facts, options, shape, device, "0.1.0-abc", database,
                          "plum tune X");
  }
  Choice choose() {
    Result<Choice> choice = lookUp();
    EXPECT_TRUE(choice);
    return choice ? *choice : Choice();
  }
};

TEST_F(TuningLookup, TakesTheFastest) {
  database.add(sampleKey(), sampleResult(64, 3));
  database.add(sampleKey(), sampleResult(128, 2));
  Choice choice = choose();
  EXPECT_EQ(choice.schedule.text(), "chunk 128");
  EXPECT_EQ(choice.message, "");
  EXPECT_EQ(choice.record.from, "database");
  EXPECT_EQ(choice.record.ms, 2);
  EXPECT_EQ(choice.record.date, "2026-11-29");
}

TEST_F(TuningLookup, NeverTakesWhatIsAboveALimit) {
  TuningResult wrong = sampleResult(128, 2);
  wrong.errors.state = 1;
  database.add(sampleKey(), wrong);
  database.add(sampleKey(), sampleResult(64, 3));
  EXPECT_EQ(choose().schedule.text(), "chunk 64");
  wrong.schedule.chunk = 64;
  database.add(sampleKey(), wrong);
  Choice choice = choose();
  EXPECT_EQ(choice.record.from, "model");
  EXPECT_EQ(choice.message.find("no usable result for layer kda"), 0u)
      << choice.message;
}

TEST_F(TuningLookup, TheModelLeavesOutWhatIsKnownToBeWrong) {
  TuningSchedule usual = choose().schedule;
  TuningResult wrong = sampleResult(usual.chunk, 2);
  wrong.errors.r = 1;
  database.add(sampleKey(), wrong);
  EXPECT_NE(choose().schedule.text(), usual.text());
  for (int64_t chunk : {0, 8, 16, 32, 64, 128, 256}) {
    wrong = sampleResult(chunk, 2);
    wrong.failure = "crashed";
    database.add(sampleKey(), wrong);
  }
  Result<Choice> none = lookUp();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message.find("no schedule is within the error limits "
                                      "for layer kda"),
            0u);
  database.add(sampleKey(), sampleResult(64, 3));
  EXPECT_EQ(choose().schedule.text(), "chunk 64");
}

TEST_F(TuningLookup, AMissNamesTheKeyAndTheCommand) {
  Choice choice = choose();
  EXPECT_EQ(choice.record.from, "model");
  EXPECT_NE(choice.message.find("nothing measured for layer kda "
                                "0123456789abcdef, BH<=8 T<=4096, target cpu"),
            std::string::npos)
      << choice.message;
  ASSERT_FALSE(choice.notes.empty());
  EXPECT_EQ(choice.notes[0], "'plum tune X' measures");
}

TEST_F(TuningLookup, OtherKeysAreMentionedAndNotTaken) {
  TuningKey other = sampleKey();
  other.compiler = "0.0.9";
  other.device = "znver4, 2 threads";
  database.add(other, sampleResult(256, 0.1));
  Choice choice = choose();
  EXPECT_EQ(choice.record.from, "model");
  ASSERT_EQ(choice.notes.size(), 2u);
  EXPECT_NE(choice.notes[1].find("differs in its device, compiler"),
            std::string::npos)
      << choice.notes[1];
}

TEST_F(TuningLookup, TheFormThatWasAskedFor) {
  database.add(sampleKey(), sampleResult(0, 1));
  database.add(sampleKey(), sampleResult(64, 3));
  EXPECT_EQ(choose().schedule.text(), "step");
  options.form = Form::Chunk;
  EXPECT_EQ(choose().schedule.text(), "chunk 64");
}

TEST_F(TuningLookup, AGpuThatIsNotHere) {
  facts.manifest.target = "sm_90a";
  device = gpuDevice("sm_90a");
  TuningKey key = sampleKey();
  key.target = "sm_90a";
  key.device = "NVIDIA H200, 132 SMs";
  database.add(key, sampleResult(64, 3));
  EXPECT_EQ(keyFor(facts, {1, 4096, 8}, device, "c", database).device,
            "NVIDIA H200, 132 SMs");
  key.device = "NVIDIA H100, 114 SMs"; // Now there are two.
  database.add(key, sampleResult(64, 3));
  EXPECT_EQ(keyFor(facts, {1, 4096, 8}, device, "c", database).device,
            "any sm_90a");
}

} // namespace
