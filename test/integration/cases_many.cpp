//===- cases_many.cpp - C19: more than 65,535 sequence-heads --------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// States of all sequence-heads are 268 MB, so results stay in the run's own
// buffers: halves are compared as bytes, and the truth is computed for sampled
// sequences only.
//
//===----------------------------------------------------------------------===//

#include "test/integration/Cases.h"

#include <cstring>

using namespace plum;
using namespace plum::test;
using runtime::portableNormal;
using runtime::portableUniform;

namespace {
using ManyCases = Cases;

/// State buffers [N, H, 32, 32], kept between tests: getting fresh pages for
/// half a gigabyte takes longer than all the kernels here.
std::vector<float> firstStates, allStates, halfStates;
void reserve(std::vector<float> &states, int64_t count) {
  states.resize(std::max(states.size(), size_t(count) * 32 * 32));
}
runtime::TensorView view(float *data, int64_t sequences, int64_t heads) {
  return runtime::TensorView::dense(data, DType::F32, sequences, heads, 32, 32);
}
} // namespace
PLUM_CASES(ManyCases);

/// Two runs of half the sequences each must give the bytes of one run, and
/// three sequences spread over it the truth. `initial` may be empty.
static void checkHalves(Layer &layer, const Data &data, How how,
                        const std::vector<float> &initial) {
  int64_t count = data.sequences(), heads = data.sizes.heads;
  int64_t tokens = data.sizes.batch * data.sizes.tokens / count;
  bool packed = !data.cuSeqlens.empty();
  auto part = [&](int64_t begin, int64_t end) {
    Data some(layer, {end - begin, tokens, heads});
    for (const auto &[name, tensor] : data.tensors) {
      Tensor cut = packed ? slice(tensor, 1, begin * tokens, end * tokens)
                          : slice(tensor, 0, begin, end);
      cut.shape[0] = end - begin;
      cut.shape[1] = tokens;
      some.tensors[name] = std::move(cut);
    }
    return some;
  };
  size_t stateSize = size_t(heads) * 32 * 32;
  auto runPart = [&](const Data &some, int64_t begin, float *final) {
    Launch run(layer, some, /*ownStates=*/false);
    int64_t n = some.sequences();
    run.args.finalStates = {view(final, n, heads)};
    if (!initial.empty()) {
      std::memcpy(final, initial.data() + size_t(begin) * stateSize,
                  size_t(n) * stateSize * sizeof(float));
      run.args.initialStates = run.args.finalStates;
    }
    return run.go(how) ? Launch::load(run.args.outputs[0]) : Tensor();
  };

  reserve(allStates, count * heads);
  Tensor o = runPart(data, 0, allStates.data());
  int64_t half = count / 2;
  reserve(halfStates, (count - half) * heads);
  for (int64_t begin : {int64_t(0), half}) {
    int64_t end = begin == 0 ? half : count;
    Tensor oHalf = runPart(part(begin, end), begin, halfStates.data());
    if (o.values.empty() || oHalf.values.empty())
      return;
    EXPECT_EQ(std::memcmp(allStates.data() + size_t(begin) * stateSize,
                          halfStates.data(),
                          size_t(end - begin) * stateSize * sizeof(float)),
              0)
        << how.str() << ": states of the half from " << begin << " differ";
    EXPECT_TRUE(std::equal(oHalf.values.begin(), oHalf.values.end(),
                           o.values.begin() + begin * tokens * heads * 32))
        << how.str() << ": outputs of the half from " << begin << " differ";
  }

  // Sampled sequences, each with all of its heads; the last one is among them.
  for (int64_t n : {int64_t(0), half, count - 1}) {
    Data one = part(n, n + 1);
    auto floats = [&](const std::vector<float> &from) {
      Tensor S(1, heads, 32, 32);
      const float *begin = from.data() + size_t(n) * stateSize;
      std::copy(begin, begin + stateSize, S.values.begin());
      return S;
    };
    if (!initial.empty())
      one.tensors["S"] = floats(initial);
    Tensor row(1, tokens, heads, 32);
    std::copy_n(o.values.begin() + n * int64_t(row.values.size()),
                row.values.size(), row.values.begin());
    expectClose(one, {{"o", row}, {"S", floats(allStates)}},
                reference(layer, one), standard(layer),
                how.str() + ", sequence " + std::to_string(n));
  }
}

TEST_P(ManyCases, C19ManySequencesScalarDecay) {
  Layer &linear = local("scalar_decay_raw", 32, 32);
  Data data = delta(linear, 119, {.tokens = 4100, .heads = 32});
  data.fill("beta", constant(1));
  data.fill("g", [](int64_t i) {
    return -0.1 * softplus(portableNormal(119, 4, uint32_t(i)));
  });
  std::vector<int64_t> offsets;
  for (int64_t n = 0; n <= 2050; ++n)
    offsets.push_back(2 * n);
  data.pack(offsets);
  for (How how : {How{runtime::Form::Chunk, 64}, How{runtime::Form::Step, 0}})
    checkHalves(linear, data, how, {});
}

TEST_P(ManyCases, C19ManySequencesKdaDecode) {
  Layer &kda = local("kda_raw", 32, 32);
  Data data = delta(kda, 119, {.batch = 1024, .tokens = 1, .heads = 64});
  data.fill("g", [](int64_t i) {
    return -5 * sigmoid(portableNormal(119, 4, uint32_t(i)) - 3);
  });
  reserve(firstStates, 1024 * 64);
  for (size_t i = 0; i < firstStates.size(); ++i)
    firstStates[i] = float(portableUniform(119, 6, uint32_t(i)) - 0.5);
  checkHalves(kda, data, {runtime::Form::Step, 0}, firstStates);
}
