//===- RecordTest.cpp - The reader and writer of databases ------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Samples.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

namespace {

TuningDatabase sample() {
  TuningDatabase database;
  database.add(sampleKey(), sampleResult(64, 3));
  database.add(sampleKey(), sampleResult(16, 2));
  database.add(sampleKey(), sampleResult(0, 9));
  database.add(sampleKey(1024), sampleResult(16, 0.5, 1024));
  return database;
}

std::string errorOf(const std::string &text) {
  Result<TuningDatabase> read = parseTuning(text, "t.json");
  return read ? "" : read.error().str();
}

/// The sample's text with `from` replaced by `to`.
std::string changed(const std::string &from, const std::string &to) {
  std::string text = writeTuning(sample());
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TuningRecord, ReadsWhatItWrites) {
  TuningDatabase database = sample();
  TuningResult failed = sampleResult(256, 0);
  failed.failure = "crashed: \"Segmentation fault\"\n";
  failed.ms = failed.spread = 0;
  failed.reps = 0;
  failed.errors = {};
  database.add(sampleKey(), failed);
  TuningResult planned = sampleResult(8, 0);
  planned.date = "";
  planned.bundle = "kernels";
  planned.ms = planned.spread = 0;
  planned.reps = 0;
  planned.errors = {};
  database.add(sampleKey(), planned);
  TuningResult gpu = sampleResult(128, 1);
  gpu.schedule.slice = 64;
  gpu.schedule.stages = 2;
  gpu.schedule.segments = 4;
  gpu.registers = 168;
  gpu.spilledBytes = 12;
  gpu.sharedBytes = 157696;
  database.add(sampleKey(), gpu);
  Result<TuningDatabase> read = parseTuning(writeTuning(database), "t.json");
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_EQ(*read, database);
}

TEST(TuningRecord, OrderOfAddingDoesNotShow) {
  TuningDatabase other;
  other.add(sampleKey(1024), sampleResult(16, 0.5, 1024));
  other.add(sampleKey(), sampleResult(0, 9));
  other.add(sampleKey(), sampleResult(64, 3));
  other.add(sampleKey(), sampleResult(16, 2));
  EXPECT_EQ(writeTuning(other), writeTuning(sample()));
}

TEST(TuningRecord, BestIsFastestWithinLimits) {
  TuningDatabase database = sample();
  const TuningEntry *entry = database.find(sampleKey());
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->best()->schedule.text(), "chunk 16");
  for (double TuningErrors::*measure : {&TuningErrors::r, &TuningErrors::w,
                                        &TuningErrors::m, &TuningErrors::state})
    for (double value : {1.0, std::nan("")}) {
      TuningResult wrong = sampleResult(32, 1);
      wrong.errors.*measure = value;
      database.add(sampleKey(), wrong);
      EXPECT_EQ(database.find(sampleKey())->best()->schedule.text(),
                "chunk 16");
    }
}

TEST(TuningRecord, NaNIsReadBackAsNaN) {
  TuningDatabase database;
  TuningResult wrong = sampleResult(32, 1);
  wrong.errors.r = std::nan("");
  wrong.errors.m = std::numeric_limits<double>::infinity();
  database.add(sampleKey(), wrong);
  Result<TuningDatabase> read = parseTuning(writeTuning(database), "t.json");
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_TRUE(std::isnan(read->entries[0].results[0].errors.r));
  EXPECT_TRUE(std::isnan(read->entries[0].results[0].errors.m));
  EXPECT_EQ(read->entries[0].best(), nullptr);
}

TEST(TuningRecord, SyntaxErrorsHaveALine) {
  EXPECT_EQ(errorOf(""), "t.json:1:1: error: is not valid JSON");
  EXPECT_EQ(errorOf("{\n  \"plum_tuning\": 1,\n  oops\n}"),
            "t.json:3:3: error: is not valid JSON");
  std::string text = writeTuning(sample());
  std::string error = errorOf(text.substr(0, text.size() / 2));
  EXPECT_NE(error.find("is not valid JSON"), std::string::npos) << error;
  EXPECT_NE(error.find("t.json:"), std::string::npos) << error;
}

