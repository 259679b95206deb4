//===- Dots.cpp - Few tokens times a weight -------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Dots.h"

#include <bit>
#include <cstring>

namespace plum::model {

namespace {

using Floats = float __attribute__((ext_vector_type(16)));
using Words = uint32_t __attribute__((ext_vector_type(16)));
using Halves = uint16_t __attribute__((ext_vector_type(16)));
using Bytes = uint8_t __attribute__((ext_vector_type(16)));
using Bytes8 = uint8_t __attribute__((ext_vector_type(8)));

#if defined(__x86_64__)
#pragma clang attribute push(                                                  \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),    \
    apply_to = function)
namespace avx512 {
#include "runtime/model/DotsKernels.inc"
} // namespace avx512
#pragma clang attribute pop

#pragma clang attribute push(__attribute__((target("avx2,fma"))),              \
                             apply_to = function)
namespace avx2 {
#include "runtime/model/DotsKernels.inc"
} // namespace avx2
#pragma clang attribute pop
#endif

namespace portable {
#include "runtime/model/DotsKernels.inc"
} // namespace portable

const DotKernels &choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  if (fma && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return avx512::kernels;
  if (fma)
    return avx2::kernels;
#endif
  return portable::kernels;
}

} // namespace

const DotKernels &DotKernels::get() {
  static const DotKernels &chosen = choose();
  return chosen;
}

} // namespace plum::model
