//===- RandomLayersTest.cpp - Drawn layers at every phase -----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The layers of the integration tests' generator, phase by phase in float64:
// when one of those fails in a kernel, this says where. PLUM_RANDOM_SPECS and
// PLUM_RANDOM_FIRST choose seeds as there.
//
//===----------------------------------------------------------------------===//

#include "PhaseRun.h"
#include "test/integration/RandomSpec.h"

#include "gtest/gtest.h"

#include <cstdlib>

using namespace plum;
using namespace plum::test;
using interpreter::PhaseProgram;

static uint32_t fromEnvironment(const char *name, uint32_t otherwise) {
  const char *text = std::getenv(name);
  return text ? uint32_t(std::strtoul(text, nullptr, 10)) : otherwise;
}

static void checkSpec(uint32_t seed) {
  Dice dice(seed + 200000);
  Spec spec = randomSpec(seed);
  CompileOptions options;
  options.spec.dims = spec.dims;
  options.chunks = {dice.pick({int64_t(1), int64_t(4), int64_t(8)}),
                    dice.pick({int64_t(16), int64_t(32)})};
  PhaseRun run(spec.text, options);
  ASSERT_TRUE(run.ok());
  run.makeData(1 + dice.below(60), seed);
  for (const std::string &phase : interpreter::interpretedPhases()) {
    auto program = run.read(run.ir(phase));
    ASSERT_TRUE(program);
    for (const PhaseProgram::Entry &entry : program->entries()) {
      bool perToken = phase == "assoc" || phase == "normal";
      if (perToken == (entry.chunk == 0)) {
        EXPECT_LE(run.error(*program, entry), 1e-10)
            << phase << ", C = " << entry.chunk << "\n";
      }
    }
  }
}

TEST(RandomLayers, EveryPhaseEqualsTheRecurrence) {
  uint32_t first = fromEnvironment("PLUM_RANDOM_FIRST", 1);
  uint32_t count = fromEnvironment("PLUM_RANDOM_SPECS", 60);
  for (uint32_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" +
                 randomSpec(seed).text);
    checkSpec(seed);
  }
}
