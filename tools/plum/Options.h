//===- Options.h - What the verbs of plum share -----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each verb is one file: it declares its options and does its work. Results go
// to stdout or to the files that were asked for, everything else to stderr.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TOOLS_PLUM_OPTIONS_H
#define PLUM_TOOLS_PLUM_OPTIONS_H

#include "plum/Pipelines/Compiler.h"

#include <CLI/CLI.hpp>

namespace plum::tool {

/// A spec and how to compile it, as given on the command line.
struct SpecArguments {
  std::string path;
  std::vector<std::string> sets;
  std::string layer, form = "auto", chunk, precision = "default";
  std::string target; ///< "cuda": the GPU that is here. Empty: cpu.
  std::string cpu = "native";
  std::string database; ///< Of tuning; empty: the usual one.
  bool remarks = false, timing = false;

  void declare(CLI::App &verb);
  /// The options as a struct; errors name the flag.
  Result<CompileOptions> options() const;
  /// The spec's text; "-" reads stdin.
  Result<Source> read() const;
  /// Prints what the compiler said.
  void show(const CompileReport &report) const;
};

/// What to compile for the first GPU of this machine: "sm_90a".
Result<std::string> targetOfThisGpu();

/// The first GPU of this machine, if there is a driver that shows one.
struct GpuHere {
  std::string target, name;
  int processors;
};
std::optional<GpuHere> gpuHere();

/// PLUM_CACHE, or plum/ in the user's cache directory.
Result<std::string> cacheDirectory();
/// The plum-run beside this program.
std::string runnerPath();

/// Prints the error; 1.
int fail(const Error &error);

/// compileBundle with a progress line.
Status compileShown(const Source &source, CompileOptions options,
                    const std::string &dir, CompileReport &report);

/// plum compile.
void addCompile(CLI::App &app, int &exitCode);
/// plum run, bench: compile into the cache, then plum-run.
void addForwarded(CLI::App &app, int &exitCode);
/// plum check: kernels as those, or with --after the IR of a phase.
void addCheck(CLI::App &app, int &exitCode);

/// plum logits, generate, perplexity.
void addModelVerbs(CLI::App &app, int &exitCode);

bool isModelDirectory(const std::string &path);
bool isModelBundle(const std::string &path);
/// What decides what is compiled for a model directory.
Result<std::string> describeModel(const std::string &path);
/// The memories of a model directory, into a bundle directory.
Status compileModel(const SpecArguments &arguments, const std::string &output);

/// Compiles the spec into the cache and becomes `plum-run VERB BUNDLE rest...`;
/// returns, with an exit code, only when that fails.
int forward(const std::string &verb, const SpecArguments &spec,
            const std::vector<std::string> &rest);

} // namespace plum::tool

#endif // PLUM_TOOLS_PLUM_OPTIONS_H
