//===- TuningRecord.cpp - Reader and writer of tuning databases -----------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/TuningRecord.h"

#include "runtime/Json.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace plum::runtime {

namespace {

/// Sizes beyond are nobody's, and products of three stay in range.
constexpr int64_t maxSize = int64_t(1) << 20, maxTokens = int64_t(1) << 40;

constexpr int64_t formatVersion = 1;

int64_t roundUp(int64_t value) {
  return int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(value, 1))));
}

} // namespace

std::string TuningShape::text() const {
  return "B=" + std::to_string(batch) + ",T=" + std::to_string(tokens) +
         ",H=" + std::to_string(heads);
}

std::optional<TuningShape> parseTuningShape(std::string_view text) {
  TuningShape shape;
  while (true) {
    size_t end = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, end);
    int64_t value = 0;
    const char *stop = part.data() + part.size();
    if (part.size() < 3 || part[1] != '=')
      return std::nullopt;
    auto [read, error] = std::from_chars(part.data() + 2, stop, value);
    if (error != std::errc() || read != stop || value < 1)
      return std::nullopt;
    if (part[0] == 'B' && value <= maxSize)
      shape.batch = value;
    else if (part[0] == 'T' && value <= maxTokens)
      shape.tokens = value;
    else if (part[0] == 'H' && value <= maxSize)
      shape.heads = value;
    else
      return std::nullopt;
    if (end == text.size())
      return shape;
    text.remove_prefix(end + 1);
  }
}

std::string cpuDeviceName(const std::string &cpu, int64_t threads) {
  return cpu + ", " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads");
}

std::string gpuDeviceName(const std::string &model, int64_t processors) {
  return model + ", " + std::to_string(processors) + " SMs";
}

std::optional<double> parseSeconds(const std::string &text) {
  const char *end = text.data() + text.size();
  double value = 0;
  auto [stop, error] = std::from_chars(text.data(), end, value);
  std::string_view unit(stop, size_t(end - stop));
  double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : 0;
  constexpr double day = 86400;
  if (error != std::errc() || scale == 0 || !(value > 0) || value * scale > day)
    return std::nullopt;
  return value * scale;
}

TuningBucket TuningBucket::of(const TuningShape &shape) {
  return {roundUp(shape.rows()), roundUp(shape.tokens)};
}

std::string TuningBucket::text() const {
  return "BH<=" + std::to_string(rows) + " T<=" + std::to_string(tokens);
}

std::string TuningKey::text() const {
  return "layer " + layer + " " + signature + ", " + bucket.text() +
         ", target " + target + ", precision " + precision + ", device '" +
         device + "', compiler " + compiler;
}

std::string TuningSchedule::text() const {
  if (form == "step")
    return "step";
  std::string text = "chunk " + std::to_string(chunk);
  if (slice)
    text += " slice " + std::to_string(slice);
  if (stages)
    text += " stages " + std::to_string(stages);
  if (segments)
    text += " x" + std::to_string(segments);
  return text;
}

bool TuningErrors::pass() const {
  return r <= rLimit && w <= wLimit && m <= mLimit && state <= stateLimit;
}

bool TuningResult::usable() const {
  return measured() && std::isfinite(ms) && ms > 0 && errors.pass();
}

const TuningResult *TuningEntry::best() const {
  const TuningResult *best = nullptr;
  for (const TuningResult &result : results)
    if (result.usable() && (!best || result.ms < best->ms))
      best = &result;
  return best;
}

const TuningResult *TuningEntry::find(const TuningSchedule &schedule) const {
  for (const TuningResult &result : results)
    if (result.schedule == schedule)
      return &result;
  return nullptr;
}

const TuningEntry *TuningDatabase::find(const TuningKey &key) const {
  auto place =
      std::lower_bound(entries.begin(), entries.end(), key,
                       [](const TuningEntry &entry, const TuningKey &key) {
                         return entry.key < key;
                       });
  return place != entries.end() && place->key == key ? &*place : nullptr;
}

