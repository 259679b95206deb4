# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The specs of docs/layers that the seven models use, as they are trained.

Each is a function of its inputs [B,T,H,d] (scalars [B,T,H]) and its params
[H,d] ([H]), in the order of its spec, in f32. LAYERS says what a spec declares:
the width of each input, of each param, and how a param begins.
"""

import math
from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F

from memory import memory


def l2norm(x, scale=1.0):
    """scale x / sqrt(x x + 1e-6), as an RMSNorm: that is one kernel."""
    n = x.shape[-1]
    return F.rms_norm(x, (n,), x.new_full((n,), scale * n ** -0.5), 1e-6 / n)


def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    # A column of ones makes the state count what has been written.
    v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    o, _ = memory(q, k, v, torch.zeros_like(k[..., :1]))
    return o[..., :-1] / o[..., -1:]


def deltanet(q, k, v, b):
    q, k = l2norm(q, q.shape[-1] ** -0.5), l2norm(k)
    return memory(q, k, v, torch.zeros_like(k[..., :1]), torch.sigmoid(b))[0]


def gated_deltanet(q, k, v, a, b, A_log, dt_bias):
    q, k = l2norm(q, q.shape[-1] ** -0.5), l2norm(k)
    g = -A_log.exp() * F.softplus(a + dt_bias)
    return memory(q, k, v, g.unsqueeze(-1), torch.sigmoid(b))[0]


def kda(q, k, v, f, b, A_log, dt_bias):
    q, k = l2norm(q, q.shape[-1] ** -0.5), l2norm(k)
    g = -A_log.exp().unsqueeze(-1) * F.softplus(f + dt_bias)
    return memory(q, k, v, g, torch.sigmoid(b))[0]


def kda_k3(q, k, v, f, b, A_log, dt_bias):
    q, k = l2norm(q, q.shape[-1] ** -0.5), l2norm(k)
    g = -5 * torch.sigmoid(A_log.exp().unsqueeze(-1) * (f + dt_bias))
    return memory(q, k, v, g, torch.sigmoid(b))[0]


def mamba2(C, B, x, dt, A_log, dt_bias, D):
    step = F.softplus(dt + dt_bias)
    g = -A_log.exp() * step
    y, _ = memory(C, B, step.unsqueeze(-1) * x, g.unsqueeze(-1))
    return y + D.unsqueeze(-1) * x


def attention(q, k, v):
    """Softmax over all tokens so far: not a spec, but what they replace."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return o.transpose(1, 2)


# --- How params begin -------------------------------------------------------

def steps(*shape):
    """Step sizes from 0.001 to 0.1, their logarithms evenly spread."""
    low, high = math.log(1e-3), math.log(1e-1)
    return torch.exp(low + (high - low) * torch.rand(*shape))


def rates(*shape):
    """Logarithms of rates from 1 to 16."""
    return torch.log(1 + 15 * torch.rand(*shape))


def softplus_bias(*shape):
    return torch.log(torch.expm1(steps(*shape)))


def bounded_bias(*shape):
    """-5 sigmoid(.) is a log decay: as small as a step's."""
    return torch.logit(steps(*shape) / 5)


@dataclass
class Layer:
    run: Callable
    inputs: dict  # Name to width: "K", "V", or 1.
    params: dict  # Name to (width, how it begins).


GATES = {"A_log": (1, rates), "dt_bias": (1, softplus_bias)}
LAYERS = {
    "linear_attention": Layer(linear_attention, dict(q="K", k="K", v="V"), {}),
    "deltanet": Layer(deltanet, dict(q="K", k="K", v="V", b=1), {}),
    "gated_deltanet": Layer(gated_deltanet,
                            dict(q="K", k="K", v="V", a=1, b=1), GATES),
    "kda": Layer(kda, dict(q="K", k="K", v="V", f="K", b=1),
                 GATES | {"dt_bias": ("K", softplus_bias)}),
    "kda_k3": Layer(kda_k3, dict(q="K", k="K", v="V", f="K", b=1),
                    {"A_log": (1, torch.zeros), "dt_bias": ("K", bounded_bias)}),
    "mamba2": Layer(mamba2, dict(C="K", B="K", x="V", dt=1),
                    GATES | {"D": (1, torch.ones)}),
    "attention": Layer(attention, dict(q="K", k="K", v="V"), {}),
}
