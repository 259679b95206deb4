//===- ModelInfo.cpp - plum-run info of a model ---------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two things are looked at: the model directory, by opening it as it would be
// run, with memories interpreted; and the manifests in the bundle. So a bundle
// for another machine can be looked at, and one whose model is elsewhere still
// says what was compiled.
//
//===----------------------------------------------------------------------===//

#include "runtime/tool/ModelInfo.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

namespace plum::runtime::tool {

namespace fs = std::filesystem;

/// A folder of the bundle.
struct CompiledMemory {
  std::string folder;
  Manifest manifest;
  int64_t objectBytes = 0;
};

static std::string sizeOf(double bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(units) && bytes >= 1024; ++unit)
    bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

static std::string dimsOf(const auto &dims) {
  std::string text;
  for (const auto &[dim, value] : dims)
    text += fmt::format(" {}={}", dim, value);
  return text;
}

static Result<std::vector<CompiledMemory>>
readMemories(const std::string &bundle) {
  std::vector<CompiledMemory> memories;
  std::error_code failure;
  for (const auto &entry : fs::directory_iterator(bundle, failure)) {
    std::string path = entry.path().string();
    if (!fs::exists(path + "/manifest.json", failure))
      continue;
    Result<Manifest> manifest = readManifest(path);
    if (!manifest)
      return manifest.error();
    struct stat object;
    bool there = ::stat((path + "/" + manifest->object).c_str(), &object) == 0;
    if (!there)
      warn(path, "has no " + manifest->object);
    memories.push_back({entry.path().filename().string(), std::move(*manifest),
                        there ? int64_t(object.st_size) : 0});
  }
  std::sort(memories.begin(), memories.end(),
            [](const auto &a, const auto &b) { return a.folder < b.folder; });
  return memories;
}

/// "chunk 64 (prepare, scan)": what there is of one form and size of chunk.
static std::string kernelsOf(const Manifest &manifest) {
  std::vector<std::string> sets;
  for (size_t i = 0; i < manifest.kernels.size();) {
    const ManifestKernel &first = manifest.kernels[i];
    std::vector<std::string_view> roles;
    for (; i < manifest.kernels.size(); ++i) {
      const ManifestKernel &kernel = manifest.kernels[i];
      if (kernel.form != first.form || kernel.chunk != first.chunk)
        break;
      roles.push_back(name(kernel.role));
    }
    bool step = first.form == KernelForm::Step;
    sets.push_back(step ? "step" : fmt::format("chunk {}", first.chunk));
    if (!step && manifest.onGpu())
      sets.back() += fmt::format(" ({})", fmt::join(roles, ", "));
  }
  return fmt::format("{}", fmt::join(sets, "; "));
}

static void print(const CompiledMemory &memory) {
  const Manifest &manifest = memory.manifest;
  fmt::print(
      "    {}: {}{}, precision {}, {}, {}\n", memory.folder, manifest.target,
      manifest.cpu.empty() ? "" : " (" + manifest.cpu + ")", manifest.precision,
      kernelsOf(manifest), sizeOf(double(memory.objectBytes)));
}

static void printNetwork(const model::Model &model, const std::string &where) {
  const model::Network &network = model.network();
  std::string kind = model.config().value("model_type", "");
  fmt::print("model {} in {}\n", kind, where);
  fmt::print("  {} layers, hidden {}, {} tokens", network.layers,
             network.hidden, network.vocab);
  if (network.positions > 0)
    fmt::print(", {} positions", network.positions);
  fmt::print("\n  weights {}\n", sizeOf(double(model.weightBytes())));
  int64_t fixed = 0, row = 0;
  for (const auto &state : model.states().fixed)
    fixed += state.size;
  for (const auto &state : model.states().growing)
    row += state.width;
  fmt::print("  a sequence holds {}, and {} for each token, in f32\n",
             sizeOf(double(fixed) * 4), sizeOf(double(row) * 4));
}

/// What the model needs, with the folders that have it; these leave the list.
static void printMemories(const model::Model &model, const std::string &bundle,
                          std::vector<CompiledMemory> &compiled) {
  for (const model::MemorySpec &spec : model.network().memories()) {
    std::vector<int64_t> heads = model.memoryHeads(spec);
    std::sort(heads.begin(), heads.end());
    heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
    fmt::print("  memory {}{}: {} layers of {} heads\n", spec.layer,
               dimsOf(spec.dims), model.memoryHeads(spec).size(),
               fmt::join(heads, " or "));
    bool found = false;
    std::erase_if(compiled, [&](const CompiledMemory &memory) {
      if (memory.folder != spec.key() && memory.folder != spec.key() + ".f32")
        return false;
      print(memory);
      return found = true;
    });
    if (found)
      continue;
    fmt::print("    not compiled{}\n",
               spec.passing ? ", which a CPU does not need" : "");
    if (!bundle.empty() && !spec.passing)
      warn(bundle, "has no " + spec.key() + ", which the model needs");
  }
}

int modelInfo(const ModelChoice &choice) {
  const std::string &path = choice.path;
  std::string bundle, directory = choice.directory;
  std::vector<CompiledMemory> compiled;
  std::error_code failure;
  if (fs::exists(path + "/" + model::modelJson, failure)) {
    bundle = path;
    auto memories = readMemories(path);
    if (!memories)
      return fail(memories.error());
    compiled = std::move(*memories);
    Result<std::string> named = model::modelOfBundle(path);
    if (!named)
      return fail(named.error());
    if (directory.empty())
      directory = *named;
  } else if (directory.empty()) {
    directory = path;
  }
  // A bundle may be where its model is not; what is asked for must be there.
  bool there = fs::exists(directory + "/config.json", failure);
  if (!there && choice.directory.empty() && !bundle.empty()) {
    warn(directory, "has no config.json: '--model-dir DIR' says where the "
                    "model is");
    fmt::print("model in {}, which is not here\n", directory);
  } else {
    Result<model::Model> model = model::Model::open({.directory = directory});
    if (!model)
      return fail(model.error());
    for (const std::string &note : model->notes())
      warn(directory, note);
    printNetwork(*model, directory);
    printMemories(*model, bundle, compiled);
  }
  for (const CompiledMemory &memory : compiled) {
    fmt::print("  memory {}{}{}\n", memory.manifest.layer,
               dimsOf(memory.manifest.dims),
               there ? ", which the model does not use" : "");
    print(memory);
  }
  return 0;
}

} // namespace plum::runtime::tool
