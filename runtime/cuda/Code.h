//===- Code.h - Machine code for a GPU --------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The driver compiles PTX, which takes it up to seconds, and the result is kept
// in the cache: gpu/<hash>.cubin below the directory that PLUM_CACHE names (by
// default plum/ in the user's cache directory), where the hash covers the PTX,
// the GPU's architecture and the driver's version. A cache that cannot be read
// or written costs that time again and nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_CUDA_CODE_H
#define PLUM_RUNTIME_CUDA_CODE_H

#include "runtime/cuda/Device.h"

#include <optional>
#include <string_view>

namespace plum::runtime::cuda {

/// Where a module's machine code came from.
enum class CodeSource : uint8_t { Cubin, Cache, Ptx };
std::string_view name(CodeSource source);

/// The file's code, when there is any and it is for this GPU.
Owned<CUmodule> loadCubin(const Device &device, const std::string &path);

/// PTX, from the cache or by the driver's compiler. `where` is for errors.
/// The device's context is current.
Result<Owned<CUmodule>> loadPtx(const Device &device, const std::string &ptx,
                                const std::string &where, CodeSource &source);

std::optional<std::string> readCode(const std::string &path);

/// The directory of compiled PTX, "" when the user has no place for one.
std::string cacheDirectory();

} // namespace plum::runtime::cuda

#endif // PLUM_RUNTIME_CUDA_CODE_H
