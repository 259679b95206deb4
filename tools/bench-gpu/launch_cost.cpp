//===- launch_cost.cpp - What a launch costs the host ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   plum-launch-cost BUNDLE [BATCHES]
//
// plumrt_plan_launch as an engine calls it, from C, with nothing waited for:
// BATCHES (100) times 100 launches, after each of which the stream is emptied,
// which is not timed. Of a prompt of 64 tokens and of a decoded token in a pool
// of states; for comparison the replay of a graph that holds the same launch.
// Every line has the median and the least of the batches, in ns a launch.
//
// With PLUM_LIBCUDA naming a driver that does nothing, what remains is ours.
//
//===----------------------------------------------------------------------===//

#include "runtime/Manifest.h"
#include "runtime/cuda/Driver.h"
#include "runtime/plumrt.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

using namespace plum;
using namespace plum::runtime;

namespace {

constexpr int perBatch = 100;
constexpr int64_t heads = 32;

struct Costs {
  const cuda::Driver &driver;
  plumrt_gpu *gpu;
  const Manifest &manifest;
  int batches;
  char error[512] = "";

  bool fine(const char *what, cuda::CUresult result) {
    if (result != cuda::CUDA_SUCCESS)
      snprintf(error, sizeof error, "%s",
               driver.failure(what, result).str().c_str());
    return result == cuda::CUDA_SUCCESS;
  }

  std::vector<cuda::CUdeviceptr> blocks = {}; ///< Of what is being measured.

  ~Costs() {
    for (cuda::CUdeviceptr block : blocks)
      driver.cuMemFree(block);
  }

  /// Memory of zeros; it goes with this object.
  void *zeros(uint64_t bytes) {
    cuda::CUdeviceptr address = 0;
    bytes = std::max<uint64_t>(bytes, 16);
    if (!fine("cuMemAlloc", driver.cuMemAlloc(&address, bytes)))
      return nullptr;
    blocks.push_back(address);
    if (!fine("cuMemsetD8", driver.cuMemsetD8(address, 0, bytes)))
      return nullptr;
    return reinterpret_cast<void *>(address);
  }

  plumrt_tensor tensor(const ManifestTensor &of, int64_t a, int64_t b,
                       int64_t h, bool state) {
    int64_t d = of.elements(), rows = 1;
    if (state && of.shape.size() == 2)
      rows = of.shape[0], d = of.shape[1];
    plumrt_tensor t = {};
    t.dtype = of.dtype == DType::F32   ? PLUMRT_F32
              : of.dtype == DType::F16 ? PLUMRT_F16
                                       : PLUMRT_BF16;
    const int64_t shape[4] = {a, state ? h : b, state ? rows : h, d};
    std::copy(shape, shape + 4, t.shape);
    for (int64_t i = 3, stride = 1; i >= 0; stride *= shape[i--])
      t.stride[i] = stride;
    t.data = zeros(uint64_t(shape[0] * t.stride[0]) * 4);
    return t;
  }

  std::vector<plumrt_tensor> list(const std::vector<ManifestTensor> &of,
                                  int64_t a, int64_t b, bool state = false) {
    std::vector<plumrt_tensor> made;
    for (const ManifestTensor &t : of)
      made.push_back(tensor(t, a, b, heads, state));
    return made;
  }

  /// Times `call` and prints a line.
  bool time(const char *what, cuda::CUstream stream, int kernels,
            const std::function<bool()> &call) {
    std::vector<double> ns;
    for (int batch = -2; batch < batches; ++batch) {
      auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < perBatch; ++i)
        if (!call())
          return false;
      auto end = std::chrono::steady_clock::now();
      if (!fine("cuStreamSynchronize", driver.cuStreamSynchronize(stream)))
        return false;
      if (batch >= 0) // The first two warm up.
        ns.push_back(
            std::chrono::duration<double, std::nano>(end - begin).count() /
            perBatch);
    }
    std::sort(ns.begin(), ns.end());
    printf("%-24s %d kernels  median %6.0f ns  least %6.0f ns  (%d launches)\n",
           what, kernels, ns[ns.size() / 2], ns[0], batches * perBatch);
    return true;
  }

