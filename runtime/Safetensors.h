//===- Safetensors.h - Tensor files, read and written -----------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The format: u64 length of the header, a JSON header
//   {"q": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
// then the data, which the offsets count from. Files come from anywhere, so
// reading checks everything before the first tensor is touched: sizes, types,
// products that overflow, ranges outside the file, ranges that overlap or leave
// holes, names that appear twice. The file is mapped, not copied.
//
// Writing is atomic: a reader sees the old file or the whole new one, and a
// failed run leaves nothing behind.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_SAFETENSORS_H
#define PLUM_RUNTIME_SAFETENSORS_H

#include "plum/Support/DType.h"
#include "plum/Support/Result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace plum::runtime {

struct FileTensor {
  std::string name;
  std::string dtypeName;      ///< As in the file: "BF16".
  std::optional<DType> dtype; ///< Empty for types that kernels do not take.
  std::vector<int64_t> shape;
  std::span<const std::byte> data; ///< Of the mapped file; may be unaligned.

  int64_t elements() const; ///< Product of the shape; never overflows.
};

/// "F32", "BF16", ...: the format's spelling.
std::string_view fileName(DType type);
/// "[2,3]".
std::string shapeText(std::span<const int64_t> shape);

/// The tensors of a file's bytes, in the order of their data.
Result<std::vector<FileTensor>>
parseSafetensors(std::span<const std::byte> bytes, const std::string &where);

/// A mapped file.
class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::string &path);

  const std::string &path() const { return name; }
  const std::vector<FileTensor> &tensors() const { return list; }
  const FileTensor *find(std::string_view name) const;

private:
  struct Unmap {
    size_t size;
    Unmap() : size(0) {}
    explicit Unmap(size_t size) : size(size) {}
    void operator()(void *address) const;
  };
  std::string name;
  std::unique_ptr<void, Unmap> map;
  std::vector<FileTensor> list;
};

/// Every value as a double; also of F64. Empty when the type has no values.
std::optional<std::vector<double>> loadDoubles(const FileTensor &tensor);

/// A file that appears under its name only when committed.
class AtomicFile {
public:
  /// Opens a new file beside `path`, so that a place that cannot be written is
  /// found before any work is done. What is no regular file (/dev/null) is
  /// written directly.
  static Result<AtomicFile> create(const std::string &path);
  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile(); ///< Without a commit: removes it.

  Status write(const void *data, size_t size);
  Status commit();

private:
  AtomicFile() = default;
  Error failure(int error) const;
  std::string path, target, temporary; ///< No temporary: direct.
  int descriptor = -1;
};

struct TensorToWrite {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  const void *data; ///< Dense, row-major.
};

/// Writes and commits.
Status writeSafetensors(AtomicFile &file,
                        const std::vector<TensorToWrite> &tensors);
Status writeSafetensors(const std::string &path,
                        const std::vector<TensorToWrite> &tensors);

} // namespace plum::runtime

#endif // PLUM_RUNTIME_SAFETENSORS_H
