# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kimi Linear and Kimi K3: three KDA layers, then MLA without positions;
experts after all but the first. K3 bounds the decay, gates both outputs, runs
its experts in a latent space with SiTU, and reads a mixture of blocks of layers
where Kimi Linear has a residual stream. runtime/models/Kimi.cpp."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from layers import bounded_bias, kda, kda_k3, rates, softplus_bias
from parts import (Experts, LanguageModel, Mlp, RMSNorm, ShortConv, balance_loss,
                   choose, embedding, exact, heads, linear, situ, swiglu)


class Kda(nn.Module):
    def __init__(self, c):
        super().__init__()
        part, D = c["linear_attn_config"], c["hidden_size"]
        self.H, K = part["num_heads"], part["head_dim"]
        self.bounded = part["gate_lower_bound"] is not None
        self.full = part["use_full_rank_gate"]
        for name in "qkv":
            setattr(self, f"{name}_proj", linear(D, self.H * K))
            setattr(self, f"{name}_conv1d",
                    ShortConv(self.H * K, part["short_conv_kernel_size"]))
        self.f_a_proj, self.f_b_proj = linear(D, K), linear(K, self.H * K)
        self.b_proj = linear(D, self.H)
        if self.full:
            self.g_proj = linear(D, self.H * K)
        else:
            self.g_a_proj, self.g_b_proj = linear(D, K), linear(K, self.H * K)
        begin = bounded_bias if self.bounded else softplus_bias
        self.A_log = nn.Parameter(
            torch.zeros(self.H) if self.bounded else rates(self.H))
        self.dt_bias = nn.Parameter(begin(self.H * K))
        self.o_norm = RMSNorm(K, c["rms_norm_eps"])
        self.o_proj = linear(self.H * K, D)

    def forward(self, x):
        q = heads(self.q_conv1d(self.q_proj(x)), self.H)
        k = heads(self.k_conv1d(self.k_proj(x)), self.H)
        v = heads(self.v_conv1d(self.v_proj(x)), self.H)
        f = heads(self.f_b_proj(self.f_a_proj(x)), self.H)
        gate = self.g_proj(x) if self.full else self.g_b_proj(self.g_a_proj(x))
        b = self.b_proj(x).float()
        with torch.autocast(x.device.type, enabled=False):
            o = (kda_k3 if self.bounded else kda)(
                q, k, v, f, b, self.A_log, self.dt_bias.view(self.H, -1))
            o = self.o_norm(o) * torch.sigmoid(heads(gate, self.H))
        return self.o_proj(o.flatten(2))


class Mla(nn.Module):
    """Keys and values come from a low-rank latent; `pe` more dims of the key
    are shared by all heads. (They are where other models have positions.)"""

    EPS = 1e-6  # Of the low-rank norms, whatever rms_norm_eps is.

    def __init__(self, c):
        super().__init__()
        D, self.H = c["hidden_size"], c["num_attention_heads"]
        self.nope, self.pe = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        self.V, self.latent = c["v_head_dim"], c["kv_lora_rank"]
        queries, rank = self.H * (self.nope + self.pe), c["q_lora_rank"]
        if rank:
            self.q_a_proj, self.q_b_proj = linear(D, rank), linear(rank, queries)
            self.q_a_layernorm = RMSNorm(rank, self.EPS)
        else:
            self.q_proj = linear(D, queries)
        self.kv_a_proj_with_mqa = linear(D, self.latent + self.pe)
        self.kv_a_layernorm = RMSNorm(self.latent, self.EPS)
        self.kv_b_proj = linear(self.latent, self.H * (self.nope + self.V))
        self.rank, self.gated = rank, c["mla_use_output_gate"]
        if self.gated:
            self.g_proj = linear(D, self.H * self.V)
        self.o_proj = linear(self.H * self.V, D)

    def forward(self, x):
        q = (self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if self.rank
             else self.q_proj(x)).unflatten(-1, (self.H, -1))
        latent, pe = self.kv_a_proj_with_mqa(x).split([self.latent, self.pe], -1)
        k, v = (self.kv_b_proj(self.kv_a_layernorm(latent))
                .unflatten(-1, (self.H, -1)).split([self.nope, self.V], -1))
        k = torch.cat([k, pe.unsqueeze(2).expand(-1, -1, self.H, -1)], -1)
        # Values as wide as keys, which fast attention kernels want.
        v = F.pad(v, (0, k.shape[-1] - self.V))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        o = o.transpose(1, 2)[..., :self.V].flatten(2)
        if self.gated:
            o = o * torch.sigmoid(self.g_proj(x).float())
        return self.o_proj(o)


