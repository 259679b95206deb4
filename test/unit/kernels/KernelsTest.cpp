//===- KernelsTest.cpp - Launches of the runtime's kernels ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gpu.h"

using namespace plum;
using namespace plum::runtime::cuda;
using namespace plum::runtime::cuda::test;
using kernels::Elementwise;
using kernels::ElementwiseArgs;

namespace {

TEST(Kernels, AreKnownByThePtx) {
  Gpu gpu;
  EXPECT_GE(kernelTexts().size(), 3u);
  EXPECT_EQ(gpu.kernels->threads("plum_norm_warps"), 256);
  EXPECT_EQ(gpu.kernels->threads("plum_none"), 0);
  EXPECT_OK(gpu.kernels->load());
}

TEST(Kernels, RefuseWrongLaunches) {
  Gpu gpu;
  auto error = [&](Status status) {
    return status ? "" : status.error().str();
  };
  ElementwiseArgs args;
  int32_t wrong = 0;
  EXPECT_EQ(error(gpu.kernels->launch(nullptr, "plum_none", {1}, args)),
            "error: the runtime has no kernel 'plum_none'");
  EXPECT_EQ(error(gpu.kernels->launch(nullptr, "plum_elementwise", {1}, wrong)),
            "error: kernel 'plum_elementwise' takes " +
                std::to_string(sizeof args) + " bytes of arguments, not 4");
  EXPECT_EQ(
      error(gpu.kernels->launch(nullptr, "plum_elementwise", {1, 70000}, args)),
      "error: kernel 'plum_elementwise' has no grid of 1 x 70000 blocks");
  EXPECT_EQ(error(gpu.kernels->launch(nullptr, "plum_elementwise", {1}, args,
                                      1 << 20)),
            "error: kernel 'plum_elementwise' needs 1048576 B of shared "
            "memory, a block on this GPU has at most 232448");
  EXPECT_OK(gpu.kernels->launch(nullptr, "plum_elementwise", {0}, args));
}

TEST(Kernels, AreCaptured) {
  Gpu gpu;
  std::mt19937 random(1);
  Matrix x(gpu, 2, 16, Type::F32, 0, random), y(gpu, 2, 16, Type::F32);
  Result<Stream> stream = makeStream(*gpu.device);
  ASSERT_TRUE(stream);
  const Driver &driver = gpu.device->driver();
  EXPECT_OK(gpu.kernels->load());
  ASSERT_EQ(driver.cuStreamBeginCapture(stream->get(), 1), CUDA_SUCCESS);
  ElementwiseArgs args{.op = Elementwise::Copy, .x = x, .y = y, .rows = 2};
  args.width = 16;
  EXPECT_OK(elementwise(*gpu.kernels, stream->get(), args));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(driver.cuStreamEndCapture(stream->get(), &graph), CUDA_SUCCESS);
  EXPECT_TRUE(std::isnan(y.at(1, 3))); // Nothing has run.
  ASSERT_EQ(driver.cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuGraphLaunch(exec, stream->get()), CUDA_SUCCESS);
  EXPECT_EQ(y.at(1, 3), x.at(1, 3));
  driver.cuGraphExecDestroy(exec);
  driver.cuGraphDestroy(graph);
}

} // namespace
