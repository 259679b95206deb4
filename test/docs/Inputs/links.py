# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Counts the relative links of README.md and docs/**/*.md and those to nothing.

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
links, broken = 0, 0
for page in [root / "README.md", *root.glob("docs/**/*.md")]:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if re.match(r"\w+:", target):
            continue
        links += 1
        if not (page.parent / target).exists():
            broken += 1
            print("%s: no %s" % (page.relative_to(root), target))
print("%d links, %d broken" % (links, broken))
