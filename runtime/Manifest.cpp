//===- Manifest.cpp - Reader of manifest.json -----------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Manifest.h"

#include "plum/ABI/GpuABI.h"
#include "plum/ABI/KernelABI.h"
#include "runtime/Json.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <span>

namespace plum::runtime {

int64_t ManifestTensor::elements() const {
  int64_t product = 1;
  for (int64_t extent : shape)
    product *= extent;
  return product;
}

const ManifestTensor *Manifest::growingState() const {
  for (const ManifestTensor &state : states)
    if (state.grows)
      return &state;
  return nullptr;
}

std::optional<size_t> Manifest::rowsInput(size_t state) const {
  std::optional<size_t> found;
  for (size_t s = 0; s < states.size(); ++s) {
    if (!states[s].grows)
      continue;
    size_t input = 0;
    while (input < inputs.size() && inputs[input].name != states[s].rows)
      ++input;
    if (input == inputs.size())
      return std::nullopt;
    if (s == state)
      found = input;
  }
  return found;
}

std::string_view name(KernelForm form) {
  return form == KernelForm::Step ? "step" : "chunk";
}

/// In the order of the enumerators.
static constexpr std::string_view roleNames[] = {
    "index", "prepare", "scan",   "summary", "combine",
    "step",  "carry",   "append", "attend",  "merge"};
static constexpr std::string_view gridNames[] = {"one", "chunks", "sequences",
                                                 "tokens"};

std::string_view name(KernelRole role) { return roleNames[size_t(role)]; }
std::string_view name(KernelGrid grid) { return gridNames[size_t(grid)]; }

namespace {

/// No dimension of a layer comes near; keeps products in range.
constexpr int64_t maxExtent = 1 << 20;

bool isIdentifier(const std::string &text) {
  auto good = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), good);
}

std::string identifier(const JsonValue &value) {
  std::string text = value.string();
  if (!isIdentifier(text))
    value.error("is '" + text + "', expected a name");
  return text;
}

/// A file of the bundle: a bundle never points outside of itself.
std::string plainFile(const JsonValue &value) {
  std::string text = value.string();
  if (text.empty() || text == "." || text == ".." ||
      text.find('/') != std::string::npos || text.find('\0') != text.npos)
    value.error("is '" + text + "', expected a plain file name");
  return text;
}

DType storageType(const JsonValue &value) {
  std::string text = value.string();
  std::optional<DType> type = parseDType(text);
  if (!type || *type == DType::I32 || *type == DType::I64) {
    value.error("is '" + text + "', expected f32, f16 or bf16");
    return DType::F32;
  }
  return *type;
}

ManifestTensor readTensor(const JsonValue &value) {
  ManifestTensor tensor;
  tensor.name = identifier(value.field("name"));
  value.field("shape").array([&](const JsonValue &extent) {
    tensor.shape.push_back(extent.integer(1, maxExtent));
  });
  if (tensor.shape.size() > 2)
    value.field("shape").error("has " + std::to_string(tensor.shape.size()) +
                               " axes, expected at most 2");
  tensor.dtype = storageType(value.field("dtype"));
  tensor.declared = storageType(value.field("declared"));
  if (JsonValue grows = value.optional("grows"); grows.exists())
    tensor.grows = grows.boolean();
  if (JsonValue rows = value.optional("rows"); rows.exists())
    tensor.rows = identifier(rows);
  return tensor;
}