TEST(TuningRecord, ErrorsNameTheField) {
  EXPECT_EQ(errorOf("[]"), "t.json: error: is not a JSON object");
  EXPECT_EQ(errorOf("{}"), "t.json: error: 'plum_tuning' is missing");
  EXPECT_EQ(errorOf(changed("\"plum_tuning\": 1", "\"plum_tuning\": 2")),
            "t.json: error: 'plum_tuning' is 2, expected at most 1");
  EXPECT_EQ(errorOf(changed("\"tokens\": 1024", "\"tokens\": 1000")),
            "t.json: error: 'entries[0].tokens' is 1000, expected a power of "
            "two");
}

TEST(TuningRecord, ErrorsOfResults) {
  auto without = [](const std::string &from, const std::string &to) {
    return errorOf(changed(from, to));
  };
  EXPECT_EQ(without("\"form\":\"chunk\"", "\"form\":\"lump\""),
            "t.json: error: 'entries[0].results[0].form' is 'lump', expected "
            "step or chunk");
  EXPECT_EQ(without("\"chunk\":16", "\"chunk\":17"),
            "t.json: error: 'entries[0].results[0].chunk' is 17, expected a "
            "power of two");
  EXPECT_EQ(without("\"ms\":0.5", "\"ms\":-1"),
            "t.json: error: 'entries[0].results[0].ms' is -1, expected at "
            "least 0");
  EXPECT_EQ(without("\"ms\":0.5", "\"ms\":\"fast\""),
            "t.json: error: 'entries[0].results[0].ms' is string, expected a "
            "number");
  EXPECT_EQ(without("\"reps\":30,", ""),
            "t.json: error: 'entries[0].results[0].reps' is missing");
  EXPECT_EQ(without("B=1,T=1024,H=8", "B=1,T=1025,H=8"),
            "t.json: error: 'entries[0].results[0]' has shape B=1,T=1025,H=8, "
            "which is not in BH<=8 T<=1024");
  EXPECT_EQ(without("B=1,T=1024,H=8", "B=1;T=9"),
            "t.json: error: 'entries[0].results[0].shape' is 'B=1;T=9', "
            "expected B=n,T=n,H=n");
}

TEST(TuningRecord, TwiceTheSameIsAnError) {
  std::string text = writeTuning(sample());
  size_t begin = text.find("    {\n"), end = text.find("    }", begin) + 5;
  std::string entry = text.substr(begin, end - begin);
  EXPECT_EQ(errorOf(text.substr(0, end) + ",\n" + entry + text.substr(end)),
            "t.json: error: 'entries[1]' has the key of an entry before it");
  EXPECT_EQ(errorOf(changed("\"chunk\":64", "\"chunk\":16")),
            "t.json: error: 'entries[1].results[1]' is a second result for "
            "'chunk 16'");
}

TEST(TuningRecord, BundlesStayInside) {
  TuningResult planned = sampleResult(8, 0);
  for (const char *name : {"..", "../x", "a/b"}) {
    planned.bundle = name;
    TuningDatabase database;
    database.add(sampleKey(), planned);
    EXPECT_NE(errorOf(writeTuning(database)).find("plain folder name"),
              std::string::npos)
        << name;
  }
}

TEST(TuningRecord, BucketsArePowersOfTwo) {
  auto bucket = [](int64_t b, int64_t t, int64_t h) {
    return TuningBucket::of({b, t, h}).text();
  };
  EXPECT_EQ(bucket(1, 4096, 8), "BH<=8 T<=4096");
  EXPECT_EQ(bucket(3, 4097, 5), "BH<=16 T<=8192");
  EXPECT_EQ(bucket(1, 1, 1), "BH<=1 T<=1");
}

TEST(TuningRecord, ShapesAndSeconds) {
  EXPECT_EQ(parseTuningShape("T=5,H=2")->text(), "B=1,T=5,H=2");
  for (const char *bad : {"", "T", "T=0", "T=-1", "T=1x", "X=1", "T=1,", ",T=1",
                          "T=99999999999999999999", "B=99999999"})
    EXPECT_FALSE(parseTuningShape(bad)) << bad;
  EXPECT_EQ(parseSeconds("60s"), 60);
  EXPECT_EQ(parseSeconds("2m"), 120);
  EXPECT_EQ(parseSeconds("0.5"), 0.5);
  for (const char *bad :
       {"", "s", "0", "-1", "nan", "inf", "60h", "60 s", "1e9"})
    EXPECT_FALSE(parseSeconds(bad)) << bad;
}

} // namespace
