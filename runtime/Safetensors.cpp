//===- Safetensors.cpp - Read tensor files --------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Safetensors.h"

#include "runtime/Json.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace plum::runtime {

namespace {

/// What the format's own library accepts.
constexpr uint64_t maxHeader = 100'000'000;

struct FileType {
  std::string_view name;
  int64_t bytes;
  std::optional<DType> dtype;
};
constexpr FileType fileTypes[] = {
    {"F32", 4, DType::F32},      {"F16", 2, DType::F16},
    {"BF16", 2, DType::BF16},    {"I32", 4, DType::I32},
    {"I64", 8, DType::I64},      {"F64", 8, std::nullopt},
    {"U64", 8, std::nullopt},    {"U32", 4, std::nullopt},
    {"U16", 2, std::nullopt},    {"I16", 2, std::nullopt},
    {"U8", 1, std::nullopt},     {"I8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},   {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt}};

const FileType *findType(std::string_view name) {
  for (const FileType &type : fileTypes)
    if (type.name == name)
      return &type;
  return nullptr;
}

/// One header entry; offsets are those of the file's data part.
FileTensor readEntry(const std::string &name, const JsonValue &value,
                     std::span<const std::byte> data) {
  FileTensor tensor;
  tensor.name = name;
  tensor.dtypeName = value.field("dtype").string();
  const FileType *type = findType(tensor.dtypeName);
  if (type)
    tensor.dtype = type->dtype;

  // A zero axis makes a tensor empty, but the others must be sane all the same.
  int64_t bytes = type ? type->bytes : 1;
  bool overflow = false, empty = false;
  value.field("shape").array([&](const JsonValue &extent) {
    tensor.shape.push_back(extent.integer(0));
    int64_t factor = std::max<int64_t>(tensor.shape.back(), 1);
    overflow |= __builtin_mul_overflow(bytes, factor, &bytes);
    empty |= tensor.shape.back() == 0;
  });
  if (overflow)
    value.error("has shape " + shapeText(tensor.shape) +
                ", whose size overflows");
  if (empty)
    bytes = 0;

  std::vector<int64_t> offsets;
  JsonValue field = value.field("data_offsets");
  field.array([&](const JsonValue &o) { offsets.push_back(o.integer(0)); });
  if (offsets.size() != 2) {
    field.error("has " + std::to_string(offsets.size()) +
                " values, expected begin and end");
    return tensor;
  }
  auto [begin, end] = std::pair(offsets[0], offsets[1]);
  if (begin > end)
    field.error("is " + shapeText(offsets) + ", expected begin <= end");
  else if (end > int64_t(data.size()))
    field.error("ends at byte " + std::to_string(end) + " of " +
                std::to_string(data.size()) + ": the file is truncated");
  else if (type && end - begin != bytes)
    field.error("spans " + std::to_string(end - begin) + " bytes, expected " +
                std::to_string(bytes) + " for " + tensor.dtypeName + " " +
                shapeText(tensor.shape));
  else
    tensor.data = data.subspan(size_t(begin), size_t(end - begin));
  return tensor;
}

/// The data must be exactly the tensors, one after the other.
Status checkCover(const std::vector<FileTensor> &tensors,
                  std::span<const std::byte> data, const std::string &where) {
  const std::byte *reached = data.data();
  const FileTensor *last = nullptr;
  auto hole = [&](const std::byte *end) {
    return Error{where,
                 "bytes " + std::to_string(reached - data.data()) + " to " +
                     std::to_string(end - data.data()) +
                     " of the data belong to no tensor",
                 {}};
  };
  for (const FileTensor &tensor : tensors) {
    if (tensor.data.empty())
      continue;
    if (tensor.data.data() < reached)
      return Error{where,
                   "tensors '" + last->name + "' and '" + tensor.name +
                       "' overlap",
                   {}};
    if (tensor.data.data() > reached)
      return hole(tensor.data.data());
    reached = tensor.data.data() + tensor.data.size();
    last = &tensor;
  }
  if (reached != data.data() + data.size())
    return hole(data.data() + data.size());
  return Status::ok();
}

} // namespace

int64_t FileTensor::elements() const {
  if (std::count(shape.begin(), shape.end(), 0))
    return 0;
  int64_t product = 1;
  for (int64_t extent : shape)
    product *= extent;
  return product;
}

std::string_view fileName(DType type) {
  for (const FileType &entry : fileTypes)
    if (entry.dtype == type)
      return entry.name;
  return "?";
}

std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

Result<std::vector<FileTensor>>
parseSafetensors(std::span<const std::byte> bytes, const std::string &where) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length))
    return Error{where,
                 "has " + std::to_string(bytes.size()) +
                     " bytes, a safetensors file has at least 8",
                 {}};
  std::memcpy(&length, bytes.data(), sizeof(length));
  size_t rest = bytes.size() - sizeof(length);
  if (length > rest || length > maxHeader)
    return Error{where,
                 "header of " + std::to_string(length) +
                     " bytes does not fit into a file of " +
                     std::to_string(bytes.size()) +
                     " bytes: truncated or not a safetensors file",
                 {}};
  std::string_view text(
      reinterpret_cast<const char *>(bytes.data()) + sizeof(length), length);
  Result<Json> header = parseJson(text, where);
  if (!header) {
    header.error().message = "header " + header.error().message;
    return header.error();
  }
  if (!header->is_object())
    return Error{where, "header is not a JSON object", {}};

  auto data = bytes.subspan(sizeof(length) + length);
  std::vector<FileTensor> tensors;
  JsonErrors errors(where);
  JsonValue(&*header, "", errors)
      .object([&](const std::string &name, const JsonValue &value) {
        if (name == "__metadata__")
          value.object([](const std::string &, const JsonValue &entry) {
            (void)entry.string();
          });
        else
          tensors.push_back(readEntry(name, value, data));
      });
  if (errors.any())
    return errors.take();
  std::sort(tensors.begin(), tensors.end(),
            [](const FileTensor &a, const FileTensor &b) {
              return std::pair(a.data.data(), a.data.size()) <
                     std::pair(b.data.data(), b.data.size());
            });
  if (Status status = checkCover(tensors, data, where); !status)
    return status.error();
  return tensors;
}

