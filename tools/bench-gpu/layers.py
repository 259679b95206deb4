"""What bench.py knows about each layer of docs/layers: fresh inputs, the
recurrence in float64 token by token, and the call of flash-linear-attention
(fla-core) that computes the same.

A layer's `terms` turns inputs into the terms of one step: a decay, then updates
one after the other, then what is read,

    S <- exp(g) S;  S <- S + k^T beta (v - e S)  for each update;  o = q S

so that there is one loop for all of them. Shapes are [T, H, ...] for one
sequence, with the heads of q and k repeated where values have more.
"""
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F


def l2norm(x, eps=1e-6):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)


@dataclass
class Update:
    """float64 [T, H, ...]: S += k^T beta (v - erase S)."""
    k: torch.Tensor
    v: torch.Tensor
    erase: torch.Tensor = None  # None: only adds
    beta: torch.Tensor = None   # [T, H]; None: 1


@dataclass
class Terms:
    """float64 [T, H, ...]; g is [.., K], [.., 1] or None."""
    q: torch.Tensor
    updates: list
    g: torch.Tensor = None
    counts: bool = False  # a second state z, the sum of k
    add: torch.Tensor = None  # to the output
    more: dict = field(default_factory=dict)  # outputs that read no state


def recur(x, state, z=None):
    """Runs a sequence from `state` [H, K, V]; returns outputs, state, z."""
    outputs = torch.empty_like(x.updates[0].v)
    for t in range(outputs.shape[0]):
        if x.g is not None:
            state = state * torch.exp(x.g[t])[..., None]
        for update in x.updates:
            u = update.v[t]
            if update.erase is not None:
                u = u - torch.einsum("hk,hkv->hv", update.erase[t], state)
            if update.beta is not None:
                u = update.beta[t][..., None] * u
            state = state + update.k[t][..., None] * u[..., None, :]
        o = torch.einsum("hk,hkv->hv", x.q[t], state)
        if x.counts:
            z = z + x.updates[0].k[t]
            o = o / (x.q[t] * z).sum(-1, keepdim=True)
        outputs[t] = o
    if x.add is not None:
        outputs = outputs + x.add
    return outputs, state, z


def delta(k, v, beta):
    return Update(k, v, erase=k, beta=beta)


class Kda:
    """Kimi Delta Attention; the unbounded gate of Kimi Linear."""
    lower_bound = None
    keyed = ("q", "k")  # inputs that may have fewer heads
    # Gates that have broken kernels: strong, slow, both at once, at the bound.
    modes = ("plain", "strong", "slow", "mixed")

    def params(self, rand, H, K, mode):
        A, bias = rand(H), rand(H, K)
        if mode == "strong":
            A, bias = rand(H).abs() * 0.5 + 1, rand(H, K) + 12
        elif mode == "slow":
            A, bias = 0.3 * rand(H), rand(H, K) - 6
        elif mode == "mixed":
            A, bias = 0.3 * rand(H), 3 * rand(H, K)
        return {"A_log": A, "dt_bias": bias}

    def gate(self, f, p):
        return -torch.exp(p["A_log"])[:, None] * F.softplus(f + p["dt_bias"], threshold=1000)

    def terms(self, x, p):
        K = x["q"].shape[-1]
        update = delta(l2norm(x["k"]), x["v"], torch.sigmoid(x["b"]))
        return Terms(l2norm(x["q"]) * K**-0.5, [update], self.gate(x["f"], p))

    def fla(self, t, decode):
        from fla.ops.kda import chunk_kda, fused_recurrent_kda
        x, p = t.inputs, t.params
        call = fused_recurrent_kda if decode else chunk_kda
        extra = {} if decode else {"safe_gate": self.lower_bound is not None}
        return lambda: call(
            q=x["q"], k=x["k"], v=x["v"], g=x["f"], beta=x["b"], A_log=p["A_log"],
            dt_bias=p["dt_bias"].flatten(), initial_state=t.initial.get("S"), output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            lower_bound=self.lower_bound, cu_seqlens=t.cu_seqlens, **extra)


class KdaK3(Kda):
    """Kimi K3's: bounded below by -5."""
    lower_bound = -5.0
    modes = ("plain", "strong", "slow", "mixed", "bound")

    def params(self, rand, H, K, mode):
        if mode == "bound":
            return {"A_log": 0 * rand(H), "dt_bias": 0 * rand(H, K) + 30}
        return super().params(rand, H, K, mode)

    def gate(self, f, p):
        return -5 * torch.sigmoid(torch.exp(p["A_log"])[:, None] * (f + p["dt_bias"]))


