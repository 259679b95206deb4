//===- GpuMemory.cpp - Compiled memory layers on a GPU --------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bundle has each memory twice: KEY computes in bf16 (chunks of tokens, and
// single ones), KEY.f32 in f32, token by token.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/GpuExecutor.h"
#include "runtime/model/Config.h"
#include "runtime/model/gpu/Machine.h"

namespace plum::model {

using namespace runtime;
using namespace runtime::cuda;

namespace {

class GpuMemoryKernel : public MemoryKernel {
public:
  GpuMemoryKernel(Machine &machine, Bundle loaded)
      : machine(machine), bundle(std::move(loaded)) {}
  Status open() {
    Result<GpuExecutor> opened = GpuExecutor::open(bundle, machine.shared());
    if (!opened)
      return opened.error();
    executor.emplace(std::move(*opened));
    return Status::ok();
  }
  const Manifest &manifest() const override { return bundle.manifest(); }

  /// A sequence's bits shall not depend on its batch: one segment.
  Status run(const RunArgs &args, int) override {
    GpuOptions options;
    options.segments = 1;
    Result<GpuPlan> plan = executor->plan(args, options);
    if (!plan)
      return plan.error();
    uint64_t bytes = plan->workspaceBytes();
    if (bytes > (workspaces.empty() ? 0 : workspaceBytes)) {
      // The smaller ones stay: recorded passes have their addresses.
      Result<Memory> larger = allocate(machine.device(), bytes);
      if (!larger)
        return larger.error();
      workspaces.push_back(std::move(*larger));
      workspaceBytes = bytes;
    }
    auto addresses = [](const std::vector<TensorView> &views) {
      std::vector<void *> list;
      for (const TensorView &view : views)
        list.push_back(view.data);
      return list;
    };
    std::vector<void *> params = addresses(args.params),
                        inputs = addresses(args.inputs),
                        initial = addresses(args.initialStates),
                        final = addresses(args.finalStates),
                        outputs = addresses(args.outputs);
    GpuPointers pointers;
    pointers.params = params.data();
    pointers.inputs = inputs.data();
    pointers.initialStates = initial.data();
    pointers.finalStates = final.data();
    pointers.outputs = outputs.data();
    pointers.cuSeqlens = args.cuSeqlens.data;
    pointers.slots = args.slots.data;
    void *workspace =
        workspaces.empty()
            ? nullptr
            : reinterpret_cast<void *>(uintptr_t(workspaces.back().get()));
    return plan->launch(pointers, workspace, workspaceBytes, machine.stream());
  }

private:
  Machine &machine;
  Bundle bundle;
  std::optional<GpuExecutor> executor;
  std::vector<Memory> workspaces;
  uint64_t workspaceBytes = 0;
};

} // namespace

Result<std::shared_ptr<MemoryKernel>> openGpuMemory(Machine &machine,
                                                    const std::string &bundle,
                                                    const MemorySpec &spec,
                                                    Compute compute) {
  if (bundle.empty())
    return Error{"",
                 "memories are not compiled, which a GPU needs",
                 {"'plum compile MODEL --target sm_90a -o BUNDLE' does it"}};
  std::string path =
      bundle + "/" + spec.key() + (compute == Compute::F32 ? ".f32" : "");
  Result<Bundle> opened = Bundle::open(path);
  if (!opened)
    return opened.error();
  const Manifest &manifest = opened->manifest();
  Result<std::string> text = readFile(path + "/" + manifest.source, 1 << 20);
  if (!text)
    return text.error();
  std::map<std::string, int64_t> dims(manifest.dims.begin(),
                                      manifest.dims.end());
  if (*text != spec.text() || dims != spec.dims)
    return Error{path,
                 "was compiled from another spec than this runtime has",
                 {"'plum compile MODEL -o BUNDLE' makes it anew"}};
  if (manifest.target == "cpu")
    return Error{
        path,
        "is for the CPU",
        {"'plum compile MODEL --target sm_90a -o BUNDLE' makes one for "
         "a GPU"}};
  auto kernel = std::make_shared<GpuMemoryKernel>(machine, std::move(*opened));
  if (Status status = kernel->open(); !status)
    return status.error();
  return std::shared_ptr<MemoryKernel>(std::move(kernel));
}

} // namespace plum::model