class Mixture(nn.Module):
    """Sigmoid router. A bias that only the choice sees is moved, after each
    step, towards equal shares; the loss has a small term too."""

    def __init__(self, c):
        super().__init__()
        D, E = c["hidden_size"], c["num_experts"]
        self.chosen, self.scale = c["num_experts_per_token"], c["routed_scaling_factor"]
        act = situ if c["hidden_act"] == "situ" else swiglu
        latent = c.get("routed_expert_hidden_size") or 0
        self.gate = linear(D, E)
        self.gate.register_buffer("e_score_correction_bias", torch.zeros(E))
        self.experts = Experts(E, latent or D, c["moe_intermediate_size"], act,
                               ("w1", "w3", "w2"))
        self.shared_experts = Mlp(
            D, c["num_shared_experts"] * c["moe_intermediate_size"], act)
        self.latent = latent
        if latent:
            self.routed_expert_down_proj = linear(D, latent)
            self.routed_expert_norm = RMSNorm(latent, c["rms_norm_eps"])
            self.routed_expert_up_proj = linear(latent, D)

    def forward(self, x):
        scores = torch.sigmoid(exact(x, self.gate))
        bias = self.gate.e_score_correction_bias
        weights, chosen = choose(scores, bias, self.chosen)
        if self.training:
            with torch.no_grad():
                share = chosen.flatten(0, -2).mean(0)
                bias.add_(0.001 * torch.sign(share.mean() - share))
        self.balance = 0.001 * balance_loss(scores, chosen)
        weights = self.scale * weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if self.latent:
            z = self.experts(self.routed_expert_down_proj(x), weights)
            y = self.routed_expert_up_proj(self.routed_expert_norm(z))
        else:
            y = self.experts(x, weights)
        return y + self.shared_experts(x)


class Scorer(nn.Module):
    """The [1, D] projection of an attention residual; 0 mixes evenly."""

    def __init__(self, D):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, D))


def mixture(bank, x, norm, proj):
    """Softmax over the rows of the bank and x, scored by their normed product
    with the mixer; the values are the rows as they are."""
    rows = torch.stack([*bank, x]).float()
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    scale = torch.rsqrt(length.square() / rows.shape[-1] + 1e-5)
    with torch.autocast(x.device.type, enabled=False):
        score = F.linear(rows, norm.weight * proj.weight) * scale
    return (score.softmax(0) * rows).sum(0)


class Kimi(LanguageModel):
    def __init__(self, config, dropout=0.0):
        super().__init__(config, dropout)
        c = self.c = config.get("text_config", config)
        D, eps = c["hidden_size"], c["rms_norm_eps"]
        self.block = c.get("attn_res_block_size") or 0
        body = nn.Module()
        body.embed_tokens = embedding(c["vocab_size"], D)
        body.layers = nn.ModuleList()
        for l in range(c["num_hidden_layers"]):
            layer = nn.Module()
            layer.input_layernorm = RMSNorm(D, eps)
            layer.post_attention_layernorm = RMSNorm(D, eps)
            is_kda = l + 1 in c["linear_attn_config"]["kda_layers"]
            layer.self_attn = Kda(c) if is_kda else Mla(c)
            if self.block:
                for site in ("self_attention_res", "mlp_res"):
                    setattr(layer, f"{site}_norm", RMSNorm(D, eps))
                    setattr(layer, f"{site}_proj", Scorer(D))
            if l < c["first_k_dense_replace"]:
                act = situ if c["hidden_act"] == "situ" else swiglu
                layer.mlp = Mlp(D, c["intermediate_size"], act)
            else:
                layer.block_sparse_moe = Mixture(c)
            body.layers.append(layer)
        if self.block:
            body.output_attn_res_norm = RMSNorm(D, eps)
            body.output_attn_res_proj = Scorer(D)
        body.norm = RMSNorm(D, eps)
        if "text_config" in config:  # K3's names.
            self.language_model = nn.Module()
            self.language_model.model = body
        else:
            self.model = body

    def trunk(self):
        return self.language_model.model if "text_config" in self.config else self.model

    def embedding(self):
        return self.trunk().embed_tokens

    def body(self, x):
        trunk, bank = self.trunk(), []
        for l, layer in enumerate(trunk.layers):
            feed = getattr(layer, "mlp", None) or layer.block_sparse_moe
            if not self.block:
                x = x + self.drop(layer.self_attn(layer.input_layernorm(x)))
                x = x + self.drop(feed(layer.post_attention_layernorm(x)))
                continue
            h = mixture(bank, x, layer.self_attention_res_norm,
                        layer.self_attention_res_proj) if bank else x
            mixed = self.drop(layer.self_attn(layer.input_layernorm(h)))
            if l % self.block == 0:  # The stream itself goes to the bank.
                bank.append(x)
                x = mixed
            else:
                x = x + mixed
            h = mixture(bank, x, layer.mlp_res_norm, layer.mlp_res_proj)
            x = x + self.drop(feed(layer.post_attention_layernorm(h)))
        if self.block:
            x = mixture(bank, x, trunk.output_attn_res_norm,
                        trunk.output_attn_res_proj)
        return trunk.norm(x)
