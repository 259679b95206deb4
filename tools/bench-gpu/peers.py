"""Other people's kernels as contestants of bench.py: the call of each for a shape that
it can run, on the tensors of ours, and how far its result is from the truth.

FLA         fla-core, for the layers that layers.py has a call of; its Triton kernels
            are tuned at the first call of a shape.
flash_qla   FlashQLA with tilelang, Gated DeltaNet of K = V = 128. It takes the decay
            and the write strength activated and q and k normalised; the first two are
            not timed, the norms are its own.
flash_kda   FlashKDA from a library with the two functions below, built with nvcc from
            its source; K = V = 128, the bounded gate:
              int64 flash_kda_workspace(int64 B * T, int64 H, int64 N)
              int flash_kda(q, k, v, g, beta, A_log, dt_bias, out, initial, final,
                            workspace, beta_t, int B, T, H, N, cu_seqlens,
                            float scale, float lower_bound, stream)
            beta_t is room for the transposed write strengths, states are
            [N, H, V, K]; initial and cu_seqlens may be null, one of them must be.
prototype   a hand-written KDA kernel, --prototype.
"""
import ctypes
import sys

import torch
import torch.nn.functional as F

from layers import LAYERS, reference, relative
from plumrt import Tensors


def pointer(x):
    return ctypes.c_void_p(None if x is None else x.data_ptr())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def prototype(lib, t, shape):
    """K = V = 128, bounded gate, no initial state."""
    x, p = t.inputs, t.params
    B, T, H = shape.B, shape.T, shape.H
    chunks, device = -(-T // 64), x["q"].device
    blob = torch.empty((B * H * chunks + 64) * 66560, dtype=torch.uint8, device=device)
    flags = torch.zeros(B * H * chunks * 2 + 40960, dtype=torch.int32, device=device)
    P = {12: 4, 8: 5}.get(B * H, 1)
    scratch = torch.empty(3 * B * H * P * 16384, device=device) if P > 1 else None
    o, state = torch.empty_like(x["v"]), torch.empty(B, H, 128, 128, device=device)

    def call():
        failed = lib.kda(*map(pointer, (x["q"], x["k"], x["v"], x["f"], x["b"], p["A_log"], p["dt_bias"], o, state,
                                        blob, flags)), B, T, H, 3, 2 if B * H > 66 else 1, 0, 0, P, pointer(scratch),
                         stream())
        if failed:
            raise RuntimeError(f"the prototype failed: {failed}")
        return o, state
    return call


def flash_kda(lib, t, shape):
    x, p = t.inputs, t.params
    B, T, H, N = shape.B, shape.T, shape.H, shape.sequences
    device = x["q"].device
    lib.flash_kda_workspace.restype = ctypes.c_int64
    lib.flash_kda_workspace.argtypes = [ctypes.c_int64] * 3
    lib.flash_kda.argtypes = ([ctypes.c_void_p] * 12 + [ctypes.c_int] * 4 + [ctypes.c_void_p]
                              + [ctypes.c_float] * 2 + [ctypes.c_void_p])
    workspace = torch.empty(lib.flash_kda_workspace(B * T, H, N), dtype=torch.uint8, device=device)
    turned = torch.empty(B * T * H, dtype=torch.bfloat16, device=device)
    o, state = torch.empty_like(x["v"]), torch.empty(N, H, 128, 128, device=device)
    initial = t.initial["S"].mT.contiguous() if t.initial else None

    def call():
        failed = lib.flash_kda(*map(pointer, (x["q"], x["k"], x["v"], x["f"], x["b"], p["A_log"], p["dt_bias"], o,
                                              initial, state, workspace, turned)), B, T, H, N,
                               pointer(t.cu_seqlens), 128**-0.5, -5.0, stream())
        if failed:
            raise RuntimeError(f"FlashKDA failed: {failed}")
        return o, state.mT
    return call


def flash_qla(t):
    from flash_qla import chunk_gated_delta_rule
    x, p = t.inputs, t.params
    g = -torch.exp(p["A_log"]) * F.softplus(x["a"].float() + p["dt_bias"])
    beta = torch.sigmoid(x["b"].float())
    return lambda: chunk_gated_delta_rule(x["q"], x["k"], x["v"], g, beta, initial_state=t.initial.get("S"),
                                          output_final_state=True, use_qk_l2norm_in_kernel=True,
                                          cu_seqlens=t.cu_seqlens)


def fits_kda(layer, manifest, shape):
    return layer == "kda_k3" and manifest["dims"] == {"K": 128, "V": 128} and shape.T > 1 and not shape.slots


def calls(layer, manifest, sets, shape, options):
    """Name -> one call for each set of tensors."""
    found = {}
    dense = [t if t.slots is None else
             Tensors(t.inputs, t.params, t.outputs, {n: x[:shape.sequences].contiguous()
                                                     for n, x in t.initial.items()}, cu_seqlens=t.cu_seqlens)
             for t in sets]
    if options.fla:
        try:
            made = [LAYERS[layer].fla(t, shape.T == 1) for t in dense]
            if all(made):
                found["fla"] = made
        except ImportError as error:
            print(f"note: no FLA: {error}", file=sys.stderr)
            options.fla = False
    if options.flash_qla and layer == "gated_deltanet" and shape.T > 1:
        try:
            found["flash_qla"] = [flash_qla(t) for t in dense]
        except Exception as error:  # it looks for a GPU and a compiler when it is imported
            print(f"note: no FlashQLA: {error}", file=sys.stderr)
            options.flash_qla = False
    if options.flash_kda and fits_kda(layer, manifest, shape) and not (shape.packed and shape.initial):
        lib = ctypes.CDLL(options.flash_kda)
        found["flash_kda"] = [flash_kda(lib, t, shape) for t in sets]
    if options.prototype and fits_kda(layer, manifest, shape) and not shape.packed and not shape.initial:
        lib = ctypes.CDLL(options.prototype)
        found["prototype"] = [prototype(lib, t, shape) for t in sets]
    return found


def error(layer, t, result, sample):
    """R of a peer's outputs and states, so that its time is of the same work."""
    o, state = result[0], result[1]
    state = state[0] if isinstance(state, tuple) else state
    R, S = 0.0, 0.0
    for entry in reference(LAYERS[layer], t, sample):
        if entry is None:
            continue
        (b, begin, end), slot, outputs, states = entry
        R = max(R, relative(o[b, begin:end][:, sample], next(iter(outputs.values()))))
        S = max(S, relative(state[slot, sample], states["S"]))
    return {"R": R, "S": S}
