"""What cases.py is written in: portable random numbers, the data of a case rounded
to what a bundle stores, one run of it in each form, and the comparisons.

A case builds its data once for each layer and storage type, and with it the
float64 truth; every configuration of the bundle is then run on it:
the step form, and the chunk form of each size with 1 to 5 segments forced and
with the number that the runtime chooses.
"""
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

import plumrt
from layers import LAYERS, Terms, Update, delta, reference
from plumrt import Tensors

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
GUARD, UNTOUCHED = 64, 777.0
STANDARD = {"R": 5e-3, "W": 1e-2, "M": 2e-2, "S": 5e-3}
F32 = {"R": 1e-5, "W": 2e-5, "M": 4e-5, "S": 1e-5}
NEARLY = {"R": 1e-3, "S": 1e-4}  # required where equal bytes are wanted


# ---------------------------------------------------------------- numbers

def bits(seed, tid, i):
    """The 32-bit generator of the cases; `i` int32, arithmetic that wraps."""
    def wrap(n):
        n &= 0xFFFFFFFF
        return n - (1 << 32) if n >> 31 else n

    def shift(x, n):  # without the sign
        return (x >> n) & ((1 << (32 - n)) - 1)

    x = i * wrap(0x9E3779B9) + wrap((seed * 0x9E3779B1 & 0xFFFFFFFF) ^ (tid * 0x85EBCA77 & 0xFFFFFFFF))
    for n, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = (x ^ shift(x, n)) * wrap(factor)
    return x ^ shift(x, 15)


def U(seed, tid, shape, device, first=0, step=1):
    """Uniform numbers of elements first, first + step, ... in float64."""
    i = torch.arange(math.prod(shape), dtype=torch.int32, device=device) * step + first
    x = bits(seed, tid, i).double()
    return ((torch.where(x < 0, x + 2.0**32, x) + 0.5) / 2**32).reshape(shape)


def N(seed, tid, shape, device):
    radius = torch.sqrt(-2 * torch.log(U(seed, tid, shape, device, 0, 2)))
    return radius * torch.cos(2 * math.pi * U(seed, tid, shape, device, 1, 2))


def softplus(x):
    return F.softplus(x, threshold=1000)


# ---------------------------------------------------------------- layers

class Raw:
    """The test suite's specs with activated gates and normalised q and k."""

    def __init__(self, terms, keyed=("q", "k")):
        self.terms, self.keyed = terms, keyed


def scaled(x):
    return x["q"] * x["q"].shape[-1]**-0.5


def kda_gate(x, p):
    g = -5 * torch.sigmoid(torch.exp(p["A_log"])[:, None] * (x["f"] + p["dt_bias"]))
    return Terms(scaled(x), [delta(x["k"], x["v"], x["beta"])], g)


KNOWN = {
    "kda_raw": Raw(lambda x, p: Terms(scaled(x), [delta(x["k"], x["v"], x["beta"])], x["g"])),
    "kda_gate": Raw(kda_gate),
    "gdn_raw": Raw(lambda x, p: Terms(scaled(x), [delta(x["k"], x["v"], x["beta"])], x["g"][..., None])),
    "deltanet_raw": Raw(lambda x, p: Terms(scaled(x), [delta(x["k"], x["v"], x["beta"])])),
    "linear_raw": Raw(lambda x, p: Terms(scaled(x), [Update(x["k"], x["v"])])),
    "scalar_decay_raw": Raw(lambda x, p: Terms(scaled(x), [Update(x["k"], x["v"], beta=x["beta"])],
                                               x["g"][..., None])),
    "mamba2_raw": Raw(lambda x, p: Terms(x["q"], [Update(x["k"], x["v"], beta=x["dt"])],
                                         (p["A"] * x["dt"])[..., None])),
    **{name: LAYERS[name] for name in ("kda", "kda_k3", "gated_deltanet")},
}


# ---------------------------------------------------------------- runs

