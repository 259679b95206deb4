//===- HostRun.cpp - A GPU run on tensors in host memory ------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/HostRun.h"

#include <algorithm>

namespace plum::runtime::cuda {

void DeviceTensors::add(const TensorView &view, bool written) {
  if (view.elements() == 0)
    return;
  int64_t first = 0, last = 0;
  for (int axis = 0; axis < 4; ++axis) {
    int64_t span = (view.shape[axis] - 1) * view.stride[axis];
    (span < 0 ? first : last) += span;
  }
  auto width = int64_t(byteSize(view.dtype));
  const char *data = static_cast<const char *>(view.data);
  regions.push_back(
      {data + first * width, data + (last + 1) * width, written, {}});
}

void DeviceTensors::add(const IndexView &view) {
  const char *data = static_cast<const char *>(view.data);
  if (view)
    regions.push_back(
        {data,
         data + std::max<int64_t>(view.count, 1) * byteSize(view.dtype),
         false,
         {}});
}

/// Regions that overlap become one.
void DeviceTensors::merge() {
  std::sort(regions.begin(), regions.end(),
            [](const Region &a, const Region &b) { return a.begin < b.begin; });
  std::vector<Region> merged;
  for (Region &region : regions)
    if (!merged.empty() && region.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, region.end);
      merged.back().written |= region.written;
    } else
      merged.push_back(std::move(region));
  regions = std::move(merged);
}

Status DeviceTensors::copyIn() {
  for (Region &region : regions) {
    auto bytes = size_t(region.end - region.begin);
    Result<Memory> memory = allocate(*device, bytes);
    if (!memory)
      return memory.error();
    region.memory = std::move(*memory);
    const Driver &driver = device->driver();
    if (Status s = driver.check(
            "cuMemcpyHtoD",
            driver.cuMemcpyHtoD(region.memory.get(), region.begin, bytes));
        !s)
      return s;
  }
  return Status::ok();
}

void *DeviceTensors::translate(const void *host) const {
  const char *data = static_cast<const char *>(host);
  for (const Region &region : regions)
    if (data >= region.begin && data < region.end)
      return reinterpret_cast<void *>(region.memory.get() +
                                      uint64_t(data - region.begin));
  return nullptr; // Of a tensor without elements.
}

Result<DeviceTensors> DeviceTensors::upload(const Device &device,
                                            const RunArgs &args) {
  DeviceTensors tensors;
  tensors.device = &device;
  tensors.views = args;
  RunArgs &views = tensors.views;
  for (auto *list : {&views.inputs, &views.params, &views.initialStates})
    for (const TensorView &view : *list)
      tensors.add(view, false);
  for (auto *list : {&views.outputs, &views.finalStates, &views.snapshots})
    for (const TensorView &view : *list)
      tensors.add(view, true);
  tensors.add(args.cuSeqlens);
  tensors.add(args.slots);
  tensors.add(args.past);
  tensors.merge();
  Current current(device);
  if (Status s = current.status(); !s)
    return s.error();
  if (Status s = tensors.copyIn(); !s)
    return s.error();
  for (auto *list : {&views.inputs, &views.params, &views.initialStates,
                     &views.outputs, &views.finalStates, &views.snapshots})
    for (TensorView &view : *list)
      view.data = tensors.translate(view.data);
  for (IndexView *view : {&views.cuSeqlens, &views.slots, &views.past})
    if (*view)
      view->data = tensors.translate(view->data);
  return tensors;
}

Status DeviceTensors::download() const {
  Current current(*device);
  const Driver &driver = device->driver();
  for (const Region &region : regions)
    if (region.written)
      if (Status s = driver.check(
              "cuMemcpyDtoH",
              driver.cuMemcpyDtoH(const_cast<char *>(region.begin),
                                  region.memory.get(),
                                  size_t(region.end - region.begin)));
          !s)
        return s;
  return Status::ok();
}

DeviceTensors::Pointers DeviceTensors::pointers() const {
  Pointers result;
  auto list = [](const std::vector<TensorView> &views) {
    std::vector<void *> addresses;
    for (const TensorView &view : views)
      addresses.push_back(view.data);
    return addresses;
  };
  result.params = list(views.params);
  result.inputs = list(views.inputs);
  result.initial = list(views.initialStates);
  result.final = list(views.finalStates);
  result.outputs = list(views.outputs);
  if (views.snapshotEvery > 0)
    result.snapshots = list(views.snapshots);
  result.cuSeqlens = views.cuSeqlens.data;
  result.slots = views.slots.data;
  result.past = views.past.data;
  return result;
}

GpuPointers DeviceTensors::Pointers::get() const {
  auto list = [](const std::vector<void *> &addresses) {
    return addresses.empty() ? nullptr : addresses.data();
  };
  return {list(params), list(inputs),  list(initial),
          list(final),  list(outputs), list(snapshots),
          cuSeqlens,    slots,         past};
}

