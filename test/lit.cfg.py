# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Text tests: what goes into a tool and which lines have to come out. Run them
# from a build: `lit -v build/test`, or one folder `lit -v build/test/Transforms`.
#
# A test is a .mlir, .plum or .test file with RUN lines. What it can use:
#   plum, plum-opt, plum-run   the tools of this build
#   FileCheck, not, split-file, count   of LLVM
#   %layers, %src, %build   docs/layers, the repository and the build
#   %python, %cc, %cxx   an interpreter, and compilers for headers
#   %tensors        writes a small safetensors file, see test/tools/Inputs
# `REQUIRES: ptxas` is for what NVIDIA's assembler has to say.

import os
import shutil

import lit.formats

if not hasattr(config, "plum_bin_dir"):
    lit_config.fatal("run lit on the build's test folder: lit -v build/test")

config.name = "plum"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".plum", ".test"]
config.excludes = ["Inputs", "fixtures", "fuzz", "integration", "unit"]
config.test_source_root = os.path.join(config.plum_source_dir, "test")
config.test_exec_root = os.path.join(config.plum_binary_dir, "test")

# Exactly the tools of this build and of the LLVM it was built with.
config.environment["PATH"] = os.pathsep.join(
    [config.plum_bin_dir, config.llvm_tools_dir, os.environ.get("PATH", "")]
)
config.environment["PLUM_CACHE"] = os.path.join(config.test_exec_root, "plum-cache")

# The same places in which Plum looks.
ptxas = (
    os.environ.get("PLUM_PTXAS")
    or shutil.which("ptxas")
    or shutil.which("ptxas", path="/usr/local/cuda/bin")
)
if ptxas:
    config.available_features.add("ptxas")
    config.environment["PLUM_PTXAS"] = ptxas

tensors = os.path.join(config.test_source_root, "tools", "Inputs", "tensors.py")
config.substitutions += [
    ("%layers", os.path.join(config.plum_source_dir, "docs", "layers")),
    ("%src", config.plum_source_dir),
    ("%tensors", '"%s" "%s"' % (config.python, tensors)),
    ("%python", '"%s"' % config.python),
    ("%build", config.plum_binary_dir),
    ("%cxx", '"%s"' % config.cxx),
    ("%cc", '"%s"' % config.cc),
]
