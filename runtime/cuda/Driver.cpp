//===- Driver.cpp - Open the CUDA driver ----------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Driver.h"

#include <dlfcn.h>

#include <cstdlib>

namespace plum::runtime::cuda {

Result<std::shared_ptr<const Driver>> Driver::open() {
  const char *given = std::getenv("PLUM_LIBCUDA");
  std::string library = given && *given ? given : "libcuda.so.1";
  // The driver's threads outlive a dlclose: it stays.
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle)
    return Error{"",
                 std::string("there is no CUDA driver: ") + dlerror(),
                 {"to run on a GPU takes NVIDIA's driver, nothing else; "
                  "layers compiled for cpu run without it"}};
  auto driver = std::make_shared<Driver>();
  const char *missing = nullptr;
#define PLUM_FUNCTION(NAME, SYMBOL, PARAMETERS)                                \
  driver->NAME =                                                               \
      reinterpret_cast<CUresult(*) PARAMETERS>(dlsym(handle, SYMBOL));         \
  if (!driver->NAME && !missing)                                               \
    missing = SYMBOL;
  PLUM_CUDA_FUNCTIONS(PLUM_FUNCTION)
#undef PLUM_FUNCTION
  if (missing)
    return Error{library,
                 std::string("has no function ") + missing,
                 {"a driver for CUDA 12.0 or later has all that is needed"}};
  if (Status status = driver->check("cuInit", driver->cuInit(0)); !status)
    return status.error();
  if (Status status = driver->check(
          "cuDriverGetVersion", driver->cuDriverGetVersion(&driver->version));
      !status)
    return status.error();
  return std::shared_ptr<const Driver>(std::move(driver));
}

Error Driver::failure(const std::string &call, CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    return {"", call + ": CUDA error " + std::to_string(result), {}};
  std::string message = call + ": " + name;
  if (cuGetErrorString(result, &text) == CUDA_SUCCESS && text)
    message += std::string(" (") + text + ")";
  return {"", message, {}};
}

} // namespace plum::runtime::cuda
