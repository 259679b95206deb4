//===- HostGpu.cpp - The GPU backend on the CPU ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/unit/model/HostGpu.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <list>

namespace plum::model::test {

namespace {

/// A memory of the CPU in a stream: every run is a host function of it.
class HostKernel : public MemoryKernel {
public:
  HostKernel(Machine &machine, std::shared_ptr<MemoryKernel> kernel)
      : machine(machine), kernel(std::move(kernel)) {}
  const runtime::Manifest &manifest() const override {
    return kernel->manifest();
  }
  Status run(const runtime::RunArgs &args, int) override {
    calls.push_back({kernel.get(), args});
    auto run = [](void *data) {
      auto *call = static_cast<Call *>(data);
      Status status = call->kernel->run(call->args, 1);
      EXPECT_TRUE(status) << status.error().str();
    };
    return machine.driver().check("cuLaunchHostFunc",
                                  machine.driver().cuLaunchHostFunc(
                                      machine.stream(), run, &calls.back()));
  }

private:
  struct Call {
    MemoryKernel *kernel;
    runtime::RunArgs args;
  };
  Machine &machine;
  std::shared_ptr<MemoryKernel> kernel;
  std::list<Call> calls; ///< Those that were recorded are done again.
};

} // namespace

static std::unique_ptr<Machine> openMachine() {
  auto machine = Machine::open();
  if (!machine) {
    ADD_FAILURE() << machine.error().str();
    std::abort();
  }
  return std::move(*machine);
}

std::string bundleOf(const std::string &fixture) {
  const char *bundles = std::getenv("PLUM_GPU_BUNDLES");
  return bundles ? std::string(bundles) + "/" + fixture : "";
}

std::shared_ptr<GpuBackend> someGpu(GpuBackendOptions options) {
  if (bundleOf("").empty())
    return hostGpu(std::move(options));
  return std::make_shared<GpuBackend>(openMachine(), std::move(options));
}

std::shared_ptr<GpuBackend> hostGpu(GpuBackendOptions options) {
  setenv("PLUM_LIBCUDA", HOST_CUDA, 1);
  setenv("PLUM_LIBCUBLASLT", HOST_CUBLASLT, 1);
  setenv("PLUM_CACHE", "/nonexistent", 1);
  options.openMemory = [](Machine &on, const std::string &bundle,
                          const MemorySpec &spec,
                          Compute) -> Result<std::shared_ptr<MemoryKernel>> {
    auto kernel = bundle.empty() ? MemoryKernel::reference(spec)
                                 : MemoryKernel::open(bundle, spec);
    if (!kernel)
      return kernel.error();
    return std::shared_ptr<MemoryKernel>(
        std::make_shared<HostKernel>(on, std::move(*kernel)));
  };
  return std::make_shared<GpuBackend>(openMachine(), std::move(options));
}

} // namespace plum::model::test
