//===- Forward.cpp - plum run, check and bench ------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `plum VERB SPEC ...` compiles the spec into the cache and becomes `plum-run
// VERB BUNDLE ...`. A bundle directory in place of a spec is run as it is. The
// cache key is everything the bundle depends on: the spec, the options and
// this very compiler. PLUM_CACHE names the cache's directory; by default it is
// plum/ in the user's cache directory.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

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

Result<std::string> cacheDirectory() {
  if (const char *given = std::getenv("PLUM_CACHE"); given && *given)
    return std::string(given);
  llvm::SmallString<128> path;
  if (!llvm::sys::path::cache_directory(path))
    return Error{
        "PLUM_CACHE", "no cache directory: set PLUM_CACHE or HOME", {}};
  llvm::sys::path::append(path, "plum");
  return std::string(path);
}

/// Becomes plum-run; returns only when that fails.
int becomeRunner(const std::vector<std::string> &arguments) {
  std::string runner =
      llvm::sys::path::parent_path(ownPath()).str() + "/plum-run";
  std::vector<char *> argv;
  argv.push_back(runner.data());
  for (const std::string &argument : arguments)
    argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  execv(runner.c_str(), argv.data());
  return fail({runner, "cannot be started", {"plum-run lies beside plum"}});
}

/// The bundle of the spec, compiled now or before.
Result<std::string> bundleOf(const SpecArguments &spec) {
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
  std::string key = *text;
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
  Status status = model ? compileModel(spec, dir)
                        : compileShown(*source, *options, dir, report);
  if (!status)
    return status.error();
  spec.show(report);
  return dir;
}

} // namespace

int plum::tool::forward(const std::string &verb, const SpecArguments &spec,
                        const std::vector<std::string> &rest) {
  Result<std::string> dir = bundleOf(spec);
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
