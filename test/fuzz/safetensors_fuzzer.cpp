//===- safetensors_fuzzer.cpp - Any bytes as a tensor file ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reader must answer every input with tensors that lie inside of it or with
// an error. Each tensor it returns is read from end to end, so that the address
// sanitizer sees a range that is wrong.
//
//===----------------------------------------------------------------------===//

#include "runtime/Safetensors.h"

#include <cstdint>
#include <cstdlib>

using namespace plum::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  auto tensors = parseSafetensors(bytes, "fuzz");
  if (!tensors)
    return 0;
  size_t total = 0;
  for (const FileTensor &tensor : *tensors) {
    if (tensor.data.data() < bytes.data() ||
        tensor.data.data() + tensor.data.size() > bytes.data() + size)
      std::abort();
    total += tensor.data.size();
    auto values = loadDoubles(tensor);
    if (values && values->size() != size_t(tensor.elements()))
      std::abort();
  }
  // Nothing overlaps, so all of them together fit.
  if (total > size)
    std::abort();
  return 0;
}
