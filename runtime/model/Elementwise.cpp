//===- Elementwise.cpp - Norms, activations, gates ------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Elementwise.h"

#include "runtime/model/Backend.h"
#include "runtime/model/Dots.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plum::model {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float silu(float x) { return x * sigmoid(x); }

namespace {

/// row(i) for each row, in parallel when `each` element costs enough.
template <typename Fn>
void forRows(const Work &work, const View &x, double each, Fn row) {
  work.each(x.count, each * double(x.count) * double(x.width),
            [&](int, int64_t i) { row(i); });
}

/// In several sums, so that they are quick and accurate.
float squares(const float *x, int64_t width) {
  float sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= width; i += 16)
    for (int lane = 0; lane < 16; ++lane)
      sums[lane] += x[i + lane] * x[i + lane];
  float sum = 0;
  for (; i < width; ++i)
    sum += x[i] * x[i];
  for (float part : sums)
    sum += part;
  return sum;
}

float inverseRms(const float *x, int64_t width, float eps) {
  return 1.0f / std::sqrt(squares(x, width) / float(width) + eps);
}

float bf16(float x) { return bf16ToFloat(floatToBf16(x)); }

void normalize(const Work &work, const float *x, float *y, const Vector &weight,
               float eps) {
  int64_t width = int64_t(weight.size());
  float scale = inverseRms(x, width, eps);
  if (work.compute == Compute::BF16)
    for (int64_t c = 0; c < width; ++c)
      y[c] = bf16(weight[size_t(c)] * bf16(x[c] * scale));
  else
    for (int64_t c = 0; c < width; ++c)
      y[c] = weight[size_t(c)] * (x[c] * scale);
}

} // namespace

Rows embed(const Work &work, const Matrix &table,
           std::span<const int32_t> ids) {
  if (work.backend)
    return work.backend->embed(work, table);
  Rows x(int64_t(ids.size()), table.cols);
  for (size_t t = 0; t < ids.size(); ++t)
    DotKernels::get().widen(table.slice(ids[t], 1), x.row(int64_t(t)));
  work.round(x);
  return x;
}

void addPlaces(const Work &work, const View &x, const Matrix &table) {
  if (work.backend)
    return work.backend->addPlaces(work, x, table);
  Rows place(1, x.width);
  for (const Span &span : work.spans)
    for (int64_t t = 0; t < span.length; ++t) {
      DotKernels::get().widen(table.slice(span.past + t, 1), place.row(0));
      add(work, x.rows(span.begin + t, 1), place);
    }
}

Rows rmsNorm(const Work &work, const View &x, const Vector &weight, float eps) {
  if (work.backend)
    return work.backend->rmsNorm(work, x, weight, eps);
  Rows y(x.count, x.width);
  forRows(work, x, 1,
          [&](int64_t i) { normalize(work, x.row(i), y.row(i), weight, eps); });
  return y;
}

void rmsNormHeads(const Work &work, const View &x, const Vector &weight,
                  float eps) {
  if (work.backend)
    return work.backend->rmsNormHeads(work, x, weight, eps);
  int64_t width = int64_t(weight.size());
  forRows(work, x, 1, [&](int64_t i) {
    for (float *head = x.row(i); head < x.row(i) + x.width; head += width)
      normalize(work, head, head, weight, eps);
  });
}

Rows layerNorm(const Work &work, const View &x, const Vector &weight,
               const Vector &bias, float eps) {
  if (work.backend)
    return work.backend->layerNorm(work, x, weight, bias, eps);
  Rows y(x.count, x.width);
  forRows(work, x, 2, [&](int64_t i) {
    const float *from = x.row(i);
    float *to = y.row(i);
    double sum = 0;
    for (int64_t c = 0; c < x.width; ++c)
      sum += double(from[c]);
    float mean = float(sum / double(x.width));
    for (int64_t c = 0; c < x.width; ++c)
      to[c] = from[c] - mean;
    float scale = inverseRms(to, x.width, eps);
    for (int64_t c = 0; c < x.width; ++c)
      to[c] = to[c] * scale * weight[size_t(c)] + bias[size_t(c)];
  });
  work.round(y);
  return y;
}

void add(const Work &work, const View &x, const View &y) {
  if (work.backend)
    return work.backend->add(work, x, y);
  forRows(work, x, 0.2, [&](int64_t i) {
    for (int64_t c = 0; c < x.width; ++c)
      x.row(i)[c] += y.row(i)[c];
  });
  work.round(x);
}

void addBias(const Work &work, const View &x, const Vector &bias) {
  if (work.backend)
    return work.backend->addBias(work, x, bias);
  forRows(work, x, 0.2, [&](int64_t i) {
    for (int64_t c = 0; c < x.width; ++c)
      x.row(i)[c] += bias[size_t(c)];
  });
  work.round(x);
}

void gated(const Work &work, const Activation &act, const View &g,
           const View &u) {
  if (work.backend)
    return work.backend->gated(work, act, g, u);
  forRows(work, g, 10, [&](int64_t i) {
    float *gate = g.row(i);
    const float *up = u.row(i);
    if (act.kind != Activation::SiTU) {
      for (int64_t c = 0; c < g.width; ++c)
        gate[c] = silu(gate[c]) * up[c];
      return;
    }
    for (int64_t c = 0; c < g.width; ++c) {
      float x = act.beta * std::tanh(gate[c] / act.beta) * sigmoid(gate[c]);
      float y =
          act.lambda > 0 ? act.lambda * std::tanh(up[c] / act.lambda) : up[c];
      gate[c] = x * y;
    }
  });
  work.round(g);
}