@dataclass(frozen=True)
class How:
    form: int
    chunk: int = 0
    segments: int = 1  # 0: what the runtime chooses

    def __str__(self):
        if self.form == plumrt.STEP:
            return "step"
        return f"chunk {self.chunk}" + (f" x{self.segments or ' auto'}" if self.segments != 1 else "")


@dataclass
class Values:
    """Outputs and final states of a run by name."""
    o: dict
    S: dict


def measures(x, ref):
    """R, W, M of [T, H, V] as docs/checking.md defines them; infinite for what is not finite."""
    error, ref = (x.double() - ref).movedim(1, 0), ref.movedim(1, 0)  # [H, T, V]
    rms = ref.square().mean().sqrt()
    windows = lambda y: (F.pad(y.square().sum(-1), (0, -y.shape[1] % 16)).unflatten(1, (-1, 16)).sum(-1))
    of = torch.full_like(ref[..., 0], ref.shape[-1])
    count = F.pad(of, (0, -ref.shape[1] % 16)).unflatten(1, (-1, 16)).sum(-1)
    W = ((windows(error) / count).sqrt() / (windows(ref) / count).sqrt().clamp_min(0.05 * rms)).max()
    all_of = torch.stack([error.square().mean().sqrt() / rms, W, error.abs().max() / ref.abs().max()]).tolist()
    return [value if math.isfinite(value) else math.inf for value in all_of]


def relative(x, ref):
    value = ((x.double() - ref.double()).square().mean().sqrt() / ref.double().square().mean().sqrt()).item()
    return value if math.isfinite(value) else math.inf


def same_bytes(a, b):
    return a.shape == b.shape and torch.equal(*(
        x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32) for x in (a, b)))


@dataclass
class Score:
    """What became of the runs of one case."""
    runs: int = 0
    failed: int = 0
    same: int = 0
    compared: int = 0
    worst: dict = field(default_factory=lambda: dict.fromkeys("RWMS", 0.0))


