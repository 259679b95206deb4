# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a model as the directory that Hugging Face and Plum read."""

import json
import pathlib
import shutil

from safetensors.torch import save_file


def save(model, directory, tokenizer=None):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = model.checkpoint()
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    text = json.dumps(model.config, indent=2) + "\n"
    (directory / "config.json").write_text(text)
    if tokenizer:
        shutil.copy(tokenizer, directory / "tokenizer.json")
