//===- InputsTest.cpp -----------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/Inputs.h"

#include "ToyLayer.h"

#include <cmath>

using namespace plum;
using namespace plum::runtime;
using namespace plum::runtime::test;

TEST(Inputs, GeneratorGivesTheKnownValues) {
  const double normal[] = {-0.409698460, -0.422356537, -0.111808134,
                           -0.094535613};
  const double uniform[] = {0.564397614, 0.312562737, 0.842492206, 0.378248326};
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(portableNormal(1, 2, i), normal[i], 1e-9);
    EXPECT_NEAR(portableUniform(1, 2, i), uniform[i], 1e-9);
  }
}

TEST(Inputs, RandomProblemFollowsNames) {
  ThreadPool pool;
  auto problem = randomProblem(toyManifest(), 2, 5, 3, 9, pool);
  ASSERT_TRUE(problem);
  const RunArgs &args = problem->args;
  ASSERT_EQ(args.inputs.size(), 4u);
  const auto *q = static_cast<const float *>(args.inputs[0].data);
  for (int row = 0; row < 2 * 5 * 3; ++row) {
    double squares = 0;
    for (int c = 0; c < K; ++c)
      squares += q[row * K + c] * q[row * K + c];
    EXPECT_NEAR(squares, 1, 1e-5);
  }
  const auto *v = static_cast<const uint16_t *>(args.inputs[2].data);
  EXPECT_EQ(v[7], floatToBf16(float(portableNormal(9, 3, 7))));
  const auto *g = static_cast<const float *>(args.inputs[3].data);
  for (int i = 0; i < 2 * 5 * 3; ++i)
    EXPECT_NEAR(g[i], -std::log1p(std::exp(portableNormal(9, 4, i))), 1e-6);
  EXPECT_TRUE(checkProblem(toyManifest(), args));
}

TEST(Inputs, AnImpossibleShapeIsAnError) {
  ThreadPool pool;
  EXPECT_FALSE(randomProblem(toyManifest(), 1ll << 40, 1ll << 40, 1, 1, pool));
}
