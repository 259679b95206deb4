# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What the kernels of every shipped layer take of a GPU, as ptxas has it: a line
# per kernel, and an error for whatever must never be shipped: spills, a stack,
# a warning of ptxas (C7514: products one after the other; C7517: a wait too
# many), more shared memory or registers than a multiprocessor has.
#
#   resources.py LAYERS_DIR CHIP [plum compile arguments]

import json
import pathlib
import re
import subprocess
import sys
import tempfile

SHARED = {"sm_80": 163 << 10, "sm_90a": 227 << 10}  # of one block
REGISTERS = 1 << 16  # of a multiprocessor

layers, chip = sys.argv[1:3]
LINE = re.compile(r"remark: (\w+): (\d+) registers, (\d+) spilled bytes, (\d+) stack bytes")
bad = 0


def complain(message):
    global bad
    bad += 1
    print("error: " + message)


for spec in sorted(pathlib.Path(layers).glob("*.plum")):
    with tempfile.TemporaryDirectory() as scratch:
        bundle = scratch + "/bundle"
        done = subprocess.run(
            ["plum", "compile", str(spec), "--target", chip, "-o", bundle, "--remarks"]
            + sys.argv[3:], capture_output=True, text=True)
        if done.returncode:
            complain("%s: exit code %d: %s" % (spec.stem, done.returncode, done.stderr.strip()))
            continue
        kernels = json.loads(pathlib.Path(bundle, "manifest.json").read_text())["kernels"]
    for line in done.stderr.splitlines():
        if line.startswith("ptxas: warning:"):
            complain("%s: %s" % (spec.stem, line))
    found = {match[1]: [int(n) for n in match.groups()[1:]]
             for match in map(LINE.match, done.stderr.splitlines()) if match}
    for kernel in kernels:
        name, threads, shared = kernel["symbol"], kernel["threads"], kernel["shared_bytes"]
        registers, spilled, stack = found.get(name, (0, 0, 0))
        print("%s: %s: %d registers, %d threads, %d shared"
              % (spec.stem, name, registers, threads, shared))
        if not registers:
            complain(name + ": ptxas says nothing of it")
        if spilled or stack:
            complain("%s: %d bytes spilled, %d of stack" % (name, spilled, stack))
        if registers * threads > REGISTERS:
            complain("%s: %d x %d registers" % (name, threads, registers))
        if shared > SHARED[chip]:
            complain("%s: %d bytes of shared memory" % (name, shared))
print("%s: %d errors" % (chip, bad))
