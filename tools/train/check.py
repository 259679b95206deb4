#!/usr/bin/env python3
# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of the training code, on a CPU: check.py [PLUM]

The chunked memory against its recurrence in float64, values and gradients; and,
given the `plum` binary, that every model that is saved has the same logits
there (1e-3) as here. `check.py --fixtures DIR` writes the checkpoints plain-*
of test/fixtures."""

import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from layers import LAYERS
from memory import memory, memory_by_token
from models import CONFIGS, build
from save import save


def check_memory():
    """Strong and weak decays, repeated keys, and a last chunk cut short."""
    torch.manual_seed(1)
    B, T, H, K, V = 2, 150, 2, 32, 24
    for decay in ("none", "scalar", "channel", "strong"):
        for delta in (False, True):
            rand = lambda *shape: torch.randn(*shape, dtype=torch.float64)
            q, k, v = rand(B, T, H, K), rand(B, T, H, K), rand(B, T, H, V)
            k[:, 40:90] = k[:, 40:41]  # What a Neumann series fails at.
            k = k / k.norm(dim=-1, keepdim=True)
            g = {"none": torch.zeros(B, T, H, 1, dtype=torch.float64),
                 "scalar": -rand(B, T, H, 1).abs(),
                 "channel": -0.1 * rand(B, T, H, K).abs(),
                 "strong": -40 * rand(B, T, H, K).abs()}[decay]
            beta = torch.sigmoid(3 * rand(B, T, H)) if delta else None
            leaves = [x for x in (q, k, v, g, beta) if x is not None]
            probe, results = rand(B, T, H, V), []
            for run in (memory, memory_by_token):
                inputs = [x.clone().requires_grad_() for x in leaves]
                o, S = run(*inputs, *([] if delta else [None]))
                ((o * probe).sum() + S.square().sum()).backward()
                results.append([o, S, *(x.grad for x in inputs)])
            worst = max(((a - b).abs().max() / (b.abs().max() + 1e-12)).item()
                        for a, b in zip(*results))
            print(f"memory, decay {decay}, delta {delta}: {worst:.1e}")
            assert worst < 1e-9, "chunked memory differs from its recurrence"


def disturb(model):
    """Zeros and ones hide errors."""
    torch.manual_seed(2)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if "A_log" not in name and "dt_bias" not in name:
                small = name.endswith("e_score_correction_bias")
                value.add_(0.05 * torch.randn_like(value) * (0.2 if small else 1))


def check_model(name, config, plum):
    torch.manual_seed(3)
    model = build(config)
    disturb(model)
    model.round()
    model.eval()
    ids = torch.randint(0, model.embedding().num_embeddings, (2, 90))
    with torch.no_grad():
        expected = model(ids)
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        save(model, root / "model")
        save_file({"input_ids": ids}, root / "ids.safetensors")
        subprocess.run([plum, "logits", root / "model", "--in",
                        root / "ids.safetensors", "--out", root / "out.safetensors"],
                       check=True)
        got = load_file(root / "out.safetensors")["logits"]
    error, spread = (got - expected).abs().max().item(), expected.std().item()
    print(f"{name}: logits differ by {error:.1e} at most, their spread is {spread:.2f}")
    assert error < 1e-3, f"{name}: plum computes other logits"


def small(layer):
    """A plain network of one spec, for those that no model of the seven is."""
    inputs = LAYERS[layer].inputs
    return {**CONFIGS["deltanet"], "layer": layer, "num_hidden_layers": 2,
            "conv_inputs": [n for n in inputs if n in ("q", "k", "v", "x")]}


@torch.no_grad()
def write_fixture(directory, layer):
    torch.manual_seed(4)
    model = build({**small(layer), "vocab_size": 512, "hidden_size": 64,
                   "intermediate_size": 96, "num_heads": 2,
                   "layer_dims": {"K": 32, "V": 16}})
    disturb(model)
    model.round()
    model.eval()
    ids = torch.randint(0, 512, (2, 70))
    text = ids[:1]
    for _ in range(12):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], 1)
    save(model, directory)
    save_file({"input_ids": ids, "logits": model(ids),
               "greedy_ids": text[:, -12:].contiguous()},
              directory / "expected.safetensors")


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--fixtures"]:
        for layer in ("linear_attention", "kda"):
            name = "plain-" + layer.split("_")[0] + "-a"
            write_fixture(pathlib.Path(sys.argv[2]) / name, layer)
        return
    check_memory()
    if len(sys.argv) < 2:
        return
    for name, config in CONFIGS.items():
        check_model(name, config, sys.argv[1])
    for layer in ("mamba2", "gated_deltanet", "kda", "kda_k3"):
        check_model("plain " + layer, small(layer), sys.argv[1])


if __name__ == "__main__":
    main()