void TuningDatabase::add(const TuningKey &key, const TuningResult &result) {
  auto entry =
      std::lower_bound(entries.begin(), entries.end(), key,
                       [](const TuningEntry &entry, const TuningKey &key) {
                         return entry.key < key;
                       });
  if (entry == entries.end() || entry->key != key)
    entry = entries.insert(entry, {key, {}});
  auto place =
      std::lower_bound(entry->results.begin(), entry->results.end(), result,
                       [](const TuningResult &a, const TuningResult &b) {
                         return a.schedule < b.schedule;
                       });
  if (place != entry->results.end() && place->schedule == result.schedule)
    *place = result;
  else
    entry->results.insert(place, result);
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

namespace {

TuningSchedule readSchedule(const JsonValue &value) {
  TuningSchedule schedule;
  schedule.form = value.field("form").string();
  if (schedule.form != "step" && schedule.form != "chunk")
    value.field("form").error("is '" + schedule.form +
                              "', expected step or chunk");
  if (schedule.form == "chunk") {
    schedule.chunk = value.field("chunk").integer(1, 256);
    if (!std::has_single_bit(uint64_t(schedule.chunk)))
      value.field("chunk").error("is " + std::to_string(schedule.chunk) +
                                 ", expected a power of two");
  }
  auto optional = [&](const char *name, int64_t most) {
    JsonValue field = value.optional(name);
    return field.exists() ? field.integer(1, most) : 0;
  };
  schedule.slice = optional("slice", 4096);
  schedule.stages = optional("stages", 16);
  schedule.segments = optional("segments", maxSize);
  return schedule;
}

TuningErrors readErrors(const JsonValue &value) {
  TuningErrors errors;
  std::pair<const char *, double *> fields[] = {
      {"r", &errors.r},
      {"w", &errors.w},
      {"m", &errors.m},
      {"state", &errors.state},
      {"r_limit", &errors.rLimit},
      {"w_limit", &errors.wLimit},
      {"m_limit", &errors.mLimit},
      {"state_limit", &errors.stateLimit}};
  for (auto [name, member] : fields)
    *member = value.field(name).number();
  return errors;
}

TuningResult readResult(const JsonValue &value) {
  TuningResult result;
  result.schedule = readSchedule(value);
  std::string shape = value.field("shape").string();
  if (auto parsed = parseTuningShape(shape))
    result.shape = *parsed;
  else
    value.field("shape").error("is '" + shape + "', expected B=n,T=n,H=n");
  if (JsonValue bundle = value.optional("bundle"); bundle.exists()) {
    result.bundle = bundle.string();
    if (result.bundle.empty() || result.bundle[0] == '.' ||
        result.bundle.find_first_of(std::string_view("/\0", 2)) !=
            std::string::npos)
      bundle.error("is '" + result.bundle + "', expected a plain folder name");
  }
  result.estimateMs = value.field("estimate_ms").number();
  result.registers = value.field("registers").integer(0);
  result.spilledBytes = value.field("spilled_bytes").integer(0);
  result.sharedBytes = value.field("shared_bytes").integer(0);
  if (JsonValue date = value.optional("date"); date.exists()) {
    result.date = date.string();
    if (JsonValue failure = value.optional("failure"); failure.exists()) {
      result.failure = failure.string();
    } else {
      result.ms = value.field("ms").number();
      result.spread = value.field("spread").number();
      result.reps = value.field("reps").integer(1);
      result.errors = readErrors(value.field("errors"));
    }
  }
  return result;
}

TuningKey readKey(const JsonValue &value) {
  TuningKey key;
  std::pair<const char *, std::string *> fields[] = {
      {"layer", &key.layer},   {"signature", &key.signature},
      {"target", &key.target}, {"precision", &key.precision},
      {"device", &key.device}, {"compiler", &key.compiler}};
  for (auto [name, member] : fields)
    *member = value.field(name).string();
  key.bucket.rows = value.field("rows").integer(1);
  key.bucket.tokens = value.field("tokens").integer(1);
  for (auto [name, size] :
       {std::pair("rows", key.bucket.rows), {"tokens", key.bucket.tokens}})
    if (!std::has_single_bit(uint64_t(size)))
      value.field(name).error("is " + std::to_string(size) +
                              ", expected a power of two");
  return key;
}

using OrderedJson = nlohmann::ordered_json;

/// Not finite has no JSON; null is read back as NaN, which passes no limit.
OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson();
}

OrderedJson resultObject(const TuningResult &result) {
  const TuningSchedule &schedule = result.schedule;
  OrderedJson object = {{"form", schedule.form}};
  for (auto [name, value] :
       {std::pair("chunk", schedule.chunk), std::pair("slice", schedule.slice),
        std::pair("stages", schedule.stages),
        std::pair("segments", schedule.segments)})
    if (value)
      object[name] = value;
  if (!result.bundle.empty())
    object["bundle"] = result.bundle;
  if (result.measured()) {
    const TuningErrors &errors = result.errors;
    object["ms"] = number(result.ms);
    object["spread"] = number(result.spread);
    object["reps"] = result.reps;
    object["errors"] = {{"r", number(errors.r)},
                        {"w", number(errors.w)},
                        {"m", number(errors.m)},
                        {"state", number(errors.state)},
                        {"r_limit", number(errors.rLimit)},
                        {"w_limit", number(errors.wLimit)},
                        {"m_limit", number(errors.mLimit)},
                        {"state_limit", number(errors.stateLimit)}};
  } else if (!result.failure.empty()) {
    object["failure"] = result.failure;
  }
  object["shape"] = result.shape.text();
  object["estimate_ms"] = number(result.estimateMs);
  object["registers"] = result.registers;
  object["spilled_bytes"] = result.spilledBytes;
  object["shared_bytes"] = result.sharedBytes;
  if (!result.date.empty())
    object["date"] = result.date;
  return object;
}

std::string dump(const OrderedJson &value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

} // namespace

Result<TuningDatabase> parseTuning(std::string_view text,
                                   const std::string &where) {
  Result<Json> json = parseJson(text, where);
  if (!json) {
    Error error = json.error();
    if (std::string place = placeOfJsonError(text); !place.empty())
      error.where += ":" + place;
    return error;
  }
  if (!json->is_object())
    return Error{where, "is not a JSON object", {}};
  JsonErrors errors(where);
  JsonValue root(&*json, "", errors);
  TuningDatabase database;
  root.field("plum_tuning").integer(formatVersion, formatVersion);
  root.field("entries").array([&](const JsonValue &entry) {
    TuningKey key = readKey(entry);
    if (!errors.any() && database.find(key))
      entry.error("has the key of an entry before it");
    entry.field("results").array([&](const JsonValue &value) {
      TuningResult result = readResult(value);
      if (errors.any())
        return;
      const TuningEntry *own = database.find(key);
      if (own && own->find(result.schedule))
        value.error("is a second result for '" + result.schedule.text() + "'");
      if (TuningBucket::of(result.shape) != key.bucket)
        value.error("has shape " + result.shape.text() + ", which is not in " +
                    key.bucket.text());
      database.add(key, result);
    });
  });
  if (errors.any())
    return errors.take();
  return database;
}

Result<TuningDatabase> readTuning(const std::string &path) {
  std::error_code ignored; // Reading a directory would throw.
  if (std::filesystem::is_directory(path, ignored))
    return Error{path, "is a directory", {}};
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{path, "no such file", {}};
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad())
    return Error{path, "cannot be read", {}};
  return parseTuning(text, path);
}

