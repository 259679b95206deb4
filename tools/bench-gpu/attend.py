#!/usr/bin/env python3
"""Checks and times bundles of attention.plum, mla.plum and mla_prefill.plum on a GPU,
beside torch's scaled_dot_product_attention.

  tools/bench-gpu/attend.py --lib libplumrt.so attention.bundle mla.bundle
  tools/bench-gpu/attend.py --lib libplumrt.so --check attention.bundle
  tools/bench-gpu/attend.py --lib libplumrt.so --shape B=64,T=1,H=32,L=8,P=8192 attention.bundle

A shape has B sequences of T tokens, H heads that share L lists of each kind, and P rows
before the run. Every run is compared with float64: NaN lies behind the lists and in the
rows of inputs that are nobody's; rows must be appended as they come in, and nothing else
of a list may change. Limit for outputs: R <= 5e-3, of f32 bundles 1e-5; of a timed shape
on some of its rows. Of mla_prefill's lists `places` is always one for all heads.

Times are those of CUDA graphs that take turns (bench.py). A peer that cannot run a shape
says so. One JSON object a line; exit code 1 when a check failed.
"""
import argparse
import json
import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import plumrt
from bench import Graphs, copy_rate
from plumrt import Tensors

LIMITS = {"bf16": 5e-3, "f32": 1e-5}
# Queries, the lists that they are compared with, that of values.
PARTS = {"attention": (("q",), ("keys",), "values"),
         "mla": (("qc", "qr"), ("latents", "keys"), "latents"),
         "mla_prefill": (("q", "qr"), ("keys", "places"), "values")}


@dataclass
class Shape:
    B: int = 1
    T: int = 1
    H: int = 1
    L: int = 0
    P: int = 0
    packed: tuple = ()
    slots: bool = False
    f32: bool = False
    apart: bool = False

    @property
    def lengths(self):
        return list(self.packed) or [self.T] * self.B

    @property
    def lists(self):
        return self.L or self.H

    def past(self, n):
        return max(self.P - 13 * n, 0) if self.packed or self.slots else self.P


