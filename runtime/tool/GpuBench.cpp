//===- GpuBench.cpp - Time a layer on a GPU -------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/GpuBench.h"

#include "runtime/Inputs.h"

#include <algorithm>
#include <chrono>

namespace plum::runtime::tool {

using namespace cuda;

namespace {

constexpr int warmups = 5, leastReps = 30, mostReps = 1000, mostSets = 8;

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

} // namespace

Result<Graph> record(const Device &device, CUstream stream,
                     const std::function<Status()> &launches) {
  const Driver &driver = device.driver();
  if (Status s = driver.check("cuStreamBeginCapture",
                              driver.cuStreamBeginCapture(
                                  stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      !s)
    return s.error();
  Status launched = launches();
  CUgraph graph = nullptr;
  Status ended = driver.check("cuStreamEndCapture",
                              driver.cuStreamEndCapture(stream, &graph));
  if (!launched || !ended)
    return launched ? ended.error() : launched.error();
  CUgraphExec exec = nullptr;
  Status made = driver.check("cuGraphInstantiate",
                             driver.cuGraphInstantiate(&exec, graph, 0));
  driver.cuGraphDestroy(graph);
  if (!made)
    return made.error();
  return Graph(device, exec, &Driver::cuGraphExecDestroy);
}

Status GpuBench::addSet(uint32_t seed) {
  Result<RandomProblem> random =
      randomProblem(bundle.manifest(), shape.batch, shape.tokens, shape.heads,
                    seed, runner.threads());
  if (!random)
    return random.error();
  Result<DeviceTensors> tensors =
      DeviceTensors::upload(runner.gpu()->device(), random->args);
  if (!tensors)
    return tensors.error();
  DeviceTensors::Pointers pointers = tensors->pointers();
  sets.push_back({std::move(*tensors), std::move(pointers)});
  return Status::ok();
}

Status GpuBench::measureCopy() {
  const Device &device = runner.gpu()->device();
  size_t bytes = std::min<size_t>(size_t(1) << 30, device.memoryBytes / 16);
  Result<Memory> from = allocate(device, bytes), to = allocate(device, bytes);
  if (!from || !to)
    return (from ? to : from).error();
  Result<Graph> graph = record(device, stream.get(), [&] {
    return device.driver().check(
        "cuMemcpyDtoDAsync", device.driver().cuMemcpyDtoDAsync(
                                 to->get(), from->get(), bytes, stream.get()));
  });
  if (!graph)
    return graph.error();
  std::vector<Graph> graphs;
  graphs.push_back(std::move(*graph));
  Result<std::vector<double>> times = time(graphs, 0);
  if (!times)
    return times.error();
  rate = 2 * double(bytes) / median(*times);
  return Status::ok();
}

Status GpuBench::prepare() {
  const Device &device = runner.gpu()->device();
  Current current(device);
  if (Status s = current.status(); !s)
    return s;
  Result<Stream> made = makeStream(device);
  if (!made)
    return made.error();
  stream = std::move(*made);
  for (Event *event : {&begin, &end}) {
    Result<Event> one = makeEvent(device);
    if (!one)
      return one.error();
    *event = std::move(*one);
  }
  if (Status s = measureCopy(); !s)
    return s;
  if (Status s = addSet(1); !s)
    return s;
  // Twice the cache in all sets together, so that none is left of the first
  // when its turn comes again.
  int64_t bytes = std::max<int64_t>(
      bytesOnce(bundle.manifest(), sets[0].tensors.args()), 1);
  int64_t wanted = 2 * int64_t(device.l2Bytes) / bytes + 1;
  for (int i = 1; i < std::min<int64_t>(wanted, mostSets); ++i)
    if (Status s = addSet(uint32_t(i + 1)); !s)
      return s;
  return Status::ok();
}

Result<std::vector<double>> GpuBench::time(std::vector<Graph> &graphs,
                                           double limit) {
  const Driver &driver = runner.gpu()->device().driver();
  std::vector<double> times;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < warmups + leastReps ||
                  (i < warmups + mostReps && secondsSince(start) < limit);
       ++i) {
    float ms = 0;
    const std::pair<const char *, CUresult> calls[] = {
        {"cuEventRecord", driver.cuEventRecord(begin.get(), stream.get())},
        {"cuGraphLaunch",
         driver.cuGraphLaunch(graphs[size_t(i) % graphs.size()].get(),
                              stream.get())},
        {"cuEventRecord", driver.cuEventRecord(end.get(), stream.get())},
        {"cuEventSynchronize", driver.cuEventSynchronize(end.get())},
        {"cuEventElapsedTime",
         driver.cuEventElapsedTime(&ms, begin.get(), end.get())}};
    for (auto [call, result] : calls)
      if (Status s = driver.check(call, result); !s)
        return s.error();
    if (i >= warmups)
      times.push_back(double(ms));
  }
  return times;
}

Result<std::vector<Graph>> GpuBench::capture(const GpuPlan &plan,
                                             void *workspace, int index,
                                             bool decode) {
  const Device &device = runner.gpu()->device();
  std::vector<Graph> graphs;
  for (Set &set : sets) {
    GpuPointers pointers = set.pointers.get();
    // Decoding goes on from a state; a prompt starts from nothing.
    if (decode && pointers.finalStates)
      pointers.initialStates = pointers.finalStates;
    Result<Graph> graph = record(device, stream.get(), [&]() -> Status {
      if (index < 0)
        return plan.launch(pointers, workspace, plan.workspaceBytes(),
                           stream.get());
      plum_gpu_args args;
      if (Status s =
              plan.bind(pointers, workspace, plan.workspaceBytes(), args);
          !s)
        return s;
      return plan.enqueue(size_t(index), args, stream.get());
    });
    if (!graph)
      return graph.error();
    graphs.push_back(std::move(*graph));
  }
  return graphs;
}

Result<BenchLine> GpuBench::run(const RunOptions &options) {
  const Device &device = runner.gpu()->device();
  Current current(device);
  RunArgs args = sets[0].tensors.args();
  bool decode = shape.tokens == 1;
  if (decode)
    args.initialStates = args.finalStates;
  Result<GpuPlan> plan =
      runner.gpu()->executor().plan(args, gpuOptions(options));
  if (!plan)
    return plan.error();
  const LaunchPlan &launches = plan->plan();
  RunOptions small = options;
  small.segments = launches.segments;
  Result<double> error = smallError(bundle, runner, shape, small);
  if (!error)
    return error.error();
  BenchLine line;
  line.error = *error;
  line.form = name(launches.form);
  if (launches.form == KernelForm::Chunk)
    line.chunk = launches.chunk;
  line.segments = launches.segments;
  line.sets = int64_t(sets.size());
  line.code = name(runner.gpu()->executor().codeSource());
  line.bytes = bytesOnce(bundle.manifest(), args);
  line.floorMs = double(line.bytes) / rate;
  for (size_t i = 0; i < launches.launches.size(); ++i)
    line.flops += plan->kernel(i).flopsPerChunk *
                  chunksOf(launches.sizes, launches.chunk) * shape.heads;

  Result<Memory> workspace = allocate(device, plan->workspaceBytes());
  if (!workspace)
    return workspace.error();
  auto *memory = reinterpret_cast<void *>(workspace->get());
  // All of it first: a kernel alone then reads what those before it left.
  for (int i = -1; i < int(launches.launches.size()); ++i) {
    Result<std::vector<Graph>> graphs = capture(*plan, memory, i, decode);
    if (!graphs)
      return graphs.error();
    Result<std::vector<double>> times = time(*graphs, i < 0 ? seconds : 0);
    if (!times)
      return times.error();
    if (i < 0)
      summarize(*times, line);
    else
      line.kernels.push_back({plan->kernel(size_t(i)).symbol,
                              launches.launches[size_t(i)].grid,
                              median(*times)});
  }
  return line;
}

} // namespace plum::runtime::tool
