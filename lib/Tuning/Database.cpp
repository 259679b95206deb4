//===- Database.cpp - Tuning databases on disk ----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Database.h"
#include "runtime/Safetensors.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>

using namespace plum;
using namespace plum::tuning;
using namespace plum::runtime;
namespace fs = std::filesystem;

Result<TuningDatabase> plum::tuning::openDatabase(const std::string &path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return TuningDatabase();
  return readTuning(path);
}

MergeCounts plum::tuning::merge(TuningDatabase &into,
                                const TuningDatabase &from) {
  MergeCounts counts;
  for (const TuningEntry &entry : from.entries)
    for (const TuningResult &result : entry.results) {
      if (result.date.empty()) {
        ++counts.unmeasured;
        continue;
      }
      TuningResult merged = result;
      merged.bundle.clear(); // A folder of somebody's plan.
      const TuningEntry *own = into.find(entry.key);
      const TuningResult *old = own ? own->find(result.schedule) : nullptr;
      if (old && (*old == merged || old->date > merged.date)) {
        ++counts.kept;
        continue;
      }
      ++(old ? counts.replaced : counts.added);
      into.add(entry.key, merged);
    }
  return counts;
}

namespace {

/// An exclusive lock on a file beside the database. The file stays: who removed
/// it would let two writers lock two files.
class FileLock {
public:
  explicit FileLock(const std::string &path)
      : descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    while (descriptor >= 0 && flock(descriptor, LOCK_EX) != 0)
      if (errno != EINTR) {
        error = errno;
        return;
      }
    error = descriptor < 0 ? errno : 0;
  }
  FileLock(const FileLock &) = delete;
  FileLock &operator=(const FileLock &) = delete;
  ~FileLock() {
    if (descriptor >= 0)
      close(descriptor);
  }
  int descriptor;
  int error = 0;
};

} // namespace

Result<MergeCounts> plum::tuning::mergeIntoFile(const std::string &path,
                                                const TuningDatabase &from) {
  std::error_code failure;
  fs::path parent = fs::path(path).parent_path();
  if (!parent.empty())
    fs::create_directories(parent, failure);
  if (failure)
    return Error{
        parent.string(), "cannot be created: " + failure.message(), {}};
  FileLock lock(path + ".lock");
  if (lock.error)
    return Error{path + ".lock",
                 std::string("cannot be locked: ") + std::strerror(lock.error),
                 {}};
  Result<TuningDatabase> database = openDatabase(path);
  if (!database)
    return database.error();
  MergeCounts counts = merge(*database, from);
  if (counts.added + counts.replaced == 0)
    return counts;
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.error();
  std::string text = writeTuning(*database);
  if (Status status = file->write(text.data(), text.size()); !status)
    return status.error();
  if (Status status = file->commit(); !status)
    return status.error();
  return counts;
}

std::string plum::tuning::describe(const MergeCounts &counts) {
  std::string text = std::to_string(counts.added) + " added, " +
                     std::to_string(counts.replaced) + " replaced";
  if (counts.kept)
    text += ", " + std::to_string(counts.kept) + " already there";
  if (counts.unmeasured)
    text += ", " + std::to_string(counts.unmeasured) + " not measured";
  return text;
}

static std::string number(double value, const char *unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.4g%s", value, unit);
  return text;
}

static bool differs(double a, double b, double tolerance) {
  return !(std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b)));
}

/// What differs of two results of one schedule, or an empty text.
static std::string changes(const TuningResult &a, const TuningResult &b,
                           double tolerance) {
  if (a.failure != b.failure)
    return a.failure.empty()   ? "now fails: " + b.failure
           : b.failure.empty() ? "no longer fails: " + a.failure
                               : "fails otherwise: " + b.failure;
  std::string text;
  auto add = [&](const std::string &part) {
    text += (text.empty() ? "" : ", ") + part;
  };
  if (differs(a.ms, b.ms, tolerance)) {
    char percent[32];
    std::snprintf(percent, sizeof percent, " (%+.1f %%)",
                  100 * (b.ms / a.ms - 1));
    add(number(a.ms, " ms") + " -> " + number(b.ms, " ms") + percent);
  }
  if (differs(a.errors.r, b.errors.r, tolerance))
    add("error " + number(a.errors.r, "") + " -> " + number(b.errors.r, ""));
  if (a.usable() != b.usable())
    add(b.usable() ? "now within the limits" : "no longer within the limits");
  if (a.spilledBytes != b.spilledBytes)
    add("spills " + std::to_string(a.spilledBytes) + " -> " +
        std::to_string(b.spilledBytes) + " bytes");
  return text;
}

std::string plum::tuning::diff(const TuningDatabase &a, const TuningDatabase &b,
                               double tolerance) {
  std::string text;
  auto missing = [&](const TuningDatabase &here, const TuningDatabase &there,
                     const char *sign) {
    for (const TuningEntry &entry : here.entries)
      if (!there.find(entry.key)) {
        const TuningResult *best = entry.best();
        text += sign + entry.key.text() + ": " +
                (best ? best->schedule.text() + ", " + number(best->ms, " ms")
                      : "nothing usable") +
                "\n";
      }
  };
  missing(a, b, "- ");
  missing(b, a, "+ ");
  for (const TuningEntry &old : a.entries) {
    const TuningEntry *now = b.find(old.key);
    if (!now)
      continue;
    std::string lines;
    const TuningResult *before = old.best(), *after = now->best();
    auto name = [](const TuningResult *best) {
      return best ? best->schedule.text() : std::string("nothing usable");
    };
    if (name(before) != name(after))
      lines += "    choice: " + name(before) + " -> " + name(after) + "\n";
    for (const TuningResult &result : old.results) {
      const TuningResult *other = now->find(result.schedule);
      std::string what = other ? changes(result, *other, tolerance) : "gone";
      if (!what.empty())
        lines += "    " + result.schedule.text() + ": " + what + "\n";
    }
    for (const TuningResult &result : now->results)
      if (!old.find(result.schedule))
        lines += "    " + result.schedule.text() + ": new\n";
    if (!lines.empty())
      text += "  " + old.key.text() + "\n" + lines;
  }
  return text;
}
