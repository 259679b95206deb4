//===- Json.cpp - Checked access to a JSON text ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Json.h"

#include <algorithm>
#include <set>

namespace plum::runtime {

Result<Json> parseJson(std::string_view text, const std::string &where) {
  std::vector<std::set<std::string>> open; // Names seen in each open object.
  std::string twice;
  auto watch = [&](int, Json::parse_event_t event, Json &parsed) {
    if (event == Json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      open.pop_back();
    else if (event == Json::parse_event_t::key && !open.empty()) {
      const auto &key = parsed.get_ref<const std::string &>();
      if (!open.back().insert(key).second && twice.empty())
        twice = key;
    }
    return true;
  };
  Json value = Json::parse(text.begin(), text.end(), watch,
                           /*allow_exceptions=*/false);
  if (value.is_discarded())
    return Error{where, "is not valid JSON", {}};
  if (!twice.empty())
    return Error{where, "'" + twice + "' appears twice", {}};
  return value;
}

namespace {

/// Reads nothing; remembers where reading failed.
struct PlaceFinder : nlohmann::json_sax<Json> {
  size_t position = 0; ///< The last byte read, from 1; 0: no error.

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(Json::binary_t &) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string &) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t at, const std::string &,
                   const nlohmann::detail::exception &) override {
    position = std::max<size_t>(at, 1);
    return false;
  }
};

} // namespace

std::string placeOfJsonError(std::string_view text) {
  PlaceFinder finder;
  if (Json::sax_parse(text.begin(), text.end(), &finder))
    return {};
  std::string_view before =
      text.substr(0, std::min(finder.position - 1, text.size()));
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t begin = before.rfind('\n') + 1; // npos + 1 is 0.
  return std::to_string(line) + ":" + std::to_string(before.size() - begin + 1);
}

bool JsonValue::expect(bool good, const char *what) const {
  if (!good)
    error((value ? "is " + std::string(value->type_name()) : "is missing") +
          ", expected " + what);
  return good;
}

JsonValue JsonValue::field(std::string_view key) const {
  JsonValue result = optional(key);
  if (!result.exists())
    result.error("is missing");
  return result;
}

JsonValue JsonValue::optional(std::string_view key) const {
  const Json *found = nullptr;
  if (value && !value->is_object())
    expect(false, "an object");
  else if (value)
    for (const auto &[name, element] : value->items())
      if (name == key)
        found = &element;
  return JsonValue(found, join(key), errors);
}

std::string JsonValue::string() const {
  if (!expect(value && value->is_string(), "a string"))
    return {};
  return *value->get_ptr<const std::string *>();
}

bool JsonValue::boolean() const {
  return expect(value && value->is_boolean(), "true or false") &&
         value->get<bool>();
}

int64_t JsonValue::integer(int64_t least, int64_t most) const {
  if (!expect(value && value->is_number_integer(), "an integer"))
    return least;
  if (value->is_number_unsigned() &&
      *value->get_ptr<const uint64_t *>() > uint64_t(most)) {
    error("is " + value->dump() + ", expected at most " + std::to_string(most));
    return least;
  }
  int64_t number = *value->get_ptr<const int64_t *>();
  if (number < least || number > most) {
    error("is " + value->dump() + ", expected " +
          (number < least ? "at least " + std::to_string(least)
                          : "at most " + std::to_string(most)));
    return least;
  }
  return number;
}

double JsonValue::number() const {
  if (value && value->is_null())
    return std::numeric_limits<double>::quiet_NaN();
  if (!expect(value && value->is_number(), "a number"))
    return 0;
  double number = value->get<double>();
  if (!(number >= 0))
    error("is " + value->dump() + ", expected at least 0");
  return number;
}

} // namespace plum::runtime
