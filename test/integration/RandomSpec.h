//===- RandomSpec.h - Layers nobody has written yet -------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws the text of a layer: decay, erases, writes, updates per token, places
// of reads and outputs, gates, an epilogue, dims and storage types. Everything
// is legal and close to contractive (keys of norm one, gates in (0, 1), erases
// of small norm), so that a relative error means something.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_INTEGRATION_RANDOMSPEC_H
#define PLUM_TEST_INTEGRATION_RANDOMSPEC_H

#include "test/integration/Harness.h"

namespace plum::test {

/// Numbers of one seed, from the portable generator.
class Dice {
public:
  explicit Dice(uint32_t seed) : seed(seed) {}
  double uniform() { return runtime::portableUniform(seed, 99, next++); }
  bool chance(double p) { return uniform() < p; }
  int64_t below(int64_t n) { return int64_t(uniform() * double(n)); }
  template <typename T> T pick(std::initializer_list<T> list) {
    return list.begin()[below(int64_t(list.size()))];
  }

private:
  uint32_t seed, next = 0;
};

Spec randomSpec(uint32_t seed);

} // namespace plum::test

#endif // PLUM_TEST_INTEGRATION_RANDOMSPEC_H
