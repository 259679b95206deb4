#!/usr/bin/env python3
# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains one model of models.py on the text of prepare.py: text.py NAME

Every model sees the same windows in the same order. The weights that predict
valid.txt best are kept, rounded to bf16, measured on test.txt and saved.
"""

import argparse
import math

import numpy
import torch
import torch.nn.functional as F

from models import build
from save import save
from train import Run, Trainer, arguments, prepare, synchronize

WINDOW, BATCH = 512, 32  # Tokens of a window, windows of a step.
RATE, DECAY, DROPOUT = 2e-3, 0.1, 0.2


@torch.no_grad()
def bits_per_byte(model, ids, widths, device, autocast):
    """Windows that start from an empty state; all but a window's first token
    are predicted, as `plum perplexity --window 512` does."""
    model.eval()
    bits = torch.zeros((), dtype=torch.float64, device=device)
    size = 0
    for begin in range(0, len(ids), WINDOW * BATCH):
        some = ids[begin:begin + WINDOW * BATCH]
        whole = len(some) // WINDOW * WINDOW
        for rows in (some[:whole].view(-1, WINDOW), some[whole:].view(1, -1)):
            if rows.shape[0] == 0 or rows.shape[1] < 2:
                continue
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                logits = model(rows)[:, :-1].float()
            nats = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(),
                                   reduction="sum")
            bits += nats.double() / math.log(2)
            size += int(widths[rows[:, 1:]].sum())
    model.train()
    return float(bits) / size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    args = arguments(parser, BATCH)
    prepare(args)
    run, device, cuda = Run(args, args.name), args.device, args.device == "cuda"

    data = numpy.load(f"{args.data}/tokens.npz")
    ids = {name: torch.from_numpy(data[name].astype(numpy.int64)).to(device)
           for name in ("train", "valid", "test", "bytes")}
    train, widths = ids["train"], ids["bytes"]
    plan = torch.randint(0, len(train) - WINDOW, (10000, args.batch),
                         generator=torch.Generator().manual_seed(7)).to(device)
    offsets = torch.zeros(args.batch, dtype=torch.int64, device=device)
    span = torch.arange(WINDOW + 1, device=device)

    def refresh(step):
        offsets.copy_(plan[step % len(plan)])

    def loss_of(model):
        rows = train[offsets[:, None] + span]
        logits = model(rows[:, :-1]).float()
        return F.cross_entropy(logits.flatten(0, 1),
                               rows[:, 1:].flatten()) + model.extra()

    model = build(args.name, DROPOUT).to(device)
    size = sum(p.numel() for p in model.parameters())
    run.say(f"{size} parameters")
    run.write(parameters=size)
    trainer = Trainer(model, loss_of, RATE, DECAY, device, not args.eager)
    run.say("first steps made, " + ("as a graph" if trainer.graph else "eager"))
    steps = run.rehearse(trainer, refresh)
    trainer.restart()

    best, kept, curve = math.inf, None, []
    every, step = max(20, steps // 16), 0
    tokenizer = f"{args.data}/tokenizer.json"
    while step < steps and not run.late():
        refresh(step)
        loss = trainer.step(trainer.schedule(step, steps))
        step += 1
        if step % every == 0 or step == steps:
            valid = bits_per_byte(model, ids["valid"], widths, device, cuda)
            curve.append([step, float(loss), valid])
            run.say(f"step {step}/{steps}: loss {float(loss):.3f}, "
                    f"valid {valid:.4f} bits per byte")
            if valid < best:
                best = valid
                kept = [t.detach().clone() for t in trainer.tensors()]
            run.write(steps=step, planned=steps, curve=curve,
                      tokens=step * args.batch * WINDOW)
            if not math.isfinite(valid):
                run.say("diverged")
                break
            if step < steps:
                save(model, run.out / "models" / args.name, tokenizer)
    synchronize(device)
    if kept:
        with torch.no_grad():
            for now, then in zip(trainer.tensors(), kept):
                now.copy_(then)
    model.round()
    save(model, run.out / "models" / args.name, tokenizer)
    test = {part: bits_per_byte(model, ids[part], widths, device, False)
            for part in ("valid", "test")}
    run.write(done=True, valid=test["valid"], test=test["test"], steps=step)
    run.say(f"done: {test['test']:.4f} bits per byte of test.txt")


if __name__ == "__main__":
    main()
