//===- ToolTest.cpp - plum-run from outside -------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyLayer.h"

#include <nlohmann/json.hpp>

#include <sys/wait.h>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

namespace {

struct ToolTest : testing::Test {
  TempDir dir;
  ToyTensors tensors{1, 30, 2};
  ToyFile file = toyFile(tensors);
  std::string out, err;
  std::string before; ///< Shell commands before plum-run.

  void SetUp() override {
    writeToyBundle(dir / "toy");
    file.write(dir / "in");
  }
  /// Runs `plum-run ARGS` in the directory; the exit code.
  int run(const std::string &args) {
    // A sanitizer build, too, shall see what happens when memory is short.
    std::string command = "cd " + dir.path + " && " + before +
                          "ASAN_OPTIONS=allocator_may_return_null=1 " PLUM_RUN
                          " " +
                          args + " >stdout 2>stderr </dev/null";
    int status = std::system(command.c_str());
    out = readFile(dir / "stdout");
    err = readFile(dir / "stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// A run that must fail: one error, nothing on stdout, nothing left behind.
  std::string failure(const std::string &args) {
    EXPECT_EQ(run(args), 1) << args;
    EXPECT_EQ(out, "");
    EXPECT_EQ(dir.list(),
              (std::vector<std::string>{"in", "stderr", "stdout", "toy"}));
    return err;
  }
  bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
  }
};

} // namespace

TEST_F(ToolTest, RunWritesOutputsAndStates) {
  ASSERT_EQ(run("run toy --in in --out out"), 0) << err;
  EXPECT_EQ(err, "");
  EXPECT_EQ(out, "");
  std::vector<double> o(tensors.o.size()), n(tensors.n.size());
  std::vector<double> gotO = fileValues(dir / "out", "o");
  std::vector<double> gotS = fileValues(dir / "out", "S");
  ASSERT_EQ(gotO.size(), o.size());
  ASSERT_EQ(gotS.size(), size_t(2 * K * V));
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<double> S(K * V), z(K);
    toyRecurrence(tensors, 0, 0, 30, h, S, z, o, n);
    for (size_t i = 0; i < K * V; ++i)
      EXPECT_NEAR(gotS[size_t(h * K * V) + i], S[i], 1e-4);
  }
  for (size_t i = 0; i < o.size(); ++i)
    EXPECT_NEAR(gotO[i], o[i], 1e-4);
  Result<SafetensorsFile> written = SafetensorsFile::open(dir / "out");
  ASSERT_TRUE(written);
  EXPECT_EQ(written->find("o")->shape, (std::vector<int64_t>{30, 2, V}));
  EXPECT_EQ(written->find("n")->shape, (std::vector<int64_t>{30, 2}));
  EXPECT_EQ(written->find("S")->shape, (std::vector<int64_t>{1, 2, K, V}));
  EXPECT_EQ(written->find("z")->shape, (std::vector<int64_t>{1, 2, K}));
}

TEST_F(ToolTest, RunTakesOptionsAndContinues) {
  file.set("cu_seqlens", DType::I64, {3}, std::vector<int64_t>{0, 10, 28});
  file.write(dir / "in");
  ASSERT_EQ(run("run toy --in in --out out --form chunk --chunk 16 --threads 2 "
                "--state-layout vk --state-dtype bf16 --states-every 5"),
            0)
      << err;
  Result<SafetensorsFile> written = SafetensorsFile::open(dir / "out");
  ASSERT_TRUE(written);
  EXPECT_EQ(written->find("S")->shape, (std::vector<int64_t>{2, 2, V, K}));
  EXPECT_EQ(written->find("S")->dtype, DType::BF16);
  EXPECT_EQ(written->find("S.every")->shape,
            (std::vector<int64_t>{5, 2, V, K}));
  EXPECT_EQ(written->find("z.every")->shape, (std::vector<int64_t>{5, 2, K}));
  EXPECT_EQ(fileValues(dir / "out", "every.cu_seqlens"),
            (std::vector<double>{0, 2, 5}));
  // Rows of no sequence are 0.
  EXPECT_EQ(fileValues(dir / "out", "n").back(), 0);
}

