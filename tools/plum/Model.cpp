//===- Model.cpp - plum on model directories --------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a model needs compiled are its memories: one layer bundle for each
// distinct one, in one folder, with model.json beside them that says which
// model directory it is for. A GPU gets each of them twice: as the spec says,
// in bf16, and with everything in f32. Weights are not copied. model.json is
// written last, so that a folder that has it is complete.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Model.h"
#include "Options.h"
#include "runtime/Safetensors.h"

#include <algorithm>
#include <filesystem>
#include <memory>

using namespace plum;
using namespace plum::tool;
namespace fs = std::filesystem;

bool plum::tool::isModelDirectory(const std::string &path) {
  std::error_code ignored;
  return fs::exists(path + "/config.json", ignored);
}

bool plum::tool::isModelBundle(const std::string &path) {
  std::error_code ignored;
  return fs::exists(path + "/" + model::modelJson, ignored);
}

Result<std::string> plum::tool::describeModel(const std::string &path) {
  auto specs = model::memoriesOf(path);
  if (!specs)
    return specs.error();
  std::error_code failure;
  std::string text = fs::canonical(path, failure).string();
  for (const model::MemorySpec &spec : *specs)
    text += "\n" + spec.key() + "\n" + std::string(spec.text());
  return text;
}

Status plum::tool::compileModel(const SpecArguments &arguments,
                                const std::string &output) {
  auto specs = model::memoriesOf(arguments.path);
  if (!specs)
    return specs.error();
  Result<CompileOptions> options = arguments.options();
  if (!options)
    return options.error();
  std::error_code failure;
  bool taken =
      fs::exists(output, failure) && !isModelBundle(output) &&
      !(fs::is_directory(output, failure) && fs::is_empty(output, failure));
  if (taken)
    return Error{output, "exists and is not the bundle of a model", {}};
  const bool made = fs::create_directories(output, failure);
  if (failure)
    return Error{output, "cannot be made: " + failure.message(), {}};
  auto compile = [&](const model::MemorySpec &spec, Precision precision,
                     const std::string &folder) {
    CompileOptions layer = *options;
    layer.spec = {};
    layer.spec.dims = spec.dims;
    layer.spec.layer = spec.layer;
    bool wide = options->target != "cpu" && precision == Precision::F32;
    layer.form = wide ? Form::Step : Form::Auto; // No chunks of f32 on a GPU.
    layer.precision = precision;
    Source source(spec.layer + ".plum", std::string(spec.text()));
    CompileReport report;
    Status status = compileShown(source, layer, output + "/" + folder, report);
    if (status)
      arguments.show(report);
    return status;
  };
  for (const model::MemorySpec &spec : *specs) {
    bool gpu = options->target != "cpu";
    if (!gpu && spec.passing)
      continue;
    if (Status status = gpu ? compile(spec, Precision::Default, spec.key())
                            : compile(spec, Precision::F32, spec.key());
        !status) {
      if (made)
        fs::remove(output, failure); // Does nothing where something is in it.
      return status;
    }
    if (!gpu)
      continue;
    if (Status status = compile(spec, Precision::F32, spec.key() + ".f32");
        !status)
      return status;
  }
  std::string text =
      model::writeModelJson(fs::canonical(arguments.path, failure).string());
  Result<runtime::AtomicFile> file =
      runtime::AtomicFile::create(output + "/" + model::modelJson);
  if (!file)
    return file.error();
  if (Status status = file->write(text.data(), text.size()); !status)
    return status;
  return file->commit();
}

void plum::tool::addModelVerbs(CLI::App &app, int &exitCode) {
  auto add = [&](const std::string &name, const std::string &what) {
    CLI::App *verb = app.add_subcommand(name, what);
    verb->prefix_command();
    verb->footer("plum " + name +
                 " MODEL [options]\n\nMODEL is a Hugging Face model directory "
                 "or a bundle of one. The options are those of\nplum-run " +
                 name + ": 'plum-run " + name + " --help' lists them.");
    verb->callback([name, verb, &exitCode] {
      std::vector<std::string> rest = verb->remaining();
      auto place = std::find_if(rest.begin(), rest.end(), [](const auto &one) {
        return isModelDirectory(one) || isModelBundle(one);
      });
      if (place == rest.end()) {
        bool named = !rest.empty() && !rest[0].starts_with("-");
        exitCode =
            fail(named ? Error{rest[0],
                               "is no model directory: it has no config.json",
                               {}}
                       : Error{"plum " + name,
                               "needs a model directory",
                               {"plum " + name + " MODEL [options]"}});
        return;
      }
      SpecArguments spec;
      spec.path = *place;
      rest.erase(place);
      // What is compiled depends on it.
      if (auto target = std::find(rest.begin(), rest.end(), "--target");
          target != rest.end() && target + 1 != rest.end()) {
        spec.target = target[1];
        rest.erase(target, target + 2);
      }
      exitCode = forward(name, spec, rest);
    });
  };
  add("logits", "run a model on tokens: --in FILE --out FILE");
  add("generate", "continue a text: --prompt TEXT -n 32");
  add("perplexity", "measure how well a model predicts a text file");
}
