# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# device_kernels.py DIR ARCH...: assembles every .ptx of DIR and prints what each
# kernel takes; a spill, a stack frame or a warning is an error. PTX of one
# architecture alone (sm_90a) is assembled for that one.

import os
import re
import subprocess
import sys
import tempfile

errors = 0
ptxas = os.environ["PLUM_PTXAS"]
folder = sys.argv[1]
for arch in sys.argv[2:]:
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".ptx"):
            continue
        path = os.path.join(folder, name)
        target = re.search(r"^\.target (\w+)", open(path).read(), re.M).group(1)
        if target.endswith("a") and target != arch + "a":
            continue
        own = target if target.endswith("a") else arch
        with tempfile.TemporaryDirectory() as scratch:
            run = subprocess.run(
                [ptxas, "-arch=" + own, "-v", path]
                + ["-o", os.path.join(scratch, "cubin")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        if run.returncode:
            print("error: %s: %s" % (name, run.stdout))
            errors += 1
        kernel = None
        for line in run.stdout.splitlines():
            if match := re.search(r"Compiling entry function '(\w+)'", line):
                kernel = match.group(1)
            elif match := re.search(r"Used (\d+ registers.*)", line):
                print("%s: %s: %s" % (arch, kernel, match.group(1)))
            elif "stack frame" in line and re.findall(r"\d+", line) != ["0"] * 3:
                print("error: %s: %s: %s" % (arch, kernel, line.strip()))
                errors += 1
            elif "warning" in line or "(C7" in line:
                print("error: %s: %s" % (arch, line))
                errors += 1
print("%d errors" % errors)
