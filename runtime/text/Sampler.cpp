//===- Sampler.cpp - Choosing the next token ------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/text/Sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plum::text {

namespace {

struct Candidate {
  int32_t id;
  double logit, p = 0;
};

/// Probabilities of candidates sorted by logit, largest first.
void softmax(std::vector<Candidate> &list, double temperature) {
  double sum = 0;
  for (Candidate &candidate : list)
    sum += candidate.p =
        std::exp((candidate.logit - list[0].logit) / temperature);
  for (Candidate &candidate : list)
    candidate.p /= sum;
}

} // namespace

int32_t Sampler::next(std::span<const float> logits,
                      std::span<const int32_t> history) {
  std::vector<Candidate> list;
  for (size_t id = 0; id < logits.size(); ++id)
    list.push_back(
        {int32_t(id), std::isnan(logits[id]) ? -INFINITY : double(logits[id])});
  if (options.repeatPenalty != 1) {
    size_t recent = std::min(history.size(), size_t(options.repeatLast));
    std::vector<bool> seen(list.size());
    for (int32_t id : history.last(recent))
      if (id >= 0 && size_t(id) < list.size())
        seen[size_t(id)] = true;
    for (Candidate &candidate : list)
      if (seen[size_t(candidate.id)])
        candidate.logit = candidate.logit > 0
                              ? candidate.logit / options.repeatPenalty
                              : candidate.logit * options.repeatPenalty;
  }
  auto better = [](const Candidate &a, const Candidate &b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options.temperature <= 0)
    return std::min_element(list.begin(), list.end(), better)->id;

  size_t keep = options.topK > 0 ? std::min(list.size(), size_t(options.topK))
                                 : list.size();
  std::partial_sort(list.begin(), list.begin() + int64_t(keep), list.end(),
                    better);
  list.resize(keep);
  softmax(list, 1);
  if (options.topP < 1) {
    double sum = 0;
    size_t count = 0;
    while (count < list.size() && sum < options.topP)
      sum += list[count++].p;
    list.resize(std::max<size_t>(count, 1));
  }
  if (options.minP > 0)
    while (list.size() > 1 && list.back().p < options.minP * list[0].p)
      list.pop_back();
  softmax(list, options.temperature);
  // The upper 53 bits as a number in [0, 1).
  double draw = double(random() >> 11) * 0x1p-53;
  for (const Candidate &candidate : list)
    if (draw -= candidate.p; draw < 0)
      return candidate.id;
  return list.back().id;
}

} // namespace plum::text
