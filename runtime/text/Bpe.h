//===- Bpe.h - Byte pair encoding -------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A piece of text starts as one token per byte; the pair of neighbours with the
// lowest rank becomes one token, the leftmost first, until no pair has a rank.
// Where ranks come from is what tells the two kinds of vocabulary apart:
//
//   merges    a list of pairs, a pair's rank is its place in it
//   tiktoken  a pair may merge when its bytes are a token, whose id is the rank
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TEXT_BPE_H
#define PLUM_RUNTIME_TEXT_BPE_H

#include "plum/Support/Result.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace plum::text {

class Bpe {
public:
  /// Adds a token; ids need not be dense. False when its bytes are known.
  bool add(std::string bytes, int32_t id);
  /// Adds a merge, in order of rank. False when one of the three tokens is
  /// unknown.
  bool addMerge(std::string_view left, std::string_view right);
  /// Call after the last add: every byte must be a token.
  Status finish(const std::string &where);

  /// With merges, whether a piece that is a token is taken as it is.
  bool wholeFirst = false;

  void encode(std::string_view piece, std::vector<int32_t> &ids) const;
  /// Null for an id that is no token.
  const std::string *bytes(int32_t id) const;
  /// -1 when there is none.
  int32_t find(std::string_view bytes) const;
  int32_t largestId() const { return int32_t(texts.size()) - 1; }

private:
  struct Merge {
    int32_t rank, id; ///< rank -1: none.
  };
  Merge merge(int32_t left, int32_t right) const;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids;
  std::vector<std::string> texts; ///< By id; empty: none.
  std::unordered_map<uint64_t, Merge> merges;
  bool byMerges = false;
  std::array<int32_t, 256> byteIds{};
};

/// The map that GPT-2 and its heirs use to write bytes as printable characters.
/// Nothing when a character stands for no byte.
std::optional<std::string> bytesOfPrintable(std::string_view text);

} // namespace plum::text

#endif // PLUM_RUNTIME_TEXT_BPE_H
