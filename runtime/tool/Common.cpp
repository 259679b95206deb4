//===- Common.cpp - What the verbs of plum-run share ----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/Common.h"
#include "runtime/tool/Runner.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>

#include <unistd.h>

namespace plum::runtime::tool {

int fail(const Error &error) {
  fmt::print(stderr, "{}\n", error.str());
  return 1;
}

int fail(Error error, const std::string &where) {
  if (error.where.empty())
    error.where = where;
  return fail(error);
}

void warn(const std::string &where, const std::string &message) {
  fmt::print(stderr, "{}: warning: {}\n", where, message);
}

/// An empty text, or what is wrong with the name.
static std::string isTarget(const std::string &name) {
  bool good = name == "cpu" || name == "cuda" ||
              (name.starts_with("sm_") && name.size() > 4);
  return good ? "" : "'" + name + "' is neither cpu, cuda nor sm_NN";
}

void Choice::declare(CLI::App &verb) {
  verb.add_option("bundle", bundle, "Directory that 'plum compile' wrote")
      ->required()
      ->type_name("BUNDLE");
  verb.add_option("--form", form,
                  "step: one token after the other; chunk: many at once; auto: "
                  "chunks, and steps for the few tokens left over")
      ->check(CLI::IsMember({"auto", "step", "chunk"}))
      ->capture_default_str();
  verb.add_option("--chunk", chunk,
                  "Tokens per chunk, of those in the bundle (default: the "
                  "bundle's first)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--threads", threads,
                  "Threads; results do not depend on it (default: one per CPU)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--target", target,
                  "Where to run: cpu, cuda or one architecture, as sm_90a "
                  "(default: what the bundle was compiled for)")
      ->check(isTarget, "cpu|cuda|sm_NN");
  verb.add_option("--segments", segments,
                  "On a GPU: parts that each sequence is split into (default: "
                  "as many as pay, 1 where heads alone fill the GPU)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--gpu", gpu, "Number of the GPU")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

RunOptions Choice::options() const {
  RunOptions options;
  options.form = form == "step"    ? Form::Step
                 : form == "chunk" ? Form::Chunk
                                   : Form::Auto;
  options.chunk = chunk;
  options.threads = threads;
  options.segments = segments;
  return options;
}

Result<Bundle> Choice::open() const {
  Result<Bundle> opened = Bundle::open(bundle);
  if (!opened)
    return opened;
  const Manifest &manifest = opened->manifest();
  if (!target.empty() && target != manifest.target &&
      !(target == "cuda" && manifest.onGpu()))
    return Error{bundle,
                 "has no " + target + " kernel, it was compiled for " +
                     manifest.target,
                 {}};
  if (manifest.onGpu()) {
    Result<cuda::KernelSet> set =
        cuda::chooseKernels(manifest, gpuOptions(options()), {});
    if (set)
      return opened;
    Error error = set.error();
    error.where = bundle;
    return error;
  }
  Result<KernelChoice> choice = chooseKernels(*opened, options());
  if (!choice)
    return choice.error();
  return opened;
}

void ShapeOption::declare(CLI::App &verb, const std::string &help) {
  text = fmt::format("B={},T={},H={}", batch, tokens, heads);
  verb.add_option("--shape", text,
                  help + ", B=n,T=n,H=n; P=n: rows that growing states hold "
                         "before the run; L=n: their heads, which H / n heads "
                         "share each")
      ->type_name("SIZES")
      ->capture_default_str();
}

Status ShapeOption::parse(const Manifest &manifest) {
  auto bad = [&](const std::string &part) {
    const std::string what = "'" + part + "' is none of B=n, T=n, H=n";
    if (manifest.growingState())
      return Error{
          "--shape", what + ", L=n with n >= 1 or P=n with n >= 0", {}};
    return Error{"--shape",
                 what + " with n >= 1",
                 {"P=n and L=n are for layers with growing states"}};
  };
  for (const std::string &part : CLI::detail::split(text, ',')) {
    if (part.size() < 3 || part[1] != '=')
      return bad(part);
    int64_t value = 0;
    const char *end = part.data() + part.size();
    auto [stop, error] = std::from_chars(part.data() + 2, end, value);
    if (error != std::errc() || stop != end || value < (part[0] != 'P'))
      return bad(part);
    bool ofLists = part[0] == 'P' || part[0] == 'L';
    if (ofLists && !manifest.growingState())
      return Error{"--shape",
                   "'" + part + "' is for growing states, which layer '" +
                       manifest.layer + "' does not have",
                   {}};
    switch (part[0]) {
    case 'B':
      batch = value;
      break;
    case 'T':
      tokens = value;
      break;
    case 'H':
      heads = value;
      break;
    case 'P':
      past = value;
      break;
    case 'L':
      listHeads = value;
      break;
    default:
      return bad(part);
    }
  }
  if (listHeads > 0 && heads % listHeads != 0)
    return Error{"--shape",
                 "'L=" + std::to_string(listHeads) +
                     "' does not divide H = " + std::to_string(heads),
                 {}};
  if (sharesLists())
    for (const ManifestTensor &state : manifest.states)
      if (state.grows && state.rows.empty())
        return Error{
            "--shape",
            "'L=" + std::to_string(listHeads) +
                "' is for lists whose rows are inputs, but those of '" +
                state.name + "' are computed",
            {}};
  return Status::ok();
}

Progress::Progress(std::string label, int64_t total)
    : label(std::move(label)), total(total) {
  if (!isatty(STDERR_FILENO) || total < 1)
    return;
  thread = std::thread([this] {
    std::unique_lock lock(mutex);
    bool shown = false;
    while (!wake.wait_for(lock, std::chrono::milliseconds(shown ? 200 : 1000),
                          [&] { return stopping; })) {
      fmt::print(stderr, "\r{} {:3} %", this->label,
                 100 * done.load() / this->total);
      std::fflush(stderr);
      shown = true;
    }
    if (shown)
      fmt::print(stderr, "\r{:{}}\r", "", this->label.size() + 6);
  });
}

Progress::~Progress() {
  if (!thread.joinable())
    return;
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  thread.join();
}

} // namespace plum::runtime::tool