const ManifestTensor *find(const std::vector<ManifestTensor> &tensors,
                           const std::string &name) {
  for (const ManifestTensor &tensor : tensors)
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

/// What growing must be for `tensor` of list `key`, the inputs being read.
void checkGrowth(const JsonValue &value, const ManifestTensor &tensor,
                 std::string_view key, const Manifest &manifest) {
  if (tensor.grows) {
    JsonValue grows = value.field("grows");
    if (key != "states")
      grows.error("is true, which only a state's may be");
    else if (tensor.shape.size() != 1)
      value.field("shape").error("has " + std::to_string(tensor.shape.size()) +
                                 " axes, expected 1, of a row of a growing "
                                 "state");
  }
  if (tensor.rows.empty())
    return;
  const ManifestTensor *input = find(manifest.inputs, tensor.rows);
  if (!tensor.grows || !input || input->shape != tensor.shape)
    value.field("rows").error("is '" + tensor.rows +
                              "', expected an input of the shape of '" +
                              tensor.name + "', a state that grows");
}

ManifestMatmul readMatmul(const JsonValue &value) {
  ManifestMatmul matmul;
  matmul.what = value.field("what").string();
  matmul.m = value.field("m").integer(1, maxExtent);
  matmul.n = value.field("n").integer(1, maxExtent);
  matmul.k = value.field("k").integer(1, maxExtent);
  matmul.count = value.field("count").integer(1, maxExtent);
  return matmul;
}

/// "cpu", "sm_80", "sm_90a".
std::string targetName(const JsonValue &value) {
  std::string text = value.string();
  std::string_view rest = text;
  bool good = text == "cpu";
  if (rest.starts_with("sm_")) {
    rest.remove_prefix(3);
    size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    std::string_view suffix = rest.substr(digits);
    good = (digits == 2 || digits == 3) &&
           (suffix.empty() || suffix == "a" || suffix == "f");
  }
  if (!good)
    value.error("is '" + text + "', expected cpu or sm_NN");
  return text;
}

/// A field that holds one of `names`; its index.
size_t oneOf(const JsonValue &value, std::span<const std::string_view> names) {
  std::string text = value.string(), list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i])
      return i;
    list += std::string(i == 0                 ? ""
                        : i + 1 < names.size() ? ", "
                                               : " or ") +
            std::string(names[i]);
  }
  value.error("is '" + text + "', expected " + list);
  return 0;
}

bool hasRole(KernelForm form, KernelRole role) {
  using enum KernelRole;
  if (role == Carry || role == Append || role == Attend)
    return true;
  return (form == KernelForm::Step) == (role == Step || role == Merge);
}

/// What only kernels for a GPU have.
void readLaunch(const JsonValue &value, ManifestKernel &kernel) {
  constexpr int64_t mebibyte = 1 << 20;
  kernel.role = KernelRole(oneOf(value.field("role"), roleNames));
  kernel.grid = KernelGrid(oneOf(value.field("grid"), gridNames));
  kernel.slices = value.field("slices").integer(1, 1024);
  kernel.threads = value.field("threads").integer(1, 1024);
  kernel.sharedBytes = value.field("shared_bytes").integer(0, mebibyte);
  kernel.blobBytes = value.field("blob_bytes").integer(0, 64 * mebibyte);
  kernel.segmentBytes = value.field("segment_bytes").integer(0, 64 * mebibyte);
  if (JsonValue most = value.optional("head_block"); most.exists())
    kernel.headBlock = most.integer(1, 64);
  if (!hasRole(kernel.form, kernel.role))
    value.field("role").error("is '" + std::string(name(kernel.role)) +
                              "', which no kernel of form " +
                              std::string(name(kernel.form)) + " has");
}

ManifestKernel readKernel(const JsonValue &value, bool onGpu) {
  ManifestKernel kernel;
  JsonValue form = value.field("form");
  std::string formName = form.string();
  if (formName == "chunk") {
    kernel.form = KernelForm::Chunk;
    kernel.chunk = value.field("chunk").integer(1, maxExtent);
  } else if (formName != "step")
    form.error("is '" + formName + "', expected step or chunk");
  else if (JsonValue chunk = value.optional("chunk"); chunk.exists())
    kernel.chunk = chunk.integer(1, 1);
  kernel.symbol = identifier(value.field("symbol"));
  kernel.workspaceBytes = value.field("workspace_bytes").integer(0, 1ll << 40);
  if (JsonValue flops = value.optional("flops_per_chunk"); flops.exists())
    kernel.flopsPerChunk = flops.integer(0);
  if (JsonValue matmuls = value.optional("matmuls"); matmuls.exists())
    matmuls.array([&](const JsonValue &matmul) {
      kernel.matmuls.push_back(readMatmul(matmul));
    });
  if (onGpu)
    readLaunch(value, kernel);
  return kernel;
}

