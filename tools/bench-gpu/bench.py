#!/usr/bin/env python3
"""Checks and times bundles on a GPU, beside other people's kernels in the same run.

  tools/bench-gpu/bench.py --lib libplumrt.so kda_k3.bundle gdn.bundle
  tools/bench-gpu/bench.py --lib libplumrt.so --check kda_k3.bundle
  tools/bench-gpu/bench.py --lib libplumrt.so --shape B=1,T=4096,H=48 kda_k3.bundle

Needs PyTorch with CUDA, libplumrt.so and bundles; no compiler. Peers (peers.py) are
flash-linear-attention and FlashQLA when `fla` and `flash_qla` can be imported
(PYTHONPATH=fla_core-...whl), and, with --flash-kda libflashkda.so and --prototype
libkda.so, FlashKDA and a hand-written KDA kernel.

Check: small shapes with every kind of gate, tails, packed and empty sequences,
shared heads, initial states, a state pool with padding, column slices of fused
buffers; each compared with the float64 recurrence on inputs that are new in each
run (--seed repeats one). Outputs, states and workspace start as NaN, buffers have
rows beyond the last token that must stay as they are. Limits for bf16:
R <= 5e-3, W <= 1e-2, M <= 2e-2, states 5e-3.

Cases (--cases): the test suite's C01 to C23, in every form, chunk and number of
segments that a bundle has; cases.py says which specs they are for.

Time: the shapes of the project's issue, each checked on some heads first. All
contestants' CUDA graphs are replayed in turns, between two events each; the
median counts. Inputs that fit in the L2 cache take turns with others.

One JSON object a line. Exit code 1 when a check failed.
"""
import argparse
import json
import math
import sys
import time

import torch

import peers
import plumrt
from layers import LAYERS, measures, recur, reference, relative  # noqa: F401
from plumrt import Tensors

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
GUARD = 64        # rows beyond the last token
UNTOUCHED = 777.0
LIMITS = {"R": 5e-3, "W": 1e-2, "M": 2e-2, "S": 5e-3}
F32_LIMITS = {"R": 1e-5, "W": 2e-5, "M": 4e-5, "S": 1e-5}
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


def errors_of(layer, t, shape, guards, sample):
    """Worst R, W, M, S of a finished run, and whether it kept to its place."""
    worst = {"R": 0.0, "W": 0.0, "M": 0.0, "S": 0.0}
    good = all(bool((guard == UNTOUCHED).all()) for guard in guards)
    used = set()

    def note(name, value):
        worst[name] = max(worst[name], value if math.isfinite(value) else math.inf)

    for n, result in enumerate(reference(LAYERS[layer], t, sample)):
        if result is None:  # padding: nobody writes
            good &= all(bool(rows_of(x, t, n).isnan().all()) for x in t.outputs.values())
            continue
        (b, begin, end), slot, outputs, states = result
        used.add(slot)
        for output, ref in outputs.items() if end > begin else ():
            for name, value in zip("RWM", measures(t.outputs[output][b, begin:end][:, sample], ref)):
                note(name, value)
        for name, x in t.final.items():
            got = x[slot, sample]
            if end == begin:  # nothing may change, not a bit
                good &= bool((got.cpu() == states[name].to(got.dtype)).all())
            else:
                note("S", relative(got, states[name]))
    for name, x in t.final.items():
        if t.slots is not None:
            others = [i for i in range(x.shape[0]) if i not in used]
            good &= bool((x[others] == t.initial[name][others]).all())
    return worst, good


def poison(t, plan):
    for x in t.outputs.values():
        x.fill_(math.nan)
    if plan is not None:
        plan.workspace.fill_(255)


def run_once(layer, handle, t, options):
    if not handle.on_gpu:
        handle.run(in_place(t), form=options.form, chunk=options.chunk)
        return None
    plan = handle.plan(in_place(t), form=options.form, chunk=options.chunk, segments=options.segments)
    poison(t, plan)
    plan.launch(in_place(t))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return plan


def limits_of(manifest):
    tensors = manifest["inputs"] + manifest["params"] + manifest["outputs"]
    return F32_LIMITS if all(e["dtype"] == "f32" for e in tensors) else LIMITS


