# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The seven models. CONFIGS has their config.json, build(NAME) makes one.

gpt2                every token attends to all before it
linear_attention    one sum of k^T v; nothing is forgotten
deltanet            what is stored under a key is replaced
mamba2              a sum that fades, one rate per head
gated_deltanet      replaces and fades (Qwen3-Next: every 4th layer attends)
kimi_linear         fades per channel (every 4th layer attends, MLA)
k3                  the same with a bounded rate, latent experts, SiTU, and
                    attention over blocks of layers in place of the residual

The first four have no softmax attention beside what their name says.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from kimi import Kimi
from layers import LAYERS, rates, softplus_bias
from parts import (LanguageModel, Mlp, RMSNorm, ShortConv, embedding, heads,
                   linear)
from qwen import Qwen3Next


class Transposed(nn.Module):
    """GPT-2 stores [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * inputs ** -0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class GPT2(LanguageModel):
    def __init__(self, config, dropout=0.0):
        super().__init__(config, dropout)
        D, eps = config["n_embd"], config["layer_norm_epsilon"]
        body = nn.Module()
        body.wte = embedding(config["vocab_size"], D)
        body.wpe = embedding(config["n_positions"], D)
        body.h = nn.ModuleList()
        for _ in range(config["n_layer"]):
            layer = nn.Module()
            layer.ln_1, layer.ln_2 = nn.LayerNorm(D, eps), nn.LayerNorm(D, eps)
            layer.attn, layer.mlp = nn.Module(), nn.Module()
            layer.attn.c_attn = Transposed(D, 3 * D)
            layer.attn.c_proj = Transposed(D, D)
            layer.mlp.c_fc = Transposed(D, 4 * D)
            layer.mlp.c_proj = Transposed(4 * D, D)
            body.h.append(layer)
        body.ln_f = nn.LayerNorm(D, eps)
        self.transformer = body

    def embedding(self):
        return self.transformer.wte

    def body(self, x):
        body, H = self.transformer, self.config["n_head"]
        x = x + body.wpe.weight[:x.shape[1]]
        for layer in body.h:
            qkv = layer.attn.c_attn(layer.ln_1(x)).chunk(3, -1)
            q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in qkv)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.drop(layer.attn.c_proj(o.transpose(1, 2).flatten(2)))
            up = F.gelu(layer.mlp.c_fc(layer.ln_2(x)), approximate="tanh")
            x = x + self.drop(layer.mlp.c_proj(up))
        return body.ln_f(x)


class Mixer(nn.Module):
    """Any spec of layers.py in a network: its inputs are projections of x, of
    which `conv` go through a short convolution; its output is normed by head."""

    def __init__(self, D, name, H, dims, conv, eps):
        super().__init__()
        self.layer, self.H, self.conv_inputs = LAYERS[name], H, conv
        width = lambda d: dims.get(d, d)
        self.inputs = nn.ModuleDict()
        for name, d in self.layer.inputs.items():
            self.inputs[name] = linear(D, H * width(d))
        channels = [H * width(self.layer.inputs[name]) for name in conv]
        self.conv = ShortConv(sum(channels)) if conv else None
        self.channels = channels
        for name, (d, begin) in self.layer.params.items():
            shape = (H,) if d == 1 else (H, width(d))
            self.register_parameter(name, nn.Parameter(begin(*shape)))
        self.norm = RMSNorm(dims["V"], eps)
        self.o_proj = linear(H * dims["V"], D)

    def forward(self, x):
        inputs = {name: proj(x) for name, proj in self.inputs.items()}
        if self.conv:
            mixed = self.conv(torch.cat([inputs[n] for n in self.conv_inputs], -1))
            inputs |= zip(self.conv_inputs, mixed.split(self.channels, -1))
        for name, d in self.layer.inputs.items():
            inputs[name] = heads(inputs[name], self.H)
            if d == 1:
                inputs[name] = inputs[name].squeeze(-1)
        params = [getattr(self, name) for name in self.layer.params]
        with torch.autocast(x.device.type, enabled=False):
            o = self.norm(self.layer.run(*inputs.values(), *params))
        return self.o_proj(o.flatten(2))


class Plain(LanguageModel):
    """x += mixer(RMSNorm(x)); x += mlp(RMSNorm(x)), runtime/models/Plain.cpp.
    "layer" may be a list, one for each block (not in a checkpoint)."""

    def __init__(self, config, dropout=0.0):
        super().__init__(config, dropout)
        D, eps, dims = (config["hidden_size"], config["rms_norm_eps"],
                        config["layer_dims"])
        names = config["layer"]
        if isinstance(names, str):
            names = [names] * config["num_hidden_layers"]
        body = nn.Module()
        body.embed_tokens = embedding(config["vocab_size"], D)
        body.layers = nn.ModuleList()
        for name in names:
            layer = nn.Module()
            layer.input_layernorm = RMSNorm(D, eps)
            conv = [i for i in LAYERS[name].inputs if i in config["conv_inputs"]]
            layer.mixer = Mixer(D, name, config["num_heads"], dims, conv, eps)
            layer.post_attention_layernorm = RMSNorm(D, eps)
            layer.mlp = Mlp(D, config["intermediate_size"])
            body.layers.append(layer)
        body.norm = RMSNorm(D, eps)
        self.model = body

    def embedding(self):
        return self.model.embed_tokens

    def body(self, x):
        for layer in self.model.layers:
            x = x + self.drop(layer.mixer(layer.input_layernorm(x)))
            x = x + self.drop(layer.mlp(layer.post_attention_layernorm(x)))
        return self.model.norm(x)


class Mamba2(LanguageModel):
    def __init__(self, config, dropout=0.0):
        super().__init__(config, dropout)
        D, eps, H = (config["hidden_size"], config["layer_norm_epsilon"],
                     config["num_heads"])
        self.inner = H * config["head_dim"]
        self.keys = config["n_groups"] * config["state_size"]
        channels = self.inner + 2 * self.keys
        body = nn.Module()
        body.embeddings = embedding(config["vocab_size"], D)
        body.layers = nn.ModuleList()
        for _ in range(config["num_hidden_layers"]):
            layer = nn.Module()
            layer.norm = RMSNorm(D, eps)
            mixer = layer.mixer = nn.Module()
            mixer.in_proj = linear(D, self.inner + channels + H)
            mixer.conv1d = ShortConv(channels, config["conv_kernel"], bias=True)
            mixer.A_log = nn.Parameter(rates(H))
            mixer.dt_bias = nn.Parameter(softplus_bias(H))
            mixer.D = nn.Parameter(torch.ones(H))
            mixer.norm = RMSNorm(self.inner, eps)
            mixer.out_proj = linear(self.inner, D)
            body.layers.append(layer)
        body.norm_f = RMSNorm(D, eps)
        self.backbone = body

    def embedding(self):
        return self.backbone.embeddings

    def mix(self, m, x):
        H, groups = self.config["num_heads"], self.config["n_groups"]
        z, xbc, dt = m.in_proj(x).float().split(
            [self.inner, self.inner + 2 * self.keys, H], -1)
        v, b, c = m.conv1d(xbc).split([self.inner, self.keys, self.keys], -1)
        share = lambda y: heads(y, groups).repeat_interleave(H // groups, 2)
        with torch.autocast(x.device.type, enabled=False):
            y = LAYERS["mamba2"].run(share(c), share(b), heads(v, H), dt,
                                     m.A_log, m.dt_bias, m.D)
        return m.out_proj(m.norm(y.flatten(2) * F.silu(z)))

    def body(self, x):
        for layer in self.backbone.layers:
            x = x + self.drop(self.mix(layer.mixer, layer.norm(x)))
        return self.backbone.norm_f(x)


def plain(layer, **more):
    return {"model_type": "plum_plain", "architectures": ["PlumPlain"],
            "layer": layer, "layer_dims": {"K": 64, "V": 64}, "num_heads": 4,
            "conv_inputs": ["q", "k", "v"], "conv_kernel": 4,
            "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 6,
            "intermediate_size": 640, "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True, **more}


_KIMI = {
    "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    "kv_lora_rank": 96, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
    "v_head_dim": 64, "mla_use_nope": True, "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid", "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "use_grouped_topk": True, "num_expert_group": 1,
    "topk_group": 1, "topk_method": "noaux_tc", "tie_word_embeddings": True,
    "max_position_embeddings": 1 << 20, "num_nextn_predict_layers": 0,
}
_KDA = {"num_heads": 4, "head_dim": 64, "short_conv_kernel_size": 4,
        "kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8]}

CONFIGS = {
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 2048, "n_embd": 256, "n_layer": 6, "n_head": 4,
        "n_positions": 1024, "n_inner": None, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "tie_word_embeddings": True},
    "linear_attention": plain("linear_attention"),
    "deltanet": plain("deltanet"),
    "mamba2": {
        "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"],
        "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 10,
        "num_heads": 8, "head_dim": 64, "state_size": 64, "n_groups": 1,
        "expand": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True,
        "hidden_act": "silu", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True},
    "gated_deltanet": {
        "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"],
        "vocab_size": 2048, "hidden_size": 256, "num_hidden_layers": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 96, "intermediate_size": 512,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "hidden_act": "silu", "attention_bias": False, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True},
    "kimi_linear": {
        "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"],
        **_KIMI, "hidden_act": "silu", "intermediate_size": 512,
        "q_lora_rank": None, "mla_use_output_gate": False,
        "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 2,
        "moe_intermediate_size": 40, "routed_scaling_factor": 2.446,
        "linear_attn_config": {**_KDA, "gate_lower_bound": None,
                               "use_full_rank_gate": False}},
    "k3": {
        "model_type": "kimi_k3",
        "architectures": ["KimiK3ForConditionalGeneration"],
        "text_config": {
            "model_type": "kimi_linear", **_KIMI, "hidden_act": "situ",
            "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
            "intermediate_size": 384, "q_lora_rank": 96,
            "mla_use_output_gate": True, "num_experts": 16,
            "num_experts_per_token": 4, "num_shared_experts": 2,
            "moe_intermediate_size": 40, "routed_expert_hidden_size": 64,
            "latent_moe_use_norm": True, "routed_scaling_factor": 1.0,
            "attn_res_block_size": 4,
            "linear_attn_config": {**_KDA, "gate_lower_bound": -5.0,
                                   "use_full_rank_gate": True}}},
}
CLASSES = {"gpt2": GPT2, "plum_plain": Plain, "mamba2": Mamba2,
           "qwen3_next": Qwen3Next, "kimi_linear": Kimi, "kimi_k3": Kimi}

OUTPUTS = ("o_proj.weight", "out_proj.weight", "c_proj.weight", ".down",
           "down_proj.weight", "routed_expert_up_proj.weight")


def build(config, dropout=0.0):
    """Of a name or a config.json."""
    if isinstance(config, str):
        config = CONFIGS[config]
    model = CLASSES[config["model_type"]](config, dropout)
    # What all layers add to the stream begins small beside the embedding; else
    # the first hundred steps go by before a token is told from the others.
    inner = config.get("text_config", config)
    layers = inner.get("num_hidden_layers") or inner["n_layer"]
    for name, weight in model.named_parameters():
        if name.endswith(OUTPUTS) and "routed_expert_down" not in name:
            weight.data.mul_(0.5 / layers)
    return model