void SafetensorsFile::Unmap::operator()(void *address) const {
  munmap(address, size);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  auto failure = [&] {
    return Error{path, std::string("cannot be read: ") + strerror(errno), {}};
  };
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return failure();
  struct stat info;
  bool known = fstat(descriptor, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    Error error = known ? Error{path, "is not a regular file", {}} : failure();
    close(descriptor);
    return error;
  }
  SafetensorsFile file;
  file.name = path;
  std::span<const std::byte> bytes;
  if (info.st_size > 0) {
    size_t size = size_t(info.st_size);
    void *address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      Error error = failure();
      close(descriptor);
      return error;
    }
    file.map = {address, Unmap{size}};
    bytes = {static_cast<const std::byte *>(address), size};
  }
  close(descriptor);
  auto tensors = parseSafetensors(bytes, path);
  if (!tensors)
    return tensors.error();
  file.list = std::move(*tensors);
  return file;
}

const FileTensor *SafetensorsFile::find(std::string_view name) const {
  for (const FileTensor &tensor : list)
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

std::optional<std::vector<double>> loadDoubles(const FileTensor &tensor) {
  bool wide = tensor.dtypeName == "F64";
  if (!wide && !tensor.dtype)
    return std::nullopt;
  std::vector<double> values(size_t(tensor.elements()));
  size_t size = wide ? 8 : byteSize(*tensor.dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    alignas(8) std::byte element[8];
    std::memcpy(element, tensor.data.data() + i * size, size);
    if (wide)
      std::memcpy(&values[i], element, sizeof(double));
    else
      values[i] = loadAsDouble(element, *tensor.dtype, 0);
  }
  return values;
}

} // namespace plum::runtime