class GatedDeltaNet:
    keyed = ("q", "k")
    modes = ("plain", "slow")

    def params(self, rand, H, K, mode):
        return {"A_log": rand(H), "dt_bias": rand(H) - (6 if mode == "slow" else 0)}

    def terms(self, x, p):
        K = x["q"].shape[-1]
        g = -torch.exp(p["A_log"]) * F.softplus(x["a"] + p["dt_bias"], threshold=1000)
        update = delta(l2norm(x["k"]), x["v"], torch.sigmoid(x["b"]))
        return Terms(l2norm(x["q"]) * K**-0.5, [update], g[..., None])

    def fla(self, t, decode):
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
        x, p = t.inputs, t.params
        call = fused_recurrent_gated_delta_rule if decode else chunk_gated_delta_rule
        return lambda: call(
            q=x["q"], k=x["k"], v=x["v"], g=x["a"], beta=x["b"], A_log=p["A_log"], dt_bias=p["dt_bias"],
            initial_state=t.initial.get("S"), output_final_state=True, use_qk_l2norm_in_kernel=True,
            use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, cu_seqlens=t.cu_seqlens)


class DeltaNet:
    keyed = ()
    modes = ("plain",)

    def params(self, rand, H, K, mode):
        return {}

    def terms(self, x, p):
        K = x["q"].shape[-1]
        return Terms(l2norm(x["q"]) * K**-0.5, [delta(l2norm(x["k"]), x["v"], torch.sigmoid(x["b"]))])

    def fla(self, t, decode):
        from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
        x = t.inputs
        beta = torch.sigmoid(x["b"])  # not timed: FLA has no fused sigmoid here
        call = fused_recurrent_delta_rule if decode else chunk_delta_rule
        return lambda: call(q=x["q"], k=x["k"], v=x["v"], beta=beta, initial_state=t.initial.get("S"),
                            output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=t.cu_seqlens)


class Gla:
    keyed = ()
    modes = ("plain",)

    def params(self, rand, H, K, mode):
        return {}

    def terms(self, x, p):
        K = x["q"].shape[-1]
        return Terms(x["q"] * K**-0.5, [Update(x["k"], x["v"])], F.logsigmoid(x["g"]) / 16)

    def fla(self, t, decode):
        from fla.ops.gla import chunk_gla, fused_recurrent_gla
        x = t.inputs
        gate = F.logsigmoid(x["g"].float()) / 16  # not timed, nor in bf16
        if decode:
            return lambda: fused_recurrent_gla(q=x["q"], k=x["k"], v=x["v"], gk=gate,
                                               initial_state=t.initial.get("S"), output_final_state=True,
                                               cu_seqlens=t.cu_seqlens)
        return lambda: chunk_gla(q=x["q"], k=x["k"], v=x["v"], g=gate, initial_state=t.initial.get("S"),
                                 output_final_state=True, cu_seqlens=t.cu_seqlens)


class Mamba2:
    keyed = ("C", "B")
    modes = ("plain",)

    def params(self, rand, H, K, mode):
        return {"A_log": torch.log(1 + 15 * torch.sigmoid(rand(H))), "dt_bias": rand(H) - 2, "D": rand(H)}

    def terms(self, x, p):
        step = F.softplus(x["dt"] + p["dt_bias"], threshold=1000)
        g = -torch.exp(p["A_log"]) * step
        return Terms(x["C"], [Update(x["B"], x["x"], beta=step)], g[..., None], add=p["D"][:, None] * x["x"])

    def fla(self, t, decode):
        from fla.ops.simple_gla import chunk_simple_gla
        x, p = t.inputs, t.params
        H = x["x"].shape[2]
        step = F.softplus(x["dt"].float() + p["dt_bias"])
        gate = -torch.exp(p["A_log"]) * step  # gate, dt x and D x are not timed
        v = (x["x"] * step[..., None]).to(x["x"].dtype)
        q, k = (heads(y, 2, H) for y in (x["C"], x["B"]))
        return None if decode else lambda: chunk_simple_gla(
            q=q, k=k, v=v, g=gate, scale=1.0, initial_state=t.initial.get("S"), output_final_state=True,
            cu_seqlens=t.cu_seqlens)


class LinearAttention:
    keyed = ()
    modes = ("plain",)

    def params(self, rand, H, K, mode):
        return {}

    def terms(self, x, p):
        return Terms(F.elu(x["q"]) + 1, [Update(F.elu(x["k"]) + 1, x["v"])], counts=True)

    def fla(self, t, decode):
        from fla.ops.linear_attn import chunk_linear_attn
        x = t.inputs
        q, k = F.elu(x["q"]) + 1, F.elu(x["k"]) + 1  # not timed
        initial = (t.initial["S"], t.initial["z"][:, None]) if t.initial else None
        return None if decode else lambda: chunk_linear_attn(
            q=q, k=k, v=x["v"], scale=1.0, initial_state=initial, output_final_state=True, normalize=True,
            cu_seqlens=t.cu_seqlens)


class Gdn2(Kda):
    """Gated DeltaNet-2: erases and writes by gates of their own."""
    keyed = ("q", "k")

    def terms(self, x, p):
        K = x["q"].shape[-1]
        k = l2norm(x["k"])
        update = Update(k, torch.sigmoid(x["w"]) * x["v"], erase=torch.sigmoid(x["b"]) * k)
        return Terms(l2norm(x["q"]) * K**-0.5, [update], self.gate(x["f"], p))

    def fla(self, t, decode):
        return None


