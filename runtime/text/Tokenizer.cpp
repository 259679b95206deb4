//===- Tokenizer.cpp - Text to tokens and back ----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Tokenizer.h"

#include "runtime/model/Config.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

namespace plum::text {

using model::readFile;

namespace {

constexpr int64_t largestFile = 256 << 20;

std::string normalized(std::string_view text, Normal form) {
  int options = UTF8PROC_STABLE;
  if (form == Normal::NFC || form == Normal::NFKC)
    options |= UTF8PROC_COMPOSE;
  else
    options |= UTF8PROC_DECOMPOSE;
  if (form == Normal::NFKC || form == Normal::NFKD)
    options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t *result = nullptr;
  utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
      utf8proc_ssize_t(text.size()), &result, utf8proc_option_t(options));
  // Text that is no UTF-8 has no normal form.
  std::string out =
      size < 0 ? std::string(text)
               : std::string(reinterpret_cast<char *>(result), size_t(size));
  std::free(result);
  return out;
}

std::vector<std::string_view> cut(std::string_view text, const Split &split) {
  std::vector<std::string_view> pieces;
  auto push = [&](size_t begin, size_t end, bool match) {
    if (begin < end && !(match && split.remove))
      pieces.push_back(text.substr(begin, end - begin));
  };
  size_t at = 0;
  for (Regex::Match match : split.regex.matches(text)) {
    push(at, match.begin, split.invert);
    push(match.begin, match.end, !split.invert);
    at = match.end;
  }
  push(at, text.size(), split.invert);
  return pieces;
}

/// Pieces of at most 400 000 characters, without runs of more than 25 000
/// spaces or other characters; as K3's own tokenizer does before it splits.
std::vector<std::string_view> cutLongText(std::string_view text) {
  constexpr size_t most = 400000, mostRun = 25000;
  std::vector<std::string_view> pieces;
  size_t begin = 0, characters = 0, run = 0;
  bool spaces = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((uint8_t(text[i]) & 0xc0) == 0x80)
      continue; // Inside of a character.
    bool space = text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r');
    run = space == spaces ? run + 1 : 1;
    spaces = space;
    if (characters == most || run > mostRun) {
      pieces.push_back(text.substr(begin, i - begin));
      begin = i;
      characters = 0;
      run = 1;
    }
    ++characters;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

} // namespace

Result<Tokenizer> Tokenizer::open(const std::string &directory) {
  auto path = [&](const char *name) { return directory + "/" + name; };
  auto exists = [&](const char *name) {
    return access(path(name).c_str(), F_OK) == 0;
  };
  Result<Tokenizer> tokenizer = Error{
      directory,
      "has no tokenizer",
      {"expected tokenizer.json, tiktoken.model, or vocab.json and merges.txt",
       "'--ids' takes and prints tokens as numbers"}};
  if (exists("tokenizer.json")) {
    Result<std::string> text = readFile(path("tokenizer.json"), largestFile);
    if (!text)
      return text.error();
    tokenizer = fromTokenizerJson(*text, path("tokenizer.json"));
  } else if (exists("tiktoken.model")) {
    Result<std::string> text = readFile(path("tiktoken.model"), largestFile);
    if (!text)
      return text.error();
    Result<std::string> config = std::string("{}");
    if (exists("tokenizer_config.json"))
      config = readFile(path("tokenizer_config.json"), largestFile);
    if (!config)
      return config.error();
    tokenizer = fromTiktoken(*text, *config, path("tiktoken.model"));
  } else if (exists("vocab.json")) {
    Result<std::string> vocab = readFile(path("vocab.json"), largestFile);
    if (!vocab)
      return vocab.error();
    Result<std::string> merges = readFile(path("merges.txt"), largestFile);
    if (!merges)
      return merges.error();
    tokenizer = fromVocabAndMerges(*vocab, *merges, path("vocab.json"));
  }
  if (tokenizer)
    tokenizer->readTokenizerConfig(directory);
  return tokenizer;
}

/// Whether texts start with a BOS; a file that cannot be read says nothing.
void Tokenizer::readTokenizerConfig(const std::string &directory) {
  std::string path = directory + "/tokenizer_config.json";
  Result<std::string> text = readFile(path, largestFile);
  if (!text)
    return;
  Result<runtime::Json> json = model::parseConfig(*text, path);
  if (!json)
    return;
  auto add = json->find("add_bos_token");
  auto token = json->find("bos_token");
  if (add == json->end() || !add->is_boolean() || !add->get<bool>() ||
      token == json->end())
    return;
  if (token->is_object() && token->contains("content"))
    token = token->find("content");
  if (token->is_string())
    bos = special(token->get<std::string>());
}

void Tokenizer::addToken(const std::string &text, int32_t id, bool special) {
  if (text.empty() || id < 0)
    return;
  if (special)
    specialNames[id] = text;
  auto place = std::upper_bound(
      added.begin(), added.end(), text.size(),
      [](size_t size, const Added &token) { return size > token.text.size(); });
  added.insert(place, {text, id, special});
}

std::optional<int32_t> Tokenizer::special(std::string_view name) const {
  for (const Added &token : added)
    if (token.text == name)
      return token.id;
  return std::nullopt;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text,
                                       Specials specials) const {
  std::vector<int32_t> ids;
  std::array<bool, 256> first{}; ///< Bytes that an added token begins with.
  for (const Added &token : added)
    if (!token.special || specials == Parse)
      first[uint8_t(token.text[0])] = true;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!first[uint8_t(text[i])])
      continue;
    for (const Added &token : added) {
      if ((token.special && specials != Parse) ||
          text.substr(i, token.text.size()) != token.text)
        continue;
      encodeText(text.substr(begin, i - begin), ids);
      ids.push_back(token.id);
      begin = i + token.text.size();
      i = begin - 1;
      break;
    }
  }
  encodeText(text.substr(begin), ids);
  return ids;
}

