//===- Common.h - What the verbs of plum-run share --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each verb is one file: a struct of options, a function that declares them and
// one that does the work and returns the exit code. Results go to stdout,
// everything else to stderr.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_TOOL_COMMON_H
#define PLUM_RUNTIME_TOOL_COMMON_H

#include "runtime/Executor.h"

#include <CLI/CLI.hpp>

#include <chrono>

namespace plum::runtime::tool {

/// Declare a verb; running it sets `exitCode`.
void addRun(CLI::App &app, int &exitCode);
void addCheck(CLI::App &app, int &exitCode);
void addBench(CLI::App &app, int &exitCode);
void addInfo(CLI::App &app, int &exitCode);
void addDevice(CLI::App &app, int &exitCode);
void addLogits(CLI::App &app, int &exitCode);
void addGenerate(CLI::App &app, int &exitCode);
void addPerplexity(CLI::App &app, int &exitCode);
void addMoe(CLI::App &app, int &exitCode);
void addTune(CLI::App &app, int &exitCode);

inline double millisecondsSince(std::chrono::steady_clock::time_point moment) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - moment)
      .count();
}

/// Prints the error; 1.
int fail(const Error &error);
/// The same, at `where` when the error has no place.
int fail(Error error, const std::string &where);
void warn(const std::string &where, const std::string &message);

/// BUNDLE and the options that choose what of it runs.
struct Choice {
  std::string bundle;
  std::string form = "auto";
  int64_t chunk = 0;
  int threads = 0;
  std::string target; ///< Empty: the bundle's.
  int64_t segments = 0;
  int gpu = 0;

  void declare(CLI::App &verb);
  RunOptions options() const;
  /// Opens the bundle and checks that it has what is asked for.
  Result<Bundle> open() const;
};

/// B=1,T=256,H=2: sizes of a random run. Where states grow, P=64 is the number
/// of rows they hold before it.
struct ShapeOption {
  int64_t batch = 1, tokens, heads;
  std::string text;
  std::optional<int64_t> past = {};
  int64_t listHeads = 0; ///< Of lists that heads share; 0: as many as heads.

  bool sharesLists() const { return listHeads > 0 && listHeads < heads; }

  void declare(CLI::App &verb, const std::string &help);
  Status parse(const Manifest &manifest);
};

/// A line on stderr that shows how far a piece of work is, from one second on
/// and only when stderr is a terminal. Leaves nothing behind.
class Progress {
public:
  Progress(std::string label, int64_t total);
  ~Progress();
  std::atomic<int64_t> done = 0; ///< Of total.

private:
  std::string label;
  int64_t total;
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  std::thread thread;
};

} // namespace plum::runtime::tool

#endif // PLUM_RUNTIME_TOOL_COMMON_H
