//===- Forward.cpp - plum run, check and bench ------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `plum VERB SPEC ...` compiles the spec into the cache and becomes `plum-run
// VERB BUNDLE ...`. A bundle directory in place of a spec is run as it is. The
// cache key is everything the bundle depends on: the spec, the options and
// this very compiler. PLUM_CACHE names the cache's directory; by default it is
// plum/ in the user's cache directory. run and bench know their shape and
// look the schedule up for it, see Schedule.cpp.
//
//===----------------------------------------------------------------------===//

#include "Tuning.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"

#include <cstdlib>
#include <memory>
#include <unistd.h>

using namespace plum;
using namespace plum::tool;
namespace fs = llvm::sys::fs;

namespace {

std::string ownPath() {
  std::string path(4096, '\0');
  ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size > 0 ? size_t(size) : 0);
  return path;
}

} // namespace

std::string plum::tool::runnerPath() {
  return llvm::sys::path::parent_path(ownPath()).str() + "/plum-run";
}

Result<std::string> plum::tool::cacheDirectory() {
  if (const char *given = std::getenv("PLUM_CACHE"); given && *given)
    return std::string(given);
  llvm::SmallString<128> path;
  if (!llvm::sys::path::cache_directory(path))
    return Error{
        "PLUM_CACHE", "no cache directory: set PLUM_CACHE or HOME", {}};
  llvm::sys::path::append(path, "plum");
  return std::string(path);
}

namespace {

/// Becomes plum-run; returns only when that fails.
int becomeRunner(const std::vector<std::string> &arguments) {
  std::string runner = runnerPath();
  std::vector<char *> argv;
  argv.push_back(runner.data());
  for (const std::string &argument : arguments)
    argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  execv(runner.c_str(), argv.data());
  return fail({runner, "cannot be started", {"plum-run lies beside plum"}});
}

/// The bundle of the spec, compiled now or before for `verb` and its `rest`.
Result<std::string> bundleOf(const std::string &verb, const SpecArguments &spec,
                             const std::vector<std::string> &rest,
                             std::optional<tuning::Choice> &choice) {
  if (fs::exists(spec.path + "/manifest.json") || isModelBundle(spec.path))
    return spec.path;
  Result<CompileOptions> options = spec.options();
  if (!options)
    return options.error();
  bool model = isModelDirectory(spec.path);
  Result<Source> source = model ? Source("", "") : spec.read();
  if (!source)
    return source.error();
  Result<std::string> text =
      model ? describeModel(spec.path) : std::string(source->text());
  if (!text)
    return text.error();
  if (!model) {
    auto chosen = chooseForRun(verb, spec, *source, *options, rest);
    if (!chosen)
      return chosen.error();
    choice = std::move(*chosen);
  }
  std::string key = *text;
  if (choice)
    key += "\n" + choice->record.from + "\n" + choice->record.key + "\n" +
           choice->record.schedule + "\n" + choice->record.date;
  for (const auto &[name, value] : options->spec.dims)
    key += "\n" + name + "=" + std::to_string(value);
  for (std::string_view part :
       {std::string_view(spec.layer), std::string_view(spec.form),
        std::string_view(spec.chunk), std::string_view(spec.precision),
        std::string_view(options->target), std::string_view(spec.cpu),
        std::string_view(options->ptxas)})
    key += "\n" + std::string(part);
  fs::file_status compiler;
  if (!fs::status(ownPath(), compiler))
    key += "\n" + std::to_string(compiler.getSize()) + "\n" +
           std::to_string(
               compiler.getLastModificationTime().time_since_epoch().count());
  Result<std::string> cache = cacheDirectory();
  if (!cache)
    return cache.error();
  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::ArrayRef(
      reinterpret_cast<const uint8_t *>(key.data()), key.size()));
  std::string dir = *cache + "/" + llvm::utohexstr(hash.high64, true, 16) +
                    llvm::utohexstr(hash.low64, true, 16);
  CompileReport report;
  options->keepExisting = true;
  bool complete = fs::exists(dir + "/manifest.json") || isModelBundle(dir);
  if (complete && !spec.remarks && !spec.timing)
    return dir;
  if (choice && !complete) // Once: the next run finds the bundle.
    showChoice(*choice);
  Status status = model ? compileModel(spec, dir)
                        : compileShown(*source, *options, dir, report);
  if (!status)
    return status.error();
  spec.show(report);
  return dir;
}

} // namespace

static bool given(const std::vector<std::string> &rest,
                  const std::string &option) {
  for (const std::string &argument : rest)
    if (argument == option || argument.starts_with(option + "="))
      return true;
  return false;
}

int plum::tool::forward(const std::string &verb, const SpecArguments &spec,
                        const std::vector<std::string> &rest) {
  std::optional<tuning::Choice> choice;
  Result<std::string> dir = bundleOf(verb, spec, rest, choice);
  if (!dir)
    return fail(dir.error());
  std::vector<std::string> arguments = {verb, *dir};
  // What chose the kernels at compile time also chooses among them.
  if (spec.form != "auto")
    arguments.insert(arguments.end(), {"--form", spec.form});
  if (!spec.chunk.empty() && spec.chunk.find(',') == std::string::npos)
    arguments.insert(arguments.end(), {"--chunk", spec.chunk});
  if (!spec.target.empty())
    arguments.insert(arguments.end(), {"--target", spec.target});
  if (choice && choice->schedule.form == "step" && spec.form == "auto")
    arguments.insert(arguments.end(), {"--form", "step"});
  if (choice && choice->schedule.segments > 0 && !given(rest, "--segments"))
    arguments.insert(arguments.end(),
                     {"--segments", std::to_string(choice->schedule.segments)});
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return becomeRunner(arguments);
}

void plum::tool::addForwarded(CLI::App &app, int &exitCode) {
  auto add = [&](const std::string &name, const std::string &what) {
    auto spec = std::make_shared<SpecArguments>();
    CLI::App *verb = app.add_subcommand(name, what);
    spec->declare(*verb);
    verb->allow_extras();
    verb->footer(
        "SPEC may be a bundle directory. All other options are those of "
        "plum-run " +
        name + ":\n'plum-run " + name + " --help' lists them.");
    verb->callback([name, spec, verb, &exitCode] {
      exitCode = forward(name, *spec, verb->remaining());
    });
  };
  add("run", "run a layer on tensors: --in FILE --out FILE");
  add("bench", "time a layer, --shape B=1,T=4096,H=8, or a model");
}
