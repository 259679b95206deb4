//===- Experts.cpp - Feed-forward parts -----------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// (token, expert) pairs are sorted by expert, so that an expert's weights are
// read once, for all its tokens. Outputs are summed in the order of a token's
// choice: the sum does not depend on what else is in the batch.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Experts.h"

#include "runtime/model/Backend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plum::model {

Rows Mlp::run(const Work &work, const Activation &act, const View &x) const {
  Rows g = work.rows(x.count, gate.rows), u = work.rows(x.count, up.rows);
  Product both[] = {{x, &gate, g}, {x, &up, u}};
  multiply(work, both);
  gated(work, act, g, u);
  return linear(work, g, down);
}

Experts::Choice Experts::choose(const float *logits) const {
  int64_t count = router.rows;
  std::vector<float> scores(logits, logits + count);
  if (score == Sigmoid) {
    for (float &value : scores)
      value = sigmoid(value);
  } else {
    float largest = *std::max_element(scores.begin(), scores.end()), sum = 0;
    for (float &value : scores)
      sum += value = std::exp(value - largest);
    for (float &value : scores)
      value /= sum;
  }
  std::vector<float> rank = scores;
  for (size_t e = 0; e < bias.size(); ++e)
    rank[e] += bias[e];
  for (float &value : rank) // NaN has no place in an order.
    value = std::isnan(value) ? -INFINITY : value;
  Choice choice;
  choice.expert.resize(size_t(count));
  std::iota(choice.expert.begin(), choice.expert.end(), 0);
  std::partial_sort(choice.expert.begin(), choice.expert.begin() + chosen,
                    choice.expert.end(), [&](int64_t a, int64_t b) {
                      return std::pair(-rank[size_t(a)], a) <
                             std::pair(-rank[size_t(b)], b);
                    });
  choice.expert.resize(size_t(chosen));
  float sum = 0;
  for (int64_t e : choice.expert)
    sum += scores[size_t(e)];
  for (int64_t e : choice.expert)
    choice.weight.push_back(
        scale * scores[size_t(e)] /
        (renormalize ? sum + (score == Sigmoid ? 1e-20f : 0.0f) : 1.0f));
  return choice;
}

/// The weighted sum of the chosen experts of z; the router sees x.
Rows Experts::routed(const Work &work, const View &x, const View &z) const {
  if (work.backend)
    return work.backend->route(work, *this, x, z);
  Rows logits(x.count, router.rows);
  Product route{x, &router, logits};
  multiplyExact(work, {&route, 1});
  struct Pair {
    int64_t expert, token, place;
  };
  std::vector<Choice> choices;
  std::vector<Pair> pairs;
  for (int64_t t = 0; t < x.count; ++t) {
    choices.push_back(choose(logits.row(t)));
    for (int64_t i = 0; i < chosen; ++i)
      pairs.push_back({choices.back().expert[size_t(i)], t, i});
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair &a, const Pair &b) {
    return std::pair(a.expert, a.token) < std::pair(b.expert, b.token);
  });

  int64_t count = int64_t(pairs.size()), wide = experts[0].gate.rows;
  Rows in(count, z.width), g(count, wide), u(count, wide), out(count, z.width);
  std::vector<Product> up, down;
  std::vector<int64_t> rowOf(pairs.size()); ///< Row of (token, place).
  for (int64_t begin = 0, end; begin < count; begin = end) {
    int64_t expert = pairs[size_t(begin)].expert;
    for (end = begin; end < count && pairs[size_t(end)].expert == expert;
         ++end) {
      const Pair &pair = pairs[size_t(end)];
      std::copy_n(z.row(pair.token), z.width, in.row(end));
      rowOf[size_t(pair.token * chosen + pair.place)] = end;
    }
    const Mlp &mlp = experts[size_t(expert)];
    View rows = in.rows(begin, end - begin);
    up.push_back({rows, &mlp.gate, g.rows(begin, end - begin)});
    up.push_back({rows, &mlp.up, u.rows(begin, end - begin)});
    down.push_back(
        {g.rows(begin, end - begin), &mlp.down, out.rows(begin, end - begin)});
  }
  multiply(work, up);
  gated(work, act, g, u);
  multiply(work, down);

  Rows sum(x.count, z.width);
  for (int64_t t = 0; t < x.count; ++t) {
    float *to = sum.row(t);
    std::fill_n(to, z.width, 0.0f);
    for (int64_t i = 0; i < chosen; ++i) {
      const float *from = out.row(rowOf[size_t(t * chosen + i)]);
      float weight = choices[size_t(t)].weight[size_t(i)];
      for (int64_t c = 0; c < z.width; ++c)
        to[c] += weight * from[c];
    }
  }
  work.round(sum);
  return sum;
}

Rows Experts::run(const Work &work, const View &x) const {
  Rows y;
  if (into) {
    Rows z = routed(work, x, linear(work, x, into));
    y = linear(work, norm.empty() ? View(z) : View(rmsNorm(work, z, norm, eps)),
               back);
  } else {
    y = routed(work, x, x);
  }
  if (shared.gate) {
    Rows s = shared.run(work, act, x);
    if (sharedGate)
      gateRows(work, s, linear(work, x, sharedGate));
    add(work, y, s);
  }
  return y;
}

} // namespace plum::model
