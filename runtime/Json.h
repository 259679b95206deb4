//===- Json.h - Checked access to a JSON text -------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files come from outside, so every field is checked: present, of the right
// type, in range. The first thing found wrong is kept, with the path to it
// ("'kernels[1].chunk' is 0, expected at least 1"), and later reads return
// defaults, so that a reader is a straight list of fields and one test at the
// end. Nothing here throws.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_JSON_H
#define PLUM_RUNTIME_JSON_H

#include "plum/Support/Result.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace plum::runtime {

/// Sorts fields by name: a checkpoint's header may have 100,000 of them, and
/// the kind that keeps their order searches linearly.
using Json = nlohmann::json;

/// Parses `text`. A name that appears twice in one object is an error: which of
/// the two would count?
Result<Json> parseJson(std::string_view text, const std::string &where);
/// Where `text` stops being JSON, "LINE:COLUMN"; empty when it is.
std::string placeOfJsonError(std::string_view text);

/// The first error of a reader.
class JsonErrors {
public:
  explicit JsonErrors(std::string where) : where(std::move(where)) {}
  void add(const std::string &path, const std::string &message) {
    if (!failed)
      first = Error{where, "'" + path + "' " + message, {}};
    failed = true;
  }
  bool any() const { return failed; }
  Error take() { return std::move(first); }

private:
  std::string where;
  Error first;
  bool failed = false;
};

/// A value and the path to it.
class JsonValue {
public:
  JsonValue(const Json *value, std::string path, JsonErrors &errors)
      : value(value), path(std::move(path)), errors(errors) {}

  /// Field `key`; an error when it or the object is missing.
  JsonValue field(std::string_view key) const;
  /// Null value when missing; test with `exists`.
  JsonValue optional(std::string_view key) const;
  bool exists() const { return value != nullptr; }

  std::string string() const;
  int64_t integer(int64_t least,
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  bool boolean() const;
  /// At least 0; null gives NaN.
  double number() const;

  /// Calls item(JsonValue) for each element.
  template <typename Fn> void array(Fn item) const {
    if (!expect(value && value->is_array(), "an array"))
      return;
    size_t i = 0;
    for (const Json &element : *value)
      item(JsonValue(&element, path + "[" + std::to_string(i++) + "]", errors));
  }
  /// Calls item(name, JsonValue) for each field.
  template <typename Fn> void object(Fn item) const {
    if (!expect(value && value->is_object(), "an object"))
      return;
    for (const auto &[key, element] : value->items())
      item(key, JsonValue(&element, join(key), errors));
  }

  void error(const std::string &message) const { errors.add(path, message); }

private:
  std::string join(std::string_view key) const {
    return path.empty() ? std::string(key) : path + "." + std::string(key);
  }
  bool expect(bool good, const char *what) const;

  const Json *value;
  std::string path;
  JsonErrors &errors;
};

} // namespace plum::runtime

#endif // PLUM_RUNTIME_JSON_H
