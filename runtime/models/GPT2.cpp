//===- GPT2.cpp - GPT-2 ---------------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
//
//   x = wte[id] + wpe[position]
//   x += attention(LN(x));  x += W2 gelu(W1 LN(x))
//
// Its memory is the list of all keys and values so far, docs/layers/attention.
// The checkpoint stores weights as [in, out]; released files leave out the
// prefix "transformer.".
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Attention.h"
#include "runtime/model/Elementwise.h"
#include "runtime/model/Network.h"

#include <cmath>

namespace plum::model {

namespace {

struct Linear {
  Matrix weight;
  Vector bias;

  Linear() = default;
  Linear(Loader &load, const std::string &name, int64_t out, int64_t in)
      : weight(load.transposed(name + ".weight", out, in)),
        bias(load.vector(name + ".bias", out)) {}
  Rows operator()(const Work &work, const View &x) const {
    Rows y = linear(work, x, weight);
    addBias(work, y, bias);
    return y;
  }
};

struct Norm {
  Vector weight, bias;
  float eps = 0;

  Norm() = default;
  Norm(Loader &load, const std::string &name, int64_t width, float eps)
      : weight(load.vector(name + ".weight", width)),
        bias(load.vector(name + ".bias", width)), eps(eps) {}
  Rows operator()(const Work &work, const View &x) const {
    return layerNorm(work, x, weight, bias, eps);
  }
};

struct Layer {
  Norm beforeAttention, beforeMlp;
  Linear qkv, out, up, down;
  Attention attention;
};

class Gpt2 : public Network {
public:
  explicit Gpt2(const Config &config);
  std::vector<MemorySpec> memories() const override { return {spec}; }
  void load(Build &build) override;
  Rows forward(const Work &work, Rows x) const override;

private:
  int64_t heads, inner;
  float eps;
  bool scaled, scaledByLayer, tied;
  MemorySpec spec;
  Activation act;

  Matrix places; ///< wpe [positions, hidden].
  std::vector<Layer> blocks;
  Norm final;
};

Gpt2::Gpt2(const Config &config) {
  vocab = config.dim({"vocab_size"}, int64_t(1) << 24);
  hidden = config.dim({"n_embd", "hidden_size"});
  layers = config.dim({"n_layer", "num_hidden_layers"}, maxCount);
  positions =
      config.dim({"n_positions", "max_position_embeddings"}, int64_t(1) << 24);
  heads = config.dim({"n_head", "num_attention_heads"});
  inner = config.dimOr({"n_inner"}, 4 * hidden, 4 * maxDim);
  eps = float(config.numberOr({"layer_norm_epsilon"}, 1e-5));
  scaled = config.flagOr({"scale_attn_weights"}, true);
  scaledByLayer = config.flagOr({"scale_attn_by_inverse_layer_idx"}, false);
  tied = config.flagOr({"tie_word_embeddings"}, true);
  config.onlyFlag("add_cross_attention", false);
  std::string name = config.textOr({"activation_function"}, "gelu_new");
  act.kind = name == "gelu" ? Activation::Gelu : Activation::GeluTanh;
  if (name != "gelu" && name != "gelu_new" && name != "gelu_pytorch_tanh")
    config.error("activation_function",
                 "is '" + name + "', expected gelu_new or gelu");
  if (hidden % heads != 0)
    config.error("n_head", "is " + std::to_string(heads) +
                               ", which does not divide n_embd = " +
                               std::to_string(hidden));
  else
    spec = Attention::spec(hidden / heads, hidden / heads);
}

void Gpt2::load(Build &build) {
  Loader &load = build.weights;
  std::string root = load.has("wte.weight") ? "" : "transformer.";
  load.prefix = root;
  embedding = load.matrix("wte.weight", vocab, hidden);
  places = load.matrix("wpe.weight", positions, hidden);
  for (int64_t l = 0; l < layers && !load.failed(); ++l) {
    std::string name = "h." + std::to_string(l) + ".";
    load.prefix = root + name;
    Layer &layer = blocks.emplace_back();
    layer.beforeAttention = Norm(load, "ln_1", hidden, eps);
    layer.beforeMlp = Norm(load, "ln_2", hidden, eps);
    layer.qkv = Linear(load, "attn.c_attn", 3 * hidden, hidden);
    layer.out = Linear(load, "attn.c_proj", hidden, hidden);
    layer.up = Linear(load, "mlp.c_fc", inner, hidden);
    layer.down = Linear(load, "mlp.c_proj", hidden, inner);
    int64_t dim = hidden / heads;
    Attention &attention = layer.attention;
    attention = {heads, heads, dim, dim,
                 scaled ? 1 / std::sqrt(float(dim)) : 1.0f};
    if (scaledByLayer)
      attention.scale /= float(l + 1);
    attention.load(build, name + "cache");
  }
  load.prefix = root;
  final = Norm(load, "ln_f", hidden, eps);
  load.prefix = "";
  loadHead(build, "lm_head.weight", tied);
}

Rows Gpt2::forward(const Work &work, Rows x) const {
  addPlaces(work, x, places);
  for (size_t l = 0; l < blocks.size(); ++l) {
    const Layer &layer = blocks[l];
    Rows qkv = layer.qkv(work, layer.beforeAttention(work, x));
    Rows o = layer.attention.run(work, qkv.columns(0, hidden),
                                 qkv.columns(hidden, hidden),
                                 qkv.columns(2 * hidden, hidden));
    add(work, x, layer.out(work, o));
    Rows h = layer.up(work, layer.beforeMlp(work, x));
    activate(work, act, h);
    add(work, x, layer.down(work, h));
    if (work.trace)
      work.trace(int64_t(l), x);
  }
  return final(work, x);
}

} // namespace

std::unique_ptr<Network> makeGpt2(const Config &config) {
  return std::make_unique<Gpt2>(config);
}

} // namespace plum::model
