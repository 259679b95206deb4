# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes a small safetensors file from its command line:
#
#   tensors.py OUT q=f32[4,1,8] cu_seqlens=i32[3]:0,2,4 [--cut N] [--overlap]
#
# Values count up from 1 in steps of 1/16 unless they are given. --cut N drops
# the last N bytes; --overlap lets every tensor begin at offset 0.

import json
import re
import struct
import sys

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I32": 4, "I64": 8}


def encode(dtype, value):
    if dtype == "BF16":
        return struct.pack("<f", value)[2:]
    code = {"F32": "f", "F16": "e", "F64": "d", "I32": "i", "I64": "q"}[dtype]
    return struct.pack("<" + code, int(value) if code in "iq" else value)


def main():
    out, *arguments = sys.argv[1:]
    cut, overlap, header, data = 0, "--overlap" in arguments, {}, b""
    while arguments:
        word = arguments.pop(0)
        if word == "--cut":
            cut = int(arguments.pop(0))
        if word.startswith("--"):
            continue
        name, dtype, shape, given = re.fullmatch(
            r"(\w+)=(\w+)\[([\d,]*)\](?::(.*))?", word).groups()
        dtype = dtype.upper()
        shape = [int(d) for d in shape.split(",") if d]
        count = 1
        for d in shape:
            count *= d
        if given is None:
            values = [1 + i % 16 / 16 for i in range(count)]
        else:
            values = [float(v) for v in given.split(",")] if given else []
            assert len(values) == count, "%s needs %d values" % (name, count)
        piece = b"".join(encode(dtype, v) for v in values)
        begin = 0 if overlap else len(data)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [begin, begin + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    contents = struct.pack("<Q", len(text)) + text + data
    with open(out, "wb") as file:
        file.write(contents[:len(contents) - cut])


main()
