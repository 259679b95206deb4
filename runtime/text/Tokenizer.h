//===- Tokenizer.h - Text to tokens and back --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what a model directory has: tokenizer.json (byte-level BPE),
// tiktoken.model, or vocab.json and merges.txt.
//
// Special tokens have ids and are asked for by name. Text is text: a user who
// types "<|im_end|>" gets the tokens of these ten characters, unless the caller
// says that specials are to be parsed.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TEXT_TOKENIZER_H
#define PLUM_RUNTIME_TEXT_TOKENIZER_H

#include "runtime/text/Bpe.h"
#include "runtime/text/Regex.h"

namespace plum::text {

/// A step that cuts a piece of text into smaller ones.
struct Split {
  Regex regex;
  bool invert = false; ///< What lies between matches counts as matches.
  bool remove = false; ///< Drops the matches, else keeps them as pieces.
};

enum class Normal : uint8_t { None, NFC, NFKC, NFD, NFKD };

class Tokenizer {
public:
  static Result<Tokenizer> open(const std::string &directory);
  /// From texts, for tests and fuzzing.
  static Result<Tokenizer> fromTokenizerJson(std::string_view text,
                                             const std::string &where);
  static Result<Tokenizer> fromTiktoken(std::string_view ranks,
                                        std::string_view configText,
                                        const std::string &where);
  static Result<Tokenizer> fromVocabAndMerges(std::string_view vocab,
                                              std::string_view merges,
                                              const std::string &where);

  enum Specials : uint8_t { AsText, Parse };
  std::vector<int32_t> encode(std::string_view text,
                              Specials specials = AsText) const;
  /// Bytes of a token; specials by their name. Empty for an unknown id.
  std::string decode(int32_t id) const;
  std::string decode(const std::vector<int32_t> &ids) const;
  bool isSpecial(int32_t id) const { return specialNames.count(id) > 0; }
  /// Nothing when there is no such special token.
  std::optional<int32_t> special(std::string_view name) const;
  /// The token that every text starts with, when the files say so.
  std::optional<int32_t> bos;

private:
  struct Added {
    std::string text;
    int32_t id;
    bool special;
  };
  void addToken(const std::string &text, int32_t id, bool special);
  void readTokenizerConfig(const std::string &directory);
  void encodeText(std::string_view text, std::vector<int32_t> &ids) const;
  void encodeSpan(std::string_view text, std::vector<int32_t> &ids) const;

  Bpe bpe;
  Normal normal = Normal::None;
  bool prefixSpace = false; ///< A space before every text.
  bool cutLong = false;     ///< As K3's tokenizer does.
  std::vector<Split> splits;
  std::vector<Added> added; ///< Longest first.
  std::unordered_map<int32_t, std::string> specialNames;
};

/// How many bytes at the end of `text` are the beginning of a UTF-8 character
/// whose rest is missing: what a stream must hold back.
size_t incompleteTail(std::string_view text);

/// What the files say ends a text: generation_config.json, else config.json.
std::vector<int32_t> stopTokens(const std::string &directory);

} // namespace plum::text

#endif // PLUM_RUNTIME_TEXT_TOKENIZER_H