void readHeader(const JsonValue &root, Manifest &manifest) {
  manifest.target = targetName(root.field("target"));
  int64_t abi = manifest.onGpu() ? PLUM_GPU_ABI : PLUM_KERNEL_ABI;
  manifest.abi = root.field("abi").integer(0, 1 << 30);
  if (root.field("abi").exists() && manifest.abi != abi)
    root.field("abi").error("is " + std::to_string(manifest.abi) +
                            ", this runtime runs " + std::to_string(abi) +
                            ": compile the layer again");
  manifest.plum = root.field("plum").string();
  manifest.llvm = root.field("llvm").string();
  manifest.layer = identifier(root.field("layer"));
  manifest.cpu = root.field("cpu").string();
  if (JsonValue features = root.optional("features"); features.exists())
    features.array([&](const JsonValue &feature) {
      manifest.features.push_back(feature.string());
    });
  manifest.precision = root.field("precision").string();
  if (manifest.precision != "default" && manifest.precision != "robust" &&
      manifest.precision != "f32")
    root.field("precision")
        .error("is '" + manifest.precision +
               "', expected default, robust or f32");
  root.field("dims").object([&](const std::string &name, const JsonValue &dim) {
    manifest.dims.emplace_back(name, dim.integer(1, maxExtent));
  });
  manifest.object = plainFile(root.field("object"));
  manifest.source = plainFile(root.field("source"));
}

void readTensors(const JsonValue &root, Manifest &manifest) {
  std::set<std::string> names;
  auto list = [&](const char *key, std::vector<ManifestTensor> &tensors) {
    root.field(key).array([&](const JsonValue &value) {
      tensors.push_back(readTensor(value));
      checkGrowth(value, tensors.back(), key, manifest);
      if (!names.insert(tensors.back().name).second)
        value.error("is a second tensor named '" + tensors.back().name + "'");
    });
  };
  list("params", manifest.params);
  list("inputs", manifest.inputs);
  list("states", manifest.states);
  list("outputs", manifest.outputs);
  if (JsonValue decays = root.optional("log_decays"); decays.exists())
    decays.array([&](const JsonValue &value) {
      std::string name = value.string();
      auto named = [&](const ManifestTensor &t) { return t.name == name; };
      if (std::none_of(manifest.inputs.begin(), manifest.inputs.end(), named) &&
          std::none_of(manifest.params.begin(), manifest.params.end(), named))
        value.error("is '" + name + "', which is no input or param");
      manifest.logDecays.push_back(name);
    });
}

void readKernels(const JsonValue &root, Manifest &manifest) {
  JsonValue kernels = root.field("kernels");
  kernels.array([&](const JsonValue &value) {
    ManifestKernel kernel = readKernel(value, manifest.onGpu());
    for (const ManifestKernel &other : manifest.kernels)
      if (other.form == kernel.form && other.chunk == kernel.chunk &&
          other.role == kernel.role)
        value.error(
            "is a second kernel of form " + std::string(name(kernel.form)) +
            ", chunk " + std::to_string(kernel.chunk) +
            (manifest.onGpu() ? ", role " + std::string(name(kernel.role))
                              : ""));
    manifest.kernels.push_back(std::move(kernel));
  });
  if (manifest.kernels.empty())
    kernels.error("is empty, expected at least one kernel");
}

void readTuning(const JsonValue &root, Manifest &manifest) {
  JsonValue value = root.optional("tuning");
  if (!value.exists())
    return;
  ManifestTuning &tuning = manifest.tuning.emplace();
  tuning.from = value.field("from").string();
  tuning.key = value.field("key").string();
  tuning.shape = value.field("shape").string();
  tuning.schedule = value.field("schedule").string();
  tuning.ms = value.field("ms").number();
  tuning.date = value.field("date").string();
}

} // namespace

Result<Manifest> parseManifest(std::string_view text,
                               const std::string &where) {
  Result<Json> json = parseJson(text, where);
  if (!json)
    return json.error();
  if (!json->is_object())
    return Error{where, "is not a JSON object", {}};
  JsonErrors errors(where);
  JsonValue root(&*json, "", errors);
  Manifest manifest;
  readHeader(root, manifest);
  readTensors(root, manifest);
  readKernels(root, manifest);
  readTuning(root, manifest);
  if (errors.any())
    return errors.take();
  return manifest;
}

Result<Manifest> readManifest(const std::string &directory) {
  std::string path = directory + "/manifest.json";
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{directory, "is not a bundle: it has no manifest.json", {}};
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad())
    return Error{path, "cannot be read", {}};
  return parseManifest(text, path);
}

} // namespace plum::runtime