class DeltaProduct(GatedDeltaNet):
    """Two updates a token, the decay before the first."""
    keyed = ("q", "k1", "k2")

    def terms(self, x, p):
        K = x["q"].shape[-1]
        g = -torch.exp(p["A_log"]) * F.softplus(x["a"] + p["dt_bias"], threshold=1000)
        updates = [delta(l2norm(x["k" + i]), x["v" + i], 2 * torch.sigmoid(x["b" + i])) for i in "12"]
        return Terms(l2norm(x["q"]) * K**-0.5, updates, g[..., None])

    def fla(self, t, decode):
        return None


class Rwkv7:
    keyed = ()
    modes = ("plain",)

    def params(self, rand, H, K, mode):
        return {"xi": rand(H, K), "alpha": rand(H, K), "rho": rand(H, K)}

    def terms(self, x, p):
        g = -math.exp(-0.5) * torch.sigmoid(x["d"])
        a = torch.sigmoid(x["i"])
        kappa = l2norm(x["k"] * p["xi"], eps=1e-12)
        k = x["k"] * (1 + (a - 1) * p["alpha"])
        # The removal reads what there was before the decay.
        remove = Update(-a * kappa, torch.zeros_like(x["v"]), erase=-kappa * torch.exp(-g))
        bonus = (x["r"] * p["rho"] * k).sum(-1, keepdim=True) * x["v"]
        return Terms(x["r"], [remove, Update(k, x["v"])], g, more={"bonus": bonus})

    def fla(self, t, decode):
        return None


class RetNet:
    keyed = ("q", "k")
    modes = ("plain",)

    def params(self, rand, H, K, mode):
        # As the paper's 1 - 2^(-5 - h), and faster ones.
        return {"log_gamma": torch.log1p(-2 ** (-1 - 7 * torch.sigmoid(rand(H))))}

    def terms(self, x, p):
        g = p["log_gamma"].expand(x["q"].shape[:2])[..., None]
        return Terms(x["q"] * x["q"].shape[-1]**-0.5, [Update(x["k"], x["v"])], g)

    def fla(self, t, decode):
        return None


LAYERS = {"kda": Kda(), "kda_k3": KdaK3(), "gated_deltanet": GatedDeltaNet(), "deltanet": DeltaNet(),
          "gla": Gla(), "mamba2": Mamba2(), "linear_attention": LinearAttention(), "gdn2": Gdn2(),
          "deltaproduct": DeltaProduct(), "rwkv7": Rwkv7(), "retnet": RetNet()}


def heads(x, axis, count):
    """Repeats shared heads: head h reads h / group."""
    return x if x.shape[axis] == count else x.repeat_interleave(count // x.shape[axis], axis)


def reference(layer, t, sample):
    """For each sequence: (rows, slot, outputs, states), both dicts, in float64 on
    the rounded inputs, for the heads in `sample`. Rows are (batch, begin, end),
    an output is [T, h, V]. None for a sequence whose slot is -1. On the CPU,
    which does a few heads of a token sooner than a GPU is asked to."""
    B, T = next(iter(t.inputs.values())).shape[:2]
    H = max(x.shape[2] for x in t.inputs.values())
    if t.cu_seqlens is None:
        spans = [(b, 0, T) for b in range(B)]
    else:
        cu = t.cu_seqlens.tolist()
        spans = [(0, cu[i], cu[i + 1]) for i in range(len(cu) - 1)]
    slots = range(len(spans)) if t.slots is None else t.slots.tolist()
    p = {name: x[sample].cpu().double() for name, x in t.params.items()}
    initial = {name: x[:, sample].cpu().double() for name, x in t.initial.items()}
    results = []
    for (b, begin, end), slot in zip(spans, slots):
        if slot < 0:
            results.append(None)
            continue
        x = {name: heads(y[b, begin:end], 1, H)[:, sample].cpu().double() for name, y in t.inputs.items()}
        terms = layer.terms(x, p)
        update = terms.updates[0]
        h, K, V = len(sample), update.k.shape[-1], update.v.shape[-1]
        zeros = update.v.new_zeros
        S = initial["S"][slot] if initial else zeros(h, K, V)
        z = initial["z"][slot] if "z" in initial else zeros(h, K)
        o, S, z = recur(terms, S, z)
        outputs = dict(zip(t.outputs, [o, *terms.more.values()]))
        results.append(((b, begin, end), slot, outputs, {"S": S, "z": z}))
    return results


def measures(x, ref):
    """R, W, M of [T, h, V] as docs/checking.md defines them."""
    error = x.cpu().double() - ref
    rms = math.sqrt(ref.square().mean().item())
    R = math.sqrt(error.square().mean().item()) / rms
    W = 0.0
    for t in range(0, x.shape[0], 16):
        of = ref[t:t + 16].square().mean((0, -1)).sqrt().clamp_min(0.05 * rms)
        W = max(W, (error[t:t + 16].square().mean((0, -1)).sqrt() / of).max().item())
    return R, W, (error.abs().max() / ref.abs().max()).item()


def relative(x, ref):
    return ((x.cpu().double() - ref).square().mean().sqrt() / ref.square().mean().sqrt()).item()
