"""The cases C01 to C23 on bundles: kinds of faults that users of such kernels met.

  tools/bench-gpu/bench.py --lib libplumrt.so --cases kda_raw.bundle kda_k3.bundle

They are those of test/integration (cases_*.cpp), with the same data, limits and
published properties of the reference, for the same specs; KDA's also for the
shipped layers `kda` and `kda_k3`, whose raw gates give the same decays or
neighbours of them. Each bundle runs the cases of its layer and dims in every
form, chunk and number of segments that it has. A failing run is a line; so is
each case at the end, with its worst measures over all bundles.
"""
import json
import math
from collections import defaultdict
from dataclasses import replace

import torch

import plumrt
from casekit import Kit, N, Score, U, Values, measures, same_bytes, softplus
from plumrt import Tensors

FAMILY = ("kda_raw", "kda_gate", "kda_k3", "kda")  # layers that `decayed` can feed
CASES = []  # (name, layers, K, V, function)


def case(name, layers, K, V):
    def add(function):
        CASES.append((name, (layers,) if isinstance(layers, str) else layers, K, V, function))
        return function
    return add


def decayed(kit, seed, B, T, H, raw, change=None, **more):
    """KDA whose log decay is -5 sigmoid(raw); of `kda`, -5 softplus(raw)."""
    x = kit.delta(seed, B, T, H, kit.K, kit.V)
    x.update(f=raw, g=-5 * torch.sigmoid(raw))
    x.update(change or {})
    zeros = raw.new_zeros
    A = zeros(H) + (math.log(5) if kit.layer == "kda" else 0)
    return kit.data(x, {"A_log": A, "dt_bias": zeros(H, kit.K)}, **more)


@case("C01", ("kda_raw", "kda"), 128, 128)
def strong_decay(kit):
    T, H = 200, 2
    normal = kit.n(101, 4, 1, T, H, 128)
    x = kit.delta(101, 1, T, H, 128, 128) | {"f": normal, "g": -16 * softplus(normal + 1)}
    params = {"A_log": torch.full((H,), math.log(16)), "dt_bias": torch.ones(H, 128)}
    t = kit.data(x, {name: p.to(kit.device) for name, p in params.items()})
    kit.check(t, "unbounded", published=(0, 0.03431, 0.003899, 0.6383))


@case("C01", "kda_raw", 64, 64)
def resets(kit):
    """Nearly no decay, but every 23rd token forgets everything; and half the
    channels never decay, the others at once."""
    g = -0.01 * softplus(kit.n(201, 4, 1, 200, 1, 64))
    g[:, 7::23] = -1000
    kit.check(kit.data(kit.delta(201, 1, 200, 1, 64, 64) | {"g": g}), "resets")
    g = torch.zeros(1, 130, 1, 64, device=kit.device)
    g[..., 1::2] = -1e30
    kit.check(kit.data(kit.delta(203, 1, 130, 1, 64, 64) | {"g": g}), "zero beside extreme")


@case("C03", FAMILY, 128, 128)
def at_the_bound(kit):
    raw = torch.full((1, 128, 2, 128), 12.0, dtype=torch.float64, device=kit.device)
    raw[..., 1::2] = -12
    t = decayed(kit, 103, 1, 128, 2, raw)
    truth = kit.truth(t, "bound")
    if kit.layer == "kda_raw":
        kit.published(truth, 0, 0.1019, 0.02188)
    for how in kit.configurations(128):
        with kit.one(how):
            got = kit.run(t, how)
            kit.close(how, got, truth)
            if kit.layer in ("kda_raw", "kda_gate"):  # the gate of one is in the kernel
                kind = tuple(kit.dtypes[n] for n in ("q", "beta"))
                other = kit.others.setdefault(("C03", kit.handle.manifest["target"], kind, how), (kit.layer, got))
                if other[0] != kit.layer:
                    kit.same(how, "gate in the kernel or before", got, other[1], {"R": 2e-3, "S": 2e-3})