TEST_F(ToolTest, RunDecodesFromAPool) {
  std::vector<float> S(5 * 2 * K * V, 0.5f), z(5 * 2 * K, 0.25f);
  file.set("S", DType::F32, {5, 2, K, V}, S);
  file.set("z", DType::F32, {5, 2, K}, z);
  file.set("cu_seqlens", DType::I32, {4}, std::vector<int32_t>{0, 1, 2, 3});
  file.set("slots", DType::I64, {3}, std::vector<int64_t>{4, -1, 0});
  file.write(dir / "in");
  ASSERT_EQ(run("run toy --in in --out out"), 0) << err;
  std::vector<double> pool = fileValues(dir / "out", "S");
  ASSERT_EQ(pool.size(), S.size());
  for (size_t slot = 0; slot < 5; ++slot)
    EXPECT_EQ(pool[slot * 2 * K * V] != 0.5, slot == 0 || slot == 4) << slot;
  EXPECT_EQ(fileValues(dir / "out", "n")[2], 0); // The padding row.
}

TEST_F(ToolTest, OutputMayReplaceTheInput) {
  ASSERT_EQ(run("run toy --in in --out in"), 0) << err;
  EXPECT_EQ(fileValues(dir / "in", "o").size(), tensors.o.size());
}

TEST_F(ToolTest, UnknownTensorsAreAWarning) {
  file.set("extra", DType::F32, {1}, std::vector<float>{1});
  file.set("expected.o", DType::F32, {1}, std::vector<float>{1});
  file.write(dir / "in");
  ASSERT_EQ(run("run toy --in in --out out"), 0) << err;
  EXPECT_EQ(err, "in: warning: tensor 'extra' is not used: layer 'toy' "
                 "declares no such input\n");
}

TEST_F(ToolTest, BadInputsAreErrorsAndLeaveNothingBehind) {
  EXPECT_EQ(failure("run toy --in none --out out"),
            "none: error: cannot be read: No such file or directory\n");
  EXPECT_EQ(failure("run none --in in --out out"),
            "none: error: is not a bundle: it has no manifest.json\n");
  EXPECT_EQ(failure("run toy --in in --out no/out"),
            "no/out: error: cannot be written: No such file or directory\n");
  before = "trap '' XFSZ; ulimit -f 1; "; // No file above 512 bytes.
  EXPECT_EQ(failure("run toy --in in --out out"),
            "out: error: cannot be written: File too large\n");
  before.clear();
  EXPECT_EQ(failure("run toy --in in --out out --chunk 7"),
            "toy: error: has no kernel for chunks of 7 tokens\nnote: it has "
            "form step\nnote: it has form chunk, chunk 4\nnote: it has form "
            "chunk, chunk 16\n");
  EXPECT_EQ(failure("run toy --in in --out out --target cuda"),
            "toy: error: has no cuda kernel, it was compiled for cpu\n");
  file.tensors.erase("q");
  file.write(dir / "in");
  EXPECT_EQ(failure("run toy --in in --out out"),
            "in: error: tensor 'q' is missing, expected F32 [T,H,4] or "
            "[B,T,H,4]\nnote: layer 'toy' declares it\n");
  std::string bytes = readFile(dir / "in");
  writeFile(dir / "in", bytes.substr(0, bytes.size() - 5));
  EXPECT_TRUE(
      has(failure("run toy --in in --out out"), ": the file is truncated\n"));
}

TEST_F(ToolTest, UsageErrors) {
  EXPECT_TRUE(has(failure(""), "plum-run: error: "));
  EXPECT_TRUE(has(failure("fly"), "plum-run: error: "));
  EXPECT_TRUE(has(failure("run toy --in in"), "--out: error: is needed"));
  EXPECT_TRUE(has(failure("run toy --in in --out out --form scan"), "--form"));
  EXPECT_TRUE(
      has(failure("run toy --in in --out out --threads 0"), "--threads"));
  EXPECT_TRUE(has(failure("run toy --in in --out out --state-dtype f16"),
                  "--state-dtype"));
  EXPECT_TRUE(has(failure("check toy --shape B=1,X=3"),
                  "--shape: error: 'X=3' is none of B=n, T=n, H=n with n >= "
                  "1\n"));
  EXPECT_TRUE(has(failure("bench toy --shape T=0"), "--shape: error: 'T=0'"));
  EXPECT_TRUE(has(failure("check toy --shape T=99999999999999"),
                  "--shape: error: no memory"));
}

TEST_F(ToolTest, HelpIsForPeople) {
  for (const char *verb : {"", "run", "check", "bench", "info"}) {
    EXPECT_EQ(run(std::string(verb) + " --help"), 0);
    EXPECT_EQ(err, "");
    EXPECT_TRUE(has(out, "Usage: plum-run"));
  }
  run("run --help");
  EXPECT_TRUE(has(out, "cu_seqlens"));
}

