//===- DatabaseTest.cpp - Merging, comparing, writing -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Tuning/Database.h"
#include "Samples.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;
namespace fs = std::filesystem;

namespace {

TuningDatabase one(const TuningResult &result) {
  TuningDatabase database;
  database.add(sampleKey(), result);
  return database;
}

/// A folder that goes with the test.
struct Folder {
  Folder() {
    path = (fs::temp_directory_path() / "plum-tuning-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(path.data()));
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
};

TEST(TuningDatabase, NewerReplacesOlder) {
  TuningDatabase into = one(sampleResult(16, 2));
  TuningResult newer = sampleResult(16, 3);
  newer.date = "2026-12-01";
  EXPECT_EQ(describe(merge(into, one(newer))), "0 added, 1 replaced");
  EXPECT_EQ(into.entries[0].results[0].ms, 3);
  EXPECT_EQ(describe(merge(into, one(sampleResult(16, 2)))),
            "0 added, 0 replaced, 1 already there");
  EXPECT_EQ(into.entries[0].results[0].ms, 3);
}

TEST(TuningDatabase, MergingTwiceChangesNothing) {
  TuningDatabase into = one(sampleResult(16, 2)),
                 from = one(sampleResult(8, 1));
  from.add(sampleKey(1024), sampleResult(16, 0.5, 1024));
  EXPECT_EQ(describe(merge(into, from)), "2 added, 0 replaced");
  std::string text = writeTuning(into);
  EXPECT_EQ(describe(merge(into, from)),
            "0 added, 0 replaced, 2 already there");
  EXPECT_EQ(writeTuning(into), text);
}

TEST(TuningDatabase, PlansAreNotResults) {
  TuningResult planned = sampleResult(16, 2);
  planned.date = "";
  TuningDatabase into;
  EXPECT_EQ(describe(merge(into, one(planned))),
            "0 added, 0 replaced, 1 not measured");
  EXPECT_TRUE(into.entries.empty());
}

TEST(TuningDatabase, WritersDoNotLoseEachOther) {
  Folder folder;
  std::string path = folder.path + "/deep/tuning.json";
  std::vector<std::thread> writers;
  for (int64_t i = 0; i < 8; ++i)
    writers.emplace_back([&path, i] {
      Result<MergeCounts> counts =
          mergeIntoFile(path, one(sampleResult(int64_t(1) << i, 1)));
      EXPECT_TRUE(counts) << counts.error().str();
    });
  for (std::thread &writer : writers)
    writer.join();
  Result<TuningDatabase> read = readTuning(path);
  ASSERT_TRUE(read) << read.error().str();
  ASSERT_EQ(read->entries.size(), 1u);
  EXPECT_EQ(read->entries[0].results.size(), 8u);
  size_t files = 0;
  for (const auto &file : fs::directory_iterator(folder.path + "/deep")) {
    ++files;
    EXPECT_EQ(file.path().filename().string().find(".tmp"), std::string::npos);
  }
  EXPECT_EQ(files, 2u); // And the lock.
}

TEST(TuningDatabase, CorruptFilesStayAsTheyAre) {
  Folder folder;
  std::string path = folder.path + "/t.json", text = "{ \"plum_tuning\": ";
  std::ofstream(path) << text;
  Result<MergeCounts> counts = mergeIntoFile(path, one(sampleResult(16, 2)));
  ASSERT_FALSE(counts);
  EXPECT_EQ(counts.error().str(), path + ":1:18: error: is not valid JSON");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

TEST(TuningDatabase, PlacesThatCannotBeWritten) {
  Folder folder;
  std::ofstream(folder.path + "/file") << "x";
  EXPECT_FALSE(
      mergeIntoFile(folder.path + "/file/t.json", one(sampleResult(16, 2))));
  fs::create_directory(folder.path + "/dir");
  Result<MergeCounts> counts =
      mergeIntoFile(folder.path + "/dir", one(sampleResult(16, 2)));
  EXPECT_FALSE(counts);
}

TEST(TuningDatabase, DiffOfEqualIsEmpty) {
  TuningDatabase a = one(sampleResult(16, 2)), b = one(sampleResult(16, 2.05));
  EXPECT_EQ(diff(a, a, 0), "");
  EXPECT_EQ(diff(a, b, 0.05), "");
  EXPECT_NE(diff(a, b, 0.01).find("2 ms -> 2.05 ms (+2.5 %)"),
            std::string::npos);
}

TEST(TuningDatabase, DiffShowsWhatMatters) {
  TuningDatabase a = one(sampleResult(16, 2)), b = one(sampleResult(16, 4));
  a.add(sampleKey(), sampleResult(64, 3));
  TuningResult wrong = sampleResult(64, 3);
  wrong.errors.r = 1;
  b.add(sampleKey(), wrong);
  b.add(sampleKey(), sampleResult(8, 1));
  a.add(sampleKey(), sampleResult(32, 9));
  b.add(sampleKey(1024), sampleResult(16, 0.5, 1024));
  EXPECT_EQ(diff(a, b, 0.05),
            "+ " + sampleKey(1024).text() + ": chunk 16, 0.5 ms\n  " +
                sampleKey().text() +
                "\n    choice: chunk 16 -> chunk 8\n"
                "    chunk 16: 2 ms -> 4 ms (+100.0 %)\n"
                "    chunk 32: gone\n"
                "    chunk 64: error 0.001 -> 1, no longer within the limits\n"
                "    chunk 8: new\n");
}

} // namespace
