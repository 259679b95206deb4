# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the models share. Names of modules are the names of the checkpoint, so
that a state_dict is the file that Hugging Face and Plum read."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def linear(inputs, outputs, bias=False):
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=inputs ** -0.5)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def exact(x, layer):
    """A product in f32 inside of autocast: a router's choice must not flip."""
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x.float(), layer.weight)


class RMSNorm(nn.Module):
    def __init__(self, width, eps, stored_minus_one=False):
        super().__init__()
        self.eps, self.offset = eps, float(stored_minus_one)
        self.weight = nn.Parameter(torch.full((width,), 1 - self.offset))

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape,
                          self.weight + self.offset, self.eps)


class ShortConv(nn.Module):
    """silu(bias + sum_j w[c,j] x[t - 3 + j]) per channel."""

    def __init__(self, channels, width=4, bias=False):
        super().__init__()
        self.weight = nn.Parameter(
            (2 * torch.rand(channels, 1, width) - 1) * width ** -0.5)
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x):
        past = F.pad(x.float().transpose(1, 2), (self.weight.shape[-1] - 1, 0))
        with torch.autocast(x.device.type, enabled=False):
            y = F.conv1d(past, self.weight, self.bias, groups=len(self.weight))
        return F.silu(y.transpose(1, 2))


def situ(gate, up, beta=4.0, limit=25.0):
    gate, up = gate.float(), up.float()
    return (torch.tanh(gate / beta) * torch.sigmoid(gate)
            * torch.tanh(up / limit) * (beta * limit))


def swiglu(gate, up):
    return F.silu(gate.float()) * up.float()


class Mlp(nn.Module):
    def __init__(self, width, inner, act=swiglu):
        super().__init__()
        self.act = act
        self.gate_proj = linear(width, inner)
        self.up_proj = linear(width, inner)
        self.down_proj = linear(inner, width)

    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x), self.up_proj(x)))


class Experts(nn.Module):
    """All experts of a layer, stacked: every token runs through all of them and
    those it has not chosen get the weight 0. For experts this small that costs
    less than sorting tokens, and shapes never depend on data. `names` are those
    of gate, up and down in the checkpoint, where each expert has its own."""

    def __init__(self, count, width, inner, act, names):
        super().__init__()
        self.act, self.names = act, names
        self.gate = nn.Parameter(torch.randn(count, inner, width) * width ** -0.5)
        self.up = nn.Parameter(torch.randn(count, inner, width) * width ** -0.5)
        self.down = nn.Parameter(torch.randn(count, width, inner) * inner ** -0.5)

    def forward(self, x, weights):
        """x [..., width], weights [..., count]."""
        gate = F.linear(x, self.gate.flatten(0, 1)).unflatten(-1, (len(self.gate), -1))
        up = F.linear(x, self.up.flatten(0, 1)).unflatten(-1, (len(self.up), -1))
        hidden = self.act(gate, up) * weights.unsqueeze(-1)
        down = self.down.transpose(0, 1).flatten(1)  # [width, count * inner]
        return F.linear(hidden.flatten(-2), down)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        stacked = {"gate": self.gate, "up": self.up, "down": self.down}
        for name, part in zip(self.names, ("gate", "up", "down")):
            for e, weight in enumerate(stacked[part]):
                destination[f"{prefix}{e}.{name}.weight"] = weight.detach()


def choose(scores, bias, count):
    """`scores` of the best `count` (by scores + bias), 0 for the others."""
    best = (scores + bias).topk(count, -1).indices
    chosen = torch.zeros_like(scores).scatter(-1, best, 1.0)
    return scores * chosen, chosen


def balance_loss(scores, chosen):
    """Experts times the sum of (share of tokens) x (mean score): 1 for equal
    shares. Scores are normed to sum 1."""
    share = chosen.flatten(0, -2).mean(0) / chosen.sum(-1).mean()
    mean = (scores / scores.sum(-1, keepdim=True)).flatten(0, -2).mean(0)
    return scores.shape[-1] * (share * mean).sum()


def heads(x, count):
    return x.float().unflatten(-1, (count, -1))


class LanguageModel(nn.Module):
    """Tokens to logits around `body`; the head is the embedding. `extra` sums
    what experts add to the loss."""

    def __init__(self, config, dropout):
        super().__init__()
        self.config = config
        self.drop = nn.Dropout(dropout)

    def embedding(self):
        raise NotImplementedError

    def forward(self, ids):
        table = self.embedding().weight
        x = self.body(self.drop(F.embedding(ids, table)))
        return F.linear(x, table)

    def extra(self):
        return sum(m.balance for m in self.modules() if hasattr(m, "balance"))

    def checkpoint(self, dtype=torch.bfloat16):
        """As it is stored: matrices in `dtype`, all else in f32."""
        tensors = {}
        for name, value in self.state_dict().items():
            matrix = value.dim() == 2 and name.endswith("weight")
            value = value.detach().to(dtype if matrix else torch.float32)
            tensors[name] = value.cpu().contiguous()
        return tensors

    @torch.no_grad()
    def round(self, dtype=torch.bfloat16):
        """The weights that `checkpoint` stores, in place."""
        for name, value in self.named_parameters():
            stacked = name.endswith((".gate", ".up", ".down"))  # Experts.
            if stacked or value.dim() == 2 and name.endswith("weight"):
                value.copy_(value.to(dtype))


def embedding(vocab, width):
    table = nn.Embedding(vocab, width)
    nn.init.normal_(table.weight, std=0.02)
    return table
