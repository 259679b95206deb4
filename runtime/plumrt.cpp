//===- plumrt.cpp - The runtime behind a C interface ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/plumrt.h"

#include "runtime/Executor.h"

#include <algorithm>
#include <cstring>
#include <exception>

using namespace plum;
using namespace plum::runtime;

struct plumrt_bundle {
  Bundle bundle;
  std::string manifest;
  Executor executor{bundle};
};

namespace {

int fail(const std::string &message, char *error, size_t size) {
  if (error && size > 0) {
    size_t length = std::min(message.size(), size - 1);
    std::memcpy(error, message.data(), length);
    error[length] = '\0';
  }
  return 1;
}

/// No exception crosses the C interface; what can still throw is memory.
template <typename Fn> int guarded(char *error, size_t size, Fn body) {
  try {
    Status status = body();
    return status ? 0 : fail(status.error().str(), error, size);
  } catch (const std::exception &exception) {
    return fail(std::string("error: ") + exception.what(), error, size);
  } catch (...) {
    return fail("error: unknown", error, size);
  }
}

Error misuse(const std::string &message) { return {"plumrt", message, {}}; }

Status convert(const char *what, const plumrt_tensor *tensors, size_t count,
               bool optional, std::vector<TensorView> &views) {
  if (!tensors && count > 0 && !optional)
    return misuse(std::string(what) + " is NULL, expected " +
                  std::to_string(count) + " tensors");
  for (size_t i = 0; tensors && i < count; ++i) {
    const plumrt_tensor &tensor = tensors[i];
    if (tensor.dtype < PLUMRT_F32 || tensor.dtype > PLUMRT_I64)
      return misuse(std::string(what) + "[" + std::to_string(i) +
                    "].dtype is " + std::to_string(tensor.dtype) +
                    ", expected a PLUMRT_ dtype");
    TensorView view;
    view.data = tensor.data;
    view.dtype = DType(tensor.dtype);
    std::copy_n(tensor.shape, 4, view.shape);
    std::copy_n(tensor.stride, 4, view.stride);
    views.push_back(view);
  }
  return Status::ok();
}

Status convert(const char *what, const void *data, int64_t count, int32_t dtype,
               IndexView &view) {
  if (!data)
    return Status::ok();
  if (count < 0 || (dtype != PLUMRT_I32 && dtype != PLUMRT_I64))
    return misuse(std::string(what) + " has count " + std::to_string(count) +
                  " and dtype " + std::to_string(dtype) +
                  ", expected a count and PLUMRT_I32 or PLUMRT_I64");
  view = {data, DType(dtype), count};
  return Status::ok();
}

Status inRange(const char *what, int32_t value, int32_t last) {
  if (value >= 0 && value <= last)
    return Status::ok();
  return misuse(std::string(what) + " is " + std::to_string(value) +
                ", expected 0 to " + std::to_string(last));
}

Status run(plumrt_bundle &handle, const plumrt_run_args &given) {
  // A caller built against an older header knows fewer fields.
  plumrt_run_args args = {};
  if (given.size < offsetof(plumrt_run_args, initial_states) ||
      given.size > sizeof(args))
    return misuse("args.size is " + std::to_string(given.size) +
                  ", expected at most " + std::to_string(sizeof(args)));
  std::memcpy(&args, &given, given.size);
  const Manifest &manifest = handle.bundle.manifest();
  size_t states = manifest.states.size();
  RunArgs run;
  RunOptions options;
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
        convert("args.snapshots", args.snapshots, states, true, run.snapshots),
        convert("args.cu_seqlens", args.cu_seqlens, args.cu_count,
                args.cu_dtype, run.cuSeqlens),
        convert("args.slots", args.slots, args.slot_count, args.slot_dtype,
                run.slots)})
    if (!status)
      return status;
  run.layout = StateLayout(args.layout);
  run.snapshotEvery = args.states_every;
  options.form = Form(args.form);
  options.chunk = args.chunk;
  options.threads = args.threads;
  return handle.executor.run(run, options);
}

} // namespace

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
