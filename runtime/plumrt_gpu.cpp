//===- plumrt_gpu.cpp - Runs on a GPU behind the C interface --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/CApi.h"
#include "runtime/cuda/GpuExecutor.h"

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::capi;

namespace {

struct LoadedBundle {
  Bundle bundle;
  std::string manifest;
  std::optional<cuda::GpuExecutor> executor; ///< Points to the bundle.
};

/// Given when there are any; the address is a launch's business.
Status indices(const char *what, int64_t count, int32_t dtype,
               IndexView &view) {
  static const int64_t given = 0;
  return count > 0 ? convert(what, &given, count, dtype, view) : Status::ok();
}

} // namespace

struct plumrt_gpu {
  std::shared_ptr<const LoadedBundle> loaded;
};

struct plumrt_plan {
  std::shared_ptr<const LoadedBundle> loaded;
  cuda::GpuPlan plan;
};

extern "C" int plumrt_gpu_open(const char *directory, int32_t device,
                               plumrt_gpu **gpu, char *error,
                               size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!directory || !gpu)
      return misuse("plumrt_gpu_open got a NULL argument");
    *gpu = nullptr;
    Result<Bundle> bundle = Bundle::open(directory);
    if (!bundle)
      return bundle.error();
    std::string manifest = writeManifest(bundle->manifest());
    auto loaded = std::make_shared<LoadedBundle>(
        LoadedBundle{std::move(*bundle), std::move(manifest), {}});
    Result<std::shared_ptr<const cuda::Device>> opened =
        cuda::Device::open(device);
    if (!opened)
      return opened.error();
    Result<cuda::GpuExecutor> executor =
        cuda::GpuExecutor::open(loaded->bundle, *opened);
    if (!executor)
      return executor.error();
    loaded->executor.emplace(std::move(*executor));
    *gpu = new plumrt_gpu{std::move(loaded)};
    return Status::ok();
  });
}

extern "C" void plumrt_gpu_close(plumrt_gpu *gpu) { delete gpu; }

extern "C" const char *plumrt_gpu_manifest(const plumrt_gpu *gpu) {
  return gpu ? gpu->loaded->manifest.c_str() : "";
}

extern "C" int plumrt_plan_create(plumrt_gpu *gpu, const plumrt_run_args *args,
                                  int64_t segments, plumrt_plan **plan,
                                  char *error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!gpu || !args || !plan)
      return misuse("plumrt_plan_create got a NULL argument");
    *plan = nullptr;
    plumrt_run_args fields;
    RunArgs run;
    if (Status status = known(
            "args", *args, offsetof(plumrt_run_args, initial_states), fields);
        !status)
      return status;
    for (Status status :
         {convertTensors(gpu->loaded->bundle.manifest(), fields, run),
          indices("args.cu_seqlens", fields.cu_count, fields.cu_dtype,
                  run.cuSeqlens),
          indices("args.slots", fields.slot_count, fields.slot_dtype,
                  run.slots),
          indices("args.past", fields.past_count, fields.past_dtype, run.past)})
      if (!status)
        return status;
    cuda::GpuOptions options{Form(fields.form), fields.chunk, segments};
    Result<cuda::GpuPlan> made = gpu->loaded->executor->plan(run, options);
    if (!made)
      return made.error();
    *plan = new plumrt_plan{gpu->loaded, std::move(*made)};
    return Status::ok();
  });
}

extern "C" void plumrt_plan_destroy(plumrt_plan *plan) { delete plan; }

extern "C" int plumrt_plan_query(const plumrt_plan *plan,
                                 plumrt_plan_info *info, char *error,
                                 size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!plan || !info)
      return misuse("plumrt_plan_query got a NULL argument");
    plumrt_plan_info fields;
    if (Status status =
            known("info", *info, offsetof(plumrt_plan_info, chunk), fields);
        !status)
      return status;
    const cuda::LaunchPlan &launches = plan->plan.plan();
    fields.workspace_bytes = plan->plan.workspaceBytes();
    fields.chunk = launches.chunk;
    fields.segments = launches.segments;
    fields.form =
        launches.form == KernelForm::Step ? PLUMRT_STEP : PLUMRT_CHUNK;
    fields.kernels = int32_t(launches.launches.size());
    std::memcpy(info, &fields, info->size);
    return Status::ok();
  });
}

extern "C" int plumrt_plan_launch(const plumrt_plan *plan,
                                  const plumrt_launch *launch, char *error,
                                  size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!plan || !launch)
      return misuse("plumrt_plan_launch got a NULL argument");
    plumrt_launch fields;
    if (Status status =
            known("launch", *launch, offsetof(plumrt_launch, past), fields);
        !status)
      return status;
    cuda::GpuPointers pointers{
        fields.params,       fields.inputs,  fields.initial_states,
        fields.final_states, fields.outputs, fields.snapshots,
        fields.cu_seqlens,   fields.slots,   fields.past};
    return plan->plan.launch(pointers, fields.workspace, fields.workspace_bytes,
                             static_cast<cuda::CUstream>(fields.stream));
  });
}

extern "C" int plumrt_gpu_workspace(const plumrt_gpu *gpu, int32_t form,
                                    int64_t chunk, int64_t sequences,
                                    int64_t tokens, int64_t heads,
                                    int32_t packed, int64_t segments,
                                    uint64_t *bytes, char *error,
                                    size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!gpu || !bytes)
      return misuse("plumrt_gpu_workspace got a NULL argument");
    if (sequences < 0 || tokens < 0 || heads < 1 || segments < 1)
      return misuse("plumrt_gpu_workspace got a negative size, or no head or "
                    "segment");
    const Manifest &manifest = gpu->loaded->bundle.manifest();
    for (const cuda::KernelSet &set : cuda::kernelSets(manifest)) {
      if ((set.form == KernelForm::Step) != (form == PLUMRT_STEP) ||
          (chunk != 0 && set.chunk != chunk))
        continue;
      Result<cuda::WorkspaceSections> sections = cuda::workspaceFor(
          manifest, set, {sequences, tokens, heads, packed != 0}, segments);
      if (!sections)
        return sections.error();
      *bytes = sections->bytes;
      return Status::ok();
    }
    return misuse("the bundle has no such kernel");
  });
}
