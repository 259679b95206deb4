#!/usr/bin/env python3
# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a memory can keep: multi-query associative recall. recall.py MIXER

A sequence names N pairs of a key and a value, each pair once, then asks for 64
of the keys; after each the value must be predicted. Two plain blocks (64 wide)
around the mixer; short convolutions bind a key to the value behind it for all
mixers, softmax attention too, so what differs is what the state can hold: per
block 2 heads of 32 x 32 numbers. Trained on N = 4 to 128 mixed.
"""

import argparse

import torch
import torch.nn.functional as F

from layers import LAYERS
from models import build, plain
from train import Run, Trainer, arguments, prepare, synchronize

KEYS = VALUES = 256
PAIRS = (4, 8, 16, 32, 64, 128)
QUERIES, BATCH, RATE, DECAY = 64, 192, 3e-3, 0.01
LENGTH = 2 * PAIRS[-1] + QUERIES

# Every memory, and one block of each kind as the models with every fourth
# layer attention have them.
MIXERS = {name: [name, name] for name in LAYERS} | {
    "kda_k3+attention": ["kda_k3", "attention"]}


def sequences(batch, pairs, device):
    """Tokens [batch, LENGTH] and the answers to the last QUERIES of them.
    `pairs` [batch]: how many each has; what is left stays blank."""
    most = PAIRS[-1]
    keys = torch.rand(batch, KEYS, device=device).argsort(-1)[:, :most]
    values = torch.randint(VALUES, (batch, most), device=device)
    ask = (torch.rand(batch, QUERIES, device=device) * pairs[:, None]).long()
    told = torch.stack([keys, KEYS + values], -1)
    blank = torch.arange(most, device=device) >= pairs[:, None]
    told = told.masked_fill(blank.unsqueeze(-1), KEYS + VALUES)
    told = told.flip(1).flatten(1)  # Blanks first.
    return torch.cat([told, keys.gather(1, ask)], 1), values.gather(1, ask)


@torch.no_grad()
def accuracy(model, pairs, device, batches):
    right = 0.0
    for _ in range(batches):
        count = torch.full((64,), pairs, device=device)
        ids, answers = sequences(64, count, device)
        guess = model(ids)[:, -QUERIES:, KEYS:KEYS + VALUES].argmax(-1)
        right += float((guess == answers).float().mean()) / batches
    return right


def main():
    args = arguments(argparse.ArgumentParser(description=__doc__.splitlines()[0]),
                     BATCH)
    prepare(args)
    run, device = Run(args, args.name), args.device
    config = plain(MIXERS[args.name], layer_dims={"K": 32, "V": 32}, num_heads=2,
                   hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                   vocab_size=KEYS + VALUES + 1,
                   conv_inputs=["q", "k", "v", "C", "B", "x"])
    model = build(config).to(device)
    choices = torch.tensor(PAIRS, device=device)

    def loss_of(model):
        pairs = choices[torch.randint(len(PAIRS), (args.batch,), device=device)]
        ids, answers = sequences(args.batch, pairs, device)
        logits = model(ids)[:, -QUERIES:].float()
        return F.cross_entropy(logits.flatten(0, 1), KEYS + answers.flatten())

    trainer = Trainer(model, loss_of, RATE, DECAY, device, not args.eager)
    run.say("first steps made, " + ("as a graph" if trainer.graph else "eager"))
    steps = run.rehearse(trainer, lambda _: None)
    trainer.restart()

    def measure(batches):
        model.eval()
        found = {str(n): accuracy(model, n, device, batches) for n in PAIRS}
        model.train()
        return found

    step, every = 0, max(20, steps // 8)
    batches = 32 if device == "cuda" else 1
    while step < steps and not run.late():
        loss = trainer.step(trainer.schedule(step, steps))
        step += 1
        if step % every == 0 and step < steps:
            found = measure(1)
            run.write(steps=step, planned=steps, recall=found)
            run.say(f"step {step}/{steps}: loss {float(loss):.3f}, recall " +
                    " ".join(f"{n}:{a:.2f}" for n, a in found.items()))
    synchronize(device)
    found = measure(batches)
    run.write(done=True, steps=step, planned=steps, recall=found,
              parameters=sum(p.numel() for p in model.parameters()))
    run.say("done: " + " ".join(f"{n}:{a:.3f}" for n, a in found.items()))


if __name__ == "__main__":
    main()