@case("C05", FAMILY, 128, 128)
def identical_keys(kit):
    robust = kit.handle.manifest["precision"] == "robust"
    for T in (64, 1024):
        key = kit.n(105, 2, 128) if kit.layer in ("kda", "kda_k3") else None
        x = kit.delta(105, 1, T, 1, 128, 128)
        key = x["k"][0, 0, 0] if key is None else key
        v = kit.n(105, 3, 16, 1, 128).repeat(T // 16, 1, 1)[None]
        b = torch.full_like(x["b"], 8)
        change = {"k": key.expand(1, T, 1, 128), "v": v, "b": b, "beta": torch.sigmoid(b)}
        t = decayed(kit, 105, 1, T, 1, torch.full((1, T, 1, 128), -12.0, dtype=torch.float64, device=kit.device),
                    change)
        # Required of bf16 operands; and what one term comes to where chunks are
        # small: keys are rounded at the same places in each of them.
        loose = {"R": 6e-2, "W": 2e-1, "M": 2e-1, "S": 1e-1}
        small = {"R": 1.3e-1, "W": 3e-1, "M": 2e-1, "S": 2.2e-1}

        def limits(how):
            if not kit.narrow or robust or how.form != plumrt.CHUNK:
                return None
            return loose if how.chunk >= 64 else small
        kit.check(t, f"T={T}", limits, (0, 0.07352, 0, 0.4754) if T == 1024 else None)


@case("C07", ("gdn_raw", "deltanet_raw"), 64, 64)
def no_decay(kit):
    x = kit.delta(107, 1, 500, 2, 64, 64)
    t = kit.data(x | {"g": torch.zeros_like(x["beta"])})
    truth = kit.truth(t, "no decay")
    kit.published(truth, 0, 0.3026, 0, 2.563)
    for how in kit.configurations(500):
        with kit.one(how):
            got = kit.run(t, how)
            kit.close(how, got, truth)
            kind = tuple(kit.dtypes[n] for n in ("q", "beta"))
            other = kit.others.setdefault(("C07", kit.handle.manifest["target"], kind, how), (kit.layer, got))
            if other[0] != kit.layer:
                kit.same(how, "GDN without decay and DeltaNet", got, other[1])


@case("C07", "linear_raw", 64, 64)
def additive(kit):
    kit.check(kit.data(kit.delta(107, 1, 64, 2, 64, 64)), "additive")


@case("C09", FAMILY, 128, 128)
def tails(kit):
    for T, max_o, rms_o in ((1, 0.003832, 0.001470), (15, 0.03620, 0.007627), (17, 0.03620, 0.007448),
                            (63, 0.07920, 0.009377), (65, 0.07920, 0.009297), (129, 0.07920, 0.008980)):
        t = decayed(kit, 109, 1, T, 2, kit.n(109, 4, 1, T, 2, 128) - 4)
        kit.check(t, f"T={T}", published=(0, max_o, rms_o) if kit.layer == "kda_raw" else None)


@case("C11", ("gdn_raw", "gated_deltanet"), 128, 128)
def packed(kit):
    offsets, H = [0, 1, 1, 64, 128, 129, 200, 211], 4
    normal = kit.n(111, 4, 1, 211, H)
    x = kit.delta(111, 1, 211, H, 128, 128, qk=2) | {"a": normal, "g": -0.3 * softplus(normal)}
    params = {"A_log": normal.new_full((H,), math.log(0.3)), "dt_bias": normal.new_zeros(H)}
    t = kit.data(x, params, 0.25 * kit.n(111, 6, 7, H, 128, 128), offsets)
    truth = kit.truth(t, "packed")
    for n, wanted in enumerate((0.91166, 0, 0.48939, 0.35535, 1.0490, 0.38729, 0.34237)):
        kit.published(truth, 0, max_s=wanted, n=n)
    for how in kit.configurations(211):
        with kit.one(how):
            got = kit.run(t, how)
            kit.close(how, got, truth)
            kit.same(how, "the empty sequence", Values({}, {"S": got.S["S"][1]}), Values({}, {"S": t.initial["S"][1]}),
                     None)
            kit.same(how, "int32 offsets", kit.run(replace(t, cu_seqlens=t.cu_seqlens.int()), how), got, None)
            for n, (begin, end) in enumerate(zip(offsets, offsets[1:])):
                one = Tensors({name: kit.rows(y[:, begin:end]) for name, y in t.inputs.items()}, t.params, {},
                              {"S": t.initial["S"][n:n + 1].clone()})
                alone = kit.run(one, kit.fits(how, end - begin))
                kit.same(how, f"sequence {n} alone", alone, Values({"o": got.o["o"][:, begin:end]},
                                                                  {"S": got.S["S"][n:n + 1]}))


def shared_heads(kit, t, published):
    truth = kit.truth(t, "shared")
    kit.published(truth, *published)
    H = kit.heads(t)
    written_out = {name: kit.rows(x.repeat_interleave(H // x.shape[2], 2)) for name, x in t.inputs.items()}
    for how in kit.configurations(t.inputs["q"].shape[1]):
        with kit.one(how):
            got = kit.run(t, how)
            kit.close(how, got, truth)
            kit.same(how, "heads repeated", got, kit.run(replace(t, inputs=written_out), how))


@case("C13", "gdn_raw", 64, 128)
def shared_delta(kit):
    speed = torch.sigmoid(kit.n(113, 7, 8))
    x = kit.delta(113, 1, 150, 8, 64, 128, qk=2) | {"g": -speed * softplus(kit.n(113, 4, 1, 150, 8))}
    shared_heads(kit, kit.data(x), (5, 0.1035, 0.01252, 0.4914))


@case("C13", "mamba2_raw", 128, 64)
def shared_groups(kit):
    x = {"q": kit.n(113, 1, 1, 300, 2, 128), "k": kit.n(113, 2, 1, 300, 2, 128), "v": kit.n(113, 3, 1, 300, 8, 64),
         "dt": softplus(kit.n(113, 4, 1, 300, 8) - 2)}
    shared_heads(kit, kit.data(x, {"A": -(1 + 15 * kit.u(113, 8, 8))}), (5, 43.531, 2.9518))


@case("C15", FAMILY, 128, 64)
def continued(kit):
    t = decayed(kit, 115, 1, 130, 2, kit.n(115, 4, 1, 130, 2, 128) - 4, S=0.25 * kit.n(115, 6, 1, 2, 128, 64))
    truth = kit.truth(t, "continued")
    if kit.layer == "kda_raw":
        kit.published(truth, 0, 0.04788, 0, 0.4602)

    def three_calls(how, hand_over):
        state, outputs, states = t.initial["S"], [], []
        for begin, end in ((0, 64), (64, 128), (128, 130)):
            part = Tensors({name: kit.rows(x[:, begin:end]) for name, x in t.inputs.items()}, t.params, {},
                           {"S": state})
            got = kit.run(part, kit.fits(how, end - begin))
            state = got.S["S"].to(hand_over).float()
            outputs.append(got.o["o"])
            states.append(got.S["S"])
        return Values({"o": torch.cat(outputs, 1)}, {"S": state}), torch.cat(states[:2])

    for how in kit.configurations(130):
        if how.chunk > 64:  # 64 is no boundary of its chunks
            continue
        with kit.one(how):
            once = kit.run(t, how)
            kit.close(how, once, truth)
            split, states = three_calls(how, torch.float32)
            kit.same(how, "three calls", split, once)
            coarse = three_calls(how, torch.bfloat16)[0]
            error = measures(coarse.S["S"][0], truth[0][3]["S"])[0]
            if not error <= 6e-3:
                kit.wrong(how, "states handed over in bf16", S=error)
            other = kit.run(t, how, every=64)
            snapshots = kit.snapshots
            kit.same(how, "with snapshots", other, once, None)
            kit.same(how, "snapshots", Values({}, {"S": snapshots}), Values({}, {"S": states}))
            if not measures(snapshots[1], once.S["S"][0].double())[0] > 1e-4:
                kit.wrong(how, "the state after 128 tokens is the one after 130")
            turned = replace(t, initial={"S": t.initial["S"].mT.contiguous()})
            turned = kit.run(turned, how, layout=plumrt.VK)
            kit.same(how, "state as [V, K]", Values(turned.o, {"S": turned.S["S"].mT}), once, None)


@case("C15", FAMILY, 128, 64)
def continued_packed(kit):
    """Snapshots of packed sequences, one after the other, are those of each alone."""
    offsets, every = [0, 0, 130, 194, 195, 258, 450], 64
    t = decayed(kit, 215, 1, 453, 2, kit.n(215, 4, 1, 453, 2, 128) - 4, offsets=offsets,
                S=0.25 * kit.n(215, 6, 6, 2, 128, 64))
    for how in kit.configurations(453):
        if how.chunk > every:
            continue
        with kit.one(how):
            kit.run(t, how, every=every)
            packed, alone = kit.snapshots, []
            for n, (begin, end) in enumerate(zip(offsets, offsets[1:])):
                part = Tensors({name: kit.rows(x[:, begin:end]) for name, x in t.inputs.items()}, t.params, {},
                               {"S": t.initial["S"][n:n + 1]})
                if end - begin >= every:
                    kit.run(part, kit.fits(how, end - begin), every=every)
                    alone.append(kit.snapshots)
            alone = torch.cat(alone)
            kit.same(how, "packed", Values({}, {"S": packed[:len(alone)]}), Values({}, {"S": alone}))
            if not bool(packed[len(alone):].isnan().all()):
                kit.wrong(how, "a snapshot of no sequence was written")


@case("C17", FAMILY, 128, 128)
def pool(kit):
    slots, H = [7, 0, 3, 12, 9, -1, -1, -1], 4
    fresh = (0.25 * kit.n(117, 6, 16, H, 128, 128)).float()
    t = decayed(kit, 117, 8, 1, H, kit.n(117, 4, 8, 1, H, 128) - 3)
    for x in t.inputs.values():
        x[5:] = math.nan
    t.initial = {"S": fresh}
    t.slots = torch.tensor(slots, device=kit.device)
    truth = kit.truth(t, "pool")
    unused = [slot for slot in range(16) if slot not in slots]
    exact = {"R": 3e-3 if kit.narrow else 1e-5, "W": 1e-2, "M": 2e-2, "S": 1e-6}
    for how in kit.configurations(1):
        with kit.one(how):
            first = None
            for extra in (0, 64):
                for index in (torch.int32, torch.int64):
                    slot = H * 128 * 128
                    room = torch.full((16, slot + extra), 777.0, device=kit.device)
                    states = room[:, :slot].unflatten(1, (H, 128, 128))
                    states.copy_(fresh)
                    run = replace(t, initial={"S": states}, slots=t.slots.to(index))
                    got = kit.run(run, how, final=states)
                    what = f"{str(index)[6:]} slots, stride + {extra}"
                    kit.close(how, got, truth, exact if how.form == plumrt.STEP else None, what)
                    if not same_bytes(states[unused], fresh[unused]) or not bool((room[:, slot:] == 777).all()):
                        kit.wrong(how, what + ": another slot was written")
                    if not bool((got.o["o"][5:] == 777).all()):
                        kit.wrong(how, what + ": a padding row was written")
                    first = first or got
                    kit.same(how, what, Values({"o": got.o["o"][:5]}, {"S": states}),
                             Values({"o": first.o["o"][:5]}, first.S), None)


def halves(kit, t, count, tokens, hows, sampled):
    """Two runs of half the sequences must give the bytes of one run."""
    def part(begin, end):
        cut = {name: (x[:, begin * tokens:end * tokens] if t.cu_seqlens is not None else x[begin:end])
               for name, x in t.inputs.items()}
        some = Tensors({name: x.reshape(end - begin, tokens, *x.shape[2:]) for name, x in cut.items()}, t.params, {})
        if t.initial:
            some.initial = {"S": t.initial["S"][begin:end]}
        return some

    truths = {n: kit.truth(part(n, n + 1), f"sequence {n}") for n in sampled}
    for how in hows:
        with kit.one(how):
            all_of = kit.run(t, how)
            o = all_of.o["o"].reshape(count, tokens, *all_of.o["o"].shape[2:])
            for begin, end in ((0, count // 2), (count // 2, count)):
                half = kit.run(part(begin, end), how)
                kit.same(how, f"the half from {begin}", half, Values({"o": o[begin:end]},
                                                                     {"S": all_of.S["S"][begin:end]}), None)
            for n, truth in truths.items():
                kit.close(how, Values({"o": o[n:n + 1]}, {"S": all_of.S["S"][n:n + 1]}), truth, None, f"sequence {n}")


@case("C19", "scalar_decay_raw", 32, 32)
def many_sequences(kit):
    x = kit.delta(119, 1, 4100, 32, 32, 32)
    x |= {"beta": torch.ones_like(x["beta"]), "g": -0.1 * softplus(kit.n(119, 4, 1, 4100, 32))}
    t = kit.data(x, offsets=list(range(0, 4101, 2)))
    halves(kit, t, 2050, 2, kit.configurations(2), (0, 1025, 2049))


@case("C19", FAMILY, 32, 32)
def many_to_decode(kit):
    S = torch.empty(1024, 64, 32, 32, device=kit.device)
    for n in range(0, 1024, 128):  # the numbers of all at once would take gigabytes
        S[n:n + 128] = U(119, 6, (128, 64, 32, 32), kit.device, n * 65536) - 0.5
    t = decayed(kit, 119, 1024, 1, 64, kit.n(119, 4, 1024, 1, 64, 32) - 3, S=S)
    halves(kit, t, 1024, 1, kit.configurations(1), (0, 512, 1023))


@case("C21", FAMILY, 64, 64)
def column_slices(kit):
    t = decayed(kit, 121, 1, 97, 8, kit.n(121, 4, 1, 97, 8, 64) - 3)
    truth = kit.truth(t, "slices")
    width = {"q": (0, 512), "k": (512, 512), "v": (1024, 512), "beta": (8, 8), "b": (8, 8), "g": (40, 512),
             "f": (40, 512)}
    buffers = {}

    def column(name, x):
        whole = "qkv" if name in "qkv" else name
        columns = {"qkv": 1600, "beta": 40, "b": 40}.get(whole, 600)
        if whole not in buffers:
            buffers[whole] = torch.full((97, columns), math.nan, dtype=x.dtype, device=kit.device)
        first, size = width[name]
        view = buffers[whole][:, first:first + size]
        view.copy_(x.reshape(97, size))
        return view.unflatten(1, x.shape[2:])[None]

    views = {name: column(name, x) for name, x in t.inputs.items()}
    for how in kit.configurations(97):
        with kit.one(how):
            dense = kit.run(t, how)
            kit.close(how, dense, truth)
            kit.same(how, "slices", kit.run(replace(t, inputs=views), how), dense, None)
    # The first three rows as three sequences of one token.
    rows = replace(t, inputs={name: kit.rows(x[:, :3]) for name, x in t.inputs.items()},
                   cu_seqlens=torch.arange(4, device=kit.device))
    truth = kit.truth(rows, "decode")
    for how in kit.configurations(1):
        with kit.one(how):
            dense = kit.run(rows, how)
            kit.close(how, dense, truth, None, "decode")
            sliced = replace(rows, inputs={name: x[:, :3] for name, x in views.items()})
            kit.same(how, "decode from slices", kit.run(sliced, how), dense, None)


@case("C23", "deltanet_raw", 64, 64)
def beta_up_to_two(kit):
    x = kit.delta(123, 1, 512, 2, 64, 64)
    x["beta"] = 2 * torch.sigmoid(2 * x["b"])
    x["beta"][:, ::8] = 2
    limits = {"R": 8e-3, "W": 1.5e-2, "M": 2e-2, "S": 8e-3} if kit.narrow else {"R": 2e-6, "W": 4e-6, "M": 8e-6,
                                                                                "S": 2e-6}
    kit.check(kit.data(x), "beta", lambda how: limits, (0, 0.8655, 0, 6.927))


def generator_is_right(device):
    wanted = {N: (-0.409698460, -0.422356537, -0.111808134, -0.094535613),
              U: (0.564397614, 0.312562737, 0.842492206, 0.378248326)}
    return all(abs(a - b) < 1e-9 for f, values in wanted.items() for a, b in zip(f(1, 2, (4,), device).tolist(), values))


def run(library, directories, device, names=None):
    """True when every case passed on every bundle. Prints one JSON object a line."""
    def report(line):
        print(json.dumps({k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in line.items()}),
              flush=True)

    good = generator_is_right(device)
    if not good:
        report({"fails": "the portable generator does not give its check values"})
    total, others, truths, missed = defaultdict(Score), {}, {}, {c[0] for c in CASES if not names or c[0] in names}
    for directory in directories:
        handle = plumrt.Layer(library, directory)
        m = handle.manifest
        label = directory.rstrip("/").rsplit("/", 1)[-1]
        kit = Kit(handle, device, label, report, others, truths)
        fitting = [c for c in CASES if kit.layer in c[1] and (c[2], c[3]) == (kit.K, kit.V)
                   and (not names or c[0] in names)]
        if not fitting and not names:
            raise SystemExit(f"{directory}: no case is for layer '{kit.layer}' with {m['dims']}")
        for name, _, _, _, function in fitting:
            kit.case = name
            missed.discard(name)
            function(kit)
        for name, score in kit.scores.items():
            into = total[name]
            for n in ("runs", "failed", "same", "compared"):
                setattr(into, n, getattr(into, n) + getattr(score, n))
            into.worst = {n: max(into.worst[n], score.worst[n]) for n in "RWMS"}
    for name, score in sorted(total.items()):
        report({"case": name, "runs": score.runs, "failed": score.failed, **score.worst,
                "equal_bytes": f"{score.same} of {score.compared}", "pass": score.failed == 0})
        good &= score.failed == 0
    if missed:
        report({"not_run": sorted(missed)})
    return good and bool(total)