TEST_F(ToolTest, InfoPrintsTheManifest) {
  ASSERT_EQ(run("info toy"), 0) << err;
  for (const char *part : {"layer toy K=4 V=3", "bf16", "must be <= 0: g",
                           "chunk 16", "toy_step", "k^T v"})
    EXPECT_TRUE(has(out, part)) << part;
}

TEST_F(ToolTest, CheckPassesGoodKernels) {
  ASSERT_EQ(run("check toy"), 0) << out << err;
  for (const char *part :
       {"step ", "chunk 4", "chunk 16", "o ", "n ", "S ", "z ", "pass"})
    EXPECT_TRUE(has(out, part)) << part;
  EXPECT_FALSE(has(out, "FAIL"));
  ASSERT_EQ(run("check toy --form chunk --chunk 16 --shape B=2,T=20,H=3 "
                "--seed 5"),
            0)
      << out << err;
  EXPECT_FALSE(has(out, "chunk 4"));
  EXPECT_FALSE(has(out, "step"));
}

TEST_F(ToolTest, CheckFailsABadKernel) {
  Manifest manifest = toyManifest();
  manifest.kernels[1].symbol = "toy_wrong"; // Leaves a token out.
  writeToyBundle(dir / "toy", manifest);
  ASSERT_EQ(run("check toy"), 1) << out << err;
  EXPECT_TRUE(has(out, "FAIL, 6 values not finite")) << out;
  ASSERT_EQ(run("check toy --form chunk --chunk 16"), 0) << out << err;
}

TEST_F(ToolTest, CheckOnAFileComparesWithWhatItExpects) {
  file.set("cu_seqlens", DType::I32, {4}, std::vector<int32_t>{0, 7, 7, 30});
  file.write(dir / "in");
  ASSERT_EQ(run("run toy --in in --out out"), 0) << err;
  std::vector<double> o = fileValues(dir / "out", "o");
  std::vector<double> S = fileValues(dir / "out", "S");
  std::vector<float> expectedO(o.begin(), o.end()),
      expectedS(S.begin(), S.end());
  file.set("expected.o", DType::F32, {30, 2, V}, expectedO);
  file.set("expected.S", DType::F32, {3, 2, K, V}, expectedS);
  file.write(dir / "in");
  ASSERT_EQ(run("check toy --in in"), 0) << out << err;
  EXPECT_TRUE(has(out, "expected.o"));
  EXPECT_TRUE(has(out, "expected.S"));
  expectedO[17] += 1;
  file.set("expected.o", DType::F32, {30, 2, V}, expectedO);
  file.write(dir / "in");
  ASSERT_EQ(run("check toy --in in"), 1) << out << err;
}

TEST_F(ToolTest, CheckFindsAPositiveLogDecay) {
  tensors.g[2 * 7 + 1] = 0.125f;
  file = toyFile(tensors);
  file.write(dir / "in");
  ASSERT_EQ(run("check toy --in in"), 1);
  EXPECT_TRUE(has(err, "in: error: 'g[0,7,1,0]' is 0.125, expected at most "
                       "0\nnote: 'g' is a log decay; its axes are "
                       "[B,T,H,d]\n"))
      << err;
}

TEST_F(ToolTest, BenchPrintsOneObjectALine) {
  ASSERT_EQ(run("bench toy --json --all --shape B=2,T=100,H=3 --seconds 0.05 "
                "--threads 2"),
            0)
      << err;
  std::vector<std::string> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);
  for (const std::string &line : lines) {
    nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_EQ(json["layer"], "toy");
    EXPECT_EQ(json["target"], "cpu");
    EXPECT_EQ(json["threads"], 2);
    EXPECT_GT(json["ms"], 0);
    EXPECT_GE(json["ms"], json["min_ms"]);
    EXPECT_GT(json["floor_ms"], 0);
    EXPECT_LT(json["error"], 1e-5);
    // q, k, v, g, bias, o, n and the states.
    EXPECT_EQ(json["bytes"],
              600 * (16 + 16 + 6 + 4 + 12 + 4) + 3 * 12 + 6 * (48 + 16));
    for (const char *field : {"spread", "tokens_per_s", "flops", "sgemm_ms"})
      EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(nlohmann::json::parse(lines[0])["form"], "step");
  EXPECT_TRUE(nlohmann::json::parse(lines[0])["chunk"].is_null());
  EXPECT_EQ(nlohmann::json::parse(lines[2])["chunk"], 16);
  ASSERT_EQ(run("bench toy --shape T=50,H=2 --seconds 0.05"), 0) << err;
  EXPECT_TRUE(has(out, "chunk 4")) << out;
}
