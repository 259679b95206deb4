//===- Optimise.h - LLVM's passes over a kernel module ----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_TARGET_OPTIMISE_H
#define PLUM_LIB_TARGET_OPTIMISE_H

#include "plum/Support/Result.h"

#include "llvm/ADT/StringRef.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace plum {

/// Runs a pipeline as opt's `-passes` spells it.
Status optimise(llvm::Module &code, llvm::TargetMachine &machine,
                llvm::StringRef pipeline);

} // namespace plum

#endif // PLUM_LIB_TARGET_OPTIMISE_H
