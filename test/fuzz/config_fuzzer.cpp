//===- config_fuzzer.cpp - Any text as a config.json ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A config is a network or an error. Building the network against a directory
// without tensors must fail, and must not ask for memory by what the config
// says: run with -malloc_limit_mb=64.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Network.h"

#include <cstdint>
#include <cstdlib>

using namespace plum;
using namespace plum::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto json =
      parseConfig({reinterpret_cast<const char *>(data), size}, "config.json");
  if (!json)
    return 0;
  auto network = makeNetwork(*json, "config.json");
  if (!network)
    return 0;
  for (const MemorySpec &spec : (*network)->memories())
    if (spec.text().empty())
      std::abort();
  static const WeightFiles none;
  StateLayout layout;
  Build build{Loader(none), layout, {}};
  (*network)->load(build);
  if (!build.weights.failed())
    std::abort();
  return 0;
}
