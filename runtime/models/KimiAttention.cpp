//===- KimiAttention.cpp - KDA and MLA ------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// KDA:  q, k, v = silu(conv(W x));  f = W_fb W_fa x;  b = W_b x
//       o = memory(q, k, v, f, b)           docs/layers/kda.plum, kda_k3.plum
//       W_o (RMSNorm(o) * w * sigmoid(gate))
//
// MLA:  [c | k_pe] = W_kva x, c normed;  q = W_q x, or W_qb RMSNorm(W_qa x)
//       o = softmax(q [W_UK c | k_pe]^T / sqrt) W_UV c    docs/layers/mla.plum
//       W_o (o * sigmoid(W_g x)), the gate only in K3
//
//===----------------------------------------------------------------------===//

#include "runtime/models/Kimi.h"

#include <cmath>

namespace plum::model::kimi {

KdaSizes::KdaSizes(const Config &config) {
  Config part = config.part("linear_attn_config"); // As released; or flat.
  bool nested = config.has({"linear_attn_config"});
  const Config &from = nested ? part : config;
  heads = from.dim({nested ? "num_heads" : "linear_num_heads"});
  dim = from.dim({nested ? "head_dim" : "linear_head_dim"}, 4096);
  width = from.dimOr(
      {nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim"}, 4, 64);
  if (from.has({"gate_lower_bound"})) {
    bounded = true;
    if (double bound = from.number({"gate_lower_bound"}); bound != -5)
      from.error("gate_lower_bound",
                 "is " + std::to_string(bound) + ", expected -5");
  }
  fullGate = from.flagOr({"use_full_rank_gate"}, false);
  eps = float(config.numberOr({"rms_norm_eps"}, 1e-5));
}

void Kda::load(Build &build, const KdaSizes &sizes, const std::string &name,
               int64_t hidden) {
  Loader &load = build.weights;
  this->sizes = sizes;
  int64_t heads = sizes.heads, dim = sizes.dim, all = heads * dim;
  q = load.matrix("q_proj.weight", all, hidden);
  k = load.matrix("k_proj.weight", all, hidden);
  v = load.matrix("v_proj.weight", all, hidden);
  fDown = load.matrix("f_a_proj.weight", dim, hidden);
  fUp = load.matrix("f_b_proj.weight", all, dim);
  b = load.matrix("b_proj.weight", heads, hidden);
  if (sizes.fullGate) {
    gate = load.matrix("g_proj.weight", all, hidden);
  } else {
    gateDown = load.matrix("g_a_proj.weight", dim, hidden);
    gateUp = load.matrix("g_b_proj.weight", all, dim);
  }
  conv.width = sizes.width;
  for (const char *part : {"q_conv1d", "k_conv1d", "v_conv1d"})
    conv.addChannels(
        load.vector(std::string(part) + ".weight", all * sizes.width), all);
  conv.state = build.states.addFixed(name + "conv", {sizes.width - 1, 3 * all});
  // A_log is one per head; K3 stores zeros after them.
  std::vector<Vector> params{load.padded("A_log", heads),
                             load.vector("dt_bias", all)};
  memory =
      build.memory(sizes.spec(), name + "memory", heads, std::move(params));
  norm = load.vector("o_norm.weight", dim);
  out = load.matrix("o_proj.weight", hidden, all);
}

Rows Kda::run(const Work &work, const View &x) const {
  int64_t heads = sizes.heads, all = heads * sizes.dim;
  const Matrix &gateFirst = sizes.fullGate ? gate : gateDown;
  Rows raw = work.rows(x.count, 3 * all), f = work.rows(x.count, all);
  Rows fLow = work.rows(x.count, fDown.rows);
  Rows strength = work.rows(x.count, heads);
  Rows g = work.rows(x.count, gateFirst.rows);
  Product first[] = {{x, &q, raw.columns(0, all)},
                     {x, &k, raw.columns(all, all)},
                     {x, &v, raw.columns(2 * all, all)},
                     {x, &fDown, fLow},
                     {x, &b, strength},
                     {x, &gateFirst, g}};
  multiply(work, first);
  if (sizes.fullGate) {
    Product second[] = {{fLow, &fUp, f}};
    multiply(work, second);
  } else {
    Rows wide = work.rows(x.count, all);
    Product second[] = {{fLow, &fUp, f}, {g, &gateUp, wide}};
    multiply(work, second);
    g = std::move(wide);
  }
  Rows mixed = conv.run(work, raw);
  Rows o = memory.run(work, {{mixed.columns(0, all), heads},
                             {mixed.columns(all, all), heads},
                             {mixed.columns(2 * all, all), heads},
                             {f, heads},
                             {strength, heads}});
  work.round(o);
  normThenGate(work, o, g, norm, sizes.eps, GateKind::Sigmoid);
  return linear(work, o, out);
}

MlaSizes::MlaSizes(const Config &config) {
  heads = config.dim({"num_attention_heads"});
  latent = config.dim({"kv_lora_rank"});
  nope = config.dim({"qk_nope_head_dim"}, 4096);
  pe = config.dim({"qk_rope_head_dim"}, 4096);
  valueDim = config.dim({"v_head_dim"}, 4096);
  queryRank = config.dimOr({"q_lora_rank"}, 0);
  gated = config.flagOr({"mla_use_output_gate"}, false);
  config.onlyFlag("mla_use_nope", true);
  config.onlyFlag("attention_bias", false);
}

void Mla::load(Build &build, const MlaSizes &sizes, const std::string &name,
               int64_t hidden) {
  Loader &load = build.weights;
  this->sizes = sizes;
  int64_t queries = sizes.heads * (sizes.nope + sizes.pe);
  int64_t values = sizes.heads * sizes.valueDim;
  if (sizes.queryRank > 0) {
    qDown = load.matrix("q_a_proj.weight", sizes.queryRank, hidden);
    qNorm = load.vector("q_a_layernorm.weight", sizes.queryRank);
    qUp = load.matrix("q_b_proj.weight", queries, sizes.queryRank);
  } else {
    q = load.matrix("q_proj.weight", queries, hidden);
  }
  latent =
      load.matrix("kv_a_proj_with_mqa.weight", sizes.latent + sizes.pe, hidden);
  latentNorm = load.vector("kv_a_layernorm.weight", sizes.latent);
  if (sizes.gated)
    gate = load.matrix("g_proj.weight", values, hidden);
  out = load.matrix("o_proj.weight", hidden, values);
  attention.heads = sizes.heads;
  attention.latent = sizes.latent;
  attention.nope = sizes.nope;
  attention.pe = sizes.pe;
  attention.valueDim = sizes.valueDim;
  attention.scale = 1 / std::sqrt(float(sizes.nope + sizes.pe));
  attention.expand =
      load.matrix("kv_b_proj.weight",
                  sizes.heads * (sizes.nope + sizes.valueDim), sizes.latent);
  attention.load(build, name + "cache");
}

Rows Mla::run(const Work &work, const View &x) const {
  const Matrix &first = sizes.queryRank > 0 ? qDown : q;
  Rows query = work.rows(x.count, first.rows);
  Rows rows = work.rows(x.count, latent.rows);
  std::vector<Product> products{{x, &first, query}, {x, &latent, rows}};
  Rows g = work.rows(x.count, sizes.gated ? gate.rows : 0);
  if (sizes.gated)
    products.push_back({x, &gate, g});
  multiply(work, products);
  if (sizes.queryRank > 0)
    query = linear(work, rmsNorm(work, query, qNorm, lowRankEps), qUp);
  rmsNormHeads(work, rows.columns(0, sizes.latent), latentNorm, lowRankEps);
  Rows o = attention.run(work, query, rows);
  if (sizes.gated)
    gateSigmoid(work, o, g);
  return linear(work, o, out);
}

} // namespace plum::model::kimi
