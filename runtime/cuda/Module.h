//===- Module.h - The kernels of a bundle, on a GPU -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bundle holds PTX (kernels.ptx) and maybe machine code made from it ahead of
// time (kernels.cubin). The machine code is taken when it is for this GPU; else
// the driver compiles the PTX (Code.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_MODULE_H
#define PLUM_RUNTIME_CUDA_MODULE_H

#include "runtime/Bundle.h"
#include "runtime/cuda/Code.h"

namespace plum::runtime::cuda {

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

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_MODULE_H