  bool measure(int64_t sequences, int64_t tokens, bool pool) {
    cuda::CUstream stream = nullptr;
    if (!fine("cuStreamCreate",
              driver.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING)))
      return false;
    auto inputs = list(manifest.inputs, sequences, tokens);
    auto params = list(manifest.params, 1, 1);
    auto outputs = list(manifest.outputs, sequences, tokens);
    auto states = list(manifest.states, sequences, 1, true);
    std::vector<int64_t> slot(sequences);
    std::iota(slot.begin(), slot.end(), 0);
    void *slots = zeros(slot.size() * 8);
    if (slots)
      fine("cuMemcpyHtoD",
           driver.cuMemcpyHtoD(reinterpret_cast<cuda::CUdeviceptr>(slots),
                               slot.data(), slot.size() * 8));
    if (error[0])
      return false;
    plumrt_run_args args = {};
    args.size = sizeof args;
    args.inputs = inputs.data();
    args.params = params.data();
    args.outputs = outputs.data();
    args.initial_states = pool ? states.data() : nullptr;
    args.final_states = states.data();
    args.slot_count = pool ? sequences : 0;
    args.slot_dtype = PLUMRT_I64;
    plumrt_plan *plan = nullptr;
    plumrt_plan_info info = {};
    info.size = sizeof info;
    if (plumrt_plan_create(gpu, &args, 0, &plan, error, sizeof error) ||
        plumrt_plan_query(plan, &info, error, sizeof error))
      return false;
    std::vector<void *> addresses[4];
    const std::vector<plumrt_tensor> *lists[4] = {&inputs, &params, &outputs,
                                                  &states};
    for (int i = 0; i < 4; ++i)
      for (const plumrt_tensor &t : *lists[i])
        addresses[i].push_back(t.data);
    plumrt_launch launch = {};
    launch.size = sizeof launch;
    launch.inputs = addresses[0].data();
    launch.params = addresses[1].data();
    launch.outputs = addresses[2].data();
    launch.initial_states = pool ? addresses[3].data() : nullptr;
    launch.final_states = addresses[3].data();
    launch.slots = pool ? slots : nullptr;
    launch.workspace = zeros(info.workspace_bytes);
    launch.workspace_bytes = info.workspace_bytes;
    launch.stream = stream;
    auto enqueue = [&] {
      return plumrt_plan_launch(plan, &launch, error, sizeof error) == 0;
    };
    char what[64];
    snprintf(what, sizeof what, "launch, N = %ld, T = %ld", long(sequences),
             long(tokens));
    bool good = time(what, stream, info.kernels, enqueue);
    cuda::CUgraph graph = nullptr;
    cuda::CUgraphExec exec = nullptr;
    good =
        good &&
        fine("cuStreamBeginCapture",
             driver.cuStreamBeginCapture(
                 stream, cuda::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) &&
        enqueue() &&
        fine("cuStreamEndCapture", driver.cuStreamEndCapture(stream, &graph)) &&
        fine("cuGraphInstantiate", driver.cuGraphInstantiate(&exec, graph, 0));
    snprintf(what, sizeof what, "graph,  N = %ld, T = %ld", long(sequences),
             long(tokens));
    good = good && time(what, stream, info.kernels, [&] {
             return fine("cuGraphLaunch", driver.cuGraphLaunch(exec, stream));
           });
    if (exec)
      driver.cuGraphExecDestroy(exec);
    if (graph)
      driver.cuGraphDestroy(graph);
    plumrt_plan_destroy(plan);
    driver.cuStreamDestroy(stream);
    return good;
  }
};

} // namespace

static int fail(const std::string &text) {
  fprintf(stderr, "%s\n", text.c_str());
  return 1;
}

int main(int argc, char **argv) {
  int batches = argc == 3 ? std::atoi(argv[2]) : 100;
  if (argc < 2 || argc > 3 || batches < 1)
    return fail("error: expected plum-launch-cost BUNDLE [BATCHES]");
  Result<Manifest> manifest = readManifest(argv[1]);
  if (!manifest)
    return fail(manifest.error().str());
  plumrt_gpu *gpu = nullptr;
  char error[512];
  if (plumrt_gpu_open(argv[1], 0, &gpu, error, sizeof error))
    return fail(error);
  Result<std::shared_ptr<const cuda::Driver>> driver = cuda::Driver::open();
  if (!driver)
    return fail(driver.error().str());
  // Memory and streams are those of the context that the bundle is in.
  cuda::CUcontext context = nullptr;
  (*driver)->cuDevicePrimaryCtxRetain(&context, 0);
  (*driver)->cuCtxPushCurrent(context);
  {
    Costs costs{**driver, gpu, *manifest, batches};
    if (!costs.measure(1, 64, false) || !costs.measure(1, 1, true) ||
        !costs.measure(64, 1, true))
      return fail(costs.error);
  }
  plumrt_gpu_close(gpu);
  return 0;
}
