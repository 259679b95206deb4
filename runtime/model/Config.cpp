//===- Config.cpp - Checked access to config.json -------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Config.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include <sys/stat.h>

namespace plum::model {

using runtime::Json;

/// Writes the bare words Infinity, -Infinity and NaN, outside of strings, as
/// objects.
static std::string withoutBareFloats(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
      out += text[i];
      continue;
    }
    if (text[i] == '"')
      quoted = !quoted;
    bool replaced = false;
    for (std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (!quoted && text.substr(i, word.size()) == word) {
        out += "{\"__float__\":\"" + std::string(word) + "\"}";
        i += word.size() - 1;
        replaced = true;
        break;
      }
    if (!replaced)
      out += text[i];
  }
  return out;
}

Result<Json> parseConfig(std::string_view text, const std::string &where) {
  Result<Json> json = runtime::parseJson(withoutBareFloats(text), where);
  if (json && !json->is_object())
    return Error{where,
                 "is a JSON " + std::string(json->type_name()) +
                     ", expected an "
                     "object",
                 {}};
  return json;
}

Result<std::string> readFile(const std::string &path, int64_t largest) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    return Error{path, std::string("cannot be read: ") + strerror(errno), {}};
  if (!S_ISREG(info.st_mode))
    return Error{path, "is not a regular file", {}};
  if (info.st_size > largest)
    return Error{path,
                 "has " + std::to_string(info.st_size) +
                     " bytes, expected at most " + std::to_string(largest),
                 {}};
  std::ifstream file(path, std::ios::binary);
  std::string text(size_t(info.st_size), '\0');
  if (!file.read(text.data(), std::streamsize(text.size())))
    return Error{path, "cannot be read", {}};
  return text;
}

Result<Json> readConfig(const std::string &directory) {
  std::string path = directory + "/config.json";
  Result<std::string> text = readFile(path, 16 << 20);
  if (!text) {
    text.error().notes.push_back(
        "a model directory has config.json and model.safetensors");
    return text.error();
  }
  return parseConfig(*text, path);
}

std::pair<const Json *, std::string_view> Config::find(Names names) const {
  if (value)
    for (std::string_view name : names)
      if (auto found = value->find(std::string(name));
          found != value->end() && !found->is_null())
        return {&*found, name};
  return {nullptr, *names.begin()};
}

Config Config::part(std::string_view name) const {
  const Json *found = find({name}).first;
  if (found && !found->is_object()) {
    errors->add(join(name), "is " + std::string(found->type_name()) +
                                ", expected an object");
    found = nullptr;
  }
  return Config(found, join(name), errors);
}

int64_t Config::checked(const Json &field, std::string_view name, int64_t least,
                        int64_t most) const {
  runtime::JsonValue number(&field, join(name), *errors);
  return number.integer(least, most);
}

int64_t Config::integer(Names names, int64_t least, int64_t most) const {
  auto [field, name] = find(names);
  if (field)
    return checked(*field, name, least, most);
  errors->add(join(name), "is missing");
  return least;
}

int64_t Config::integerOr(Names names, int64_t otherwise, int64_t least,
                          int64_t most) const {
  return has(names) ? integer(names, least, most) : otherwise;
}

int64_t Config::dim(Names names, int64_t most) const {
  return integer(names, 1, most);
}

int64_t Config::dimOr(Names names, int64_t otherwise, int64_t most) const {
  return integerOr(names, otherwise, 1, most);
}

double Config::number(Names names) const {
  auto [field, name] = find(names);
  double result = 0;
  if (!field)
    errors->add(join(name), "is missing");
  else if (!field->is_number())
    errors->add(join(name), "is " + std::string(field->type_name()) +
                                ", expected a number");
  else if (result = field->get<double>(); !std::isfinite(result)) {
    errors->add(join(name), "is not finite");
    result = 0;
  }
  return result;
}

double Config::numberOr(Names names, double otherwise) const {
  return has(names) ? number(names) : otherwise;
}

std::vector<double> Config::numbers(Names names) const {
  auto [field, name] = find(names);
  std::vector<double> list;
  if (!field)
    return list;
  if (!field->is_array())
    errors->add(join(name), "is " + std::string(field->type_name()) +
                                ", expected an array");
  for (const Json &element : *field) {
    auto special =
        element.is_object() ? element.find("__float__") : element.end();
    if (element.is_number())
      list.push_back(element.get<double>());
    else if (element.is_object() && special != element.end() &&
             *special == "Infinity")
      list.push_back(HUGE_VAL);
    else
      errors->add(join(name), "has an element that is no number");
  }
  return list;
}

bool Config::flagOr(Names names, bool otherwise) const {
  auto [field, name] = find(names);
  if (!field)
    return otherwise;
  if (!field->is_boolean()) {
    errors->add(join(name), "is " + std::string(field->type_name()) +
                                ", expected true or false");
    return otherwise;
  }
  return field->get<bool>();
}

std::string Config::textOr(Names names, const std::string &otherwise) const {
  auto [field, name] = find(names);
  if (!field)
    return otherwise;
  if (!field->is_string()) {
    errors->add(join(name), "is " + std::string(field->type_name()) +
                                ", expected a string");
    return otherwise;
  }
  return field->get<std::string>();
}

std::vector<int64_t> Config::integers(Names names, int64_t least,
                                      int64_t most) const {
  auto [field, name] = find(names);
  std::vector<int64_t> list;
  if (field)
    runtime::JsonValue(field, join(name), *errors)
        .array([&](const runtime::JsonValue &element) {
          list.push_back(element.integer(least, most));
        });
  return list;
}

std::vector<std::string> Config::texts(Names names) const {
  auto [field, name] = find(names);
  std::vector<std::string> list;
  if (field)
    runtime::JsonValue(field, join(name), *errors)
        .array([&](const runtime::JsonValue &element) {
          list.push_back(element.string());
        });
  return list;
}

void Config::error(std::string_view name, const std::string &message) const {
  errors->add(join(name), message);
}

void Config::onlyFlag(std::string_view name, bool value) const {
  if (flagOr({name}, value) != value)
    error(name, std::string("is ") + (value ? "false" : "true") +
                    ", this runtime computes only models where it is " +
                    (value ? "true" : "false"));
}

void Config::onlyText(std::string_view name, const std::string &value) const {
  if (std::string got = textOr({name}, value); got != value)
    error(name, "is '" + got + "', this runtime computes only '" + value + "'");
}

} // namespace plum::model