def check(layer, handle, shape, device, generator, options):
    t, guards = make(layer, handle.manifest, shape, device, generator)
    plan = run_once(layer, handle, t, options)
    worst, good = errors_of(layer, t, shape, guards, list(range(min(shape.H, 4))))
    limits = limits_of(handle.manifest)
    ok = good and all(worst[name] <= limits[name] for name in limits)
    line = {"check": layer, **shape.fields(), **worst, "guards": good, "pass": ok}
    if plan is not None:
        line["form"] = "step" if plan.info.form == plumrt.STEP else "chunk"
        line["segments"] = plan.info.segments
    print(json.dumps(line), flush=True)
    return ok


# ---------------------------------------------------------------- timing

class Graphs:
    """Graphs of one contestant, one for each set of tensors."""

    def __init__(self, calls):
        self.graphs, self.times, self.turn = [], [], 0
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for call in calls:
                for _ in range(2):
                    call()
        torch.cuda.synchronize()
        for call in calls:
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                call()
            self.graphs.append(graph)
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay(self, keep):
        self.begin.record()
        self.graphs[self.turn % len(self.graphs)].replay()
        self.end.record()
        self.end.synchronize()
        self.turn += 1
        if keep:
            self.times.append(self.begin.elapsed_time(self.end))

    def result(self):
        times = sorted(self.times)
        n = len(times)
        return {"ms": times[n // 2], "min_ms": times[0], "spread": (times[3 * n // 4] - times[n // 4]) / times[n // 2]}


def call_time(call, reps=30):
    """As called from Python, without a graph."""
    times = []
    for _ in range(reps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[reps // 2]


def copy_rate(device):
    """Bytes read and written in a millisecond."""
    a, b = (torch.empty(1 << 30, dtype=torch.uint8, device=device) for _ in range(2))
    copy = Graphs([lambda: b.copy_(a)])
    for i in range(25):
        copy.replay(i >= 5)
    return 2 * a.numel() / copy.result()["ms"]


def bytes_once(t):
    lists = [t.inputs, t.params, t.outputs, t.final, t.initial]
    size = lambda x: x.numel() * x.element_size()
    total = sum(size(x) for tensors in lists for x in tensors.values())
    if t.slots is not None:  # only the slots in use
        used = int((t.slots >= 0).sum())
        for tensors in (t.final, t.initial):
            total -= sum(size(x) * (x.shape[0] - used) // x.shape[0] for x in tensors.values())
    return total


def contestants(layer, handle, sets, shape, options):
    """Name -> one call for each set."""
    calls = {}
    plan = handle.plan(in_place(sets[0][0]), form=options.form, chunk=options.chunk, segments=options.segments)

    def launcher(t):
        launch, keep = plan.prepare(in_place(t))

        def call(keep=keep):
            launch.stream = torch.cuda.current_stream().cuda_stream
            plan.enqueue(launch)
        return call
    calls["plum"] = [launcher(t) for t, _ in sets]
    calls.update(peers.calls(layer, handle.manifest, [t for t, _ in sets], shape, options))
    return calls, plan


def bench(layer, handle, shape, device, generator, options, rate):
    sets = [make(layer, handle.manifest, shape, device, generator)]
    t, guards = sets[0]
    size = bytes_once(t)
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    sets += [make(layer, handle.manifest, shape, device, generator)
             for _ in range(min(options.sets, 2 * cache // size + 1) - 1)]
    # Heads are independent: some of them tell about all.
    sample = sorted({h * (shape.H - 1) // max(options.sample - 1, 1) for h in range(options.sample)})
    run_once(layer, handle, t, options)
    worst, good = errors_of(layer, t, shape, guards, sample)
    limits = limits_of(handle.manifest)
    line = {"layer": layer, **shape.fields(), "target": handle.manifest["target"], "sets": len(sets), "bytes": size,
            "floor_ms": size / rate, **worst, "pass": good and all(worst[n] <= limits[n] for n in limits)}
    calls, plan = contestants(layer, handle, sets, shape, options)
    line.update(form="step" if plan.info.form == plumrt.STEP else "chunk", chunk=plan.info.chunk,
                segments=plan.info.segments)
    graphs = {}
    for name, each in calls.items():
        start = time.perf_counter()
        try:  # the first call of a shape may tune for minutes
            with torch.no_grad():
                result = each[0]()
            torch.cuda.synchronize()
            cold = time.perf_counter() - start
            line[name] = {"cold_s": cold}
            if name != "plum" and t.slots is None:
                line[name].update(peers.error(layer, t, result, sample[:2]))
            line[name]["call_ms"] = call_time(each[0])
            graphs[name] = Graphs(each)
            if name == "fla":
                options.fla_seconds -= time.perf_counter() - start
                options.fla = options.fla_seconds > 0
        except Exception as error:  # a peer that cannot run this shape
            if name == "plum":
                raise
            line.setdefault(name, {})["error"] = str(error).splitlines()[0] if str(error) else type(error).__name__
    for i in range(5 + options.reps):
        for each in graphs.values():
            each.replay(i >= 5)
    for name, each in graphs.items():
        line[name].update(each.result())
    for name in graphs:
        if name != "plum":
            line[name]["ratio"] = line[name]["ms"] / line["plum"]["ms"]
    print(json.dumps(line), flush=True)
    return line["pass"]


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE")
    parser.add_argument("--lib", required=True, help="libplumrt.so")
    parser.add_argument("--check", action="store_true", help="only the small shapes")
    parser.add_argument("--cases", action="store_true", help="the numbered cases instead: cases.py")
    parser.add_argument("--time", action="store_true", help="only the shapes that are timed")
    parser.add_argument("--shape", action="append", default=[], help="this shape instead, and others: "
                        "B=1,T=4096,H=48[,HK=16][,mode=slow][,initial=1][,slots=1][,fused=1]")
    parser.add_argument("--packed", default="", help="lengths of packed sequences, for --shape H=...")
    parser.add_argument("--form", default="auto", choices=["auto", "step", "chunk"])
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--segments", type=int, default=0)
    parser.add_argument("--reps", type=int, default=50)
    parser.add_argument("--sets", type=int, default=8, help="most sets of tensors that take turns")
    parser.add_argument("--sample", type=int, default=4, help="heads of a timed shape that are checked")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--prototype", help="library built from the hand-written KDA kernel")
    parser.add_argument("--flash-kda", help="library built from FlashKDA (see peers.py)")
    parser.add_argument("--no-fla", dest="fla", action="store_false")
    parser.add_argument("--no-flash-qla", dest="flash_qla", action="store_false")
    parser.add_argument("--fla-seconds", type=float, default=400,
                        help="time for FLA's tuning of all shapes together; beyond it FLA is left out")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.cases:
        import cases
        return 0 if cases.run(options.lib, options.bundles, device) else 1
    options.form = {"auto": plumrt.AUTO, "step": plumrt.STEP, "chunk": plumrt.CHUNK}[options.form]
    seed = options.seed if options.seed is not None else time.time_ns() % (1 << 31)
    generator = torch.Generator(device=device).manual_seed(seed)
    head = {"seed": seed, "torch": torch.__version__}
    rate = None
    if device.type == "cuda":
        rate = copy_rate(device)
        head.update(device=torch.cuda.get_device_name(device), copy_gb_s=rate / 1e6)
    print(json.dumps(head), flush=True)
    good = True
    for directory in options.bundles:
        handle = plumrt.Layer(options.lib, directory)
        layer = handle.manifest["layer"]
        if layer not in LAYERS:
            raise SystemExit(f"{directory}: layer '{layer}' is none of {', '.join(LAYERS)}")
        if options.shape or options.packed:
            given = [parse_shape(text, options.packed) for text in options.shape or [""]]
            checks, times = (given, []) if options.check else ([], given)
        else:
            checks, times = check_shapes(layer), time_shapes(layer)
        if not options.time:
            for shape in checks:
                good &= check(layer, handle, shape, device, generator, options)
        if not options.check and rate is not None:
            for shape in times:
                good &= bench(layer, handle, shape, device, generator, options, rate)
                torch.cuda.empty_cache()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
