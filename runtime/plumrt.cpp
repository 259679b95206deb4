//===- plumrt.cpp - The runtime behind a C interface ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/CApi.h"

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::capi;

struct plumrt_bundle {
  Bundle bundle;
  std::string manifest;
  Executor executor{bundle};
};

namespace {

Status run(plumrt_bundle &handle, const plumrt_run_args &given) {
  plumrt_run_args args;
  if (Status status =
          known("args", given, offsetof(plumrt_run_args, initial_states), args);
      !status)
    return status;
  RunArgs run;
  RunOptions options;
  for (Status status : {convertTensors(handle.bundle.manifest(), args, run),
                        convert("args.cu_seqlens", args.cu_seqlens,
                                args.cu_count, args.cu_dtype, run.cuSeqlens),
                        convert("args.slots", args.slots, args.slot_count,
                                args.slot_dtype, run.slots),
                        convert("args.past", args.past, args.past_count,
                                args.past_dtype, run.past)})
    if (!status)
      return status;
  options.form = Form(args.form);
  options.chunk = args.chunk;
  options.threads = args.threads;
  return handle.executor.run(run, options);
}

} // namespace

Status capi::convertTensors(const Manifest &manifest,
                            const plumrt_run_args &args, RunArgs &run) {
  size_t states = manifest.states.size();
  for (Status status :
       {inRange("args.layout", args.layout, PLUMRT_VK),
        inRange("args.form", args.form, PLUMRT_CHUNK),
        convert("args.inputs", args.inputs, manifest.inputs.size(), false,
                run.inputs),
        convert("args.params", args.params, manifest.params.size(), false,
                run.params),
        convert("args.outputs", args.outputs, manifest.outputs.size(), false,
                run.outputs),
        convert("args.initial_states", args.initial_states, states, true,
                run.initialStates),
        convert("args.final_states", args.final_states, states, true,
                run.finalStates),
        convert("args.snapshots", args.snapshots, states, true, run.snapshots)})
    if (!status)
      return status;
  run.layout = StateLayout(args.layout);
  run.snapshotEvery = args.states_every;
  return Status::ok();
}

static_assert(int(DType::F32) == PLUMRT_F32 && int(DType::F16) == PLUMRT_F16 &&
              int(DType::BF16) == PLUMRT_BF16 &&
              int(DType::I32) == PLUMRT_I32 && int(DType::I64) == PLUMRT_I64);
static_assert(int(Form::Step) == PLUMRT_STEP &&
              int(Form::Chunk) == PLUMRT_CHUNK);

extern "C" int plumrt_open(const char *directory, plumrt_bundle **bundle,
                           char *error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!directory || !bundle)
      return misuse("plumrt_open got a NULL argument");
    *bundle = nullptr;
    Result<Bundle> opened = Bundle::open(directory);
    if (!opened)
      return opened.error();
    std::string manifest = writeManifest(opened->manifest());
    *bundle = new plumrt_bundle{std::move(*opened), std::move(manifest)};
    return Status::ok();
  });
}

extern "C" void plumrt_close(plumrt_bundle *bundle) { delete bundle; }

extern "C" int plumrt_run(plumrt_bundle *bundle, const plumrt_run_args *args,
                          char *error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (!bundle || !args)
      return misuse("plumrt_run got a NULL argument");
    return run(*bundle, *args);
  });
}

extern "C" const char *plumrt_manifest(const plumrt_bundle *bundle) {
  return bundle ? bundle->manifest.c_str() : "";
}
