//===- Gpu.h - Device memory and numbers of a kernel's test -----*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tests of kernels open the host driver (HostDriver.cpp) as their GPU, put
// numbers on it, run ops and compare with float64.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_UNIT_KERNELS_GPU_H
#define PLUM_TEST_UNIT_KERNELS_GPU_H

#include "plum/Support/DType.h"
#include "runtime/cuda/Ops.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

namespace plum::runtime::cuda::test {

using kernels::Rows;
using kernels::Type;

/// The host as a device, with its kernels.
struct Gpu {
  std::shared_ptr<const Device> device;
  std::unique_ptr<Kernels> kernels;

  Gpu() {
    setenv("PLUM_LIBCUDA", HOST_CUDA, 1);
    setenv("PLUM_CACHE", "/nonexistent", 1);
    Result<std::shared_ptr<const Device>> opened = Device::open();
    EXPECT_TRUE(opened) << opened.error().str();
    device = *opened;
    kernels = std::make_unique<Kernels>(device);
  }
};

/// Bytes on the device, from a vector and back.
template <typename T> struct Buffer {
  Memory memory;
  size_t count = 0;

  Buffer(const Gpu &gpu, size_t count) : count(count) {
    Result<Memory> made = allocate(*gpu.device, count * sizeof(T));
    EXPECT_TRUE(made) << made.error().str();
    memory = std::move(*made);
  }
  Buffer(const Gpu &gpu, const std::vector<T> &values)
      : Buffer(gpu, values.size()) {
    std::memcpy(reinterpret_cast<void *>(address()), values.data(),
                values.size() * sizeof(T));
  }
  CUdeviceptr address() const { return memory.get(); }
  T *data() const { return reinterpret_cast<T *>(address()); }
  std::vector<T> read() const { return {data(), data() + count}; }
};

/// A matrix of either type: the numbers as they are stored, with columns to
/// spare on the right.
struct Matrix {
  Type type;
  int64_t rows, width, stride;
  Buffer<char> buffer;

  Matrix(const Gpu &gpu, int64_t rows, int64_t width, Type type,
         int64_t spare = 0)
      : type(type), rows(rows), width(width), stride(width + spare),
        buffer(gpu, size_t(rows * stride * size())) {}
  /// With random numbers of about `scale`.
  Matrix(const Gpu &gpu, int64_t rows, int64_t width, Type type, int64_t spare,
         std::mt19937 &random, float scale = 1)
      : Matrix(gpu, rows, width, type, spare) {
    std::normal_distribution<float> normal(0, scale);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c)
        set(r, c, normal(random));
  }

  int64_t size() const { return type == Type::F32 ? 4 : 2; }
  void set(int64_t row, int64_t column, float x) {
    char *at = buffer.data() + (row * stride + column) * size();
    uint16_t narrow = floatToBf16(x);
    if (type == Type::F32)
      std::memcpy(at, &x, 4);
    else
      std::memcpy(at, &narrow, 2);
  }
  double at(int64_t row, int64_t column) const {
    const char *from = buffer.data() + (row * stride + column) * size();
    float x;
    uint16_t narrow;
    std::memcpy(&x, from, size_t(size()) == 4 ? 4 : 0);
    std::memcpy(&narrow, from, 2);
    return double(type == Type::F32 ? x : bf16ToFloat(narrow));
  }
  operator Rows() const { return rowsAt(buffer.address(), stride, type); }
  kernels::Vector vector() const { return vectorAt(buffer.address(), type); }
};

/// bf16's rounding of a double.
inline double bf16(double x) {
  return double(bf16ToFloat(floatToBf16(float(x))));
}

/// `expected` to a few ulp of f32 sums, or one of bf16 where it is stored so.
inline void expectNear(const Matrix &got, int64_t row, int64_t column,
                       double expected, double f32 = 2e-6) {
  double allowed = f32 * std::max(1.0, std::abs(expected));
  if (got.type == Type::BF16)
    allowed += std::abs(expected) / 128;
  ASSERT_NEAR(got.at(row, column), expected, allowed)
      << "row " << row << ", column " << column;
}

#define EXPECT_OK(STATUS)                                                      \
  do {                                                                         \
    plum::Status status = (STATUS);                                            \
    EXPECT_TRUE(status) << status.error().str();                               \
  } while (0)

} // namespace plum::runtime::cuda::test

#endif // PLUM_TEST_UNIT_KERNELS_GPU_H
