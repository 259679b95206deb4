#!/usr/bin/env python3
# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains everything that docs/small-models.md reports:

    python3 tools/train/train_all.py --data DIR --out DIR --minutes 8

Seven language models (text.py) and one small network for each memory
(recall.py), a process each, all at once on one GPU: first the text, then
recall, within `--minutes` in all. The runs of a part make the same number of
steps: as many as all have time for, measured while all of them run, at most
MOST. A run that dies is started once more without CUDA graphs. What each
has reached is on disk all the time; `--report DIR...` (or the results.json in
it) prints the tables again.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from models import CONFIGS
from recall import MIXERS, PAIRS

HERE = pathlib.Path(__file__).resolve().parent
MOST = {"text": 1600, "recall": 4000}
SHARE = {"text": 1.0, "recall": 0.45}  # Of the time, beside the other part.
REHEARSAL = 12  # Seconds of measuring while all are running.
CLOSING = {"text": 20, "recall": 15}  # Seconds to measure and save at the end.


class Part:
    """The runs of one script, in a folder of their own."""

    def __init__(self, args, what, names, deadline):
        self.args, self.what, self.deadline = args, what, deadline
        self.out = pathlib.Path(args.out) / what
        self.out.mkdir(parents=True, exist_ok=True)
        for old in [self.out / "steps", *self.out.glob("*.speed")]:
            old.unlink(missing_ok=True)
        self.running, self.again = {}, set()
        for name in names:
            self.launch(name)

    def launch(self, name, *more):
        command = [sys.executable, HERE / f"{self.what}.py", name, "--out",
                   self.out, "--deadline", str(self.deadline - 5), *more]
        if self.what == "text":
            command += ["--data", self.args.data]
        if self.args.batch:
            command += ["--batch", str(self.args.batch)]
        if self.args.device:
            command += ["--device", self.args.device]
        if self.args.steps:
            command += ["--steps", str(self.args.steps)]
        if self.args.eager:
            command += ["--eager"]
        self.running[name] = subprocess.Popen([str(c) for c in command])

    def tend(self):
        """Starts what has died once more, without a graph."""
        for name, process in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[name]
            if code == 0:
                continue
            print(f"-- {self.what} {name} ended with {code}", flush=True)
            if name not in self.again and not self.args.eager:
                self.again.add(name)
                (self.out / f"{name}.speed").unlink(missing_ok=True)
                self.launch(name, "--eager")

    def agree(self):
        """Waits until all have measured a step, then says how many."""
        if self.args.steps:
            return
        ready = None
        while self.running and time.time() < self.deadline:
            time.sleep(0.5)
            self.tend()
            files = [self.out / f"{name}.speed" for name in self.running]
            if not all(f.exists() and f.read_text().strip() for f in files):
                ready = None
                continue
            ready = ready or time.time()
            if time.time() - ready > REHEARSAL:
                break
        speeds = {name: float((self.out / f"{name}.speed").read_text())
                  for name in self.running if (self.out / f"{name}.speed").exists()}
        if not speeds:
            return
        left = self.deadline - time.time() - CLOSING[self.what]
        # One GPU serves them in turn: what the first to end leaves, the others
        # have, so that all are through after steps x the mean.
        turns = sum(speeds.values()) / len(speeds)
        steps = max(1, min(self.args.most or MOST[self.what],
                           int(0.9 * left / turns)))
        print(f"-- {self.what}: ms a step, all at once: " +
              ", ".join(f"{n} {1e3 * s:.1f}" for n, s in speeds.items()) +
              f"; {left:.0f} s left: {steps} steps", flush=True)
        target = self.out / "steps"
        target.with_suffix(".part").write_text(f"{steps}\n")
        target.with_suffix(".part").replace(target)

    def wait(self):
        while self.running and time.time() < self.deadline + 20:
            time.sleep(0.5)
            self.tend()
        for process in self.running.values():
            process.kill()


def read(places, what):
    """Results by name, from folders or their results.json; later ones count."""
    found = {}
    for folder in places:
        if pathlib.Path(folder).is_file():
            found |= json.loads(pathlib.Path(folder).read_text()).get(what, {})
            continue
        for path in sorted((pathlib.Path(folder) / what).glob("*.json")):
            found[path.stem] = json.loads(path.read_text())
    return found


def report(folders):
    """The tables of docs/small-models.md."""
    text, recall = read(folders, "text"), read(folders, "recall")
    if text:
        print("\n| model | parameters | steps | tokens | valid | test |\n"
              "|---|---|---|---|---|---|")
    for name in CONFIGS:
        if name not in text:
            continue
        run = text[name]
        bits = [f"{run[k]:.3f}" if k in run else "-" for k in ("valid", "test")]
        print(f"| {name} | {run['parameters'] / 1e6:.2f} M | {run['steps']} | "
              f"{run.get('tokens', 0) / 1e6:.1f} M | {bits[0]} | {bits[1]} |")
    if recall:
        print("\n| memory | " + " | ".join(f"{n}" for n in PAIRS) + " | steps |\n"
              "|---|" + "---|" * (len(PAIRS) + 1))
    for name in MIXERS:
        if name in recall and "recall" in recall[name]:
            run = recall[name]
            print(f"| {name} | " + " | ".join(
                f"{100 * run['recall'][str(n)]:.1f}" for n in PAIRS) +
                f" | {run['steps']} |")
    print(flush=True)
    return {"text": text, "recall": recall}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="where results go")
    parser.add_argument("--data", default="build/kjv", help="what prepare.py made")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--what", default="text,recall")
    parser.add_argument("--only", default="", help="some names, a,b")
    parser.add_argument("--steps", type=int, help="exactly so many")
    parser.add_argument("--most", type=int, help="at most so many")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--report", nargs="+", metavar="DIR")
    args = parser.parse_args()
    if args.report:
        report(args.report)
        return 0
    if not args.out:
        parser.error("needs --out")
    start, what = time.time(), args.what.split(",")
    end = start + 60 * args.minutes
    names = {"text": CONFIGS, "recall": MIXERS}
    for i, part in enumerate(what):
        last = i == len(what) - 1
        deadline = end if last else end - SHARE[what[i + 1]] * 60 * args.minutes
        chosen = [n for n in names[part]
                  if not args.only or n in args.only.split(",")]
        print(f"-- {part}: {len(chosen)} runs, until {deadline - start:.0f} s",
              flush=True)
        runs = Part(args, part, chosen, deadline)
        runs.agree()
        runs.wait()
        print(f"-- {part}: over after {time.time() - start:.0f} s", flush=True)
    results = report([args.out])
    path = pathlib.Path(args.out) / "results.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    wanted = sum(len(names[p]) for p in what)
    finished = sum(r.get("done", False) for p in what for r in results[p].values())
    return 0 if args.only or finished == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
