//===- Cases.h - What the numbered cases share ------------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cases C01 to C23: kinds of faults that users of such kernels met. Each
// runs in default precision on bf16 and in precision F32 on f32 inputs, in step
// form and in chunk form at C = 16, 32, 64, 128. Where a case gives properties
// of the reference (largest output, rms), they are checked first: they pin down
// the inputs and the recurrence. They hold for the bf16 inputs.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_TEST_INTEGRATION_CASES_H
#define PLUM_TEST_INTEGRATION_CASES_H

#include "test/integration/Harness.h"

#include "gtest/gtest.h"

namespace plum::test {

class Cases : public testing::TestWithParam<Precision> {
protected:
  Layer &local(const std::string &name, int64_t K, int64_t V) const {
    return Layer::get(localSpec(name, {{"K", K}, {"V", V}}), GetParam());
  }
  Layer &shipped(const std::string &name, int64_t K, int64_t V) const {
    return Layer::get(shippedSpec(name, {{"K", K}, {"V", V}}), GetParam());
  }
  bool bf16() const { return GetParam() != Precision::F32; }

  /// Data of a delta rule with activated gates, all but its `g`: q and k of
  /// norm 1 with `qkHeads` heads (0: all), v normal, beta = sigmoid(N).
  Data delta(Layer &layer, uint32_t seed, Sizes sizes,
             int64_t qkHeads = 0) const {
    Data data(layer, sizes);
    int64_t K = layer.ast().inputs.front()->shape.cols;
    data.fill("q", unitRows(seed, 1, K), qkHeads);
    data.fill("k", unitRows(seed, 2, K), qkHeads);
    data.fill("v", normal(seed, 3));
    data.fill("beta", gate01(seed, 5));
    return data;
  }

  /// Every form against the truth.
  void check(Layer &layer, const Data &data, const Values &truth) const {
    for (How how : everyForm(layer))
      expectClose(data, run(layer, data, how), truth, standard(layer),
                  how.str());
  }

  /// max|o|, rms(o), max|S| of one head; 0 where the case gives none.
  void published(const Values &truth, int64_t head, double maxO, double rmsO,
                 double maxS) const {
    if (!bf16())
      return;
    Tensor o = slice(truth.at("o"), 2, head, head + 1);
    if (maxO)
      expectPublished(maxAbs(o), maxO, "max|o|");
    if (rmsO)
      expectPublished(rms(o), rmsO, "rms(o)");
    if (maxS)
      expectPublished(maxAbs(slice(truth.at("S"), 1, head, head + 1)), maxS,
                      "max|S|");
  }
};

inline std::string
precisionName(const testing::TestParamInfo<Precision> &info) {
  return info.param == Precision::F32 ? "F32" : "BF16";
}

#define PLUM_CASES(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(                                                    \
      Precisions, suite, testing::Values(Precision::Default, Precision::F32),  \
      precisionName)

} // namespace plum::test

#endif // PLUM_TEST_INTEGRATION_CASES_H
