//===- Bundle.h - A compiled layer, loaded ----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bundle is the directory that `plum compile` writes. Opening one reads and
// checks its manifest, checks that this CPU has what the object needs, loads
// the object and finds the kernels. Everything after that is plain calls.
//
// A bundle for a GPU opens anywhere, so that it can be looked at and its spec
// be run; cuda/GpuExecutor.h loads its kernels.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_BUNDLE_H
#define PLUM_RUNTIME_BUNDLE_H

#include "plum/ABI/KernelABI.h"
#include "runtime/Manifest.h"

#include <memory>

namespace plum::runtime {

struct Kernel {
  const ManifestKernel *info; ///< Points into the bundle's manifest.
  plum_kernel function;
};

/// Owns the loaded object; movable, and pointers into it survive the move.
class Bundle {
public:
  static Result<Bundle> open(const std::string &directory);

  Bundle(Bundle &&) = default;
  Bundle &operator=(Bundle &&) = default;

  const std::string &directory() const { return path; }
  const Manifest &manifest() const { return *contents; }
  /// In the manifest's order; none of a bundle for a GPU.
  const std::vector<Kernel> &kernels() const { return list; }
  /// Null when the bundle has none.
  const Kernel *step() const;
  /// The kernel for chunks of `chunk` tokens, or the first when `chunk` is 0.
  const Kernel *chunk(int64_t chunk = 0) const;

private:
  Bundle() = default;
  std::string path;
  std::unique_ptr<const Manifest> contents;
  std::unique_ptr<void, int (*)(void *)> object{nullptr, nullptr};
  std::vector<Kernel> list;
};

/// The first of `features` that this CPU is known to lack, or "". A name that
/// this build does not know counts as present.
std::string missingFeature(const std::vector<std::string> &features);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_BUNDLE_H
