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

BLOCK = 16  # Rows whose decays per channel are formed pair by pair.


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


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A. Diagonal blocks of s rows are
    merged to blocks of 2 s, with what lies below them:

        [X1  0 ]             [ A-rows ]
        [-X2 L X1   X2 ],  L = lower left block

    which is X - X (A * mask) X for all blocks at once, and as stable as
    substitution (a Neumann series is not)."""

    @staticmethod
    def forward(ctx, A: Tensor) -> Tensor:
        C = A.shape[-1]
        row = torch.arange(C, device=A.device)
        X = torch.eye(C, dtype=A.dtype, device=A.device).expand_as(A)
        s = 1
        while s < C:
            pair = row // (2 * s)
            upper = row // s % 2  # 1: the second half of a pair of blocks.
            mask = ((pair[:, None] == pair[None, :])
                    & (upper[:, None] == 1) & (upper[None, :] == 0))
            X = X - X @ (A * mask) @ X
            s *= 2
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
    # Blocks on the diagonal pair by pair; what is left of one through the first
    # row of the block, which lies between the two tokens.
    n = C // BLOCK
    blocks = lambda x: x.unflatten(-2, (n, BLOCK))
    lower = torch.ones(BLOCK, BLOCK, dtype=torch.bool, device=k.device).tril()
    Gb = blocks(G)
    gap = (Gb.unsqueeze(-2) - Gb.unsqueeze(-3)).masked_fill(
        ~lower.unsqueeze(-1), float("-inf"))
    keys = blocks(k).unsqueeze(-3) * gap.exp()  # [..., n, i, j, K]
    many = torch.stack([blocks(x) for x in rows], -2)  # [..., n, i, x, K]
    diagonal = many @ keys.transpose(-1, -2)  # [..., n, i, x, j]
    out = []
    for x in range(len(rows)):
        parts = []
        for b in range(n):
            at = b * BLOCK
            here = slice(at, at + BLOCK)
            row = [diagonal[..., b, :, x, :]]
            if b > 0:
                first = G[..., at:at + 1, :]
                left = rows[x][..., here, :] * (G[..., here, :] - first).exp()
                right = k[..., :at, :] * (first - G[..., :at, :]).exp()
                row.insert(0, left @ right.transpose(-1, -2))
            row = torch.cat(row, -1)
            parts.append(torch.nn.functional.pad(row, (0, C - at - BLOCK)))
        out.append(torch.cat(parts, -2))
    return out


def memory(q, k, v, g, beta=None, chunk=64, state=None):
    """memory_by_token, a chunk at a time."""
    T = q.shape[1]
    pad = -T % chunk  # Tokens that forget nothing and write nothing.

    def cut(x: Tensor) -> Tensor:  # [B,T,H,d] to [B,H,n,C,d]
        x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, pad))
        return x.unflatten(1, (-1, chunk)).permute(0, 3, 1, 2, 4)

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
    for n in range(v.shape[2]):
        U = U0[:, :, n] if W is None else U0[:, :, n] - W[:, :, n] @ S
        states.append(S)
        writes.append(U)
        S = keep[:, :, n] * S + to_end[:, :, n].transpose(-1, -2) @ U
    O = (q * G.exp()) @ torch.stack(states, 2) + P @ torch.stack(writes, 2)
    O = O.permute(0, 2, 3, 1, 4).flatten(1, 2)
    return O[:, :T], S