/// Text without added tokens.
void Tokenizer::encodeText(std::string_view text,
                           std::vector<int32_t> &ids) const {
  if (text.empty())
    return;
  std::string changed;
  if (normal != Normal::None || (prefixSpace && text[0] != ' ')) {
    changed =
        normal != Normal::None ? normalized(text, normal) : std::string(text);
    if (prefixSpace && (changed.empty() || changed[0] != ' '))
      changed.insert(changed.begin(), ' ');
    text = changed;
  }
  if (!cutLong)
    return encodeSpan(text, ids);
  for (std::string_view part : cutLongText(text))
    encodeSpan(part, ids);
}

void Tokenizer::encodeSpan(std::string_view text,
                           std::vector<int32_t> &ids) const {
  std::vector<std::string_view> pieces{text};
  for (const Split &split : splits) {
    std::vector<std::string_view> smaller;
    for (std::string_view piece : pieces)
      for (std::string_view part : cut(piece, split))
        smaller.push_back(part);
    pieces = std::move(smaller);
  }
  for (std::string_view piece : pieces)
    if (!piece.empty())
      bpe.encode(piece, ids);
}

std::string Tokenizer::decode(int32_t id) const {
  if (auto found = specialNames.find(id); found != specialNames.end())
    return found->second;
  if (const std::string *bytes = bpe.bytes(id))
    return *bytes;
  for (const Added &token : added)
    if (token.id == id)
      return token.text;
  return {};
}

std::string Tokenizer::decode(const std::vector<int32_t> &ids) const {
  std::string text;
  for (int32_t id : ids)
    text += decode(id);
  return text;
}

size_t incompleteTail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    uint8_t byte = uint8_t(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80)
      continue;
    size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

std::vector<int32_t> stopTokens(const std::string &directory) {
  for (const char *name : {"generation_config.json", "config.json"}) {
    std::string path = directory + "/" + name;
    Result<std::string> text = readFile(path, largestFile);
    if (!text)
      continue;
    Result<runtime::Json> json = model::parseConfig(*text, path);
    if (!json)
      continue;
    const runtime::Json *from = &*json;
    if (auto inner = from->find("text_config");
        inner != from->end() && inner->is_object())
      from = &*inner;
    auto eos = from->find("eos_token_id");
    if (eos == from->end())
      continue;
    std::vector<int32_t> ids;
    for (const runtime::Json &id :
         eos->is_array() ? *eos : runtime::Json::array({*eos}))
      if (id.is_number_integer() && id.get<int64_t>() >= 0 &&
          id.get<int64_t>() <= INT32_MAX)
        ids.push_back(int32_t(id.get<int64_t>()));
    return ids;
  }
  return {};
}

} // namespace plum::text
