# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Every phase's printed IR must be enough to go on from: for each layer,
# `plum compile --stop-after=PHASE | plum-opt --phase-NEXT` has to equal
# `plum compile --stop-after=NEXT`, up to the names of values.
#
#   resume.py LAYERS_DIR TARGET [plum compile arguments]
#
# --set DIM=N is for the layers that have such a dim.

import pathlib
import re
import subprocess
import sys


def run(command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    return done.stdout


def canonical(ir):
    """Names of values are hints from the spec, kept in `names` of chunk.map."""
    return run(["plum-opt"], re.sub(r' names \[[^\]]*\]', "", ir))


TABLE = [line.split()[:2] for line in run(["plum", "--print-phases"]).splitlines()]
TEXT = ("ptx", "obj")  # no IR
OPTIONS = {"chunk": "=chunks=16,1", "llvm": "=lanes=8 registers=16", "nvvm": "=sm=80"}
# Kind of target, the phase to start from (a GPU's first ones are the same).
TARGETS = {"cpu": ("cpu", "assoc", ["--cpu", "x86-64-v3"]), "sm_80": ("gpu", "plan", [])}
SPECS = sorted(pathlib.Path(sys.argv[1]).glob("*.plum"))
assert SPECS

target = sys.argv[2]
if target != "cpu":  # Growing states have no kernels for a GPU.
    SPECS = [spec for spec in SPECS if "[*" not in spec.read_text()]
kind, first, flags = TARGETS[target]
PHASES = [name for name, machine in TABLE if machine in ("all", kind) and name not in TEXT]
for spec in SPECS:
    header = re.search(r"^layer .*", spec.read_text(), re.M).group()
    rest = re.sub(r"--set (\w+)=\d+ ?", lambda size: size[0] if re.search(
        r"\b%s = " % size[1], header) else "", " ".join(sys.argv[3:])).split()

    def stop(phase):
        return run(["plum", "compile", str(spec), "--chunk", "16,1", "--target", target,
                    "--stop-after", phase, "-o", "-"] + flags + rest)

    passed, through = [], stop(first)
    for phase in PHASES[PHASES.index(first) + 1:]:
        direct = canonical(stop(phase))
        through = run(["plum-opt", "--phase-" + phase + OPTIONS.get(phase, "")], through)
        if canonical(through) != direct:
            sys.exit("%s: resumed %s differs from compiled %s" % (spec.stem, phase, phase))
        passed.append(phase)
    print("%s: %s" % (spec.stem, " ".join(passed)))