std::string writeTuning(const TuningDatabase &database) {
  TuningDatabase sorted; // Whatever the caller did to the lists.
  for (const TuningEntry &entry : database.entries)
    for (const TuningResult &result : entry.results)
      sorted.add(entry.key, result);
  std::string text = "{\n  \"plum_tuning\": " + std::to_string(formatVersion) +
                     ",\n  \"entries\": [";
  bool first = true;
  for (const TuningEntry &entry : sorted.entries) {
    const TuningKey &key = entry.key;
    text += first ? "\n    {\n" : ",\n    {\n";
    first = false;
    std::pair<const char *, OrderedJson> fields[] = {
        {"layer", key.layer},      {"signature", key.signature},
        {"target", key.target},    {"precision", key.precision},
        {"device", key.device},    {"compiler", key.compiler},
        {"rows", key.bucket.rows}, {"tokens", key.bucket.tokens}};
    for (const auto &[name, value] : fields)
      text += "      \"" + std::string(name) + "\": " + dump(value) + ",\n";
    text += "      \"results\": [";
    for (size_t i = 0; i < entry.results.size(); ++i)
      text += (i ? ",\n        " : "\n        ") +
              dump(resultObject(entry.results[i]));
    text += "\n      ]\n    }";
  }
  return text + "\n  ]\n}\n";
}

} // namespace plum::runtime
