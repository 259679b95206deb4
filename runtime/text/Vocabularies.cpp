//===- Vocabularies.cpp - The files that tokenizers come as ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Config.h"
#include "runtime/text/Tokenizer.h"

#include <algorithm>
#include <charconv>

namespace plum::text {

using runtime::Json;
using runtime::JsonErrors;
using runtime::JsonValue;

namespace {

constexpr int64_t largestId = (int64_t(1) << 24) - 1;

/// GPT-2's: contractions, words, numbers, other signs, white space; a space
/// belongs to what follows it.
constexpr const char *gpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Kimi's: runs of Han; words, capitals first, with a sign before and an
/// English contraction after; up to three digits; other signs; white space.
std::string kimiPattern() {
  const std::string upper = R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))";
  const std::string lower = R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string after = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)";
  return R"(\p{Han}+|)" + before + upper + "*" + lower + "+" + after + "|" +
         before + upper + "+" + lower + "*" + after +
         R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

Status addSplit(std::vector<Split> &splits, const std::string &pattern,
                const std::string &where) {
  Result<Regex> regex = Regex::compile(pattern, where);
  if (!regex)
    return regex.error();
  splits.push_back({*regex});
  return Status::ok();
}

/// A vocabulary {"printable characters": id}.
Status addVocabulary(Bpe &bpe, const JsonValue &vocab, JsonErrors &errors,
                     std::vector<std::pair<std::string, int32_t>> &odd) {
  vocab.object([&](const std::string &name, const JsonValue &value) {
    int32_t id = int32_t(value.integer(0, largestId));
    if (auto bytes = bytesOfPrintable(name))
      bpe.add(std::move(*bytes), id);
    else
      odd.emplace_back(name, id); // An added token in the vocabulary.
  });
  return errors.any() ? Status(errors.take()) : Status::ok();
}

/// One merge, "left right" in printable characters.
Status addMerge(Bpe &bpe, std::string_view left, std::string_view right,
                const std::string &where) {
  auto a = bytesOfPrintable(left), b = bytesOfPrintable(right);
  if (a && b && bpe.addMerge(*a, *b))
    return Status::ok();
  return Error{where,
               "merges '" + std::string(left) + "' and '" + std::string(right) +
                   "', which are not both in the vocabulary, or their pair is "
                   "not",
               {}};
}

Error unknown(const std::string &where, const std::string &what,
              const std::string &got, const std::string &known) {
  return {where, what + " '" + got + "' is not known, expected " + known, {}};
}

std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}").find(c) != std::string::npos)
      out += '\\';
    out += c;
  }
  return out;
}

struct PreTokenizer {
  std::vector<Split> splits;
  bool prefixSpace = false, byteLevel = false;
  Status failure;
};

void readPreTokenizer(const JsonValue &value, const Json &json,
                      const std::string &where, PreTokenizer &out, int depth) {
  if (!out.failure || !json.is_object() || depth > 8)
    return;
  auto text = [&](const char *name) {
    auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
  };
  auto flag = [&](const char *name, bool otherwise) {
    auto found = json.find(name);
    return found != json.end() && found->is_boolean() ? found->get<bool>()
                                                      : otherwise;
  };
  std::string type = text("type");
  if (type == "Sequence") {
    auto list = json.find("pretokenizers");
    if (list != json.end() && list->is_array())
      for (const Json &item : *list)
        readPreTokenizer(value, item, where, out, depth + 1);
  } else if (type == "ByteLevel") {
    out.byteLevel = true;
    out.prefixSpace |= flag("add_prefix_space", true);
    if (flag("use_regex", true))
      out.failure = addSplit(out.splits, gpt2Pattern, where);
  } else if (type == "Digits") {
    out.failure = addSplit(
        out.splits, flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
        where);
  } else if (type == "Split") {
    auto pattern = json.find("pattern");
    std::string regex;
    if (pattern != json.end() && pattern->is_object()) {
      if (auto found = pattern->find("Regex");
          found != pattern->end() && found->is_string())
        regex = found->get<std::string>();
      else if (auto plain = pattern->find("String");
               plain != pattern->end() && plain->is_string())
        regex = escaped(plain->get<std::string>());
    }
    std::string behavior = text("behavior");
    if (behavior != "Isolated" && behavior != "Removed") {
      out.failure = unknown(where, "'pre_tokenizer.behavior'", behavior,
                            "Isolated or Removed");
      return;
    }
    out.failure = addSplit(out.splits, regex, where);
    if (out.failure) {
      out.splits.back().invert = flag("invert", false);
      out.splits.back().remove = behavior == "Removed";
    }
  } else {
    out.failure = unknown(where, "'pre_tokenizer.type'", type,
                          "ByteLevel, Split, Digits or Sequence");
  }
}

