//===- index_fuzzer.cpp - Any text as an index of shards ------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No index names a file outside of its directory.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Weights.h"

#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto map = plum::model::parseIndex(
      {reinterpret_cast<const char *>(data), size}, "index");
  if (!map)
    return 0;
  for (const auto &[name, file] : *map)
    if (file.empty() || file == ".." || file.find('/') != std::string::npos)
      std::abort();
  return 0;
}
