//===- tokenizer_fuzzer.cpp - Any text as a tokenizer ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first byte says as what the rest is read: tokenizer.json, tiktoken.model,
// merges.txt, or text for a tokenizer that is good. A tokenizer that was
// accepted must encode any bytes.
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Tokenizer.h"

#include <cstdint>
#include <cstdlib>

using namespace plum;
using namespace plum::text;

static const Tokenizer &good() {
  static const Tokenizer tokenizer = [] {
    const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string ranks;
    for (int byte = 0; byte < 256; ++byte)
      ranks += std::string{digits[byte >> 2], digits[(byte & 3) << 4]} +
               "== " + std::to_string(byte) + "\n";
    ranks += "ICA= 256\nYWI= 257\n"; // Two spaces; ab.
    auto made = Tokenizer::fromTiktoken(ranks, "{}", "good");
    if (!made)
      std::abort();
    return std::move(*made);
  }();
  return tokenizer;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  std::string_view text(reinterpret_cast<const char *>(data) + 1, size - 1);
  if (data[0] % 4 == 3) {
    // What goes in comes out.
    if (good().decode(good().encode(text)) != text)
      std::abort();
    return 0;
  }
  Result<Tokenizer> tokenizer =
      data[0] % 4 == 0   ? Tokenizer::fromTokenizerJson(text, "fuzz")
      : data[0] % 4 == 1 ? Tokenizer::fromTiktoken(text, "{}", "fuzz")
                         : Tokenizer::fromVocabAndMerges("{}", text, "fuzz");
  if (tokenizer)
    (void)tokenizer->encode("Any text, \xff 123 \n", Tokenizer::Parse);
  return 0;
}
