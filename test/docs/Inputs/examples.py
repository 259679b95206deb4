# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Examples in op descriptions are tests: every ```mlir block of a dialect's .td
# files has to parse, verify, contain its op and print the same after a second
# round trip. Every op but the terminators has one.
#
#   examples.py DIALECTS_DIR

import pathlib
import re
import subprocess
import sys
import textwrap


def opt(ir, *flags):
    done = subprocess.run(["plum-opt", *flags], input=ir, capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s\n%s" % (ir, done.stderr))
    return done.stdout


for folder in sorted(p for p in pathlib.Path(sys.argv[1]).iterdir() if p.is_dir()):
    dialect, examples, missing = folder.name.lower(), 0, []
    for file in sorted(folder.glob("*.td")):
        # One piece per def, so that an example is looked for in its own op.
        for piece in re.split(r"^def ", file.read_text(), flags=re.M)[1:]:
            op = re.match(r'\w+Op : \w+<"(\w+)"', piece)
            blocks = re.findall(r"```mlir\n(.*?)```", piece, flags=re.S)
            for block in blocks:
                examples += 1
                once = opt(textwrap.dedent(block))
                if opt(once) != once or opt(opt(once, "--mlir-print-op-generic")) != once:
                    sys.exit("does not round trip:\n" + once)
                if op and not re.search(r"%s\.%s\b" % (dialect, op[1]), once):
                    sys.exit("%s.%s is not in its own example" % (dialect, op[1]))
            if op and not blocks:
                missing.append(op[1])
    print("%s: %d examples, none for: %s" % (dialect, examples, ", ".join(missing)))
