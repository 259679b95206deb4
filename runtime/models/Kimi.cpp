//===- Kimi.cpp - Kimi Linear and Kimi K3 ---------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three of four layers are KDA, the fourth MLA (Kimi Team, 2025,
// arXiv:2510.26692); the first layer's feed-forward part is dense, the others'
// are experts. Kimi Linear adds every part to a residual stream:
//
//   x += mix(RMSNorm(x));  x += feedForward(RMSNorm(x))
//
// Kimi K3 replaces that sum by attention over blocks of layers (arXiv:
// 2603.15031). The bank holds the stream as it was at the start of each block,
// and every part reads a softmax mixture of the bank and the stream of its own
// block:
//
//   h = mixture(bank, x);  at a block's start: push x on the bank, x = 0
//   x += mix(RMSNorm(h))
//   x += feedForward(RMSNorm(mixture(bank, x)))
//
// The bank belongs to the tokens of one forward pass: nothing of it is kept.
//
//===----------------------------------------------------------------------===//

#include "runtime/models/Kimi.h"

#include "runtime/model/Experts.h"

#include <algorithm>
#include <cmath>

namespace plum::model {

namespace {

using kimi::Kda;
using kimi::KdaSizes;
using kimi::Mla;
using kimi::MlaSizes;

/// norm.weight * proj.weight of an attention residual.
using Mixer = Vector;

struct Layer {
  bool recurrent = false; ///< KDA, else MLA.
  Kda kda;
  Mla mla;
  Vector inputNorm, postNorm;
  Mixer beforeAttention, beforeMlp; ///< K3.
  bool sparse = false;
  Mlp dense;
  Experts experts;

  Rows mix(const Work &work, const View &x) const {
    return recurrent ? kda.run(work, x) : mla.run(work, x);
  }
  Rows feedForward(const Work &work, const Activation &act,
                   const View &x) const {
    return sparse ? experts.run(work, x) : dense.run(work, act, x);
  }
};

class Kimi : public Network {
public:
  explicit Kimi(const Config &config);
  std::vector<MemorySpec> memories() const override {
    std::vector<MemorySpec> specs;
    for (bool isKda : {true, false})
      if (std::count(recurrent.begin(), recurrent.end(), isKda))
        specs.push_back(isKda ? kda.spec() : mla.spec());
    if (specs.back() == mla.spec())
      specs.push_back(mla.promptSpec());
    return specs;
  }
  void load(Build &build) override;
  Rows forward(const Work &work, Rows x) const override;

private:
  void readLayers(const Config &config);
  void readExperts(const Config &config);
  void loadExperts(Loader &load, Experts &e) const;
  Mixer loadMixer(Loader &load, const std::string &name) const;
  Rows residual(const Work &work, Rows x) const;
  Rows attentionResidual(const Work &work, Rows x) const;
  /// What a part of the network reads: the bank and x, mixed.
  Rows mixed(const Work &work, const std::vector<Rows> &bank, const View &x,
             const Mixer &mixer) const;

  std::string root; ///< Prefix of all names.
  KdaSizes kda;
  MlaSizes mla;
  Activation act;
  float eps;
  bool tied;
  std::vector<bool> recurrent, sparse; ///< By layer.
  int64_t inner;
  int64_t experts = 0, chosen = 1, shared = 0, expertInner = 1;
  int64_t latent = 0; ///< Width the experts work in; 0: hidden.
  bool latentNorm = false, renormalize = true;
  float scale = 1;
  int64_t block = 0; ///< Layers of a block of attention residuals; 0: none.

