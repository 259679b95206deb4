#!/usr/bin/env python3
"""The model fixtures on a GPU, compared with their expected logits.

    check_models.py plum-run BUNDLES FIXTURES

BUNDLES/NAME is what `plum compile FIXTURES/NAME --target sm_90a -o BUNDLES/NAME`
wrote. For every fixture: logits in f32, in pieces of 64, 7 and 1 tokens; the
tokens that greedy decoding makes; whether a sequence alone and in a batch of 8
has the same bits; the error of bf16. One line each; exit 1 when f32 is outside
its bounds or bits differ.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

def read(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    types = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
    return {
        name: np.frombuffer(
            data[entry["data_offsets"][0] : entry["data_offsets"][1]],
            types[entry["dtype"]],
        ).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write_ids(path, ids):
    ids = np.ascontiguousarray(ids, np.int32)
    entry = {
        "dtype": "I32",
        "shape": list(ids.shape),
        "data_offsets": [0, ids.nbytes],
    }
    header = json.dumps({"input_ids": entry}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + ids.tobytes())


class Runner:
    def __init__(self, program, bundle, directory, scratch):
        self.program, self.scratch = program, scratch
        self.model = [bundle, "--model-dir", directory, "--target", "cuda"]

    def run(self, verb, *arguments):
        done = subprocess.run(
            [self.program, verb, *self.model, *map(str, arguments)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def logits(self, ids, *arguments):
        source, target = self.scratch + "/in", self.scratch + "/out"
        write_ids(source, ids)
        self.run("logits", "--in", source, "--out", target, *arguments)
        return read(target)["logits"]


def check(name, runner, expected):
    ids, logits = expected["input_ids"], expected["logits"]
    spread = logits.std()
    good = True
    for chunk in (64, 7, 1):
        got = runner.logits(ids, "--precision", "f32", "--prefill-chunk", chunk)
        error = np.abs(got - logits).max()
        rms = np.sqrt(np.mean((got - logits) ** 2)) / spread
        fine = bool(error < 1e-3 and rms < 1e-4)
        good &= fine
        print(
            f"{name:18} f32 pieces of {chunk:2}: max {error:.1e}, rms / spread "
            f"{rms:.1e}{'' if fine else '   WRONG'}",
            flush=True,
        )
    prompt = ",".join(map(str, ids[0]))
    greedy = expected["greedy_ids"].reshape(-1)
    made = runner.run(
        "generate", "--ids", prompt, "-n", len(greedy), "--temp", 0,
        "--ignore-eos", "--precision", "f32",
    )  # fmt: skip
    same = made.split() == [str(token) for token in greedy]
    good &= same
    print(f"{name:18} greedy {'exact' if same else 'WRONG: ' + made}", flush=True)
    generator = np.random.default_rng(1)
    many = generator.integers(0, logits.shape[2], (8, 40))
    for precision in ("f32", "bf16"):
        for chunk in (40, 1):
            options = ("--precision", precision, "--prefill-chunk", chunk)
            alone = runner.logits(many, *options)
            batch = runner.logits(many, *options, "--batch", 8)
            same = bool((alone.view(np.int32) == batch.view(np.int32)).all())
            good &= same and bool(np.isfinite(alone).all())
            print(
                f"{name:18} {precision} alone and in a batch of 8, pieces of "
                f"{chunk:2}: {'the same bits' if same else 'WRONG: other bits'}",
                flush=True,
            )
    for chunk in (64, 1):
        got = runner.logits(ids, "--precision", "bf16", "--prefill-chunk", chunk)
        rms = np.sqrt(np.mean((got - logits) ** 2)) / spread
        row = np.median(np.abs(got - logits).max(-1))
        print(
            f"{name:18} bf16 pieces of {chunk:2}: rms / spread {rms:.3f}, median "
            f"row {row:.1e}",
            flush=True,
        )
    return good


def main():
    program, bundles, fixtures = sys.argv[1:4]
    names = sys.argv[4:] or sorted(os.listdir(bundles))
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            directory = os.path.join(fixtures, name)
            runner = Runner(program, os.path.join(bundles, name), directory, scratch)
            try:
                expected = read(os.path.join(directory, "expected.safetensors"))
                good &= check(name, runner, expected)
            except RuntimeError as error:
                good = False
                print(f"{name:18} WRONG: {error}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
