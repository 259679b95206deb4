//===- Mamba2.cpp - Mamba-2 -----------------------------------------------===//
//
// Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dao and Gu, "Transformers are SSMs", 2024, arXiv:2405.21060.
//
//   z, xBC, dt = W_in RMSNorm(x)
//   xs, B, C   = silu(conv(xBC) + bias)
//   y          = memory(C, B, xs, dt)            docs/layers/mamba2.plum
//   x         += W_out (RMSNorm(y * silu(z)) * w)
//
// Heads of one group share B and C.
//
//===----------------------------------------------------------------------===//

#include "runtime/model/Conv.h"
#include "runtime/model/Elementwise.h"
#include "runtime/model/Network.h"

#include <cmath>

namespace plum::model {

namespace {

struct Layer {
  Vector norm, gateNorm;
  Matrix in, out; ///< [2 D + 2 groups * state + heads, hidden]; [hidden, D].
  Vector inBias, outBias;
  ShortConv conv;
  MemoryLayer memory;
};

class Mamba2 : public Network {
public:
  explicit Mamba2(const Config &config);
  std::vector<MemorySpec> memories() const override { return {spec}; }
  void load(Build &build) override;
  Rows forward(const Work &work, Rows x) const override;

private:
  int64_t heads, headDim, groups, state, width;
  int64_t inner;     ///< heads * headDim, D of the paper.
  int64_t convInner; ///< Channels of xBC.
  float eps;
  bool bias, convBias, tied;
  MemorySpec spec;

  std::vector<Layer> blocks;
  Vector final;
};

Mamba2::Mamba2(const Config &config) {
  readSizes(config);
  heads = config.dim({"num_heads"});
  headDim = config.dim({"head_dim"}, 4096);
  groups = config.dimOr({"n_groups"}, 1);
  state = config.dim({"state_size"}, 4096);
  width = config.dim({"conv_kernel"}, 64);
  eps = float(config.numberOr({"layer_norm_epsilon"}, 1e-5));
  bias = config.flagOr({"use_bias"}, false);
  convBias = config.flagOr({"use_conv_bias"}, true);
  tied = config.flagOr({"tie_word_embeddings"}, false);
  config.onlyText("hidden_act", "silu");
  std::vector<double> limits = config.numbers({"time_step_limit"});
  if (!limits.empty() &&
      (limits.size() != 2 || limits[0] > 0 || std::isfinite(limits[1])))
    config.error("time_step_limit", "is no [0, Infinity], the only one that "
                                    "this runtime computes");
  inner = heads * headDim;
  convInner = inner + 2 * groups * state;
  int64_t expand = config.dimOr({"expand"}, 2, 1024);
  if (inner != expand * hidden)
    config.error("num_heads", "times head_dim is " + std::to_string(inner) +
                                  ", expected expand * hidden_size = " +
                                  std::to_string(expand * hidden));
  if (heads % groups != 0)
    config.error("n_groups", "is " + std::to_string(groups) +
                                 ", which does not divide num_heads = " +
                                 std::to_string(heads));
  spec = {"mamba2", {{"K", state}, {"V", headDim}}};
}

void Mamba2::load(Build &build) {
  Loader &load = build.weights;
  load.prefix = "backbone.";
  embedding = load.matrix(load.has("embeddings.weight") ? "embeddings.weight"
                                                        : "embedding.weight",
                          vocab, hidden);
  for (int64_t l = 0; l < layers && !load.failed(); ++l) {
    std::string name = "layers." + std::to_string(l) + ".";
    Layer &layer = blocks.emplace_back();
    load.prefix = "backbone." + name;
    layer.norm = load.vector("norm.weight", hidden);
    load.prefix += "mixer.";
    int64_t all = inner + convInner + heads;
    layer.in = load.matrix("in_proj.weight", all, hidden);
    layer.out = load.matrix("out_proj.weight", hidden, inner);
    if (bias) {
      layer.inBias = load.vector("in_proj.bias", all);
      layer.outBias = load.vector("out_proj.bias", hidden);
    }
    layer.conv.width = width;
    layer.conv.addChannels(load.vector("conv1d.weight", convInner * width),
                           convInner);
    if (convBias)
      layer.conv.bias = load.vector("conv1d.bias", convInner);
    layer.conv.state =
        build.states.addFixed(name + "conv", {width - 1, convInner});
    layer.gateNorm = load.vector("norm.weight", inner);
    std::vector<Vector> params{load.vector("A_log", heads),
                               load.vector("dt_bias", heads),
                               load.vector("D", heads)};
    layer.memory =
        build.memory(spec, name + "memory", heads, std::move(params));
  }
  load.prefix = "backbone.";
  final = load.vector("norm_f.weight", hidden);
  load.prefix = "";
  loadHead(build, "lm_head.weight", tied);
}

Rows Mamba2::forward(const Work &work, Rows x) const {
  for (size_t l = 0; l < blocks.size(); ++l) {
    const Layer &layer = blocks[l];
    Rows zxbcdt = linear(work, rmsNorm(work, x, layer.norm, eps), layer.in);
    if (bias)
      addBias(work, zxbcdt, layer.inBias);
    View z = zxbcdt.columns(0, inner);
    View dt = zxbcdt.columns(inner + convInner, heads);

    Rows xbc = layer.conv.run(work, zxbcdt.columns(inner, convInner));
    View xs = xbc.columns(0, inner);
    View b = xbc.columns(inner, groups * state);
    View c = xbc.columns(inner + groups * state, groups * state);

    Rows y = layer.memory.run(
        work, {{c, groups}, {b, groups}, {xs, heads}, {dt, heads}});
    work.round(y);
    gateThenNorm(work, y, z, layer.gateNorm, eps);
    Rows out = linear(work, y, layer.out);
    if (bias)
      addBias(work, out, layer.outBias);
    add(work, x, out);
    if (work.trace)
      work.trace(int64_t(l), x);
  }
  return rmsNorm(work, x, final, eps);
}

} // namespace

std::unique_ptr<Network> makeMamba2(const Config &config) {
  return std::make_unique<Mamba2>(config);
}

} // namespace plum::model
