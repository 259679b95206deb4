//===- Tensor.h - Weights and activations -----------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A Matrix is a weight [out, in] as the checkpoint stores it, usually in the
// mapped file itself. Rows are activations, f32, one row a token; a View is
// some columns of some rows. Nothing here knows of sequences. Where a model
// runs on a backend (Backend.h), rows are in its memory: addresses to compute
// with, not to look at.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_TENSOR_H
#define PLUM_RUNTIME_MODEL_TENSOR_H

#include "plum/Support/DType.h"

#include <memory>
#include <vector>

namespace plum::model {

struct View {
  float *data = nullptr;
  int64_t count = 0, width = 0;
  int64_t stride = 0; ///< From a row to the next, in floats.

  float *row(int64_t i) const { return data + i * stride; }
  View columns(int64_t begin, int64_t wide) const {
    return {data + begin, count, wide, stride};
  }
  View rows(int64_t begin, int64_t many) const {
    return {data + begin * stride, many, width, stride};
  }
};

enum class WeightType : uint8_t {
  F32,
  BF16,
  /// Two E2M1 codes a byte (the low nibble first), along the columns, and one
  /// E8M0 scale for 32 columns: value = code * 2^(scale - 127).
  MXFP4
};

/// Columns that share a scale.
inline constexpr int64_t mxGroup = 32;

struct Matrix {
  WeightType type = WeightType::F32;
  int64_t rows = 0, cols = 0;      ///< [out, in].
  const std::byte *data = nullptr; ///< Row-major.
  const uint8_t *scales = nullptr; ///< MXFP4: [rows, cols / 32].
  std::shared_ptr<const void> own; ///< Keeps `data` when it is a copy.
  int64_t stride = 0;              ///< From a row to the next, in bytes.

  Matrix() = default;
  Matrix(WeightType type, int64_t rows, int64_t cols, const std::byte *data,
         const uint8_t *scales = nullptr)
      : type(type), rows(rows), cols(cols), data(data), scales(scales),
        stride(type == WeightType::F32    ? cols * 4
               : type == WeightType::BF16 ? cols * 2
                                          : cols / 2) {}
  /// Some columns of f32 rows.
  static Matrix of(const View &rows) {
    Matrix matrix(WeightType::F32, rows.count, rows.width,
                  reinterpret_cast<const std::byte *>(rows.data));
    matrix.stride = rows.stride * 4;
    return matrix;
  }

  explicit operator bool() const { return data != nullptr; }
  /// Of the values and scales.
  int64_t bytes() const {
    return rows * (stride + (scales ? cols / mxGroup : 0));
  }
  /// Rows begin .. begin + count.
  Matrix slice(int64_t begin, int64_t count) const {
    Matrix part = *this;
    part.rows = count;
    part.data += begin * stride;
    if (scales)
      part.scales += begin * (cols / mxGroup);
    return part;
  }
};

class Backend;

/// Memory of this program for rows that come from a device. Outlives them.
class HostMemory {
public:
  virtual ~HostMemory() = default;
  virtual void *take(size_t bytes) = 0; ///< Null: none of this kind.
  virtual void give(void *block) = 0;   ///< Back, to be taken again.
};

struct FreeRows {
  Backend *backend = nullptr; ///< Whose memory it is; null: this program's.
  std::shared_ptr<HostMemory> host =
      nullptr; ///< Of this program, if not new's.
  void operator()(float *rows) const;
};

/// Owns [count, width]; contents undefined until written.
struct Rows {
  int64_t count = 0, width = 0;
  std::unique_ptr<float[], FreeRows> own;

  Rows() = default;
  Rows(int64_t count, int64_t width)
      : count(count), width(width), own(new float[size_t(count * width)]) {}
  Rows(Backend &backend, int64_t count, int64_t width);

  float *row(int64_t i) const { return own.get() + i * width; }
  operator View() const { return {own.get(), count, width, width}; }
  View columns(int64_t begin, int64_t wide) const {
    return View(*this).columns(begin, wide);
  }
  View rows(int64_t begin, int64_t many) const {
    return View(*this).rows(begin, many);
  }
};

using Vector = std::vector<float>;

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_TENSOR_H
