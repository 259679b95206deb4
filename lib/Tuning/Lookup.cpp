//===- Lookup.cpp - Which schedule a run gets -----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Lookup.h"

#include <set>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;

TuningKey plum::tuning::keyFor(const LayerFacts &facts,
                               const TuningShape &shape,
                               const DeviceModel &device,
                               const std::string &compiler,
                               const TuningDatabase &database) {
  TuningKey key;
  key.layer = facts.manifest.layer;
  key.signature = facts.signature;
  key.target = facts.manifest.target;
  key.precision = facts.manifest.precision;
  key.device = device.name;
  key.compiler = compiler;
  key.bucket = TuningBucket::of(shape);
  if (!key.device.empty())
    return key;
  std::set<std::string> names;
  for (const TuningEntry &entry : database.entries)
    if (entry.key.target == key.target)
      names.insert(entry.key.device);
  key.device = names.size() == 1 ? *names.begin() : "any " + key.target;
  return key;
}

std::string plum::tuning::differences(const TuningKey &a, const TuningKey &b) {
  std::string text;
  auto add = [&](bool differ, const char *what) {
    if (differ)
      text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(a.layer != b.layer || a.signature != b.signature, "layer");
  add(a.bucket != b.bucket, "shape");
  add(a.target != b.target, "target");
  add(a.precision != b.precision, "precision");
  add(a.device != b.device, "device");
  add(a.compiler != b.compiler, "compiler");
  return text;
}

/// What the database has of the layer, under other keys.
static std::vector<std::string> relatives(const TuningKey &key,
                                          const TuningDatabase &database) {
  std::vector<std::string> notes;
  constexpr size_t most = 3;
  for (const TuningEntry &entry : database.entries) {
    const TuningKey &other = entry.key;
    bool near = other.signature == key.signature && other.target == key.target;
    if (!near || other == key || notes.size() == most)
      continue;
    notes.push_back("there is an entry that differs in its " +
                    differences(key, other) + ": " + other.text());
  }
  return notes;
}

Result<Choice> plum::tuning::chooseSchedule(const LayerFacts &facts,
                                            const CompileOptions &options,
                                            const TuningShape &shape,
                                            const DeviceModel &device,
                                            const std::string &compiler,
                                            const TuningDatabase &database,
                                            const std::string &command) {
  Choice choice;
  TuningKey key = keyFor(facts, shape, device, compiler, database);
  choice.record.key = key.text();
  choice.record.shape = shape.text();
  const TuningEntry *entry = database.find(key);
  // A form that was asked for leaves only some of the results.
  const TuningResult *best = nullptr;
  auto allowed = [&](const TuningResult &result) {
    bool step = result.schedule.form == "step";
    return result.usable() && !(step && options.form == Form::Chunk) &&
           !(!step && options.form == Form::Step);
  };
  if (entry)
    for (const TuningResult &result : entry->results)
      if (allowed(result) && (!best || result.ms < best->ms))
        best = &result;
  if (best) {
    choice.schedule = best->schedule;
    choice.record.from = "database";
    choice.record.schedule = best->schedule.text();
    choice.record.ms = best->ms;
    choice.record.date = best->date;
    return choice;
  }
  std::optional<TuningSchedule> model =
      modelChoice(facts, options, shape, device, entry);
  if (!model)
    return Error{"",
                 "no schedule is within the error limits for " + key.text(),
                 {"'plum tune explain' lists them; --chunk takes one all the "
                  "same"}};
  choice.schedule = *model;
  choice.record.from = "model";
  choice.record.schedule = choice.schedule.text();
  choice.message =
      std::string(entry ? "no usable result" : "nothing measured") + " for " +
      key.text() + "; the cost model takes '" + choice.schedule.text() + "'";
  choice.notes.push_back("'" + command + "' measures");
  for (std::string &note : relatives(key, database))
    choice.notes.push_back(std::move(note));
  return choice;
}
