//===- GpuExecutor.cpp - Runs a bundle on a GPU ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/GpuExecutor.h"

namespace plum::runtime::cuda {

static uint64_t address(const void *pointer) {
  return uint64_t(reinterpret_cast<uintptr_t>(pointer));
}

Status GpuPlan::bind(const GpuPointers &pointers, void *workspace,
                     uint64_t bytes, plum_gpu_args &args) const {
  const WorkspaceSections &sections = contents.workspace;
  if (bytes < sections.bytes || (sections.bytes > 0 && !workspace))
    return Error{"",
                 "the workspace has " + std::to_string(workspace ? bytes : 0) +
                     " bytes, expected " + std::to_string(sections.bytes),
                 {}};
  if (sections.bytes > 0 && address(workspace) % 256 != 0)
    return Error{"", "the workspace is not on a 256-byte boundary", {}};
  bool packed = contents.sizes.packed;
  if (packed != (pointers.cuSeqlens != nullptr))
    return Error{"",
                 packed ? "cu_seqlens is null, the plan is for packed sequences"
                        : "got cu_seqlens, the plan is for a batch",
                 {}};
  if (contents.pool != (pointers.slots != nullptr))
    return Error{"",
                 contents.pool ? "slots is null, the plan is for a state pool"
                               : "got slots, the plan has no state pool",
                 {}};
  if (contents.past != (pointers.past != nullptr))
    return Error{"",
                 contents.past
                     ? "past is null, the plan is for growing states with it"
                     : "got past, the plan was made without",
                 {}};
  args = contents.args;
  if (address(pointers.past) % (args.flags & PLUM_GPU_PAST64 ? 8 : 4) != 0)
    return Error{"", "past is not aligned to its element size", {}};
  if (address(pointers.cuSeqlens) % (args.flags & PLUM_GPU_CU64 ? 8 : 4) != 0 ||
      address(pointers.slots) % (args.flags & PLUM_GPU_SLOTS64 ? 8 : 4) != 0)
    return Error{
        "", "cu_seqlens or slots are not aligned to their element size", {}};
  args.workspace = address(workspace);
  args.cu_seqlens = address(pointers.cuSeqlens);
  args.slots = address(pointers.slots);
  args.past = address(pointers.past);
  if (packed)
    args.chunk_offsets = args.workspace + sections.chunkOffsets;
  args.blobs = args.workspace + sections.blobs;
  if (contents.segments > 1)
    args.segment_states = args.workspace + sections.segments;

  size_t place = 0;
  auto list = [&](const void *const *given, size_t count) -> Status {
    for (size_t i = 0; i < count; ++i, ++place) {
      const LaunchPlan::Slot &slot = contents.slots[place];
      uint64_t data = given ? address(given[i]) : 0;
      if (data == 0 ? !slot.optional && !slot.empty
                    : !slot.given || data % slot.alignment != 0)
        return Error{"",
                     std::string(slot.what) + " '" + slot.tensor->name + "' " +
                         (data == 0     ? "is null"
                          : !slot.given ? "is given, the plan was made without"
                                        : "is not on a " +
                                              std::to_string(slot.alignment) +
                                              "-byte boundary"),
                     {}};
      args.tensors[place].data = data;
    }
    return Status::ok();
  };
  size_t states = manifest->states.size();
  if (Status s = list(pointers.params, manifest->params.size()); !s)
    return s;
  if (Status s = list(pointers.inputs, manifest->inputs.size()); !s)
    return s;
  if (Status s = list(pointers.initialStates, states); !s)
    return s;
  if (Status s = list(pointers.finalStates, states); !s)
    return s;
  if (Status s = list(pointers.outputs, manifest->outputs.size()); !s)
    return s;
  return list(pointers.snapshots, states);
}

bool GpuPlan::takes(size_t index, const plum_gpu_args &args) const {
  if (!contents.launches[index].ifApart)
    return true;
  const std::vector<ManifestTensor> &states = manifest->states;
  const plum_gpu_tensor *initial =
      args.tensors + manifest->params.size() + manifest->inputs.size();
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].grows && initial[i].data != 0 &&
        initial[i].data != initial[states.size() + i].data)
      return true;
  return false;
}

Status GpuPlan::enqueue(size_t index, plum_gpu_args &args,
                        CUstream stream) const {
  const Driver &driver = module->device().driver();
  const LaunchPlan::Launch &launch = contents.launches[index];
  const ManifestKernel &info = kernel(index);
  void *parameters[] = {&args};
  CUresult result = driver.cuLaunchKernel(
      module->functions()[launch.kernel], launch.grid, 1, 1,
      unsigned(info.threads), 1, 1, unsigned(info.sharedBytes), stream,
      parameters, nullptr);
  if (result == CUDA_SUCCESS)
    return Status::ok();
  return driver.failure("cuLaunchKernel(" + info.symbol + ", grid " +
                            std::to_string(launch.grid) + ", block " +
                            std::to_string(info.threads) + ", " +
                            std::to_string(info.sharedBytes) + " B shared)",
                        result);
}

Status GpuPlan::launch(const GpuPointers &pointers, void *workspace,
                       uint64_t bytes, CUstream stream) const {
  plum_gpu_args args;
  if (Status status = bind(pointers, workspace, bytes, args); !status)
    return status;
  Current current(module->device());
  if (Status status = current.status(); !status)
    return status;
  for (size_t i = 0; i < contents.launches.size(); ++i)
    if (!takes(i, args))
      continue;
    else if (Status status = enqueue(i, args, stream); !status)
      return status;
  return Status::ok();
}

Result<GpuExecutor> GpuExecutor::open(const Bundle &bundle,
                                      std::shared_ptr<const Device> device) {
  Result<Module> module = Module::load(bundle, std::move(device));
  if (!module)
    return module.error();
  GpuExecutor executor;
  executor.bundle = &bundle;
  executor.module = std::make_unique<const Module>(std::move(*module));
  return executor;
}

Result<GpuPlan> GpuExecutor::plan(const RunArgs &args,
                                  const GpuOptions &options) const {
  Result<LaunchPlan> plan =
      planLaunch(bundle->manifest(), args, options, device().processors);
  if (!plan)
    return plan.error();
  return GpuPlan(std::move(*plan), bundle->manifest(), *module);
}

} // namespace plum::runtime::cuda