class Kit:
    """One bundle, and the case that is being run on it."""

    def __init__(self, handle, device, label, report, others, truths, only=None):
        self.handle, self.device, self.label, self.report = handle, device, label, report
        self.layer = handle.manifest["layer"]
        self.K, self.V = (handle.manifest["dims"][d] for d in "KV")
        self.dtypes = {e["name"]: e["dtype"] for kind in ("inputs", "params", "outputs")
                       for e in handle.manifest[kind]}
        self.narrow = any(e["dtype"] != "f32" for e in handle.manifest["outputs"])
        # The published properties are of bf16 q, k, v beside f32 gates.
        self.as_published = (self.layer not in LAYERS and self.narrow
                             and all(self.dtypes.get(n) != "bf16" for n in ("g", "beta", "dt", "f")))
        self.limits = STANDARD if self.narrow else F32
        self.others, self.truths = others, truths
        self.scores, self.case, self.problems = defaultdict(Score), "", []
        kernels = handle.manifest["kernels"]
        sizes = sorted({k["chunk"] for k in kernels if k["form"] == "chunk"})
        self.splits = {c: handle.on_gpu and any(k.get("role") == "summary" and k.get("chunk") == c for k in kernels)
                       for c in sizes}
        self.step = How(plumrt.STEP)
        self.has_step = any(k["form"] == "step" for k in kernels)

    def configurations(self, tokens):
        """Every way to run the longest sequence or batch of so many tokens."""
        ways = [self.step] if self.has_step else []
        for chunk, splits in self.splits.items():
            most = max(-(-tokens // chunk), 1)
            ways += [How(plumrt.CHUNK, chunk, n) for n in range(1, min(5, most if splits else 1) + 1)]
            if splits and most > 1:
                ways.append(How(plumrt.CHUNK, chunk, 0))
        return ways

    def fits(self, how, tokens):
        """The same for fewer tokens: no more segments than chunks."""
        if how.form == plumrt.STEP or how.segments <= 1:
            return how
        return replace(how, segments=min(how.segments, max(-(-tokens // how.chunk), 1)))

    # ------------------------------------------------------------ data

    def n(self, seed, tid, *shape):
        return N(seed, tid, shape, self.device)

    def u(self, seed, tid, *shape):
        return U(seed, tid, shape, self.device)

    def rows(self, x):
        """[B, T, h, ...] rounded, at the front of a buffer whose other rows are NaN."""
        buffer = torch.full((x.shape[0] * x.shape[1] + GUARD, *x.shape[2:]), math.nan, dtype=x.dtype,
                            device=x.device)
        buffer[:x.shape[0] * x.shape[1]] = x.flatten(0, 1)
        return buffer[:x.shape[0] * x.shape[1]].unflatten(0, x.shape[:2])

    def data(self, inputs, params=None, S=None, offsets=None):
        """Float64 tensors as the bundle stores them; those it has no input for are left out."""
        kept = {e["name"]: self.rows(inputs[e["name"]].to(TORCH[e["dtype"]])) for e in self.handle.manifest["inputs"]}
        t = Tensors(kept, {e["name"]: params[e["name"]].to(TORCH[e["dtype"]]) for e in
                           self.handle.manifest["params"]}, {})
        if S is not None:
            t.initial = {"S": S.float()}
        if offsets:
            t.cu_seqlens = torch.tensor(offsets, device=self.device)
        return t

    def delta(self, seed, B, T, H, K, V, qk=0):
        """q and k of norm 1 (raw, where the layer normalises them), v, beta = sigmoid(N) and raw."""
        q, k = self.n(seed, 1, B, T, qk or H, K), self.n(seed, 2, B, T, qk or H, K)
        if self.layer not in LAYERS:
            q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        b = self.n(seed, 5, B, T, H)
        return {"q": q, "k": k, "v": self.n(seed, 3, B, T, H, V), "beta": torch.sigmoid(b), "b": b}

    def heads(self, t):
        return max(x.shape[2] for x in t.inputs.values())

    def truth(self, t, key=None):
        """Per sequence (rows, slot, outputs, states) in float64; kept under `key`."""
        key = key and (self.case, self.layer, self.K, self.V, tuple(self.dtypes.items()), key)
        if key in self.truths:
            return self.truths[key]
        t = replace(t, outputs={"o": None})
        found = [r and (r[0], r[1], {n: x.to(self.device) for n, x in r[2].items()},
                        {"S": r[3]["S"].to(self.device)})
                 for r in reference(KNOWN[self.layer], t, list(range(self.heads(t))))]
        if key:
            self.truths[key] = found
        return found

    # ------------------------------------------------------------ one run

    def run(self, t, how, final=None, layout=plumrt.KV, every=0, shape=None):
        """Runs it and gives fresh outputs and states; notes rows that were touched."""
        B, T = next(iter(t.inputs.values())).shape[:2]
        H, entry = self.heads(t), self.handle.manifest["outputs"][0]
        spare = torch.full((B * T + GUARD, H, self.V), UNTOUCHED, dtype=TORCH[entry["dtype"]], device=self.device)
        o = spare[:B * T].unflatten(0, (B, T))
        count = B if t.cu_seqlens is None else t.cu_seqlens.numel() - 1
        kv = (self.K, self.V) if layout == plumrt.KV else (self.V, self.K)
        if final is None:
            final = torch.full((count, H, *kv), math.nan, device=self.device)
        run = Tensors(t.inputs, t.params, {entry["name"]: o}, t.initial, {"S": final}, t.cu_seqlens, t.slots)
        if every:
            run.every, kept = every, B * (T // every)
            if t.cu_seqlens is not None and not self.handle.on_gpu:  # which asks for the most there can be
                kept = int((t.cu_seqlens.diff() // every).sum())
            run.snapshots = {"S": torch.full((kept, H, *kv), math.nan, device=self.device)}
        if self.handle.on_gpu:
            plan = self.handle.plan(run, form=how.form, chunk=how.chunk, segments=how.segments, layout=layout)
            plan.workspace.fill_(255)
            plan.launch(run)
        else:
            self.handle.run(run, form=how.form, chunk=how.chunk, layout=layout)
        if not bool((spare[B * T:] == UNTOUCHED).all()):
            self.wrong(how, "rows behind the last were written")
        self.snapshots = run.snapshots.get("S")
        return Values({"o": o}, {"S": final})

    # ------------------------------------------------------------ comparisons

    def wrong(self, how, what, **values):
        self.problems.append({"case": self.case, "bundle": self.label, "how": str(how), "fails": what, **values})

    def worse(self, name, value):
        worst = self.scores[self.case].worst
        worst[name] = max(worst[name], value)

    def close(self, how, got, truth, limits=None, what=""):
        """Outputs within R, W, M of the truth and states within S, sequence by sequence."""
        limits, worst = limits or self.limits, dict.fromkeys("RWMS", 0.0)
        for entry in truth:
            if entry is None:
                continue
            (b, begin, end), slot, outputs, states = entry
            if begin == end:
                continue
            for name, value in zip("RWM", measures(got.o["o"][b, begin:end], outputs["o"])):
                worst[name] = max(worst[name], value)
            worst["S"] = max(worst["S"], relative(got.S["S"][slot], states["S"]))
        for name, value in worst.items():
            self.worse(name, value)
        if not all(worst[name] <= limits[name] for name in limits):
            self.wrong(how, (what + ": " if what else "") + "error", **worst)

    def same(self, how, what, a, b, limits=NEARLY):
        """Equal bytes are wanted; `limits` R, S are required, None requires the bytes."""
        score, worst, equal = self.scores[self.case], {}, True
        for name, x, y in (("R", a.o.get("o"), b.o.get("o")), ("S", a.S.get("S"), b.S.get("S"))):
            if x is None or x.numel() == 0:
                continue
            alike = same_bytes(x, y)
            equal &= alike
            worst[name] = 0.0 if alike else relative(x, y)
        score.compared += 1
        score.same += equal
        if not equal and (limits is None or not all(value <= limits[name] for name, value in worst.items())):
            self.wrong(how, what + ": differs", **worst)

    def published(self, truth, head, max_o=0, rms_o=0, max_s=0, n=0):
        """Properties of the truth: they pin down the inputs and the recurrence."""
        if not self.as_published:
            return
        _, _, outputs, states = truth[n]
        o, S = outputs["o"][:, head], states["S"][head]
        for name, measure, wanted in (("max|o|", lambda: o.abs().max(), max_o),
                                      ("rms(o)", lambda: o.square().mean().sqrt(), rms_o),
                                      ("max|S|", lambda: S.abs().max(), max_s)):
            if wanted and not abs(measure().item() - wanted) <= 1e-3 * wanted:
                self.report({"case": self.case, "bundle": self.label, "how": "reference", "fails":
                             f"{name} of the reference is {measure().item():.5g}, expected {wanted}"})
                self.scores[self.case].failed += 1

    def check(self, t, key, limits=None, published=None):
        """Every configuration against the truth."""
        truth = self.truth(t, key)
        if published:
            self.published(truth, *published)
        for how in self.configurations(t.inputs["q"].shape[1]):
            with self.one(how):
                self.close(how, self.run(t, how), truth, limits(how) if limits else None, key)

    def one(self, how):
        return One(self, how)


class One:
    """One run of a case: counted, and failed when anything was wrong with it."""

    def __init__(self, kit, how):
        self.kit, self.how = kit, how

    def __enter__(self):
        self.kit.problems = []

    def __exit__(self, kind, error, trace):
        kit, score = self.kit, self.kit.scores[self.kit.case]
        if isinstance(error, RuntimeError):  # refused, or the GPU's own error
            kit.wrong(self.how, "refused: " + str(error).splitlines()[0])
        score.runs += 1
        score.failed += bool(kit.problems)
        for problem in kit.problems:
            kit.report(problem)
        if isinstance(error, RuntimeError) and kit.device.type == "cuda":
            torch.cuda.synchronize()  # raises again where the context is lost: nothing runs after that
        return isinstance(error, RuntimeError)
