//===- Options.cpp - What the verbs of plum share ---------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "plum/Pipelines/Phases.h"
#include "plum/Target/GpuChip.h"
#include "runtime/tool/Common.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sys/stat.h>

using namespace plum;
using namespace plum::tool;

void SpecArguments::declare(CLI::App &verb) {
  verb.add_option("SPEC", path, "layer spec (.plum); - reads it from stdin")
      ->required();
  verb.add_option("--set", sets, "value of a dim, as K=64; may be repeated")
      ->take_all()
      ->type_name("DIM=INT");
  verb.add_option("--layer", layer, "which layer of a file that holds several");
  verb.add_option("--form", form, "auto, step (token by token) or chunk")
      ->check(CLI::IsMember({"auto", "step", "chunk"}))
      ->capture_default_str();
  verb.add_option(
          "--chunk", chunk,
          "chunk size C in tokens, a power of two from 1 to 256 [64]; a list "
          "(16,64) compiles a kernel for each")
      ->type_name("C");
  verb.add_option(
          "--precision", precision,
          "default, robust (on a GPU: two bf16 terms where roundings add up) "
          "or "
          "f32 (16-bit inputs and outputs are taken as f32; on a GPU steps "
          "only). CPU products are fp32 in all three")
      ->check(CLI::IsMember({"default", "robust", "f32"}))
      ->capture_default_str();
  verb.add_option("--target", target,
                  "cpu, " + gpuChipNames() +
                      ", or cuda for the GPU of this machine [cpu]");
  verb.add_option("--cpu", cpu, "CPU to compile for, an LLVM name or native")
      ->capture_default_str();
  verb.add_option("--db", database,
                  "tuning database [PLUM_TUNING, or tuning.json in the cache]")
      ->type_name("FILE");
  verb.add_flag("--remarks", remarks,
                "say what was proven and chosen, and why");
  verb.add_flag("--timing", timing, "time of each phase on stderr");
}

/// Parses all of `text` as an integer.
static std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

Result<CompileOptions> SpecArguments::options() const {
  CompileOptions options;
  for (const std::string &set : sets) {
    size_t equals = set.find('=');
    auto value = equals == std::string::npos
                     ? std::nullopt
                     : integer(std::string_view(set).substr(equals + 1));
    if (!value || equals == 0)
      return Error{"--set", "'" + set + "' is not of the form DIM=INT", {}};
    options.spec.dims[set.substr(0, equals)] = *value;
  }
  options.spec.layer = layer;
  options.form = form == "step"    ? Form::Step
                 : form == "chunk" ? Form::Chunk
                                   : Form::Auto;
  if (!chunk.empty()) {
    options.chunks.clear();
    for (size_t begin = 0; begin <= chunk.size();) {
      size_t end = std::min(chunk.find(',', begin), chunk.size());
      std::string item = chunk.substr(begin, end - begin);
      auto value = integer(item);
      if (!value)
        return Error{"--chunk", "'" + item + "' is not a number of tokens", {}};
      options.chunks.push_back(*value);
      begin = end + 1;
    }
  }
  options.precision = precision == "f32"      ? Precision::F32
                      : precision == "robust" ? Precision::Robust
                                              : Precision::Default;
  if (target == "cuda") {
    Result<std::string> here = targetOfThisGpu();
    if (!here)
      return here.error();
    options.target = *here;
  } else if (!target.empty()) {
    options.target = target;
  }
  if (const char *ptxas = std::getenv("PLUM_PTXAS"))
    options.ptxas = ptxas;
  options.cpu = cpu;
  options.timing = timing;
  return options;
}

Result<Source> SpecArguments::read() const {
  if (path == "-")
    return Source("<stdin>",
                  std::string(std::istreambuf_iterator<char>(std::cin), {}));
  struct stat status{};
  if (stat(path.c_str(), &status) != 0)
    return Error{path, "no such file", {}};
  if (S_ISDIR(status.st_mode))
    return Error{path, "is a directory, expected a layer spec (.plum)", {}};
  constexpr off_t kLargest = 1 << 20;
  if (status.st_size > kLargest)
    return Error{path,
                 "has " + std::to_string(status.st_size) +
                     " bytes, expected a layer spec of at most 1 MiB",
                 {}};
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return Error{path, "cannot be read", {}};
  return Source(path, std::string(std::istreambuf_iterator<char>(in), {}));
}

void SpecArguments::show(const CompileReport &report) const {
  std::fputs((remarks ? report.remarks : report.messages).c_str(), stderr);
  std::fputs(report.timing.c_str(), stderr);
}

Status plum::tool::compileShown(const Source &source, CompileOptions options,
                                const std::string &dir, CompileReport &report) {
  Machine machine = options.target == "cpu" ? Machine::CPU : Machine::GPU;
  runtime::tool::Progress progress("compiling",
                                   int64_t(phasesFor(machine).size()));
  options.phasesDone = &progress.done;
  return compileBundle(source, options, dir, report);
}

int plum::tool::fail(const Error &error) {
  std::string text = error.where == kRendered ? error.message : error.str();
  std::fprintf(stderr, "%s\n", text.c_str());
  return 1;
}
