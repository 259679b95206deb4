//===- Elementwise.h - Norms, activations, gates ----------------*- C++ -*-===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What happens to a row by itself. Sums are f32. Bf16 points (Work.h) are where
// the models' released code has them.
//
//===----------------------------------------------------------------------===//

#ifndef PLUM_RUNTIME_MODEL_ELEMENTWISE_H
#define PLUM_RUNTIME_MODEL_ELEMENTWISE_H

#include "runtime/model/Work.h"

#include <string>

namespace plum::model {

/// The rows of a table that the batch's tokens name.
Rows embed(const Work &work, const Matrix &table, std::span<const int32_t> ids);
/// x[t] += the row of a table for the token's position.
void addPlaces(const Work &work, const View &x, const Matrix &table);

float sigmoid(float x);
float silu(float x);

/// weight * (x * rsqrt(mean x^2 + eps)); rounds before the weight and after.
Rows rmsNorm(const Work &work, const View &x, const Vector &weight, float eps);
/// The same, in place on slices of weight.size() columns each.
void rmsNormHeads(const Work &work, const View &x, const Vector &weight,
                  float eps);
Rows layerNorm(const Work &work, const View &x, const Vector &weight,
               const Vector &bias, float eps);

/// x += y.
void add(const Work &work, const View &x, const View &y);
/// x[t] += bias.
void addBias(const Work &work, const View &x, const Vector &bias);

struct Activation {
  enum Kind : uint8_t {
    GeluTanh,
    Gelu,
    SiLU, ///< act(g) * u
    SiTU  ///< beta tanh(g / beta) sigmoid(g) * lambda tanh(u / lambda)
  };
  Kind kind = SiLU;
  float beta = 0, lambda = 0; ///< SiTU; lambda 0: u as it is.
};
/// g = act(g) * u, in f32 with one rounding.
void gated(const Work &work, const Activation &act, const View &g,
           const View &u);
/// x = act(x): one of the GELUs.
void activate(const Work &work, const Activation &act, const View &x);

/// x[t] *= sigmoid(gate[t]), one gate for each row.
void gateRows(const Work &work, const View &x, const View &gate);
/// x *= sigmoid(gate).
void gateSigmoid(const Work &work, const View &x, const View &gate);
enum class GateKind : uint8_t { Sigmoid, SiLU };
/// Each head of o (weight.size() columns): o = RMSNorm(o) * weight * act(gate),
/// in f32 with one rounding.
void normThenGate(const Work &work, const View &o, const View &gate,
                  const Vector &weight, float eps, GateKind act);
/// Whole rows: o = RMSNorm(o * silu(gate)) * weight, as Mamba-2 has it.
void gateThenNorm(const Work &work, const View &o, const View &gate,
                  const Vector &weight, float eps);

/// Rotates the first `dims` columns of every head (`width` columns each) by the
/// angles of a row's position: column i with i + dims / 2, by
/// position * theta^(-2 i / dims).
void rotate(const Work &work, const View &x, int64_t width, int64_t dims,
            double theta);

/// A part of every head: to[t] has heads of `width` columns, head h of them
/// from[t][h * stride + begin ...].
void pickHeads(const Work &work, const View &from, int64_t stride,
               int64_t begin, int64_t width, const View &to);

/// Softmax over sources, for each row by itself, scored by their normed product
/// with the mixer; the values are the rows as they are.
Rows mixture(const Work &work, std::span<const View> sources,
             const Vector &mixer);

} // namespace plum::model

#endif // PLUM_RUNTIME_MODEL_ELEMENTWISE_H
