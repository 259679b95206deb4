//===- ModelChoice.cpp - MODEL and the options that all its verbs share ---===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/ModelChoice.h"

#include <charconv>

#include <unistd.h>

namespace plum::runtime::tool {

static bool has(const std::string &directory, const char *name) {
  return access((directory + "/" + name).c_str(), F_OK) == 0;
}

void ModelChoice::declare(CLI::App &verb) {
  verb.add_option("model", path,
                  "Bundle that 'plum compile MODEL_DIR' wrote, or that "
                  "directory, slowly")
      ->required()
      ->type_name("MODEL");
  declareDirectory(verb);
  verb.add_option("--precision", precision,
                  "On the CPU default, robust and f32 are one, and bf16 rounds "
                  "where the models' own code rounds; on a GPU default is bf16")
      ->check(CLI::IsMember({"default", "robust", "f32", "bf16"}))
      ->capture_default_str();
  verb.add_option("--threads", threads, "Threads (default: one per CPU)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--target", target, "Where to run: cpu or cuda")
      ->capture_default_str();
  declareRandomWeights(verb);
}

void ModelChoice::declareDirectory(CLI::App &verb) {
  verb.add_option("--model-dir", directory,
                  "Model directory, when it is not where the bundle says")
      ->type_name("DIR");
}

void ModelChoice::declareRandomWeights(CLI::App &verb) {
  verb.add_flag(
      "--random-weights", randomWeights,
      "On a GPU: matrices get random values there, whatever the files "
      "hold, to time models larger than a disk");
}

bool ModelChoice::isModel(const std::string &path) {
  return has(path, model::modelJson) || has(path, "config.json");
}

Status ModelChoice::findDirectory(std::string &bundle) {
  if (has(path, model::modelJson)) {
    bundle = path;
    if (!directory.empty())
      return Status::ok();
    Result<std::string> named = model::modelOfBundle(path);
    if (!named)
      return named.error();
    directory = *named;
    if (!has(directory, "config.json"))
      return Error{directory,
                   "has no config.json",
                   {path + "/" + model::modelJson + " names this directory",
                    "'--model-dir DIR' says where the model is"}};
    return Status::ok();
  }
  if (has(path, "manifest.json"))
    return Error{path,
                 "is the bundle of a layer, expected a model",
                 {"'plum compile MODEL_DIR -o BUNDLE' makes one"}};
  if (directory.empty())
    directory = path;
  return Status::ok();
}

Result<model::Model> ModelChoice::open() {
  if (target != "cpu" && !onGpu())
    return Error{
        "--target", "is '" + target + "', models run on 'cpu' and 'cuda'", {}};
  std::string bundle;
  if (Status status = findDirectory(bundle); !status)
    return status.error();
  bool narrow = precision == "bf16" || (onGpu() && precision == "default");
  model::ModelOptions options{.directory = directory,
                              .bundle = bundle,
                              .compute = narrow ? model::Compute::BF16
                                                : model::Compute::F32,
                              .threads = threads};
  if (randomWeights && !onGpu())
    return Error{"--random-weights", "is for '--target cuda'", {}};
  if (onGpu()) {
    auto machine = model::Machine::open();
    if (!machine)
      return machine.error();
    gpu = std::make_shared<model::GpuBackend>(
        std::move(*machine),
        model::GpuBackendOptions{.compute = options.compute,
                                 .randomWeights = randomWeights});
    options.backend = gpu;
  }
  Result<model::Model> opened = model::Model::open(options);
  if (!opened)
    return opened;
  for (const std::string &note : opened->notes())
    warn(directory, note);
  if (bundle.empty() && !opened->network().memories().empty())
    warn(directory, "its memories are not compiled, which is slow; 'plum "
                    "compile' compiles them");
  return opened;
}

Result<std::vector<int32_t>> parseIds(const std::string &text) {
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find_first_of(", ", begin), text.size());
    int32_t id = 0;
    auto [stop, error] =
        std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end)
      return Error{"--ids",
                   "'" + text.substr(begin, end - begin) +
                       "' is not the number of a token",
                   {}};
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

} // namespace plum::runtime::tool
