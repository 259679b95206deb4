//===- random_specs_test.cpp - Drawn layers against float64 ---------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler derives every form from the equations; so equations nobody
// thought of must come out right. PLUM_RANDOM_SPECS=N in the environment tries
// N seeds instead of 60, PLUM_RANDOM_FIRST=S starts at seed S. Precision F32
// has the sharp limit and takes every seed; what differs in default precision
// is how rows are loaded and stored, and every other seed does for that.
//
//===----------------------------------------------------------------------===//

#include "test/integration/RandomSpec.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstdlib>

using namespace plum;
using namespace plum::test;

static uint32_t fromEnvironment(const char *name, uint32_t otherwise) {
  const char *text = std::getenv(name);
  return text ? uint32_t(std::strtoul(text, nullptr, 10)) : otherwise;
}

static void checkSpec(uint32_t seed, Precision precision) {
  Dice dice(seed + 100000);
  Spec spec = randomSpec(seed);
  int64_t C = dice.pick({1, 2, 4, 8, 16, 16, 32, 64, 64, 128, 256});
  Layer layer(spec, precision, {C});
  Data data(layer, {.batch = 1 + dice.below(2),
                    .tokens = dice.pick(
                        {int64_t(1), C, C + 1, 3 * C - 1, int64_t(150)}),
                    .heads = 2});
  if (data.sizes.tokens > 300)
    data.sizes.tokens = 300;
  uint32_t tid = 1;
  for (const frontend::Symbol *input : layer.ast().inputs)
    data.fill(input->name, normal(seed, tid++), dice.chance(0.2) ? 1 : 0);
  for (const frontend::Symbol *param : layer.ast().params)
    data.fill(param->name, normal(seed, tid++));
  if (dice.chance(0.5))
    for (const frontend::Symbol *state : layer.ast().states) {
      ++tid;
      data.fill(state->name, [=](int64_t i) {
        double n = runtime::portableNormal(seed, tid, uint32_t(i));
        return state->shape.kind == frontend::Shape::Row ? std::abs(n)
                                                         : 0.25 * n;
      });
    }

  Values truth = reference(layer, data);
  for (const frontend::Symbol *output : layer.ast().outputs) {
    double size = rms(truth.at(output->name));
    ASSERT_TRUE(size > 0 || data.sizes.tokens == 1) << "nothing to compare";
    ASSERT_LT(size, 1e6) << "not contractive: R means nothing";
  }
  double r = standard(layer).r;
  for (How how : everyForm(layer))
    expectClose(data, run(layer, data, how), truth, {r, INFINITY, INFINITY, r},
                how.str() + ", T = " + std::to_string(data.sizes.tokens));
}

static void checkSpecs(Precision precision, uint32_t stride) {
  uint32_t first = fromEnvironment("PLUM_RANDOM_FIRST", 1);
  uint32_t count = fromEnvironment("PLUM_RANDOM_SPECS", 60);
  for (uint32_t seed = first; seed < first + count; seed += stride) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" +
                 randomSpec(seed).text);
    checkSpec(seed, precision);
  }
}

TEST(RandomSpecs, Default) { checkSpecs(Precision::Default, 2); }
TEST(RandomSpecs, F32) { checkSpecs(Precision::F32, 1); }
