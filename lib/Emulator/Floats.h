//===- Floats.h - Halves and approximate functions --------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_LIB_EMULATOR_FLOATS_H
#define PLUM_LIB_EMULATOR_FLOATS_H

#include <bit>
#include <cmath>
#include <cstdint>

namespace plum::emulator {

inline float fromBFloat(uint32_t bits) {
  return std::bit_cast<float>(bits << 16);
}

/// Round to nearest even; NaN becomes the canonical 0x7fff, as in cvt.rn.
inline uint32_t toBFloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline float fromHalf(uint32_t bits) {
  uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31;
  uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {
    float value = std::ldexp(float(fraction), -24);
    return sign ? -value : value;
  }
  uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
}

/// Round to nearest even.
inline uint32_t toHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return 0x7fff;
  if (magnitude >= 0x477ff000) // 65520 and above.
    return sign | 0x7c00;
  if (magnitude < 0x38800000) { // Subnormal: a multiple of 2^-24.
    float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return sign | uint32_t(std::nearbyint(scaled));
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return sign | ((rounded - 0x38000000) >> 13);
}

/// Subnormals become zeros of their sign.
inline float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value)
                                                : value;
}

/// f.approx.ftz: in double, so better than any GPU's.
template <typename F> inline float approximate(float x, F f) {
  return flushed(static_cast<float>(f(static_cast<double>(flushed(x)))));
}

} // namespace plum::emulator

#endif // PLUM_LIB_EMULATOR_FLOATS_H
