//===- GpuToolTest.cpp - plum-run on a GPU that is none -------------------===//
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

struct GpuToolTest : testing::Test {
  TempDir dir;
  ToyTensors tensors{1, 40, 2};
  ToyFile file = toyFile(tensors);
  std::string out, err;
  std::string environment = "PLUM_LIBCUDA=" FAKE_CUDA " PLUM_CACHE=cache ";

  void SetUp() override {
    writeToyBundle(dir / "toy", toyGpuManifest());
    writeFile(dir / "toy/kernels.ptx", "// toy\n");
    file.write(dir / "in");
  }
  int run(const std::string &args, const char *program = PLUM_RUN) {
    std::string command = "cd " + dir.path + " && " + environment + program +
                          " " + args + " >stdout 2>stderr </dev/null";
    int status = std::system(command.c_str());
    out = readFile(dir / "stdout");
    err = readFile(dir / "stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// stderr of a run that must fail and print nothing else.
  std::string failure(const std::string &args) {
    EXPECT_EQ(run(args), 1) << args;
    EXPECT_EQ(out, "");
    return err;
  }
};

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_F(GpuToolTest, RunComputesWhatACpuBundleDoes) {
  for (const char *target : {"", "--target cuda", "--target sm_90a"}) {
    ASSERT_EQ(run(std::string("run toy --in in --out gpu ") + target), 0)
        << err;
    EXPECT_EQ(err, "");
    EXPECT_EQ(out, "");
  }
  writeToyBundle(dir / "cpu");
  ASSERT_EQ(run("run cpu --in in --out cpu.out"), 0) << err;
  for (const char *name : {"o", "n", "S", "z"}) {
    std::vector<double> x = fileValues(dir / "gpu", name),
                        y = fileValues(dir / "cpu.out", name);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(x[i], y[i], 1e-4) << name;
  }
  EXPECT_TRUE(has(failure("run toy --in in --out gpu --target cpu"),
                  "toy: error: has no cpu kernel, it was compiled for sm_90a"));
  EXPECT_TRUE(has(failure("run toy --in in --out gpu --target tpu"),
                  "'tpu' is neither cpu, cuda nor sm_NN"));
  EXPECT_TRUE(has(failure("run toy --in in --out gpu --chunk 64"),
                  "toy: error: has no kernel for chunks of 64 tokens\nnote: it "
                  "has form step\nnote: it has form chunk, chunk 16\n"));
}

TEST_F(GpuToolTest, RunWritesSnapshotsOfPackedSequences) {
  file.set("cu_seqlens", DType::I64, {4}, std::vector<int64_t>{0, 33, 33, 39});
  file.write(dir / "in");
  ASSERT_EQ(run("run toy --in in --out out --states-every 16 --state-layout vk "
                "--state-dtype bf16"),
            0)
      << err;
  Result<SafetensorsFile> written = SafetensorsFile::open(dir / "out");
  ASSERT_TRUE(written);
  EXPECT_EQ(written->find("S.every")->shape,
            (std::vector<int64_t>{2, 2, V, K}));
  EXPECT_EQ(fileValues(dir / "out", "every.cu_seqlens"),
            (std::vector<double>{0, 2, 2, 2}));
  EXPECT_EQ(fileValues(dir / "out", "n").back(), 0); // Of no sequence.
}

TEST_F(GpuToolTest, CheckLooksAtEveryPlan) {
  ASSERT_EQ(run("check toy"), 0) << out << err;
  for (const char *part : {"step ", "chunk 16 ", "chunk 16 x2", "S ", "pass"})
    EXPECT_TRUE(has(out, part)) << part;
  EXPECT_FALSE(has(out, "FAIL"));
  ASSERT_EQ(run("check toy --form chunk --segments 3 --in in"), 0)
      << out << err;
  EXPECT_FALSE(has(out, "step"));
  // Without a GPU there is nothing to check with.
  environment = "PLUM_LIBCUDA=none.so ";
  EXPECT_TRUE(has(failure("check toy"), "toy: error: there is no CUDA driver"));
}

TEST_F(GpuToolTest, MoeComplainsOfTilesBeforeItLooksForAGpu) {
  environment = "PLUM_LIBCUDA=none.so ";
  EXPECT_TRUE(has(failure("moe --products wide --tile 40"),
                  "--tile: error: wide products of experts have tiles of 16 or "
                  "96 tokens, not 40"));
  EXPECT_TRUE(has(failure("moe --tile 16,7"),
                  "--tile: error: products of experts have tiles of 8, 16, 32, "
                  "48, 96 or 128 tokens, not 7"));
  // One of two families has it.
  EXPECT_TRUE(has(failure("moe --products wide,narrow --tile 48"),
                  "there is no CUDA driver"));
}

TEST_F(GpuToolTest, BenchPrintsTheContractsFields) {
  ASSERT_EQ(run("bench toy --shape B=2,T=40,H=3 --seconds 0 --all --json"), 0)
      << err;
  std::vector<nlohmann::json> lines;
  size_t begin = 0;
  for (size_t end; (end = out.find('\n', begin)) != out.npos; begin = end + 1)
    lines.push_back(nlohmann::json::parse(out.substr(begin, end - begin)));
  ASSERT_EQ(lines.size(), 2u);
  for (const char *field :
       {"layer", "form", "chunk", "target", "ms", "bytes", "flops", "floor_ms",
        "error", "device", "segments", "sets", "kernels", "reps", "code"})
    EXPECT_TRUE(lines[0].contains(field)) << field;
  EXPECT_EQ(lines[0]["form"], "step");
  EXPECT_EQ(lines[1]["form"], "chunk");
  EXPECT_EQ(lines[1]["chunk"], 16);
  EXPECT_EQ(lines[1]["target"], "sm_90a");
  EXPECT_EQ(lines[1]["device"], "Fake H200");
  EXPECT_EQ(lines[1]["ms"], 0.5);
  EXPECT_GE(lines[1]["reps"], 30);
  EXPECT_LT(lines[1]["error"], 1e-6);
  EXPECT_EQ(lines[1]["sets"], 8);
  EXPECT_EQ(lines[1]["kernels"].size(), 2u);
  // 2 * 40 * 3 rows of 16 + 16 + 6 + 4 + 12 + 4 B, bias, and the final states.
  EXPECT_EQ(lines[1]["bytes"], 240 * 58 + 36 + 6 * (48 + 16));
  ASSERT_EQ(run("bench toy --shape B=64,T=1,H=3 --seconds 0"), 0) << err;
  for (const char *part : {"toy on sm_90a", "Fake H200", "step ", "TFLOP/s",
                           "plum_toy_step", "grid 192"})
    EXPECT_TRUE(has(out, part)) << part;
}

TEST_F(GpuToolTest, LaunchCostTimesLaunchesAndGraphs) {
  ASSERT_EQ(run("toy 2", LAUNCH_COST), 0) << err;
  for (const char *part : {"launch, N = 1, T = 64", "graph,  N = 64, T = 1",
                           "2 kernels", "(200 launches)"})
    EXPECT_TRUE(has(out, part)) << out;
  EXPECT_EQ(run("nothing 2", LAUNCH_COST), 1);
  EXPECT_TRUE(has(err, "nothing")) << err;
  EXPECT_EQ(run("toy none", LAUNCH_COST), 1);
}

TEST_F(GpuToolTest, InfoNeedsNoGpu) {
  environment = "PLUM_LIBCUDA=none.so ";
  ASSERT_EQ(run("info toy"), 0) << err;
  for (const char *part : {"target sm_90a, ", "plum_toy_scan",
                           "scan: grid sequences x 2, 96 threads, 60000 B "
                           "shared"})
    EXPECT_TRUE(has(out, part)) << part;
}

TEST_F(GpuToolTest, DeviceSaysWhatThereIs) {
  ASSERT_EQ(run("device"), 0) << err;
  EXPECT_EQ(out, "Fake H200\n  sm_90, 132 SMs, 1.0 GiB, L2 1 MiB, 232448 B "
                 "shared a block\n  driver for CUDA 13.0\n");
  EXPECT_EQ(failure("device --gpu 1"),
            "GPU 1: error: there is no GPU 1, the driver shows 1\nnote: "
            "CUDA_VISIBLE_DEVICES chooses which ones it shows\n");
  environment += "FAKE_CUDA_FAIL=cuInit:100 ";
  EXPECT_EQ(failure("device"), "GPU 0: error: cuInit: CUDA_ERROR_NO_DEVICE\n");
}