Result<HostRunner> HostRunner::open(const Bundle &bundle,
                                    std::shared_ptr<const Device> device) {
  Result<GpuExecutor> executor = GpuExecutor::open(bundle, std::move(device));
  if (!executor)
    return executor.error();
  Result<Stream> stream = makeStream(executor->device());
  if (!stream)
    return stream.error();
  return HostRunner(bundle, std::move(*executor), std::move(*stream));
}

/// `args` for one sequence alone.
static RunArgs only(const Sequence &sequence, const RunArgs &args) {
  RunArgs alone = args;
  alone.cuSeqlens = alone.slots = {};
  for (auto *list : {&alone.inputs, &alone.outputs})
    for (TensorView &view : *list) {
      view.data = view.at(sequence.batch, sequence.begin, 0);
      view.shape[0] = 1;
      view.shape[1] = sequence.length;
    }
  for (auto *list : {&alone.initialStates, &alone.finalStates})
    for (TensorView &view : *list) {
      view.data = view.at(sequence.slot, 0, 0);
      view.shape[0] = 1;
    }
  for (TensorView &view : alone.snapshots) {
    view.data = view.at(sequence.snapshot, 0, 0);
    view.shape[0] = sequence.length / args.snapshotEvery;
  }
  return alone;
}

Status HostRunner::run(const RunArgs &args, const GpuOptions &options) {
  Result<Problem> problem = checkProblem(bundle->manifest(), args);
  if (!problem)
    return problem.error();
  if (bundle->manifest().growingState() && args.finalStates.empty())
    return runWithLists(args, *problem, options);
  if (args.snapshotEvery == 0 || args.cuSeqlens || !args.slots)
    return runOnce(args, options);
  // In a batch a launch has a place for those of padding, and a result has not.
  for (const Sequence &sequence : problem->sequences)
    if (sequence.slot >= 0)
      if (Status s = runOnce(only(sequence, args), options); !s)
        return s;
  return Status::ok();
}

/// Rows need a place to be appended to, even if nobody wants to see them.
Status HostRunner::runWithLists(const RunArgs &args, const Problem &problem,
                                const GpuOptions &options) {
  const Manifest &manifest = bundle->manifest();
  int64_t slots = std::max(problem.sequenceCount, problem.pool), room = 0;
  for (const Sequence &sequence : problem.sequences)
    room = std::max(room, sequence.rows());
  RunArgs all = args;
  std::vector<std::vector<float>> memory;
  for (size_t i = 0; i < manifest.states.size(); ++i) {
    int64_t heads = problem.stateHeads(i), d = manifest.states[i].elements();
    memory.emplace_back(size_t(slots * heads * room * d));
    all.finalStates.push_back(TensorView::dense(
        memory.back().data(), DType::F32, slots, heads, room, d));
  }
  return runOnce(all, options);
}

Status HostRunner::runOnce(const RunArgs &args, const GpuOptions &options) {
  // The addresses are not the GPU's, but the strides are what is planned for.
  RunArgs shapes = args;
  for (auto *list :
       {&shapes.inputs, &shapes.params, &shapes.outputs, &shapes.initialStates,
        &shapes.finalStates, &shapes.snapshots})
    for (TensorView &view : *list)
      view.data = nullptr;
  // There is room for those that there are; a plan asks for the most.
  const TensorView &rows =
      (args.inputs.empty() ? args.outputs : args.inputs)[0];
  if (args.snapshotEvery > 0 && args.cuSeqlens)
    for (TensorView &view : shapes.snapshots)
      view.shape[0] =
          std::max(view.shape[0], rows.shape[1] / args.snapshotEvery);
  Result<GpuPlan> plan = gpu.plan(shapes, options);
  if (!plan)
    return plan.error();
  const Driver &driver = device().driver();
  Current current(device());
  if (Status s = current.status(); !s)
    return s;
  Result<Memory> workspace = allocate(device(), plan->workspaceBytes());
  if (!workspace)
    return workspace.error();
  if (*workspace)
    if (Status s = driver.check(
            "cuMemsetD8",
            driver.cuMemsetD8(workspace->get(), 0xff, plan->workspaceBytes()));
        !s)
      return s;
  Result<DeviceTensors> tensors = DeviceTensors::upload(device(), args);
  if (!tensors)
    return tensors.error();
  DeviceTensors::Pointers pointers = tensors->pointers();
  plum_gpu_args kernelArgs;
  if (Status s =
          plan->bind(pointers.get(), reinterpret_cast<void *>(workspace->get()),
                     plan->workspaceBytes(), kernelArgs);
      !s)
    return s;
  // The null stream's copies and memsets come first.
  if (Status s = driver.check("cuStreamSynchronize",
                              driver.cuStreamSynchronize(nullptr));
      !s)
    return s;
  for (size_t i = 0; i < plan->plan().launches.size(); ++i) {
    if (!plan->takes(i, kernelArgs))
      continue;
    if (Status s = plan->enqueue(i, kernelArgs, stream.get()); !s)
      return s;
    if (Status s =
            driver.check("kernel " + plan->kernel(i).symbol + ", grid " +
                             std::to_string(plan->plan().launches[i].grid),
                         driver.cuStreamSynchronize(stream.get()));
        !s)
      return s;
  }
  return tensors->download();
}

} // namespace plum::runtime::cuda