  std::vector<Layer> stack;
  Mixer beforeHead;
  Vector final;
};

Kimi::Kimi(const Config &outer) {
  bool wrapped = outer.has({"text_config"}); // K3 has a vision part beside it.
  Config config = wrapped ? outer.part("text_config") : outer;
  root = wrapped ? "language_model." : "";
  readSizes(config);
  eps = float(config.numberOr({"rms_norm_eps"}, 1e-5));
  tied = config.flagOr({"tie_word_embeddings"}, false);
  inner = config.dim({"intermediate_size"});
  block = config.dimOr({"attn_res_block_size"}, 0, maxCount);
  std::string name = config.textOr({"hidden_act"}, "silu");
  if (name == "situ") {
    act = {Activation::SiTU, float(config.number({"activation_situ_beta"})),
           float(config.numberOr({"activation_situ_linear_beta"}, 0))};
    if (!(act.beta > 0) || act.lambda < 0)
      config.error("activation_situ_beta", "and its relative must be positive");
  } else if (name != "silu") {
    config.error("hidden_act", "is '" + name + "', expected silu or situ");
  }
  readLayers(config);
  readExperts(config);
  if (std::count(recurrent.begin(), recurrent.end(), true))
    kda = KdaSizes(config);
  mla = MlaSizes(config);
  if (int64_t groups = config.dimOr({"num_key_value_heads"}, mla.heads);
      groups != mla.heads)
    config.error(
        "num_key_value_heads",
        "is " + std::to_string(groups) +
            ", expected num_attention_heads = " + std::to_string(mla.heads));
}

/// Which layers are KDA and which have experts: by lists of names
/// (transformers), or by lists of numbers that count from 1 (released).
void Kimi::readLayers(const Config &config) {
  std::vector<std::string> types = config.texts({"layer_types"});
  std::vector<std::string> parts = config.texts({"mlp_layer_types"});
  std::vector<int64_t> kdaLayers =
      config.part("linear_attn_config").integers({"kda_layers"}, 1, maxCount);
  int64_t firstSparse =
      config.integerOr({"first_k_dense_replace"}, 0, 0, maxCount);
  int64_t every = config.dimOr({"moe_layer_freq"}, 1, maxCount);
  for (const auto &[name, list] :
       {std::pair("layer_types", &types), {"mlp_layer_types", &parts}})
    if (!list->empty() && int64_t(list->size()) != layers)
      config.error(name, "has " + std::to_string(list->size()) +
                             " entries, expected num_hidden_layers = " +
                             std::to_string(layers));
  bool anyExperts = config.has({"num_experts"});
  for (int64_t l = 0; l < layers && !config.any(); ++l) {
    recurrent.push_back(types.empty() ? std::count(kdaLayers.begin(),
                                                   kdaLayers.end(), l + 1) > 0
                                      : types[size_t(l)] == "linear_attention");
    sparse.push_back(parts.empty()
                         ? anyExperts && l >= firstSparse && l % every == 0
                         : parts[size_t(l)] == "sparse");
  }
}

void Kimi::readExperts(const Config &config) {
  if (!std::count(sparse.begin(), sparse.end(), true))
    return;
  experts = config.dim({"num_experts"}, maxCount);
  chosen =
      config.dim({"num_experts_per_token", "num_experts_per_tok"}, maxCount);
  shared = config.integerOr({"num_shared_experts"}, 0, 0, 1024);
  expertInner = config.dim({"moe_intermediate_size"});
  latent = config.dimOr({"routed_expert_hidden_size"}, 0);
  latentNorm = config.flagOr({"latent_moe_use_norm"}, false);
  renormalize = config.flagOr({"moe_renormalize"}, true);
  scale = float(config.numberOr({"routed_scaling_factor"}, 1));
  config.onlyText("moe_router_activation_func", "sigmoid");
  if (config.dimOr({"num_expert_group"}, 1) != 1)
    config.error("num_expert_group", "is not 1, groups of experts are unknown");
  if (chosen > experts)
    config.error("num_experts_per_token",
                 "is " + std::to_string(chosen) + ", expected at most " +
                     "num_experts = " + std::to_string(experts));
}

Mixer Kimi::loadMixer(Loader &load, const std::string &name) const {
  Mixer mixer = load.vector(name + "_norm.weight", hidden);
  Vector proj = load.vector(name + "_proj.weight", hidden);
  for (size_t c = 0; c < proj.size() && c < mixer.size(); ++c)
    mixer[c] *= proj[c];
  return mixer;
}

Mlp loadMlp(Loader &load, const std::string &name, int64_t inner,
            int64_t hidden) {
  return {load.matrix(name + "gate_proj.weight", inner, hidden),
          load.matrix(name + "up_proj.weight", inner, hidden),
          load.matrix(name + "down_proj.weight", hidden, inner)};
}

void Kimi::loadExperts(Loader &load, Experts &e) const {
  e.act = act;
  e.router = load.matrix("gate.weight", experts, hidden);
  e.bias = load.vector("gate.e_score_correction_bias", experts);
  e.renormalize = renormalize;
  e.scale = scale;
  e.chosen = chosen;
  int64_t width = latent > 0 ? latent : hidden;
  for (int64_t i = 0; i < experts && !load.failed(); ++i) {
    std::string name = "experts." + std::to_string(i) + ".";
    e.experts.push_back({load.matrix(name + "w1.weight", expertInner, width),
                         load.matrix(name + "w3.weight", expertInner, width),
                         load.matrix(name + "w2.weight", width, expertInner)});
  }
  if (shared > 0)
    e.shared = loadMlp(load, "shared_experts.", shared * expertInner, hidden);
  if (latent > 0) {
    e.into = load.matrix("routed_expert_down_proj.weight", latent, hidden);
    e.back = load.matrix("routed_expert_up_proj.weight", hidden, latent);
    e.eps = eps;
    if (latentNorm)
      e.norm = load.vector("routed_expert_norm.weight", latent);
  }
}

void Kimi::load(Build &build) {
  Loader &load = build.weights;
  load.prefix = root + "model.";
  embedding = load.matrix("embed_tokens.weight", vocab, hidden);
  for (int64_t l = 0; l < layers && !load.failed(); ++l) {
    std::string name = "layers." + std::to_string(l) + ".";
    std::string prefix = root + "model." + name;
    Layer &layer = stack.emplace_back();
    layer.recurrent = recurrent[size_t(l)];
    layer.sparse = sparse[size_t(l)];
    load.prefix = prefix;
    layer.inputNorm = load.vector("input_layernorm.weight", hidden);
    layer.postNorm = load.vector("post_attention_layernorm.weight", hidden);
    if (block > 0) {
      layer.beforeAttention = loadMixer(load, "self_attention_res");
      layer.beforeMlp = loadMixer(load, "mlp_res");
    }
    load.prefix = prefix + "self_attn.";
    if (layer.recurrent)
      layer.kda.load(build, kda, name, hidden);
    else
      layer.mla.load(build, mla, name, hidden);
    load.prefix = prefix + "block_sparse_moe.";
    if (layer.sparse) {
      loadExperts(load, layer.experts);
    } else {
      // transformers keeps the name of the sparse part.
      if (!load.has("gate_proj.weight"))
        load.prefix = prefix + "mlp.";
      layer.dense = loadMlp(load, "", inner, hidden);
    }
  }
  load.prefix = root + "model.";
  if (block > 0)
    beforeHead = loadMixer(load, "output_attn_res");
  final = load.vector("norm.weight", hidden);
  load.prefix = root;
  loadHead(build, "lm_head.weight", tied);
}

Rows Kimi::mixed(const Work &work, const std::vector<Rows> &bank, const View &x,
                 const Mixer &mixer) const {
  std::vector<View> sources(bank.begin(), bank.end());
  sources.push_back(x);
  return mixture(work, sources, mixer);
}

Rows Kimi::residual(const Work &work, Rows x) const {
  for (size_t l = 0; l < stack.size(); ++l) {
    const Layer &layer = stack[l];
    add(work, x, layer.mix(work, rmsNorm(work, x, layer.inputNorm, eps)));
    add(work, x,
        layer.feedForward(work, act, rmsNorm(work, x, layer.postNorm, eps)));
    if (work.trace)
      work.trace(int64_t(l), x);
  }
  return rmsNorm(work, x, final, eps);
}

Rows Kimi::attentionResidual(const Work &work, Rows x) const {
  std::vector<Rows> bank;
  for (size_t l = 0; l < stack.size(); ++l) {
    const Layer &layer = stack[l];
    Rows h = bank.empty()
                 ? rmsNorm(work, x, layer.inputNorm, eps)
                 : rmsNorm(work, mixed(work, bank, x, layer.beforeAttention),
                           layer.inputNorm, eps);
    Rows part = layer.mix(work, h);
    if (int64_t(l) % block == 0) {
      bank.push_back(std::move(x)); // The stream itself, not the mixture.
      x = std::move(part);
    } else {
      add(work, x, part);
    }
    h = rmsNorm(work, mixed(work, bank, x, layer.beforeMlp), layer.postNorm,
                eps);
    add(work, x, layer.feedForward(work, act, h));
    if (work.trace)
      work.trace(int64_t(l), x);
  }
  return rmsNorm(work, mixed(work, bank, x, beforeHead), final, eps);
}

Rows Kimi::forward(const Work &work, Rows x) const {
  return block > 0 ? attentionResidual(work, std::move(x))
                   : residual(work, std::move(x));
}

} // namespace

std::unique_ptr<Network> makeKimi(const Config &config) {
  return std::make_unique<Kimi>(config);
}

} // namespace plum::model
