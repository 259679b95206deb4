//===- DType.cpp - Storage types ------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions in plain integer arithmetic, so that they give the same bits on
// every machine: round to nearest, ties to even; subnormals are kept; a NaN
// stays a (quiet) NaN of the same sign.
//
//===----------------------------------------------------------------------===//

#include "plum/Support/DType.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace plum {

namespace {
struct NamedType {
  DType type;
  std::string_view name;
};
constexpr NamedType namedTypes[] = {{DType::F32, "f32"},
                                    {DType::F16, "f16"},
                                    {DType::BF16, "bf16"},
                                    {DType::I32, "i32"},
                                    {DType::I64, "i64"}};

template <typename T> T loadAs(const void *data, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + i * sizeof(T),
              sizeof(T));
  return value;
}

template <typename T> void storeAs(void *data, size_t i, T value) {
  std::memcpy(static_cast<char *>(data) + i * sizeof(T), &value, sizeof(T));
}

/// Nearest integer of the type, saturating; NaN is 0.
template <typename T> T toInteger(double value) {
  if (std::isnan(value))
    return 0;
  value = std::nearbyint(value);
  // double(max) of 64 bits rounds up to 2^63, which is itself out of range.
  if (value >= double(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  if (value <= double(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}
} // namespace

std::string_view name(DType type) {
  for (const NamedType &entry : namedTypes)
    if (entry.type == type)
      return entry.name;
  return "?";
}

std::optional<DType> parseDType(std::string_view name) {
  for (const NamedType &entry : namedTypes)
    if (entry.name == name)
      return entry.type;
  return std::nullopt;
}

uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t(bits >> 16) | 0x40; // Quiet, so the payload cannot be 0.
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float f16ToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float magnitude = float(mantissa) * 0x1p-24f; // Subnormal or zero: exact.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t floatToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = uint16_t(bits >> 16) & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000)
    return sign | 0x7e00 | uint16_t((bits >> 13) & 0x3ff);
  if (bits >= 0x477ff000) // 65520 and above round to infinity.
    return sign | 0x7c00;
  if (bits >= 0x38800000) { // Normal: drop 13 bits, rounding.
    uint32_t rounded = bits + 0xfff + ((bits >> 13) & 1);
    return sign | uint16_t((rounded - (112u << 23)) >> 13);
  }
  // Subnormal: a multiple of 2^-24. Adding 0.5f leaves that multiple, rounded
  // to nearest even, in the low bits.
  float shifted = std::bit_cast<float>(bits) + 0.5f;
  return sign | uint16_t(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
}

double loadAsDouble(const void *data, DType type, size_t i) {
  switch (type) {
  case DType::F32:
    return loadAs<float>(data, i);
  case DType::F16:
    return f16ToFloat(loadAs<uint16_t>(data, i));
  case DType::BF16:
    return bf16ToFloat(loadAs<uint16_t>(data, i));
  case DType::I32:
    return loadAs<int32_t>(data, i);
  case DType::I64:
    return double(loadAs<int64_t>(data, i));
  }
  return 0;
}

void storeFromDouble(void *data, DType type, size_t i, double value) {
  // A double beyond the range of float converts to infinity under IEEE 754.
  switch (type) {
  case DType::F32:
    return storeAs(data, i, float(value));
  case DType::F16:
    return storeAs(data, i, floatToF16(float(value)));
  case DType::BF16:
    return storeAs(data, i, floatToBf16(float(value)));
  case DType::I32:
    return storeAs(data, i, toInteger<int32_t>(value));
  case DType::I64:
    return storeAs(data, i, toInteger<int64_t>(value));
  }
}

} // namespace plum
