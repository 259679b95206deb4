//===- Qwen3Next.cpp - Gated DeltaNet with gated attention ----------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three of four layers remember by the gated delta rule (Yang, Kautz,
// Hatamizadeh, 2024, arXiv:2412.06464), the fourth by softmax attention:
//
//   x += mix(RMSNorm(x));  x += experts(RMSNorm(x))
//
//   delta:      q, k, v = silu(conv(W x));  o = memory(q, k, v, a, b)
//               W_out (RMSNorm(o) * w * silu(z))     docs/layers/gated_deltanet
//   attention:  W_out (softmax(q k^T) v * sigmoid(gate)), q and k normed per
//               head, the first dims rotated              docs/layers/attention
//
// Several value heads share one key head, in attention several queries one head
// of keys and values. Norm weights of the residual stream
// are stored as w - 1.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"
#include "runtime/model/Conv.h"
#include "runtime/model/Experts.h"
#include "runtime/model/Network.h"

#include <algorithm>
#include <cmath>

namespace plum::model {

namespace {

struct DeltaWeights {
  Matrix qkvz, ba, out;
  ShortConv conv;
  MemoryLayer memory;
  Vector norm;
};

struct AttentionWeights {
  Matrix q, k, v, out; ///< q: per head [query | gate].
  Vector qNorm, kNorm;
  Attention attention;
};

struct Layer {
  bool full = false;
  Vector inputNorm, postNorm;
  DeltaWeights delta;
  AttentionWeights attention;
  bool sparse = true;
  Experts experts;
  Mlp dense;
};

class Qwen3Next : public Network {
public:
  explicit Qwen3Next(const Config &config);
  std::vector<MemorySpec> memories() const override;
  void load(Build &build) override;
  Rows forward(const Work &work, Rows x) const override;

private:
  void readAttention(const Config &config);
  void readExperts(const Config &config);
  DeltaWeights loadDelta(Build &build, const std::string &name);
  AttentionWeights loadAttention(Build &build, const std::string &name);
  void loadFeedForward(Build &build, Layer &layer);
  Rows delta(const Work &work, const DeltaWeights &w, const View &x) const;
  Rows attend(const Work &work, const AttentionWeights &w, const View &x) const;

  std::vector<bool> full;   ///< Layer has softmax attention.
  std::vector<bool> sparse; ///< Layer has experts.
  int64_t keyHeads, valueHeads, keyDim, valueDim, width; ///< Delta.
  int64_t heads, groups, dim, rotary;                    ///< Attention.
  double theta;
  int64_t inner, experts, chosen, expertInner, sharedInner;
  bool renormalize, tied;
  float eps;
  MemorySpec spec;

