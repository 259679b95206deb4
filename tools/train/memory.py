# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a token does to a memory, for many tokens at once, in plain PyTorch.

One function serves every layer of these models. Its recurrence is, per head,

    S <- diag(exp(g_t)) S                      forget, per key channel
    S <- S + beta_t k_t^T (v_t - k_t S)        replace what is stored under k_t
    o_t = q_t S

and, without a beta, S <- diag(exp(g_t)) S + k_t^T v_t: g = 0 is then linear
attention, one g for all channels is Mamba-2.

Training needs it for whole sequences. In a chunk of C tokens that starts from
S, with G the running sum of g and the substitution v_t - k_t S -> u_t / beta_t,

    A[i,j] = beta_i sum_c k_i[c] k_j[c] exp(G_i[c] - G_j[c])     j <  i
    P[i,j] =        sum_c q_i[c] k_j[c] exp(G_i[c] - G_j[c])     j <= i
    U  = (I + A)^-1 diag(beta) (V - (K exp(G)) S)
    O  = (Q exp(G)) S + P U
    S' = diag(exp(G_C)) S + (K exp(G_C - G))^T U

(docs/wy-form.md derives it). Everything but U and S' is done for all chunks at
once; a loop over the chunks does those two. No exponent is ever positive, so
nothing overflows, however strong the decay.
"""

import torch
from torch import Tensor

SPLIT = 4  # Parts of a chunk, and of a part; 64 tokens are 4 x 4 x 4.


def memory_by_token(q, k, v, g, beta=None, state=None):
    """The recurrence as it stands. q, k, g [B,T,H,K], v [B,T,H,V],
    beta [B,T,H]; g may be [B,T,H,1]. Returns o [B,T,H,V] and the state."""
    B, T, H, K = k.shape
    S = v.new_zeros(B, H, K, v.shape[-1]) if state is None else state
    out = []
    for t in range(T):
        S = g[:, t].exp().unsqueeze(-1) * S
        u = v[:, t]
        if beta is not None:
            read = torch.einsum("bhk,bhkv->bhv", k[:, t], S)
            u = beta[:, t].unsqueeze(-1) * (u - read)
        S = S + k[:, t].unsqueeze(-1) * u.unsqueeze(-2)
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return torch.stack(out, 1), S


def unit_lower_inverse(A: Tensor) -> Tensor:
    """(I + A)^-1 of strictly lower triangular A, from those of its diagonal
    blocks; as stable as substitution (a Neumann series is not):

        [X1         0 ]
        [-X2 L X1   X2 ],  L = the lower left block
    """
    C = A.shape[-1]
    if C == 2:
        return torch.eye(2, dtype=A.dtype, device=A.device) - A
    h = C // 2
    blocks = torch.stack([A[..., :h, :h], A[..., h:, h:]], -3)
    X1, X2 = unit_lower_inverse(blocks).unbind(-3)
    low = -(X2 @ A[..., h:, :h] @ X1)
    return torch.cat([torch.cat([X1, torch.zeros_like(low)], -1),
                      torch.cat([low, X2], -1)], -2)


class UnitLowerInverse(torch.autograd.Function):
    """The gradient needs the inverse alone, none of the steps to it."""

    @staticmethod
    def forward(ctx, A: Tensor) -> Tensor:
        X = unit_lower_inverse(A)
        ctx.save_for_backward(X)
        return X

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (X,) = ctx.saved_tensors
        Xt = X.transpose(-1, -2)
        return -(Xt @ grad @ Xt).tril(-1)


def pair_products(rows: list[Tensor], k: Tensor, G: Tensor) -> list[Tensor]:
    """sum_c x_i[c] k_j[c] exp(G_i[c] - G_j[c]) for j <= i, else 0; for every x
    of `rows`. [..., C, K] each, G [..., C, K] or [..., C, 1]."""
    C = k.shape[-2]
    if G.shape[-1] == 1:
        lower = torch.ones(C, C, dtype=torch.bool, device=k.device).tril()
        gap = (G - G.transpose(-1, -2)).masked_fill(~lower, float("-inf"))
        decay = gap.exp()
        return [x @ k.transpose(-1, -2) * decay for x in rows]
    return list(split_products(torch.stack(rows, -3), k, G).unbind(-3))


def split_products(rows, k, G):
    """The same for rows [..., x, C, K] and a decay per channel, [..., x, C, C]:
    the tokens are split in SPLIT parts again and again. A pair in two parts
    meets at the first token of the later part, which lies between the two."""
    C = k.shape[-2]
    if C == 1:
        return (rows * k.unsqueeze(-3)).sum(-1, keepdim=True)
    size = C // SPLIT
    parts = lambda x: x.unflatten(-2, (SPLIT, size))
    near = split_products(parts(rows).movedim(-4, -3), parts(k), parts(G))
    # A row of parts: near in its own column, nothing in the others.
    own = torch.eye(SPLIT, dtype=k.dtype, device=k.device)
    near = near.unsqueeze(-2) * own[:, None, None, :, None]
    near = near.flatten(-2).movedim(-4, -3)  # [..., x, part, i, C]

    first = parts(G)[..., 1:, :1, :]
    begin = size * torch.arange(1, SPLIT, device=k.device)
    before = torch.arange(C - size, device=k.device) < begin[:, None]
    gap = first - G[..., None, :C - size, :]  # [..., part, j, K]
    keys = k[..., None, :C - size, :] * gap.masked_fill(
        ~before.unsqueeze(-1), float("-inf")).exp()
    left = parts(rows)[..., 1:, :, :] * (
        parts(G)[..., 1:, :, :] - first).exp().unsqueeze(-4)
    far = left.movedim(-4, -3).flatten(-3, -2) @ keys.transpose(-1, -2)
    far = far.unflatten(-2, (-1, size)).movedim(-3, -4)  # [..., x, part, i, j]
    far = torch.nn.functional.pad(far, (0, size, 0, 0, 1, 0))
    return (near + far).flatten(-3, -2)


def memory(q, k, v, g, beta=None, chunk=64, state=None):
    """memory_by_token, a chunk (a power of SPLIT) at a time."""
    T = q.shape[1]
    pad = -T % chunk  # Tokens that forget nothing and write nothing.

    def cut(x: Tensor) -> Tensor:  # [B,T,H,d] to [B,H,n,C,d]
        if pad:
            x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, pad))
        return x.unflatten(1, (-1, chunk)).permute(0, 3, 1, 2, 4).contiguous()

    q, k, v, g = cut(q), cut(k), cut(v), cut(g)
    G = g.cumsum(-2)
    last = G[..., -1:, :]
    decayed = k * G.exp()          # A chunk's keys against the state before it.
    to_end = k * (last - G).exp()  # The same as the state after it has them.
    keep = last.exp().transpose(-1, -2)
    if beta is None:
        (P,) = pair_products([q], k, G)
        U0, W = v, None
    else:
        beta = cut(beta.unsqueeze(-1))
        A, P = pair_products([k, q], k, G)
        inverse = UnitLowerInverse.apply((beta * A).tril(-1))
        T_ = inverse * beta.transpose(-1, -2)
        U0, W = T_ @ v, T_ @ decayed
    S = (v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
         if state is None else state)
    states, writes = [], []
    # Taken apart once: the gradient of an index would be a tensor of all chunks.
    each = zip(U0.unbind(2), keep.unbind(2), to_end.transpose(-1, -2).unbind(2),
               W.unbind(2) if beta is not None else U0.unbind(2))
    for U, keep_n, keys, W_n in each:
        U = U if beta is None else U - W_n @ S
        states.append(S)
        writes.append(U)
        S = keep_n * S + keys @ U
    O = (q * G.exp()) @ torch.stack(states, 2) + P @ torch.stack(writes, 2)
    O = O.permute(0, 2, 3, 1, 4).flatten(1, 2)
    return O[:, :T], S
