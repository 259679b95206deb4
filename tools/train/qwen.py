# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Qwen3-Next: three Gated DeltaNet layers, then gated softmax attention with
partial rotary positions; experts after each. runtime/models/Qwen3Next.cpp."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from layers import gated_deltanet, rates, softplus_bias
from parts import (Experts, LanguageModel, Mlp, RMSNorm, ShortConv,
                   balance_loss, choose, embedding, exact, heads, linear, swiglu)


class Delta(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.keys, self.values = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.K, self.V = c["linear_key_head_dim"], c["linear_value_head_dim"]
        keys, values, D = self.keys * self.K, self.values * self.V, c["hidden_size"]
        # By key head: [q | k | its values | their z], [its b | its a].
        self.in_proj_qkvz = linear(D, 2 * keys + 2 * values)
        self.in_proj_ba = linear(D, 2 * self.values)
        self.conv1d = ShortConv(2 * keys + values, c["linear_conv_kernel_dim"])
        self.A_log = nn.Parameter(rates(self.values))
        self.dt_bias = nn.Parameter(softplus_bias(self.values))
        self.norm = RMSNorm(self.V, c["rms_norm_eps"])
        self.out_proj = linear(values, D)

    def forward(self, x):
        share = self.values // self.keys
        own = share * self.V
        parts = heads(self.in_proj_qkvz(x), self.keys).split(
            [self.K, self.K, own, own], -1)
        q, k, v, z = (y.flatten(2) for y in parts)
        b, a = (y.flatten(2) for y in
                heads(self.in_proj_ba(x), self.keys).split(share, -1))
        widths = [q.shape[-1], k.shape[-1], v.shape[-1]]
        q, k, v = self.conv1d(torch.cat([q, k, v], -1)).split(widths, -1)
        q, k = (heads(y, self.keys).repeat_interleave(share, 2) for y in (q, k))
        with torch.autocast(x.device.type, enabled=False):
            o = gated_deltanet(q, k, heads(v, self.values), a, b, self.A_log,
                               self.dt_bias)
            o = self.norm(o) * F.silu(heads(z, self.values))
        return self.out_proj(o.flatten(2))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        D, self.dim = c["hidden_size"], c["head_dim"]
        self.H, self.groups = c["num_attention_heads"], c["num_key_value_heads"]
        self.rotary = int(self.dim * c["partial_rotary_factor"]) // 2 * 2
        self.theta = c["rope_theta"]
        self.q_proj = linear(D, 2 * self.H * self.dim)  # By head [query | gate].
        self.k_proj = linear(D, self.groups * self.dim)
        self.v_proj = linear(D, self.groups * self.dim)
        self.o_proj = linear(self.H * self.dim, D)
        self.q_norm = RMSNorm(self.dim, c["rms_norm_eps"], stored_minus_one=True)
        self.k_norm = RMSNorm(self.dim, c["rms_norm_eps"], stored_minus_one=True)

    def rotate(self, x):
        n = self.rotary
        power = torch.arange(0, n, 2, device=x.device) / n
        angle = (torch.arange(x.shape[1], device=x.device)[:, None]
                 * self.theta ** -power)[:, None, :]
        cos, sin = angle.cos(), angle.sin()
        a, b, rest = x.split([n // 2, n // 2, self.dim - n], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def forward(self, x):
        q, gate = heads(self.q_proj(x), self.H).chunk(2, -1)
        k, v = heads(self.k_proj(x), self.groups), heads(self.v_proj(x), self.groups)
        q, k = self.rotate(self.q_norm(q)), self.rotate(self.k_norm(k))
        share = self.H // self.groups
        k, v = (y.repeat_interleave(share, 2) for y in (k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj((o * torch.sigmoid(gate)).flatten(2))


class Mixture(nn.Module):
    """Softmax router, and a shared expert with a gate of its own."""

    def __init__(self, c):
        super().__init__()
        D, self.chosen = c["hidden_size"], c["num_experts_per_tok"]
        self.gate = linear(D, c["num_experts"])
        self.experts = Experts(c["num_experts"], D, c["moe_intermediate_size"],
                               swiglu, ("gate_proj", "up_proj", "down_proj"))
        self.shared_expert = Mlp(D, c["shared_expert_intermediate_size"])
        self.shared_expert_gate = linear(D, 1)

    def forward(self, x):
        scores = exact(x, self.gate).softmax(-1)
        weights, chosen = choose(scores, 0.0, self.chosen)
        self.balance = 0.01 * balance_loss(scores, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        shared = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return self.experts(x, weights) + shared


class Qwen3Next(LanguageModel):
    def __init__(self, config, dropout=0.0):
        super().__init__(config, dropout)
        D = config["hidden_size"]
        norm = lambda: RMSNorm(D, config["rms_norm_eps"], stored_minus_one=True)
        body = nn.Module()
        body.embed_tokens = embedding(config["vocab_size"], D)
        body.layers = nn.ModuleList()
        for l in range(config["num_hidden_layers"]):
            layer = nn.Module()
            layer.input_layernorm, layer.post_attention_layernorm = norm(), norm()
            if (l + 1) % config["full_attention_interval"] == 0:
                layer.self_attn = Attention(config)
            else:
                layer.linear_attn = Delta(config)
            layer.mlp = Mixture(config)
            body.layers.append(layer)
        body.norm = norm()
        self.model = body

    def embedding(self):
        return self.model.embed_tokens

    def body(self, x):
        for layer in self.model.layers:
            mix = getattr(layer, "self_attn", None) or layer.linear_attn
            x = x + self.drop(mix(layer.input_layernorm(x)))
            x = x + self.drop(layer.mlp(layer.post_attention_layernorm(x)))
        return self.model.norm(x)
