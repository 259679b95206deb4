//===- Plain.cpp - A plain network around any layer -----------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For a layer that no released architecture has: the usual pre-norm network,
// with the spec that config.json names ("layer", and its "layer_dims") as what
// mixes tokens.
//
//   x += W_o (RMSNorm(memory(inputs)) * w), normed per head
//   x += W_down (silu(W_gate h) * W_up h),   h = RMSNorm(x)
//
// Every input of the spec is a projection of RMSNorm(x), `inputs.NAME.weight`;
// those listed in "conv_inputs" go through a short convolution. Every param of
// the spec is a tensor of its name, one row per head.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Conv.h"
#include "runtime/model/Experts.h"
#include "runtime/model/Network.h"

#include <algorithm>

namespace plum::model {

namespace {

/// One input of the spec, for all heads.
struct Input {
  Matrix weight;
  bool convolved = false;
};

struct Layer {
  Vector mixNorm, mlpNorm, outNorm;
  std::vector<Input> inputs; ///< In the spec's order.
  ShortConv conv;            ///< Channels of the convolved inputs, in order.
  MemoryLayer memory;
  Matrix out;
  Mlp mlp;
};

class Plain : public Network {
public:
  explicit Plain(const Config &config);
  std::vector<MemorySpec> memories() const override { return {spec}; }
  void load(Build &build) override;
  Rows forward(const Work &work, Rows x) const override;

private:
  void loadMixer(Build &build, Layer &layer, const std::string &name) const;
  Rows mix(const Work &work, const Layer &layer, const View &x) const;

  MemorySpec spec;
  int64_t heads, inner, width;
  std::vector<std::string> convolved;
  float eps;
  bool tied;

  std::vector<Layer> blocks;
  Vector final;
};

Plain::Plain(const Config &config) {
  readSizes(config);
  heads = config.dim({"num_heads"});
  inner = config.dim({"intermediate_size"});
  width = config.dimOr({"conv_kernel"}, 4, 64);
  convolved = config.texts({"conv_inputs"});
  eps = float(config.numberOr({"rms_norm_eps"}, 1e-5));
  tied = config.flagOr({"tie_word_embeddings"}, false);
  config.onlyText("hidden_act", "silu");
  spec.layer = config.textOr({"layer"}, "");
  Config dims = config.part("layer_dims");
  for (const char *name : {"K", "V"})
    spec.dims[name] = dims.dim({name}, 4096);
  if (!config.any() && spec.text().empty())
    config.error("layer", "is '" + spec.layer +
                              "', which is no layer that this runtime has");
}

void Plain::loadMixer(Build &build, Layer &layer,
                      const std::string &name) const {
  Loader &load = build.weights;
  auto kernel = build.kernels.find(spec.key());
  if (kernel == build.kernels.end())
    return;
  const runtime::Manifest &manifest = kernel->second->manifest();
  if (manifest.outputs.size() != 1) {
    load.error({"config.json",
                "'layer' is '" + spec.layer + "', which has " +
                    std::to_string(manifest.outputs.size()) +
                    " outputs, expected one",
                {}});
    return;
  }
  std::vector<std::string> unknown = convolved;
  int64_t channels = 0;
  for (const runtime::ManifestTensor &input : manifest.inputs) {
    int64_t wide = heads * input.elements();
    Input &one = layer.inputs.emplace_back();
    one.weight = load.matrix("inputs." + input.name + ".weight", wide, hidden);
    one.convolved = std::erase(unknown, input.name) > 0;
    channels += one.convolved ? wide : 0;
  }
  if (!unknown.empty()) {
    load.error({"config.json",
                "'conv_inputs' has '" + unknown.front() +
                    "', which is no input of layer '" + spec.layer + "'",
                {}});
    return;
  }
  if (channels > 0) {
    layer.conv.width = width;
    layer.conv.addChannels(load.vector("conv.weight", channels * width),
                           channels);
    layer.conv.state =
        build.states.addFixed(name + "conv", {width - 1, channels});
  }
  std::vector<Vector> params;
  for (const runtime::ManifestTensor &param : manifest.params)
    params.push_back(load.vector(param.name, heads * param.elements()));
  layer.memory = build.memory(spec, name + "memory", heads, std::move(params));
  int64_t values = manifest.outputs[0].elements();
  layer.outNorm = load.vector("norm.weight", values);
  layer.out = load.matrix("o_proj.weight", hidden, heads * values);
}

void Plain::load(Build &build) {
  Loader &load = build.weights;
  load.prefix = "model.";
  embedding = load.matrix("embed_tokens.weight", vocab, hidden);
  for (int64_t l = 0; l < layers && !load.failed(); ++l) {
    std::string name = "layers." + std::to_string(l) + ".";
    Layer &layer = blocks.emplace_back();
    load.prefix = "model." + name;
    layer.mixNorm = load.vector("input_layernorm.weight", hidden);
    layer.mlpNorm = load.vector("post_attention_layernorm.weight", hidden);
    layer.mlp = {load.matrix("mlp.gate_proj.weight", inner, hidden),
                 load.matrix("mlp.up_proj.weight", inner, hidden),
                 load.matrix("mlp.down_proj.weight", hidden, inner)};
    load.prefix += "mixer.";
    loadMixer(build, layer, name);
  }
  load.prefix = "model.";
  final = load.vector("norm.weight", hidden);
  load.prefix = "";
  loadHead(build, "lm_head.weight", tied);
}

Rows Plain::mix(const Work &work, const Layer &layer, const View &x) const {
  // Convolved inputs side by side, the others for themselves.
  Rows raw;
  if (layer.conv.channels > 0)
    raw = work.rows(x.count, layer.conv.channels);
  std::vector<Rows> own;
  std::vector<MemoryLayer::Input> inputs;
  std::vector<Product> products;
  own.reserve(layer.inputs.size()); // Views point into them.
  int64_t at = 0;
  for (const Input &input : layer.inputs) {
    int64_t wide = input.weight.rows;
    View to = input.convolved
                  ? raw.columns(at, wide)
                  : View(own.emplace_back(work.rows(x.count, wide)));
    at += input.convolved ? wide : 0;
    products.push_back({x, &input.weight, to});
    inputs.push_back({to, heads});
  }
  multiply(work, products);
  Rows mixed;
  if (at > 0)
    mixed = layer.conv.run(work, raw);
  at = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (layer.inputs[i].convolved) {
      inputs[i].rows = mixed.columns(at, layer.inputs[i].weight.rows);
      at += layer.inputs[i].weight.rows;
    }
  Rows o = layer.memory.run(work, std::span<const MemoryLayer::Input>(inputs));
  work.round(o);
  rmsNormHeads(work, o, layer.outNorm, eps);
  return linear(work, o, layer.out);
}

Rows Plain::forward(const Work &work, Rows x) const {
  for (size_t l = 0; l < blocks.size(); ++l) {
    const Layer &layer = blocks[l];
    add(work, x, mix(work, layer, rmsNorm(work, x, layer.mixNorm, eps)));
    add(work, x, layer.mlp.run(work, {}, rmsNorm(work, x, layer.mlpNorm, eps)));
    if (work.trace)
      work.trace(int64_t(l), x);
  }
  return rmsNorm(work, x, final, eps);
}

} // namespace

std::unique_ptr<Network> makePlain(const Config &config) {
  return std::make_unique<Plain>(config);
}

} // namespace plum::model
