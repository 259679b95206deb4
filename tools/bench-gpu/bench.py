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
from layers import LAYERS, measures, reference, relative
from shapes import UNTOUCHED, check_shapes, in_place, make, parse_shape, rows_of, time_shapes

LIMITS = {"R": 5e-3, "W": 1e-2, "M": 2e-2, "S": 5e-3}
F32_LIMITS = {"R": 1e-5, "W": 2e-5, "M": 4e-5, "S": 1e-5}


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
