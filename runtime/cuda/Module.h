//===- Module.h - The kernels of a bundle, on a GPU -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bundle holds PTX (kernels.ptx) and maybe machine code made from it ahead of
// time (kernels.cubin). The machine code is taken when it is for this GPU; else
// the driver compiles the PTX, which takes it up to seconds, and the result is
// kept in the cache: gpu/<hash>.cubin below the directory that PLUM_CACHE names
// (by default plum/ in the user's cache directory), where the hash covers the
// PTX, the GPU's architecture and the driver's version. A cache that cannot be
// read or written costs that time again and nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_MODULE_H
#define PLUM_RUNTIME_CUDA_MODULE_H

#include "runtime/Bundle.h"
#include "runtime/cuda/Device.h"

namespace plum::runtime::cuda {

/// Where a module's machine code came from.
enum class CodeSource : uint8_t { Cubin, Cache, Ptx };
std::string_view name(CodeSource source);

class Module {
public:
  static Result<Module> load(const Bundle &bundle,
                             std::shared_ptr<const Device> device);

  const Device &device() const { return *gpu; }
  /// One for each kernel of the manifest.
  const std::vector<CUfunction> &functions() const { return list; }
  CodeSource source() const { return from; }

private:
  std::shared_ptr<const Device> gpu;
  Owned<CUmodule> module;
  std::vector<CUfunction> list;
  CodeSource from = CodeSource::Ptx;
};

/// An error unless code for `target` ("sm_90a") runs on `device`.
Status checkTarget(const std::string &target, const Device &device);

/// The directory of compiled PTX, "" when the user has no place for one.
std::string cacheDirectory();

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_MODULE_H