class Run:
    """The tensors of a run, of one layer or the other."""

    def __init__(self, manifest, shape, generator):
        self.shape, self.manifest = shape, manifest
        self.queries, self.keys, self.values = PARTS[manifest["layer"]]
        self.limit = LIMITS[manifest["inputs"][0]["dtype"]]
        device, lengths = generator.device, shape.lengths
        self.N = len(lengths)
        self.begins = [sum(lengths[:n]) for n in range(self.N)] if shape.packed else [0] * self.N
        B, T = (1, sum(lengths) + 5) if shape.packed else (shape.B, shape.T)
        owners = {state["rows"]: self.heads_of(state["name"]) for state in manifest["states"]}
        types = {"bf16": torch.bfloat16, "f32": torch.float32}

        def rand(*size):
            return torch.randn(*size, device=device, generator=generator)

        inputs = {}
        for entry in manifest["inputs"]:
            heads = owners.get(entry["name"], shape.H)
            # Rows of lists are bf16 numbers in any type, to be found again in bf16 lists.
            values = rand(B, T, heads, *entry["shape"]).bfloat16()
            inputs[entry["name"]] = values.to(types[entry["dtype"]])
            if shape.packed:
                inputs[entry["name"]][:, sum(lengths):] = torch.nan
        width = sum(e["shape"][0] for e in manifest["inputs"] if e["name"] in self.queries)
        params = {"scale": torch.full((shape.H,), width**-0.5, device=device)}
        outputs = {"o": torch.full((B, T, shape.H, *manifest["outputs"][0]["shape"]), torch.nan, device=device,
                                   dtype=types[manifest["outputs"][0]["dtype"]])}
        pool = self.N + 2 if shape.slots else self.N
        slots = torch.arange(pool - 1, -1, -1, device=device)[:self.N] if shape.slots else None
        self.slot = slots.tolist() if shape.slots else list(range(self.N))
        room = max(shape.past(n) + lengths[n] for n in range(self.N)) + 3
        dtype = torch.float32 if shape.f32 else torch.bfloat16
        initial = {}
        for state in manifest["states"]:
            # Rows are written like this into something that may be larger.
            initial[state["name"]] = torch.full((pool, self.heads_of(state["name"]), room, *state["shape"]),
                                                torch.nan, device=device, dtype=dtype)
            for n in range(self.N):
                rows = initial[state["name"]][self.slot[n], :, :shape.past(n)]
                rows.copy_(rand(*rows.shape))
        self.before = initial
        final = {name: torch.full_like(x, torch.nan) if shape.apart else x.clone() for name, x in initial.items()}
        self.t = Tensors(inputs, params, outputs, initial if shape.apart else final, final, slots=slots)
        counts = [0] * pool
        for n in range(self.N):
            counts[self.slot[n]] = shape.past(n)
        self.t.past = torch.tensor(counts, device=device, dtype=torch.int32)
        if shape.packed:
            self.t.cu_seqlens = torch.tensor(self.begins + [sum(lengths)], device=device, dtype=torch.int32)

    def heads_of(self, state):
        return 1 if state == "places" else self.shape.lists

    def rows(self, name, n, t):
        return self.t.inputs[name][0 if self.shape.packed else n, self.begins[n] + t]

    def cache(self, n, head):
        """Keys and values that head sees in the end, float64."""
        end = self.shape.past(n) + self.shape.lengths[n]

        def rows(name):
            own = head // (self.shape.H // self.heads_of(name))
            return self.t.final[name][self.slot[n], own, :end].double()
        return torch.cat([rows(name) for name in self.keys], -1), rows(self.values)

    def check(self, most=64):
        """R over at most so many tokens and heads, and whether lists are as they must be."""
        error = size = 0.0
        good = True
        for n, length in enumerate(self.shape.lengths):
            past = self.shape.past(n)
            for state in self.manifest["states"]:
                before, after = (x[state["name"]][self.slot[n]] for x in (self.before, self.t.final))
                good &= bool((after[:, :past] == before[:, :past]).all()) or length == 0
                good &= bool(after[:, past + length:].isnan().all())
                come = self.t.inputs[state["rows"]][0 if self.shape.packed else n,
                                                    self.begins[n]:self.begins[n] + length]
                good &= bool((after[:, past:past + length].transpose(0, 1) == come).all())
            for head in sorted({h * (self.shape.H - 1) // 3 for h in range(4)}) if length else ():
                keys, values = self.cache(n, head)
                for t in sorted({i * (length - 1) // most for i in range(most + 1)}):
                    q = torch.cat([self.rows(name, n, t)[head].double() for name in self.queries])
                    seen = past + t + 1
                    w = torch.softmax(keys[:seen] @ q * float(self.t.params["scale"][head]), 0)
                    truth = w @ values[:seen]
                    got = self.t.outputs["o"][0 if self.shape.packed else n, self.begins[n] + t, head].double()
                    error += float(((got - truth)**2).sum())
                    size += float((truth**2).sum())
        if self.shape.packed:
            good &= bool(self.t.outputs["o"][0, sum(self.shape.lengths):].isnan().all())
        return (error / size)**0.5 if size else error, good

    def sdpa(self):
        """torch's call for the same answers, of a batch with one past."""
        shape = self.shape
        if shape.packed or shape.slots or shape.f32:
            return None
        end = shape.P + shape.T
        lists = [self.t.final[name][:, :, :end] for name in (*self.keys, self.values)]
        heads = max(x.shape[1] for x in lists)
        q = torch.cat([self.t.inputs[name] for name in self.queries], -1).transpose(1, 2)
        k, v = torch.cat([x.expand(-1, heads, -1, -1) for x in lists[:-1]], -1), lists[-1]
        if q.dtype != k.dtype:
            return None
        scale = float(self.t.params["scale"][0])
        grouped = shape.lists != shape.H
        if shape.T == 1:
            return lambda: F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=grouped)
        if shape.P == 0:
            return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
        from torch.nn.attention.bias import causal_lower_right
        mask = causal_lower_right(shape.T, end)
        return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped)

    def work(self):
        """Products, and bytes of lists, queries and answers."""
        flops = size = 0
        dims = sum(e["shape"][0] for e in self.manifest["inputs"] if e["name"] in self.queries)
        out = self.manifest["outputs"][0]["shape"][0]
        width = sum(s["shape"][0] * self.heads_of(s["name"]) for s in self.manifest["states"])
        for n, length in enumerate(self.shape.lengths):
            past = self.shape.past(n)
            pairs = length * past + length * (length + 1) // 2
            flops += 2 * pairs * (dims + out) * self.shape.H
            size += (past + 2 * length) * width * (4 if self.shape.f32 else 2)
            size += length * (dims + out) * self.shape.H * 2
        return flops, size


def check_shapes(layer):
    latent = layer == "mla"
    base = dict(L=1) if latent else {}
    heads = 20 if latent else 4
    shapes = [Shape(T=t, H=3, P=p, **base) for t, p in ((1, 0), (15, 0), (16, 37), (17, 200), (63, 1), (64, 64),
                                                        (65, 0), (130, 77))]
    shapes += [Shape(B=3, T=70, H=2, P=90, f32=f, apart=a, **base) for f in (False, True) for a in (False, True)]
    shapes += [Shape(packed=(0, 4, 0, 65, 1, 128, 17, 0), H=3, P=150, **base),
               Shape(packed=(3, 20, 66, 1), H=2, P=129, slots=True, **base),
               Shape(B=7, T=1, H=heads, P=900, slots=True, **base), Shape(B=40, T=1, H=heads, P=63, **base),
               Shape(packed=(1,) * 9, H=heads, P=300, **base), Shape(T=1, H=heads, P=5000, **base),
               Shape(T=3000, H=2, P=500, **base)]
    if not latent:
        shapes += [Shape(T=100, H=12, L=2, P=70), Shape(B=5, T=1, H=16, L=1, P=300), Shape(B=2, T=1, H=34, L=2, P=9)]
    return shapes


def time_shapes(layer):
    if layer == "mla":
        return [Shape(B=64, T=1, H=128, L=1, P=4096), Shape(B=1, T=1, H=128, L=1, P=32768),
                Shape(B=8, T=1, H=32, L=1, P=8192), Shape(T=1024, H=16, L=1)]
    if layer == "mla_prefill":
        return [Shape(T=4096, H=96), Shape(T=512, H=96), Shape(T=2048, H=96, P=6144)]
    return [Shape(T=8192, H=32), Shape(T=8192, H=32, L=8), Shape(T=2048, H=32, L=8, P=30720), Shape(B=16, T=512, H=32, L=8),
            Shape(B=64, T=1, H=32, L=8, P=8192), Shape(B=1, T=1, H=32, L=8, P=32768), Shape(B=64, T=1, H=32, P=2048)]


def launch_once(handle, run, options):
    plan = handle.plan(run.t, form=options.form)
    plan.workspace.fill_(255)
    plan.launch(run.t)
    torch.cuda.synchronize()
    return plan


def fields(shape):
    return {name: value for name, value in vars(shape).items() if value}


def check(handle, shape, generator, options):
    run = Run(handle.manifest, shape, generator)
    good = True
    forms = {"step": plumrt.STEP, "chunk": plumrt.CHUNK}
    for name in sorted({kernel["form"] for kernel in handle.manifest["kernels"]}):
        options.form = forms[name]
        for x in run.t.outputs.values():
            x.fill_(torch.nan)
        launch_once(handle, run, options)
        R, kept = run.check()
        ok = kept and R <= run.limit
        print(json.dumps({"check": handle.manifest["layer"], **fields(shape),
                          "form": name, "R": R, "lists": kept, "pass": ok}),
              flush=True)
        good &= ok
    return good


def bench(handle, shape, generator, options, rate):
    run = Run(handle.manifest, shape, generator)
    options.form = plumrt.AUTO
    plan = launch_once(handle, run, options)
    R, kept = run.check(most=8)
    flops, size = run.work()
    line = {"layer": handle.manifest["layer"], "dims": handle.manifest["dims"], **fields(shape), "R": R,
            "pass": kept and R <= run.limit, "form": "step" if plan.info.form == plumrt.STEP else "chunk",
            "floor_ms": size / rate}
    launch, keep = plan.prepare(run.t)

    def call():
        launch.stream = torch.cuda.current_stream().cuda_stream
        plan.enqueue(launch)
    graphs = {"plum": Graphs([call])}
    peer = run.sdpa()
    try:
        if peer:
            graphs["sdpa"] = Graphs([peer])
    except Exception as error:
        line["sdpa"] = {"error": str(error).splitlines()[0]}
    for i in range(5 + options.reps):
        for each in graphs.values():
            each.replay(i >= 5)
    for name, each in graphs.items():
        line[name] = each.result()
        line[name].update(tflops=flops / line[name]["ms"] / 1e9, gb_s=size / line[name]["ms"] / 1e6)
    if "sdpa" in graphs:
        line["ratio"] = line["sdpa"]["ms"] / line["plum"]["ms"]
    print(json.dumps(line), flush=True)
    del keep
    return line["pass"]


def parse_shape(text):
    shape = Shape()
    for part in text.split(","):
        name, value = part.split("=")
        if name not in ("B", "T", "H", "L", "P", "slots", "f32", "apart"):
            raise SystemExit(f"--shape: '{part}' is unknown")
        setattr(shape, name, int(value))
    return shape


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE")
    parser.add_argument("--lib", required=True, help="libplumrt.so")
    parser.add_argument("--check", action="store_true", help="only the small shapes")
    parser.add_argument("--time", action="store_true", help="only the shapes that are timed")
    parser.add_argument("--shape", action="append", default=[], help="this shape instead: B=64,T=1,H=32,L=8,P=8192")
    parser.add_argument("--reps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else time.time_ns() % (1 << 31)
    generator = torch.Generator(device="cuda").manual_seed(seed)
    rate = copy_rate(torch.device("cuda"))
    print(json.dumps({"seed": seed, "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                      "copy_gb_s": rate / 1e6}), flush=True)
    good = True
    for directory in options.bundles:
        handle = plumrt.Layer(options.lib, directory)
        layer = handle.manifest["layer"]
        if layer not in PARTS:
            raise SystemExit(f"{directory}: layer '{layer}' is none of {', '.join(PARTS)}")
        given = [parse_shape(text) for text in options.shape]
        for shape in given if options.check and given else [] if options.time or given else check_shapes(layer):
            good &= check(handle, shape, generator, options)
        for shape in given if given and not options.check else [] if options.check else time_shapes(layer):
            good &= bench(handle, shape, generator, options, rate)
            torch.cuda.empty_cache()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