Result<Normal> readNormalizer(const Json &json, const std::string &where) {
  if (json.is_null())
    return Normal::None;
  std::string type;
  if (json.is_object())
    if (auto found = json.find("type");
        found != json.end() && found->is_string())
      type = found->get<std::string>();
  const std::pair<const char *, Normal> known[] = {{"NFC", Normal::NFC},
                                                   {"NFKC", Normal::NFKC},
                                                   {"NFD", Normal::NFD},
                                                   {"NFKD", Normal::NFKD}};
  for (auto [name, form] : known)
    if (type == name)
      return form;
  if (type == "Sequence" && json.contains("normalizers") &&
      json["normalizers"].is_array() && json["normalizers"].size() <= 1)
    return json["normalizers"].empty()
               ? Result<Normal>(Normal::None)
               : readNormalizer(json["normalizers"][0], where);
  return unknown(where, "'normalizer.type'", type, "NFC, NFKC, NFD or NFKD");
}

std::optional<std::string> decodeBase64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  while (!text.empty() && text.back() == '=')
    text.remove_suffix(1);
  for (char c : text) {
    int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
    if (value < 0)
      return std::nullopt;
    bits = bits << 6 | uint32_t(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out += char(bits >> held & 255);
    }
  }
  return out;
}

/// Calls line(text, number) for each line, without its end.
template <typename Fn> Status eachLine(std::string_view text, Fn line) {
  for (int64_t number = 1; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!one.empty() && one.back() == '\r')
      one.remove_suffix(1);
    if (Status status = line(one, number); !status)
      return status;
  }
  return Status::ok();
}

} // namespace

Result<Tokenizer> Tokenizer::fromTokenizerJson(std::string_view text,
                                               const std::string &where) {
  Result<Json> json = runtime::parseJson(text, where);
  if (!json)
    return json.error();
  if (!json->is_object())
    return Error{where, "is not a JSON object", {}};
  JsonErrors errors(where);
  JsonValue root(&*json, "", errors);
  JsonValue model = root.field("model");
  std::string type = model.field("type").string();
  if (errors.any())
    return errors.take();
  if (type != "BPE")
    return unknown(where, "'model.type'", type, "BPE");
  const Json &modelJson = (*json)["model"];
  if (auto fallback = modelJson.find("byte_fallback");
      fallback != modelJson.end() && *fallback == Json(true))
    return Error{where,
                 "'model.byte_fallback' is true, expected a byte-level "
                 "vocabulary",
                 {}};

  Tokenizer tokenizer;
  std::vector<std::pair<std::string, int32_t>> odd;
  if (Status status =
          addVocabulary(tokenizer.bpe, model.field("vocab"), errors, odd);
      !status)
    return status.error();
  Status merged;
  model.field("merges").array([&](const JsonValue &) {});
  if (errors.any())
    return errors.take();
  for (const Json &merge : modelJson["merges"]) {
    std::string left, right;
    if (merge.is_string()) {
      std::string both = merge.get<std::string>();
      size_t space = both.find(' ', 1);
      left = both.substr(0, space);
      right = space == std::string::npos ? "" : both.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return Error{where, "'model.merges' has an entry that is no pair", {}};
    }
    if (Status status = addMerge(tokenizer.bpe, left, right, where); !status)
      return status.error();
  }
  if (auto whole = modelJson.find("ignore_merges");
      whole != modelJson.end() && whole->is_boolean())
    tokenizer.bpe.wholeFirst = whole->get<bool>();
  if (Status status = tokenizer.bpe.finish(where); !status)
    return status.error();

  if (root.optional("added_tokens").exists())
    root.optional("added_tokens").array([&](const JsonValue &token) {
      int32_t id = int32_t(token.field("id").integer(0, largestId));
      std::string content = token.field("content").string();
      tokenizer.added.push_back({content, id, false});
    });
  if (errors.any())
    return errors.take();
  // Again, for what JsonValue has no reader for.
  std::vector<Added> found = std::move(tokenizer.added);
  tokenizer.added.clear();
  for (size_t i = 0; i < found.size(); ++i) {
    const Json &token = (*json)["added_tokens"][i];
    auto flag = token.find("special");
    tokenizer.addToken(found[i].text, found[i].id,
                       flag != token.end() && *flag == Json(true));
  }

  if (auto value = json->find("normalizer"); value != json->end()) {
    Result<Normal> form = readNormalizer(*value, where);
    if (!form)
      return form.error();
    tokenizer.normal = *form;
  }
  PreTokenizer pre;
  if (auto value = json->find("pre_tokenizer");
      value != json->end() && !value->is_null())
    readPreTokenizer(root.field("pre_tokenizer"), *value, where, pre, 0);
  if (!pre.failure)
    return pre.failure.error();
  if (!pre.byteLevel)
    return Error{where,
                 "'pre_tokenizer' has no ByteLevel, expected a "
                 "byte-level vocabulary",
                 {}};
  tokenizer.splits = std::move(pre.splits);
  tokenizer.prefixSpace = pre.prefixSpace;
  return tokenizer;
}

