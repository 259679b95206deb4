//===- BundleWriter.h - The files of a bundle -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_PIPELINES_BUNDLEWRITER_H
#define PLUM_LIB_PIPELINES_BUNDLEWRITER_H

#include "runtime/Manifest.h"

namespace plum {

/// The C header of a bundle: its kernels and the order of their tensors.
std::string bundleHeader(const runtime::Manifest &manifest);

/// The code of a bundle, of one kind.
struct BundleCode {
  std::string object;     ///< For a CPU, to be linked.
  std::string ptx, cubin; ///< For a GPU; the cubin may be empty.
};

/// Writes kernel.so, or kernels.ptx and kernels.cubin; LAYER.h, the ABI's
/// header, manifest.json and spec.plum to a directory that appears complete or
/// not at all. An existing bundle is replaced; any other non-empty directory is
/// refused.
Status writeBundle(const std::string &dir, const runtime::Manifest &manifest,
                   const BundleCode &code, std::string_view spec,
                   bool keepExisting);

} // namespace plum

#endif // PLUM_LIB_PIPELINES_BUNDLEWRITER_H
