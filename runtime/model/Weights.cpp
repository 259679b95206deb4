//===- Weights.cpp - The tensors of a model directory ---------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Weights.h"

#include "runtime/Json.h"
#include "runtime/model/Config.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

namespace plum::model {

using namespace runtime;

/// Names only, so that an index cannot reach out of its directory.
static bool isPlainName(const std::string &name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Result<std::map<std::string, std::string>>
parseIndex(std::string_view text, const std::string &where) {
  Result<Json> json = parseJson(text, where);
  if (!json)
    return json.error();
  std::map<std::string, std::string> map;
  JsonErrors errors(where);
  JsonValue(&*json, "", errors)
      .field("weight_map")
      .object([&](const std::string &name, const JsonValue &value) {
        std::string file = value.string();
        if (!isPlainName(file))
          value.error("is '" + file + "', expected the name of a file");
        map[name] = file;
      });
  if (errors.any())
    return errors.take();
  if (map.empty())
    return Error{where, "'weight_map' names no tensors", {}};
  return map;
}

Result<WeightFiles> WeightFiles::open(const std::string &directory) {
  WeightFiles weights;
  weights.path = directory;
  auto add = [&](const std::string &name) -> Result<const SafetensorsFile *> {
    Result<SafetensorsFile> file =
        SafetensorsFile::open(directory + "/" + name);
    if (!file)
      return file.error();
    weights.files.push_back(
        std::make_unique<SafetensorsFile>(std::move(*file)));
    return weights.files.back().get();
  };
  std::string indexPath = directory + "/model.safetensors.index.json";
  if (access(indexPath.c_str(), F_OK) != 0) {
    Result<const SafetensorsFile *> file = add("model.safetensors");
    if (!file) {
      file.error().notes.push_back("nor is there model.safetensors.index.json");
      return file.error();
    }
    for (const FileTensor &tensor : (*file)->tensors())
      weights.entries[tensor.name] = {&tensor, *file};
    return weights;
  }

  Result<std::string> text = readFile(indexPath, 256 << 20);
  if (!text)
    return text.error();
  auto map = parseIndex(*text, indexPath);
  if (!map)
    return map.error();
  std::map<std::string, const SafetensorsFile *> shards;
  std::unordered_map<std::string_view, const FileTensor *> found;
  for (const auto &[name, shard] : *map) {
    auto [place, fresh] = shards.try_emplace(shard, nullptr);
    if (!fresh)
      continue;
    Result<const SafetensorsFile *> file = add(shard);
    if (!file) {
      file.error().notes.push_back(indexPath + " names it as the file of '" +
                                   name + "'");
      return file.error();
    }
    place->second = *file;
    for (const FileTensor &tensor : (*file)->tensors()) {
      auto named = map->find(tensor.name);
      if (named != map->end() && named->second == shard)
        weights.entries[tensor.name] = {&tensor, *file};
    }
  }
  for (const auto &[name, shard] : *map)
    if (!weights.entries.count(name))
      return Error{directory + "/" + shard,
                   "has no tensor '" + name + "'",
                   {indexPath + " says that it has"}};
  return weights;
}

const WeightFiles::Entry *WeightFiles::find(const std::string &name) const {
  auto found = entries.find(name);
  return found == entries.end() ? nullptr : &found->second;
}

void Loader::error(Error error) {
  if (!failure)
    failure = std::move(error);
}

const WeightFiles::Entry *Loader::get(const std::string &name) {
  if (failure)
    return nullptr;
  const WeightFiles::Entry *entry = files.find(prefix + name);
  if (!entry) {
    error({files.directory(), "has no tensor '" + prefix + name + "'", {}});
    return nullptr;
  }
  used[prefix + name] = true;
  total += int64_t(entry->tensor->data.size());
  return entry;
}

bool Loader::shaped(const WeightFiles::Entry &entry, int64_t rows,
                    int64_t cols) {
  // Axes of one element may stand anywhere: [C, 1, W], [1, 1, H, 1].
  std::vector<int64_t> got, expected;
  for (int64_t extent : entry.tensor->shape)
    if (extent != 1)
      got.push_back(extent);
  for (int64_t extent : {rows, cols})
    if (extent != 1)
      expected.push_back(extent);
  if (got == expected)
    return true;
  std::vector<int64_t> shown{rows, cols};
  if (rows == 1)
    shown.erase(shown.begin());
  error({entry.file->path(),
         "tensor '" + entry.tensor->name + "' has shape " +
             shapeText(entry.tensor->shape) + ", expected " + shapeText(shown),
         {"the expected shape is that of config.json"}});
  return false;
}

/// Values of any float type as f32.
static std::optional<Vector> widened(const FileTensor &tensor) {
  if (tensor.dtype != DType::F32 && tensor.dtype != DType::BF16 &&
      tensor.dtype != DType::F16)
    return std::nullopt;
  size_t size = byteSize(*tensor.dtype);
  Vector values(size_t(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    alignas(8) std::byte element[8];
    std::memcpy(element, tensor.data.data() + i * size, size);
    values[i] = float(loadAsDouble(element, *tensor.dtype, 0));
  }
  return values;
}

static Error wrongType(const WeightFiles::Entry &entry,
                       const std::string &expected) {
  return {entry.file->path(),
          "tensor '" + entry.tensor->name + "' has dtype " +
              entry.tensor->dtypeName + ", expected " + expected,
          {}};
}

static Matrix owned(std::shared_ptr<Vector> values, int64_t rows,
                    int64_t cols) {
  Matrix matrix(WeightType::F32, rows, cols,
                reinterpret_cast<const std::byte *>(values->data()));
  matrix.own = std::move(values);
  return matrix;
}

Matrix Loader::matrix(const std::string &name, int64_t rows, int64_t cols) {
  if (!has(name) && has(name + "_packed"))
    return packed(name, rows, cols);
  const WeightFiles::Entry *entry = get(name);
  if (!entry || !shaped(*entry, rows, cols))
    return {};
  const FileTensor &tensor = *entry->tensor;
  bool wide = tensor.dtype == DType::F32;
  if (wide || tensor.dtype == DType::BF16) {
    auto address = reinterpret_cast<uintptr_t>(tensor.data.data());
    if (address % (wide ? sizeof(float) : 2) == 0)
      return {wide ? WeightType::F32 : WeightType::BF16, rows, cols,
              tensor.data.data()};
  }
  auto values = widened(tensor); // F16, or an odd address.
  if (!values) {
    error(wrongType(*entry, "F32, BF16 or F16"));
    return {};
  }
  return owned(std::make_shared<Vector>(std::move(*values)), rows, cols);
}

Matrix Loader::packed(const std::string &name, int64_t rows, int64_t cols) {
  if (cols % mxGroup != 0) {
    error({files.directory(),
           "tensor '" + prefix + name + "_packed' would have " +
               std::to_string(cols) + " columns, expected a multiple of 32",
           {}});
    return {};
  }
  const WeightFiles::Entry *codes = get(name + "_packed");
  const WeightFiles::Entry *scales = get(name + "_scale");
  if (!codes || !scales || !shaped(*codes, rows, cols / 2) ||
      !shaped(*scales, rows, cols / mxGroup))
    return {};
  for (const WeightFiles::Entry *entry : {codes, scales})
    if (entry->tensor->dtypeName != "U8") {
      error(wrongType(*entry, "U8"));
      return {};
    }
  return {WeightType::MXFP4, rows, cols, codes->tensor->data.data(),
          reinterpret_cast<const uint8_t *>(scales->tensor->data.data())};
}

Matrix Loader::transposed(const std::string &name, int64_t rows, int64_t cols) {
  const WeightFiles::Entry *entry = get(name);
  if (!entry || !shaped(*entry, cols, rows))
    return {};
  auto values = widened(*entry->tensor);
  if (!values) {
    error(wrongType(*entry, "F32, BF16 or F16"));
    return {};
  }
  auto turned = std::make_shared<Vector>(values->size());
  constexpr int64_t block = 32; // Both sides stay in the cache.
  for (int64_t c0 = 0; c0 < cols; c0 += block)
    for (int64_t r0 = 0; r0 < rows; r0 += block)
      for (int64_t c = c0; c < std::min(c0 + block, cols); ++c)
        for (int64_t r = r0; r < std::min(r0 + block, rows); ++r)
          (*turned)[size_t(r * cols + c)] = (*values)[size_t(c * rows + r)];
  return owned(std::move(turned), rows, cols);
}

Vector Loader::vector(const std::string &name, int64_t size) {
  const WeightFiles::Entry *entry = get(name);
  if (!entry)
    return {};
  if (entry->tensor->elements() != size) {
    (void)shaped(*entry, 1, size);
    return {};
  }
  auto values = widened(*entry->tensor);
  if (!values) {
    error(wrongType(*entry, "F32, BF16 or F16"));
    return {};
  }
  return std::move(*values);
}

Vector Loader::padded(const std::string &name, int64_t size) {
  const WeightFiles::Entry *entry = get(name);
  if (!entry)
    return {};
  auto values = widened(*entry->tensor);
  if (!values) {
    error(wrongType(*entry, "F32, BF16 or F16"));
    return {};
  }
  if (int64_t(values->size()) < size ||
      std::any_of(values->begin() + size, values->end(),
                  [](float value) { return value != 0; })) {
    error({entry->file->path(),
           "tensor '" + entry->tensor->name + "' has shape " +
               shapeText(entry->tensor->shape) + ", expected " +
               std::to_string(size) + " values and only zeros after them",
           {}});
    return {};
  }
  values->resize(size_t(size));
  return std::move(*values);
}

std::vector<std::string> Loader::unused() const {
  std::vector<std::string> names;
  for (const auto &[name, entry] : files.all())
    if (!used.count(name))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace plum::model