Result<Tokenizer> Tokenizer::fromVocabAndMerges(std::string_view vocab,
                                                std::string_view merges,
                                                const std::string &where) {
  Result<Json> json = runtime::parseJson(vocab, where);
  if (!json)
    return json.error();
  Tokenizer tokenizer;
  JsonErrors errors(where);
  std::vector<std::pair<std::string, int32_t>> odd;
  if (Status status = addVocabulary(tokenizer.bpe,
                                    JsonValue(&*json, "", errors), errors, odd);
      !status)
    return status.error();
  Status status = eachLine(merges, [&](std::string_view line, int64_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#")))
      return Status::ok();
    size_t space = line.find(' ', 1);
    if (space == std::string_view::npos)
      return Status(Error{where,
                          "has a line " + std::to_string(number) +
                              " of merges that is no pair",
                          {}});
    return addMerge(tokenizer.bpe, line.substr(0, space),
                    line.substr(space + 1), where);
  });
  if (!status)
    return status.error();
  if (status = tokenizer.bpe.finish(where); !status)
    return status.error();
  if (status = addSplit(tokenizer.splits, gpt2Pattern, where); !status)
    return status.error();
  if (int32_t end = tokenizer.bpe.find("<|endoftext|>"); end >= 0)
    tokenizer.addToken("<|endoftext|>", end, true);
  return tokenizer;
}

Result<Tokenizer> Tokenizer::fromTiktoken(std::string_view ranks,
                                          std::string_view configText,
                                          const std::string &where) {
  Tokenizer tokenizer;
  int32_t last = -1;
  Status status = eachLine(ranks, [&](std::string_view line, int64_t number) {
    if (line.empty())
      return Status::ok();
    Error bad{where,
              "line " + std::to_string(number) +
                  " is not the base64 of a token and its rank",
              {}};
    size_t space = line.find(' ');
    if (space == std::string_view::npos)
      return Status(bad);
    int32_t rank = -1;
    std::string_view digits = line.substr(space + 1);
    auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    auto bytes = decodeBase64(line.substr(0, space));
    if (error != std::errc() || end != digits.data() + digits.size() ||
        rank < 0 || rank > largestId || !bytes ||
        !tokenizer.bpe.add(std::move(*bytes), rank))
      return Status(bad);
    last = std::max(last, rank);
    return Status::ok();
  });
  if (!status)
    return status.error();
  if (status = tokenizer.bpe.finish(where); !status)
    return status.error();

  Result<Json> config = model::parseConfig(configText, where);
  if (!config)
    return config.error();
  // 256 ids after the ranks are special; the config names some of them.
  std::vector<std::string> names(256);
  if (auto list = config->find("added_tokens_decoder");
      list != config->end() && list->is_object())
    for (const auto &[key, token] : list->items()) {
      int32_t id = -1;
      std::from_chars(key.data(), key.data() + key.size(), id);
      auto content = token.is_object() ? token.find("content") : token.end();
      if (!token.is_object() || content == token.end() ||
          !content->is_string() || id <= last || id > last + 256)
        continue;
      names[size_t(id - last - 1)] = content->get<std::string>();
    }
  for (size_t i = 0; i < names.size(); ++i) {
    int32_t id = last + 1 + int32_t(i);
    tokenizer.addToken(names[i].empty()
                           ? "<|reserved_token_" + std::to_string(id) + "|>"
                           : names[i],
                       id, true);
  }
  if (status = addSplit(tokenizer.splits, kimiPattern(), where); !status)
    return status.error();
  tokenizer.cutLong = true;
  return tokenizer;
}

} // namespace plum::text
