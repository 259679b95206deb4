//===- Bpe.cpp - Byte pair encoding ---------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A piece of n bytes takes O(n log n): neighbours are a linked list, pairs a
// heap in which pairs that are gone stay until they come up.
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Bpe.h"

#include <queue>

namespace plum::text {

bool Bpe::add(std::string bytes, int32_t id) {
  if (bytes.empty() || id < 0)
    return false;
  if (!ids.emplace(bytes, id).second)
    return false;
  if (size_t(id) >= texts.size())
    texts.resize(size_t(id) + 1);
  texts[size_t(id)] = std::move(bytes);
  return true;
}

bool Bpe::addMerge(std::string_view left, std::string_view right) {
  byMerges = true;
  int32_t a = find(left), b = find(right);
  int32_t both = find(std::string(left) + std::string(right));
  if (a < 0 || b < 0 || both < 0)
    return false;
  merges.try_emplace(uint64_t(uint32_t(a)) << 32 | uint32_t(b),
                     Merge{int32_t(merges.size()), both});
  return true;
}

Status Bpe::finish(const std::string &where) {
  for (size_t byte = 0; byte < 256; ++byte) {
    char c = char(byte);
    byteIds[byte] = find({&c, 1});
    if (byteIds[byte] < 0)
      return Error{where,
                   "has no token for byte " + std::to_string(byte) +
                       ", expected one for every byte",
                   {}};
  }
  return Status::ok();
}

int32_t Bpe::find(std::string_view bytes) const {
  auto found = ids.find(bytes);
  return found == ids.end() ? -1 : found->second;
}

const std::string *Bpe::bytes(int32_t id) const {
  if (id < 0 || size_t(id) >= texts.size() || texts[size_t(id)].empty())
    return nullptr;
  return &texts[size_t(id)];
}

Bpe::Merge Bpe::merge(int32_t left, int32_t right) const {
  if (byMerges) {
    auto found = merges.find(uint64_t(uint32_t(left)) << 32 | uint32_t(right));
    return found == merges.end() ? Merge{-1, -1} : found->second;
  }
  int32_t id = find(texts[size_t(left)] + texts[size_t(right)]);
  return {id, id};
}

void Bpe::encode(std::string_view piece, std::vector<int32_t> &out) const {
  if (!byMerges || wholeFirst)
    if (int32_t id = find(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  struct Node {
    int32_t id;
    int64_t before, after; ///< -1: none.
  };
  struct Pair {
    int32_t rank;
    int64_t at;
    int32_t left, right, id;
    bool operator<(const Pair &other) const { // The heap's top is the largest.
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  int64_t count = int64_t(piece.size());
  std::vector<Node> nodes;
  std::priority_queue<Pair> pairs;
  auto offer = [&](int64_t at) {
    if (at < 0 || nodes[size_t(at)].after < 0)
      return;
    int32_t left = nodes[size_t(at)].id;
    int32_t right = nodes[size_t(nodes[size_t(at)].after)].id;
    if (Merge found = merge(left, right); found.rank >= 0)
      pairs.push({found.rank, at, left, right, found.id});
  };
  for (int64_t i = 0; i < count; ++i)
    nodes.push_back({byteIds[uint8_t(piece[size_t(i)])], i - 1,
                     i + 1 < count ? i + 1 : -1});
  for (int64_t i = 0; i < count; ++i)
    offer(i);
  while (!pairs.empty()) {
    Pair pair = pairs.top();
    pairs.pop();
    Node &left = nodes[size_t(pair.at)];
    if (left.id != pair.left || left.after < 0 ||
        nodes[size_t(left.after)].id != pair.right)
      continue; // One of the two has become part of another.
    Node &right = nodes[size_t(left.after)];
    left.id = pair.id;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0)
      nodes[size_t(left.after)].before = pair.at;
    offer(left.before);
    offer(pair.at);
  }
  for (int64_t at = 0; at >= 0 && at < count; at = nodes[size_t(at)].after)
    out.push_back(nodes[size_t(at)].id);
}

std::optional<std::string> bytesOfPrintable(std::string_view text) {
  // Printable bytes stand for themselves, the others for 256, 257, ... in
  // order.
  static const std::array<int16_t, 512> table = [] {
    std::array<int16_t, 512> map;
    map.fill(-1);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      bool printable = (byte >= 33 && byte <= 126) ||
                       (byte >= 161 && byte <= 172) || byte >= 174;
      map[size_t(printable ? byte : next++)] = int16_t(byte);
    }
    return map;
  }();
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = uint8_t(text[i]);
    if (code >= 0x80) { // All of them are one or two bytes long.
      if (code < 0xc0 || code >= 0xe0 || i + 1 >= text.size())
        return std::nullopt;
      code = (code & 31) << 6 | (uint8_t(text[++i]) & 63);
    }
    if (code >= table.size() || table[code] < 0)
      return std::nullopt;
    bytes += char(table[code]);
  }
  return bytes;
}

} // namespace plum::text
