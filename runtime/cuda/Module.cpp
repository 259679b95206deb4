//===- Module.cpp - Load the kernels of a bundle onto a GPU ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Module.h"

#include <cstdlib>
#include <filesystem>

namespace plum::runtime::cuda {

Status checkTarget(const std::string &target, const Device &device) {
  // sm_90a: compute capability 9.0 and no other. sm_80: 8.0 and later.
  int number = std::atoi(target.c_str() + 3);
  int own = device.major * 10 + device.minor;
  char suffix = target.back();
  bool exact = suffix == 'a', family = suffix == 'f';
  if (exact ? own == number
            : own >= number && (!family || device.major == number / 10))
    return Status::ok();
  return Error{"",
               "is compiled for " + target + ", this GPU is " +
                   device.architecture() + " (" + device.name + ")",
               {exact ? "code for " + target +
                            " runs on that architecture alone; '--target "
                            "sm_80' makes code for every later one"
                      : "code for an architecture runs on later ones, not on "
                        "earlier ones"}};
}

namespace {

/// The bundle's machine code, or what its PTX becomes.
Result<Owned<CUmodule>> loadCode(const Bundle &bundle, const Device &device,
                                 CodeSource &source) {
  std::string path = bundle.directory() + "/" + bundle.manifest().object;
  source = CodeSource::Cubin;
  std::string cubin =
      std::filesystem::path(path).replace_extension(".cubin").string();
  if (Owned<CUmodule> module = loadCubin(device, cubin))
    return module;
  std::optional<std::string> ptx = readCode(path);
  if (!ptx)
    return Error{
        path, "cannot be read", {"manifest.json names it as 'object'"}};
  return loadPtx(device, *ptx, path, source);
}

/// What the driver and the device must grant a kernel.
Status prepare(const Device &device, const ManifestKernel &kernel,
               CUfunction function) {
  const Driver &driver = device.driver();
  if (kernel.sharedBytes > device.sharedBytes)
    return Error{"",
                 "kernel '" + kernel.symbol + "' needs " +
                     std::to_string(kernel.sharedBytes) +
                     " B of shared memory, a block on this GPU has at most " +
                     std::to_string(device.sharedBytes),
                 {}};
  int threads = 0;
  if (Status status = driver.check(
          "cuFuncGetAttribute(" + kernel.symbol + ")",
          driver.cuFuncGetAttribute(
              &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
      !status)
    return status;
  if (kernel.threads > threads)
    return Error{"",
                 "kernel '" + kernel.symbol + "' runs " +
                     std::to_string(kernel.threads) +
                     " threads, its registers allow " + std::to_string(threads),
                 {}};
  return driver.check(
      "cuFuncSetAttribute(" + kernel.symbol + ", " +
          std::to_string(kernel.sharedBytes) + " B shared)",
      driver.cuFuncSetAttribute(function,
                                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                int(kernel.sharedBytes)));
}

} // namespace

Result<Module> Module::load(const Bundle &bundle,
                            std::shared_ptr<const Device> device) {
  auto here = [&](Error error) {
    if (error.where.empty())
      error.where = bundle.directory();
    return error;
  };
  const Manifest &manifest = bundle.manifest();
  if (!manifest.onGpu())
    return here(
        {"", "has no cuda kernel, it was compiled for " + manifest.target, {}});
  if (Status status = checkTarget(manifest.target, *device); !status)
    return here(status.error());
  Current current(*device);
  if (Status status = current.status(); !status)
    return here(status.error());
  Module module;
  module.gpu = std::move(device);
  const Driver &driver = module.gpu->driver();
  Result<Owned<CUmodule>> loaded = loadCode(bundle, *module.gpu, module.from);
  if (!loaded)
    return here(loaded.error());
  module.module = std::move(*loaded);
  for (const ManifestKernel &kernel : manifest.kernels) {
    CUfunction function = nullptr;
    if (Status status = driver.check(
            "cuModuleGetFunction(" + kernel.symbol + ")",
            driver.cuModuleGetFunction(&function, module.module.get(),
                                       kernel.symbol.c_str()));
        !status)
      return here(status.error());
    if (Status status = prepare(*module.gpu, kernel, function); !status)
      return here(status.error());
    module.list.push_back(function);
  }
  return module;
}

} // namespace plum::runtime::cuda
