"""The shapes that bench.py runs, and their tensors: fresh inputs, everything else
NaN, with guards around what is written.
"""
import math

import torch

from layers import LAYERS
from plumrt import Tensors

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
GUARD = 64        # rows beyond the last token
UNTOUCHED = 777.0
PACKED = [1300, 547, 2048, 963, 271, 3063]


class Shape:
    def __init__(self, B=1, T=0, H=1, HK=0, packed=None, slots=False, initial=False, mode="plain", fused=False):
        self.B, self.T, self.H, self.HK = B, sum(packed) if packed else T, H, HK or H
        self.packed, self.slots, self.mode, self.fused = packed, slots, mode, fused
        self.initial = initial or slots

    @property
    def sequences(self):
        return len(self.packed) if self.packed else self.B

    @property
    def padded(self):
        """Sequence 1 has slot -1; where many are timed, all of them count."""
        return self.slots and 2 < self.sequences <= 16

    def fields(self):
        f = {"B": self.B, "T": self.T, "H": self.H}
        if self.HK != self.H:
            f["HK"] = self.HK
        if self.packed:
            f["packed"] = self.packed
        for name in ("slots", "initial", "fused"):
            if getattr(self, name):
                f[name] = True
        if self.mode != "plain":
            f["mode"] = self.mode
        return f


def time_shapes(layer):
    if layer in ("kda", "kda_k3"):
        return ([Shape(T=8192, H=h) for h in (96, 64, 32, 24, 12, 8)]
                + [Shape(B=4, T=2048, H=64), Shape(T=32768, H=32), Shape(packed=PACKED, H=96),
                   Shape(B=64, T=1, H=32, slots=True), Shape(B=1, T=1, H=32, slots=True)])
    if layer == "gated_deltanet":
        return [Shape(T=8192, H=64, HK=16), Shape(T=8192, H=32, HK=16)]
    return [Shape(T=8192, H=32)]


def check_shapes(layer):
    shapes = [Shape(T=200, H=3, mode=mode) for mode in LAYERS[layer].modes]
    shapes += [Shape(T=t, H=2) for t in (1, 15, 17, 63, 64, 65, 129)]
    shapes += [Shape(B=3, T=130, H=2, initial=True), Shape(T=1500, H=2),
               Shape(packed=[1, 0, 63, 64, 1, 71, 11], H=4, initial=True),
               Shape(packed=[0, 0], H=2, initial=True),
               Shape(B=8, T=1, H=4, slots=True), Shape(packed=[1] * 8, H=4, slots=True),
               Shape(packed=[70, 0, 3, 64], H=2, slots=True),
               Shape(T=97, H=4, fused=True), Shape(T=8192, H=1), Shape(B=600, T=2, H=110)]
    if LAYERS[layer].keyed:
        shapes += [Shape(T=150, H=8, HK=2)]
    return shapes


def rows_of(x, t, n):
    """Rows of sequence n."""
    return x[n] if t.cu_seqlens is None else x[0, t.cu_seqlens[n]:t.cu_seqlens[n + 1]]


def make(layer, manifest, shape, device, generator):
    """Tensors of a run with guards around them, and what must stay as it is."""
    known, dims = LAYERS[layer], manifest["dims"]

    def rand(*size):
        return torch.randn(*size, device=device, generator=generator)

    rows = shape.B * shape.T
    inputs, outputs = {}, {}
    entries = {e["name"]: e for e in manifest["inputs"]}
    count = {name: shape.HK if name in known.keyed else shape.H for name in entries}
    # One buffer for all of one dtype, each row padded to 16 bytes.
    fused = {}
    if shape.fused:
        for dtype in {e["dtype"] for e in entries.values()}:
            width = sum(-(-count[n] * math.prod(e["shape"]) // 8) * 8 for n, e in entries.items()
                        if e["dtype"] == dtype)
            fused[dtype] = [torch.full((rows + GUARD, width + 8), math.nan, dtype=TORCH[dtype], device=device), 0]
    for name, entry in entries.items():
        d, H, dtype = math.prod(entry["shape"]), count[name], TORCH[entry["dtype"]]
        if shape.fused:
            whole, column = fused[entry["dtype"]]
            fused[entry["dtype"]][1] += -(-H * d // 8) * 8
            buffer = whole[:, column:column + H * d]
        else:
            buffer = torch.full((rows + GUARD, H * d), math.nan, dtype=dtype, device=device)
        buffer[:rows] = rand(rows, H * d).to(dtype)
        inputs[name] = buffer[:rows].unflatten(-1, [H] + entry["shape"]).unflatten(0, [shape.B, shape.T])
    params = {name: x.float().to(TORCH[entry["dtype"]]) for (name, x), entry in
              zip(known.params(rand, shape.H, dims["K"], shape.mode).items(), manifest["params"])}
    guards = []
    for entry in manifest["outputs"]:
        d = math.prod(entry["shape"])
        buffer = torch.full((rows + GUARD, shape.H * d), UNTOUCHED, dtype=TORCH[entry["dtype"]], device=device)
        buffer[:rows] = math.nan
        guards.append(buffer[rows:])
        outputs[entry["name"]] = (buffer[:rows].unflatten(-1, [shape.H] + entry["shape"])
                                  .unflatten(0, [shape.B, shape.T]))
    pool = shape.sequences + 3 if shape.slots else shape.sequences
    final = {e["name"]: torch.full([pool, shape.H] + e["shape"], math.nan, device=device)
             for e in manifest["states"]}
    t = Tensors(inputs, params, outputs, final=final)
    if shape.initial:
        # |z| so that linear attention divides by no zero.
        t.initial = {name: 0.25 * rand(*x.shape) if name != "z" else rand(*x.shape).abs() for name, x in
                     final.items()}
    if shape.slots:
        t.final = {name: x.clone() for name, x in t.initial.items()}  # in place, see below
        slots = torch.randperm(pool, generator=torch.Generator().manual_seed(1))[:shape.sequences]
        if shape.padded:
            slots[1] = -1
        t.slots = slots.to(device)
    if shape.packed is not None:
        lengths = torch.tensor(shape.packed)
        t.cu_seqlens = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(device)
    if shape.padded:  # nobody reads a row of padding
        for x in inputs.values():
            rows_of(x, t, 1).fill_(math.nan)
    return t, guards


def in_place(t):
    """Pools are updated where they lie."""
    if t.slots is None:
        return t
    return Tensors(t.inputs, t.params, t.outputs, t.final, t.final, t.cu_seqlens, t.slots)


def parse_shape(text, packed):
    fields = {}
    for part in filter(None, text.split(",")):
        name, value = part.split("=")
        if name not in ("B", "T", "H", "HK", "slots", "initial", "fused", "mode"):
            raise SystemExit(f"--shape: '{part}' is unknown")
        fields[name] = value if name == "mode" else int(value)
    if packed:
        fields["packed"] = [int(n) for n in packed.split(",")]
    return Shape(**fields)
