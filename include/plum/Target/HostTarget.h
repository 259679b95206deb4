//===- HostTarget.h - LLVM code for a CPU -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TARGET_HOSTTARGET_H
#define PLUM_TARGET_HOSTTARGET_H

#include "plum/Support/Result.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string>
#include <vector>

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace plum {

/// A CPU to compile for.
class HostTarget {
public:
  /// `cpu` is an LLVM CPU name; "native" is this machine with its features.
  static Result<HostTarget> create(const std::string &cpu);
  HostTarget(HostTarget &&);
  ~HostTarget();

  const std::string &cpuName() const { return cpu; }
  /// Vector features an object may use, as LLVM spells them.
  const std::vector<std::string> &features() const { return vectorFeatures; }
  int64_t lanes() const;     ///< f32 lanes of the widest vector register.
  int64_t registers() const; ///< Vector registers.
  bool isX86() const;

  /// Translates a module of the llvm dialect, optimises it and returns the
  /// object file's bytes.
  Result<std::string> emitObject(mlir::ModuleOp module);

private:
  HostTarget();

  std::string cpu;
  std::vector<std::string> vectorFeatures;
  std::unique_ptr<llvm::TargetMachine> machine;
};

/// Links one object into a shared object at `output` with lld.
Status linkShared(const std::string &object, const std::string &output);

} // namespace plum

#endif // PLUM_TARGET_HOSTTARGET_H