  std::vector<Layer> blocks;
  Vector final;
};

Qwen3Next::Qwen3Next(const Config &config) {
  readSizes(config);
  eps = float(config.numberOr({"rms_norm_eps"}, 1e-6));
  tied = config.flagOr({"tie_word_embeddings"}, false);
  config.onlyText("hidden_act", "silu");
  config.onlyFlag("attention_bias", false);
  keyHeads = config.dim({"linear_num_key_heads"});
  valueHeads = config.dim({"linear_num_value_heads"});
  keyDim = config.dim({"linear_key_head_dim"}, 4096);
  valueDim = config.dim({"linear_value_head_dim"}, 4096);
  width = config.dimOr({"linear_conv_kernel_dim"}, 4, 64);
  if (valueHeads % keyHeads != 0)
    config.error("linear_num_key_heads",
                 "is " + std::to_string(keyHeads) + ", which does not divide " +
                     "linear_num_value_heads = " + std::to_string(valueHeads));
  spec = {"gated_deltanet", {{"K", keyDim}, {"V", valueDim}}};
  readAttention(config);
  readExperts(config);
}

std::vector<MemorySpec> Qwen3Next::memories() const {
  std::vector<MemorySpec> specs;
  for (bool softmax : {false, true})
    if (std::count(full.begin(), full.end(), softmax))
      specs.push_back(softmax ? Attention::spec(dim, dim) : spec);
  return specs;
}

void Qwen3Next::readAttention(const Config &config) {
  heads = config.dim({"num_attention_heads"});
  groups = config.dimOr({"num_key_value_heads"}, heads);
  dim = config.dim({"head_dim"}, 4096);
  if (heads % groups != 0)
    config.error("num_key_value_heads",
                 "is " + std::to_string(groups) +
                     ", which does not divide num_attention_heads = " +
                     std::to_string(heads));
  Config rope = config.part("rope_parameters");
  rope.onlyText("rope_type", "default");
  theta = rope.numberOr({"rope_theta"}, config.numberOr({"rope_theta"}, 1e4));
  double part = rope.numberOr({"partial_rotary_factor"},
                              config.numberOr({"partial_rotary_factor"}, 0.25));
  rotary = part > 0 && part <= 1 ? int64_t(double(dim) * part) / 2 * 2 : 0;
  std::vector<std::string> types = config.texts({"layer_types"});
  int64_t every = config.dimOr({"full_attention_interval"}, 4, maxCount);
  if (!types.empty() && int64_t(types.size()) != layers)
    config.error("layer_types", "has " + std::to_string(types.size()) +
                                    " entries, expected num_hidden_layers = " +
                                    std::to_string(layers));
  for (int64_t l = 0; l < layers && !config.any(); ++l)
    full.push_back(types.empty() ? (l + 1) % every == 0
                                 : types[size_t(l)] == "full_attention");
}

void Qwen3Next::readExperts(const Config &config) {
  experts = config.integerOr({"num_experts"}, 0, 0, maxCount);
  inner = config.dim({"intermediate_size"});
  chosen = config.dimOr({"num_experts_per_tok"}, 1, maxCount);
  expertInner = config.dimOr({"moe_intermediate_size"}, 1);
  sharedInner = config.dimOr({"shared_expert_intermediate_size"}, 1);
  renormalize = config.flagOr({"norm_topk_prob"}, true);
  int64_t step = config.dimOr({"decoder_sparse_step"}, 1, maxCount);
  std::vector<int64_t> dense =
      config.integers({"mlp_only_layers"}, 0, maxCount);
  for (int64_t l = 0; l < layers && !config.any(); ++l)
    sparse.push_back(experts > 0 && (l + 1) % step == 0 &&
                     std::count(dense.begin(), dense.end(), l) == 0);
  if (experts > 0 && chosen > experts)
    config.error(
        "num_experts_per_tok",
        "is " + std::to_string(chosen) +
            ", expected at most num_experts = " + std::to_string(experts));
}

/// A norm weight that is stored as w - 1.
Vector plusOne(Vector weight) {
  for (float &value : weight)
    value += 1;
  return weight;
}

Mlp loadMlp(Loader &load, const std::string &name, int64_t inner,
            int64_t hidden) {
  return {load.matrix(name + "gate_proj.weight", inner, hidden),
          load.matrix(name + "up_proj.weight", inner, hidden),
          load.matrix(name + "down_proj.weight", hidden, inner)};
}

DeltaWeights Qwen3Next::loadDelta(Build &build, const std::string &name) {
  Loader &load = build.weights;
  int64_t keys = keyHeads * keyDim, values = valueHeads * valueDim;
  DeltaWeights w;
  w.qkvz = load.matrix("in_proj_qkvz.weight", 2 * keys + 2 * values, hidden);
  w.ba = load.matrix("in_proj_ba.weight", 2 * valueHeads, hidden);
  w.out = load.matrix("out_proj.weight", hidden, values);
  w.conv.width = width;
  int64_t channels = 2 * keys + values;
  w.conv.addChannels(load.vector("conv1d.weight", channels * width), channels);
  w.conv.state = build.states.addFixed(name + "conv", {width - 1, channels});
  w.norm = load.vector("norm.weight", valueDim);
  std::vector<Vector> params{load.vector("A_log", valueHeads),
                             load.vector("dt_bias", valueHeads)};
  w.memory = build.memory(spec, name + "memory", valueHeads, std::move(params));
  return w;
}

AttentionWeights Qwen3Next::loadAttention(Build &build,
                                          const std::string &name) {
  Loader &load = build.weights;
  AttentionWeights w;
  w.q = load.matrix("q_proj.weight", heads * dim * 2, hidden);
  w.k = load.matrix("k_proj.weight", groups * dim, hidden);
  w.v = load.matrix("v_proj.weight", groups * dim, hidden);
  w.out = load.matrix("o_proj.weight", hidden, heads * dim);
  w.qNorm = plusOne(load.vector("q_norm.weight", dim));
  w.kNorm = plusOne(load.vector("k_norm.weight", dim));
  w.attention = {heads, groups, dim, dim, 1 / std::sqrt(float(dim))};
  w.attention.load(build, name + "cache");
  return w;
}

void Qwen3Next::loadFeedForward(Build &build, Layer &layer) {
  Loader &load = build.weights;
  if (!layer.sparse) {
    layer.dense = loadMlp(load, "", inner, hidden);
    return;
  }
  Experts &e = layer.experts;
  e.router = load.matrix("gate.weight", experts, hidden);
  e.score = Experts::Softmax;
  e.renormalize = renormalize;
  e.chosen = chosen;
  for (int64_t i = 0; i < experts && !load.failed(); ++i)
    e.experts.push_back(loadMlp(load, "experts." + std::to_string(i) + ".",
                                expertInner, hidden));
  e.shared = loadMlp(load, "shared_expert.", sharedInner, hidden);
  e.sharedGate = load.matrix("shared_expert_gate.weight", 1, hidden);
}

void Qwen3Next::load(Build &build) {
  Loader &load = build.weights;
  load.prefix = "model.";
  embedding = load.matrix("embed_tokens.weight", vocab, hidden);
  for (int64_t l = 0; l < layers && !load.failed(); ++l) {
    std::string name = "layers." + std::to_string(l) + ".";
    Layer &layer = blocks.emplace_back();
    layer.full = full[size_t(l)];
    layer.sparse = sparse[size_t(l)];
    load.prefix = "model." + name;
    layer.inputNorm = plusOne(load.vector("input_layernorm.weight", hidden));
    layer.postNorm =
        plusOne(load.vector("post_attention_layernorm.weight", hidden));
    load.prefix =
        "model." + name + (layer.full ? "self_attn." : "linear_attn.");
    if (layer.full)
      layer.attention = loadAttention(build, name);
    else
      layer.delta = loadDelta(build, name);
    load.prefix = "model." + name + "mlp.";
    loadFeedForward(build, layer);
  }
  load.prefix = "model.";
  final = plusOne(load.vector("norm.weight", hidden));
  load.prefix = "";
  loadHead(build, "lm_head.weight", tied);
}

Rows Qwen3Next::delta(const Work &work, const DeltaWeights &w,
                      const View &x) const {
  Rows qkvz = work.rows(x.count, w.qkvz.rows);
  Rows ba = work.rows(x.count, w.ba.rows);
  Product both[] = {{x, &w.qkvz, qkvz}, {x, &w.ba, ba}};
  multiply(work, both);
  // Stored by key head: [q | k | its values | their z], [its b | its a].
  int64_t keys = keyHeads * keyDim, values = valueHeads * valueDim;
  int64_t share = valueHeads / keyHeads, own = share * valueDim;
  int64_t wide = 2 * keyDim + 2 * own;
  Rows qkv = work.rows(x.count, 2 * keys + values);
  Rows z = work.rows(x.count, values);
  Rows a = work.rows(x.count, valueHeads), b = work.rows(x.count, valueHeads);
  auto pick = [&](int64_t begin, int64_t width, const View &to) {
    pickHeads(work, qkvz, wide, begin, width, to);
  };
  pick(0, keyDim, qkv.columns(0, keys));
  pick(keyDim, keyDim, qkv.columns(keys, keys));
  pick(2 * keyDim, own, qkv.columns(2 * keys, values));
  pick(2 * keyDim + own, own, z);
  pickHeads(work, ba, 2 * share, 0, share, b);
  pickHeads(work, ba, 2 * share, share, share, a);
  Rows mixed = w.conv.run(work, qkv);
  View q = mixed.columns(0, keys), k = mixed.columns(keys, keys);
  View v = mixed.columns(2 * keys, values);
  Rows o = w.memory.run(work, {{q, keyHeads},
                               {k, keyHeads},
                               {v, valueHeads},
                               {a, valueHeads},
                               {b, valueHeads}});
  work.round(o);
  normThenGate(work, o, z, w.norm, eps, GateKind::SiLU);
  return linear(work, o, w.out);
}

Rows Qwen3Next::attend(const Work &work, const AttentionWeights &w,
                       const View &x) const {
  Rows both = work.rows(x.count, w.q.rows);
  Rows k = work.rows(x.count, w.k.rows), v = work.rows(x.count, w.v.rows);
  Product products[] = {{x, &w.q, both}, {x, &w.k, k}, {x, &w.v, v}};
  multiply(work, products);
  Rows q = work.rows(x.count, heads * dim);
  Rows gate = work.rows(x.count, heads * dim);
  pickHeads(work, both, 2 * dim, 0, dim, q);
  pickHeads(work, both, 2 * dim, dim, dim, gate);
  rmsNormHeads(work, q, w.qNorm, eps);
  rmsNormHeads(work, k, w.kNorm, eps);
  rotate(work, q, dim, rotary, theta);
  rotate(work, k, dim, rotary, theta);
  Rows o = w.attention.run(work, q, k, v);
  gateSigmoid(work, o, gate);
  return linear(work, o, w.out);
}

Rows Qwen3Next::forward(const Work &work, Rows x) const {
  for (size_t l = 0; l < blocks.size(); ++l) {
    const Layer &layer = blocks[l];
    Rows h = rmsNorm(work, x, layer.inputNorm, eps);
    add(work, x,
        layer.full ? attend(work, layer.attention, h)
                   : delta(work, layer.delta, h));
    h = rmsNorm(work, x, layer.postNorm, eps);
    add(work, x,
        layer.sparse ? layer.experts.run(work, h)
                     : layer.dense.run(work, {}, h));
    if (work.trace)
      work.trace(int64_t(l), x);
  }
  return rmsNorm(work, x, final, eps);
}

} // namespace

std::unique_ptr<Network> makeQwen3Next(const Config &config) {
  return std::make_unique<Qwen3Next>(config);
}

} // namespace plum::model
