//===- ToyAttention.cpp - A layer whose states grow -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToyAttention.h"

#include "runtime/Inputs.h"

#include <algorithm>
#include <cmath>

namespace plum::runtime::test {

static constexpr const char *spec = R"(# What toy_kernel.c computes as well.
layer toy_attention(K = 4, V = 3) {
  param  scale  : f32
  input  q, k   : [K] f32
  input  v      : [V] bf16
  state  keys   : [*, K] f32
  state  z      : [K] f32
  state  values : [*, V] f32

  keys   = append(keys, k)
  values = append(values, v)
  z += k
  output o : [V] f32 = attend(scale * q, keys, values)
  output n : f32 = sum(q * z)
}
)";

static constexpr const char *listsSpec = R"(
layer toy_lists(K = 4, V = 3) {
  param  scale  : f32
  input  q, k   : [K] f32
  input  v      : [V] bf16
  state  keys   : [*, K] f32
  state  values : [*, V] f32

  keys   = append(keys, k)
  values = append(values, v)
  output o : [V] f32 = attend(scale * q, keys, values)
}
)";

Manifest attentionManifest() {
  Manifest manifest = toyManifest();
  manifest.layer = "toy_attention";
  manifest.params = {{"scale", {}, DType::F32, DType::F32}};
  manifest.inputs.pop_back(); // g
  manifest.states = {{"keys", {K}, DType::F32, DType::F32, true, "k"},
                     {"z", {K}, DType::F32, DType::F32},
                     {"values", {V}, DType::F32, DType::F32, true, "v"}};
  manifest.logDecays = {};
  manifest.kernels = {
      {KernelForm::Step, 1, "toy_attend_step", 200, 0, {}},
      {KernelForm::Chunk, 4, "toy_attend_chunk4", 200, 100, {}}};
  return manifest;
}

Manifest listsManifest() {
  Manifest manifest = attentionManifest();
  manifest.layer = "toy_lists";
  manifest.states.erase(manifest.states.begin() + 1);
  manifest.outputs.pop_back(); // n
  manifest.kernels[0].symbol = "toy_lists_step";
  manifest.kernels[1].symbol = "toy_lists_chunk4";
  return manifest;
}

void writeAttentionBundle(const std::string &directory,
                          const Manifest &manifest) {
  writeToyBundle(directory, manifest);
  writeFile(directory + "/spec.plum",
            manifest.layer == "toy_lists" ? listsSpec : spec);
}

static float normal(uint32_t tid, size_t i) {
  return float(portableNormal(3, tid, uint32_t(i)));
}

AttentionTensors::AttentionTensors(int64_t batch, int64_t tokens, int64_t heads)
    : batch(batch), tokens(tokens), heads(heads) {
  auto count = size_t(batch * tokens * heads);
  for (size_t i = 0; i < count * size_t(K); ++i) {
    q.push_back(normal(1, i));
    k.push_back(normal(2, i));
  }
  for (size_t i = 0; i < count * size_t(V); ++i)
    v.push_back(floatToBf16(normal(3, i)));
  for (size_t i = 0; i < size_t(heads); ++i)
    scale.push_back(0.5f + 0.25f * float(i));
  o.assign(count * size_t(V), 777);
  n.assign(count, 777);
}

RunArgs AttentionTensors::args() {
  auto rows = [&](auto &data, DType dtype, int64_t d) {
    return TensorView::dense(data.data(), dtype, batch, tokens, heads, d);
  };
  RunArgs args;
  args.inputs = {rows(q, DType::F32, K), rows(k, DType::F32, K),
                 rows(v, DType::BF16, V)};
  args.params = {TensorView::dense(scale.data(), DType::F32, 1, 1, heads, 1)};
  args.outputs = {rows(o, DType::F32, V), rows(n, DType::F32, 1)};
  return args;
}

void AttentionTensors::truth(int64_t b, int64_t begin, int64_t end,
                             int64_t head, AttentionHead &state,
                             std::vector<double> &outO,
                             std::vector<double> &outN) const {
  for (int64_t t = begin; t < end; ++t) {
    auto row = size_t((b * tokens + t) * heads + head);
    const float *query = &q[row * K];
    outN[row] = 0;
    for (size_t c = 0; c < K; ++c) {
      state.keys.push_back(k[row * K + c]);
      state.z[c] += k[row * K + c];
      outN[row] += query[c] * state.z[c];
    }
    for (size_t c = 0; c < V; ++c) {
      state.values.push_back(bf16ToFloat(v[row * V + c]));
      outO[row * V + c] = 0;
    }
    double sum = 0;
    for (size_t r = 0; r < state.keys.size() / K; ++r) {
      double score = 0;
      for (size_t c = 0; c < K; ++c)
        score += scale[size_t(head)] * query[c] * state.keys[r * K + c];
      sum += score = std::exp(score);
      for (size_t c = 0; c < V; ++c)
        outO[row * V + c] += score * state.values[r * V + c];
    }
    for (size_t c = 0; c < V; ++c)
      outO[row * V + c] /= sum;
  }
}

AttentionStates::AttentionStates(int64_t count, int64_t heads, int64_t room)
    : count(count), heads(heads), room(room),
      keys(size_t(count * heads * room * K), 777),
      z(size_t(count * heads * K), 777),
      values(size_t(count * heads * room * V), 777) {}

std::vector<TensorView> AttentionStates::views() {
  return {TensorView::dense(keys.data(), DType::F32, count, heads, room, K),
          TensorView::dense(z.data(), DType::F32, count, heads, 1, K),
          TensorView::dense(values.data(), DType::F32, count, heads, room, V)};
}

void AttentionStates::fill(int64_t n, int64_t rows) {
  for (int64_t h = 0; h < heads; ++h) {
    auto pair = size_t(n * heads + h);
    for (size_t i = 0; i < size_t(rows * K); ++i)
      keys[pair * size_t(room * K) + i] = normal(6, pair * 1000 + i);
    for (size_t i = 0; i < size_t(rows * V); ++i)
      values[pair * size_t(room * V) + i] = normal(7, pair * 1000 + i);
    for (size_t i = 0; i < K; ++i)
      z[pair * K + i] = normal(8, pair * 1000 + i);
  }
}

AttentionHead AttentionStates::head(int64_t n, int64_t h, int64_t rows) const {
  auto part = [&](const std::vector<float> &from, int64_t begin,
                  int64_t length) {
    return std::vector<double>(from.begin() + begin,
                               from.begin() + begin + length);
  };
  int64_t pair = n * heads + h;
  return {part(keys, pair * room * K, rows * K),
          part(values, pair * room * V, rows * V), part(z, pair * K, K)};
}

ToyFile attentionFile(const AttentionTensors &x) {
  ToyFile file;
  file.set("q", DType::F32, {x.tokens, x.heads, K}, x.q);
  file.set("k", DType::F32, {x.tokens, x.heads, K}, x.k);
  file.set("v", DType::BF16, {x.tokens, x.heads, V}, x.v);
  file.set("scale", DType::F32, {x.heads}, x.scale);
  return file;
}

} // namespace plum::runtime::test
