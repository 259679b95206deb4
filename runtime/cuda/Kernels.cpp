//===- Kernels.cpp - The runtime's own device kernels ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Kernels.h"

#include <cstdlib>
#include <limits>

namespace plum::runtime::cuda {

namespace {

/// The number behind `what`, looked for before `end`; 0 without one.
size_t numberAfter(std::string_view ptx, std::string_view what, size_t begin,
                   size_t end) {
  size_t at = ptx.find(what, begin);
  return at < end ? std::strtoull(ptx.data() + at + what.size(), nullptr, 10)
                  : 0;
}

} // namespace

/// PTX of a target like sm_90a runs on that architecture and on no later one.
static bool runsOn(const Device &device, std::string_view ptx) {
  constexpr std::string_view target = ".target ";
  size_t at = ptx.find(target);
  if (at == ptx.npos)
    return true;
  std::string_view name = ptx.substr(at + target.size());
  name = name.substr(0, name.find_first_of(", \t\r\n"));
  return !name.ends_with('a') || name == device.architecture() + "a";
}

// What clang writes of a kernel:
//   .visible .entry plum_gather(
//   	.param .align 8 .b8 plum_gather_param_0[88]
//   )
//   .maxntid 256
//   {
Kernels::Kernels(std::shared_ptr<const Device> device)
    : gpu(std::move(device)), modules(kernelTexts().size()) {
  constexpr std::string_view entry = ".entry ";
  for (size_t i = 0; i < kernelTexts().size(); ++i) {
    std::string_view ptx = kernelTexts()[i].ptx;
    if (!runsOn(*gpu, ptx))
      continue;
    for (size_t at = ptx.find(entry); at != ptx.npos;
         at = ptx.find(entry, at)) {
      at += entry.size();
      size_t paren = ptx.find('(', at), body = ptx.find('{', at);
      std::string name(ptx.substr(at, paren - at));
      Kernel kernel;
      kernel.text = i;
      kernel.argumentBytes = numberAfter(ptx, name + "_param_0[", paren, body);
      kernel.threads = int(numberAfter(ptx, ".maxntid ", paren, body));
      kernels.emplace(std::move(name), kernel);
    }
  }
}

int Kernels::threads(const std::string &kernel) const {
  auto found = kernels.find(kernel);
  return found == kernels.end() ? 0 : found->second.threads;
}

Status Kernels::load() const {
  Current current(*gpu);
  if (Status status = current.status(); !status)
    return status;
  std::lock_guard lock(mutex);
  for (const auto &[name, kernel] : kernels)
    if (Status status = find(name, kernel); !status)
      return status;
  return Status::ok();
}

Status Kernels::find(const std::string &name, const Kernel &kernel) const {
  if (kernel.function)
    return Status::ok();
  Owned<CUmodule> &module = modules[kernel.text];
  if (!module) {
    const KernelText &text = kernelTexts()[kernel.text];
    CodeSource source;
    Result<Owned<CUmodule>> loaded = loadPtx(
        *gpu, text.ptx, std::string(text.name) + " of the runtime", source);
    if (!loaded)
      return loaded.error();
    module = std::move(*loaded);
  }
  return gpu->driver().check("cuModuleGetFunction(" + name + ")",
                             gpu->driver().cuModuleGetFunction(
                                 &kernel.function, module.get(), name.c_str()));
}

Status Kernels::launch(CUstream stream, const std::string &name, Grid grid,
                       int sharedBytes, const void *args, size_t bytes) const {
  auto found = kernels.find(name);
  if (found == kernels.end())
    return Error{"", "the runtime has no kernel '" + name + "'", {}};
  const Kernel &kernel = found->second;
  auto refuse = [&](const std::string &what) {
    return Error{"", "kernel '" + name + "' " + what, {}};
  };
  if (bytes != kernel.argumentBytes)
    return refuse("takes " + std::to_string(kernel.argumentBytes) +
                  " bytes of arguments, not " + std::to_string(bytes));
  constexpr int64_t mostX = std::numeric_limits<int32_t>::max(), mostY = 65535;
  if (grid.x < 0 || grid.x > mostX || grid.y < 0 || grid.y > mostY)
    return refuse("has no grid of " + std::to_string(grid.x) + " x " +
                  std::to_string(grid.y) + " blocks");
  if (sharedBytes > gpu->sharedBytes)
    return refuse("needs " + std::to_string(sharedBytes) +
                  " B of shared memory, a block on this GPU has at most " +
                  std::to_string(gpu->sharedBytes));
  if (grid.x == 0 || grid.y == 0)
    return Status::ok();

  Current current(*gpu);
  if (Status status = current.status(); !status)
    return status;
  const Driver &driver = gpu->driver();
  {
    std::lock_guard lock(mutex);
    if (Status status = find(name, kernel); !status)
      return status;
    if (sharedBytes > kernel.granted) {
      if (Status status =
              driver.check("cuFuncSetAttribute(" + name + ", " +
                               std::to_string(sharedBytes) + " B shared)",
                           driver.cuFuncSetAttribute(
                               kernel.function,
                               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               sharedBytes));
          !status)
        return status;
      kernel.granted = sharedBytes;
    }
  }
  void *parameters[] = {const_cast<void *>(args)};
  return driver.check("cuLaunchKernel(" + name + ")",
                      driver.cuLaunchKernel(
                          kernel.function, unsigned(grid.x), unsigned(grid.y),
                          1, unsigned(kernel.threads), 1, 1,
                          unsigned(sharedBytes), stream, parameters, nullptr));
}

} // namespace plum::runtime::cuda
