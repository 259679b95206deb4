//===- Weights.h - The tensors of a model directory -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// model.safetensors, or model.safetensors.index.json and its shards, mapped
// and checked. A Loader hands tensors to a network by name, with the shape that
// config.json makes them have:
//
//   model.safetensors: error: tensor 'layers.3.self_attn.k_proj.weight' has
//   shape [512,512], expected [512,1024]
//
// The first error is kept and everything after it comes back empty, so that a
// network reads as a list of its weights with one test at the end.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_WEIGHTS_H
#define PLUM_RUNTIME_MODEL_WEIGHTS_H

#include "runtime/Safetensors.h"
#include "runtime/model/Tensor.h"

#include <map>
#include <string>
#include <unordered_map>

namespace plum::model {

/// weight_map of an index: tensor to file. Files are plain names.
Result<std::map<std::string, std::string>> parseIndex(std::string_view text,
                                                      const std::string &where);

class WeightFiles {
public:
  static Result<WeightFiles> open(const std::string &directory);

  struct Entry {
    const runtime::FileTensor *tensor;
    const runtime::SafetensorsFile *file;
  };
  const Entry *find(const std::string &name) const;
  /// By name, for what nobody asked for.
  const std::unordered_map<std::string, Entry> &all() const { return entries; }
  const std::string &directory() const { return path; }

private:
  std::string path;
  std::vector<std::unique_ptr<runtime::SafetensorsFile>> files;
  std::unordered_map<std::string, Entry> entries;
};

class Loader {
public:
  explicit Loader(const WeightFiles &files) : files(files) {}

  /// Tensors are looked up as prefix + name.
  std::string prefix;

  bool has(const std::string &name) const {
    return files.find(prefix + name) != nullptr;
  }
  /// [rows, cols] of F32, BF16 or F16 (which is widened), or, when there is
  /// NAME_packed and NAME_scale, of MXFP4. Also [rows, 1, cols] and [rows].
  Matrix matrix(const std::string &name, int64_t rows, int64_t cols);
  /// [cols, rows] in the file: GPT-2 stores y = x W.
  Matrix transposed(const std::string &name, int64_t rows, int64_t cols);
  /// `size` values in any shape.
  Vector vector(const std::string &name, int64_t size);
  /// The first `size` of at least that many values; the others must be 0.
  Vector padded(const std::string &name, int64_t size);

  void error(Error error);
  bool failed() const { return failure.has_value(); }
  Error take() { return std::move(*failure); }

  /// Tensors that nobody asked for.
  std::vector<std::string> unused() const;
  /// Bytes of everything that was asked for.
  int64_t bytes() const { return total; }

private:
  const WeightFiles::Entry *get(const std::string &name);
  Matrix packed(const std::string &name, int64_t rows, int64_t cols);
  /// False, with an error, when it has not `shape` (a row when rows == 1).
  bool shaped(const WeightFiles::Entry &entry, int64_t rows, int64_t cols);

  const WeightFiles &files;
  std::optional<Error> failure;
  std::unordered_map<std::string, bool> used;
  int64_t total = 0;
};

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_WEIGHTS_H