void activate(const Work &work, const Activation &act, const View &x) {
  if (work.backend)
    return work.backend->activate(work, act, x);
  constexpr float root = std::numbers::sqrt2_v<float>;
  const float factor = std::sqrt(2 / std::numbers::pi_v<float>);
  forRows(work, x, 10, [&](int64_t i) {
    for (float *v = x.row(i), *end = v + x.width; v < end; ++v)
      *v = act.kind == Activation::Gelu
               ? 0.5f * *v * (1 + std::erf(*v / root))
               : 0.5f * *v *
                     (1 + std::tanh(factor * (*v + 0.044715f * *v * *v * *v)));
  });
  work.round(x);
}

void gateRows(const Work &work, const View &x, const View &gate) {
  if (work.backend)
    return work.backend->gateRows(work, x, gate);
  for (int64_t t = 0; t < x.count; ++t)
    for (int64_t c = 0; c < x.width; ++c)
      x.row(t)[c] *= sigmoid(gate.row(t)[0]);
  work.round(x);
}

void gateSigmoid(const Work &work, const View &x, const View &gate) {
  if (work.backend)
    return work.backend->gateSigmoid(work, x, gate);
  forRows(work, x, 5, [&](int64_t i) {
    for (int64_t c = 0; c < x.width; ++c) {
      float factor = sigmoid(gate.row(i)[c]);
      if (work.compute == Compute::BF16)
        factor = bf16(factor);
      x.row(i)[c] *= factor;
    }
  });
  work.round(x);
}

void normThenGate(const Work &work, const View &o, const View &gate,
                  const Vector &weight, float eps, GateKind act) {
  if (work.backend)
    return work.backend->normThenGate(work, o, gate, weight, eps, act);
  int64_t width = int64_t(weight.size());
  forRows(work, o, 6, [&](int64_t i) {
    for (int64_t begin = 0; begin < o.width; begin += width) {
      float *x = o.row(i) + begin;
      const float *g = gate.row(i) + begin;
      float scale = inverseRms(x, width, eps);
      for (int64_t c = 0; c < width; ++c)
        x[c] = x[c] * scale * weight[size_t(c)] *
               (act == GateKind::Sigmoid ? sigmoid(g[c]) : silu(g[c]));
    }
  });
  work.round(o);
}

void gateThenNorm(const Work &work, const View &o, const View &gate,
                  const Vector &weight, float eps) {
  if (work.backend)
    return work.backend->gateThenNorm(work, o, gate, weight, eps);
  forRows(work, o, 6, [&](int64_t i) {
    float *x = o.row(i);
    for (int64_t c = 0; c < o.width; ++c)
      x[c] *= silu(gate.row(i)[c]);
    normalize(work, x, x, weight, eps);
  });
}

void rotate(const Work &work, const View &x, int64_t width, int64_t dims,
            double theta) {
  if (work.backend)
    return work.backend->rotate(work, x, width, dims, theta);
  int64_t half = dims / 2;
  for (const Span &span : work.spans)
    for (int64_t t = 0; t < span.length; ++t)
      for (int64_t c = 0; c < half; ++c) {
        double angle = double(span.past + t) *
                       std::pow(theta, -2.0 * double(c) / double(dims));
        float cosine = float(std::cos(angle)), sine = float(std::sin(angle));
        float *row = x.row(span.begin + t);
        for (int64_t head = 0; head < x.width; head += width) {
          float &a = row[head + c], &b = row[head + c + half];
          float turned = a * cosine - b * sine;
          b = b * cosine + a * sine;
          a = turned;
        }
      }
  work.round(x);
}

void pickHeads(const Work &work, const View &from, int64_t stride,
               int64_t begin, int64_t width, const View &to) {
  if (work.backend)
    return work.backend->pickHeads(work, from, stride, begin, width, to);
  for (int64_t t = 0; t < to.count; ++t)
    for (int64_t head = 0; head * width < to.width; ++head)
      std::copy_n(from.row(t) + head * stride + begin, width,
                  to.row(t) + head * width);
}

Rows mixture(const Work &work, std::span<const View> sources,
             const Vector &mixer) {
  if (work.backend)
    return work.backend->mixture(work, sources, mixer);
  int64_t count = sources[0].count, width = sources[0].width;
  Rows h(count, width);
  double cost = double(count * width) * double(sources.size());
  work.each(count, cost, [&](int, int64_t t) {
    std::vector<float> p;
    for (const View &source : sources) {
      const float *row = source.row(t);
      double squares = 0, dot = 0;
      for (int64_t c = 0; c < width; ++c) {
        squares += double(row[c]) * double(row[c]);
        dot += double(row[c]) * double(mixer[size_t(c)]);
      }
      p.push_back(float(dot / std::sqrt(squares / double(width) + 1e-5)));
    }
    float largest = *std::max_element(p.begin(), p.end()), sum = 0;
    for (float &value : p)
      sum += value = std::exp(value - largest);
    std::fill_n(h.row(t), width, 0.0f);
    for (size_t i = 0; i < sources.size(); ++i)
      for (int64_t c = 0; c < width; ++c)
        h.row(t)[c] += p[i] / sum * sources[i].row(t)[c];
  });
  work.round(h);
  return h;
}

} // namespace plum::model
