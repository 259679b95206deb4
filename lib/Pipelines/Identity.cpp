//===- Identity.cpp - Which compiler this is --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A version number does not change with every change of a pass, the program
// does. For a GPU ptxas is half of the compiler.
//
//===----------------------------------------------------------------------===//

#include "plum/Pipelines/Compiler.h"
#include "plum/Target/NVPTXTarget.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

using namespace plum;

/// 12 hex digits of a file's contents; "unknown" when it cannot be read.
static std::string fingerprint(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                          /*RequiresNullTerminator=*/false);
  if (!file)
    return "unknown";
  llvm::StringRef bytes = (*file)->getBuffer();
  return llvm::utohexstr(llvm::xxh3_64bits(bytes), true, 16).substr(0, 12);
}

std::string plum::compilerIdentity(const CompileOptions &options) {
  std::string text =
      PLUM_VERSION "-llvm" LLVM_VERSION_STRING "-" +
      fingerprint(llvm::sys::fs::getMainExecutable(nullptr, nullptr));
  if (options.target == "cpu")
    return text;
  Result<std::string> ptxas = findPtxas(options.ptxas);
  return text + (ptxas ? "-ptxas-" + fingerprint(*ptxas) : "-no-ptxas");
}
