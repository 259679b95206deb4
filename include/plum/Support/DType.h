//===- DType.h - Storage types ----------------------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The storage types of tensors and their exact conversions. Arithmetic is
// fp32 (fp64 in the reference); these types only say how values are stored.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_SUPPORT_DTYPE_H
#define PLUM_SUPPORT_DTYPE_H

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace plum {

enum class DType : uint8_t { F32, F16, BF16, I32, I64 };

constexpr size_t byteSize(DType type) {
  switch (type) {
  case DType::F16:
  case DType::BF16:
    return 2;
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::I64:
    return 8;
  }
  return 0;
}

/// The name in specs and manifests: "f32", "bf16", ...
std::string_view name(DType type);
std::optional<DType> parseDType(std::string_view name);

/// bf16 is the upper half of an f32; conversions round to nearest even and
/// keep NaN a NaN.
inline float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}
uint16_t floatToBf16(float value);
float f16ToFloat(uint16_t bits);
uint16_t floatToF16(float value);

/// Element `i` of an array of `type` at `data`, as a double (exact but for
/// I64 beyond 2^53).
double loadAsDouble(const void *data, DType type, size_t i);
/// Rounds `value` to `type` (through float for the 16-bit types) and stores it
/// as element `i`.
void storeFromDouble(void *data, DType type, size_t i, double value);

} // namespace plum

#endif // PLUM_SUPPORT_DTYPE_H
