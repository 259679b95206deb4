# Part of Plum, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One training run, of a model on a text (text.py) or on recall (recall.py).

A Trainer makes one step: loss, gradients, AdamW. On a GPU the step is recorded
once as a CUDA graph and replayed, since thousands of small kernels a step cost
more to launch than to run.

Runs that are compared make the same number of steps. `rehearse` measures how
long a step takes while the other runs are busy too, until train_all.py has
heard from all of them and says how many steps there is time for.
"""

import json
import math
import pathlib
import time

import torch


class Trainer:
    """`loss_of(model)` reads its own inputs, which the caller refreshes."""

    def __init__(self, model, loss_of, rate, decay, device, graph):
        self.model, self.loss_of, self.device = model, loss_of, device
        self.rate = rate
        plain = [p for n, p in model.named_parameters() if not decays(n, p)]
        matrices = [p for n, p in model.named_parameters() if decays(n, p)]
        cuda = device == "cuda"
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": decay},
             {"params": plain, "weight_decay": 0.0}],
            lr=torch.tensor(0.0, device=device) if cuda else 0.0, betas=(0.9, 0.95), eps=1e-8,
            capturable=cuda)
        self.first = [t.detach().clone() for t in self.tensors()]
        self.graph = None
        model.train()
        if graph and cuda:
            self.record()

    def tensors(self):
        return [*self.model.parameters(), *self.model.buffers()]

    def eager(self):
        self.optimizer.zero_grad(set_to_none=True)
        # A graph must not see the casts that autocast remembers.
        with torch.autocast(self.device, torch.bfloat16,
                            enabled=self.device == "cuda", cache_enabled=False):
            loss = self.loss_of(self.model)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def record(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()  # The graph has memory of its own.
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.eager()

    def step(self, rate):
        for group in self.optimizer.param_groups:
            if self.device == "cuda":
                group["lr"].fill_(rate)  # Read by the graph.
            else:
                group["lr"] = rate
        if self.graph is None:
            return self.eager()
        self.graph.replay()
        return self.loss

    @torch.no_grad()
    def restart(self):
        """Back to the first weights, in place: the graph knows their places."""
        for now, first in zip(self.tensors(), self.first):
            now.copy_(first)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def schedule(self, step, steps):
        """Up in a twentieth of the steps, then a cosine down to a fiftieth."""
        warm = max(1, steps // 20)
        if step < warm:
            return self.rate * (step + 1) / warm
        done = (step - warm) / max(1, steps - warm)
        return self.rate * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))


def decays(name, value):
    """Matrices do; norms, biases, rates and convolution taps do not."""
    stacked = name.endswith((".gate", ".up", ".down"))
    return stacked or value.dim() == 2 and name.endswith("weight")


class Run:
    """Where a run writes, and when it must end."""

    def __init__(self, args, name):
        self.name, self.out = name, pathlib.Path(args.out)
        self.steps, self.deadline = args.steps, args.deadline
        self.result = {"name": name, "steps": 0}
        self.start = time.time()

    def say(self, text):
        print(f"[{self.name} {time.time() - self.start:5.0f}s] {text}", flush=True)

    def write(self, **more):
        self.result.update(more)
        path = self.out / f"{self.name}.json"
        path.with_suffix(".part").write_text(json.dumps(self.result) + "\n")
        path.with_suffix(".part").replace(path)

    def late(self):
        return time.time() > self.deadline

    def rehearse(self, trainer, refresh):
        """Steps until train_all.py has written how many there are to be."""
        if self.steps:
            return self.steps
        target = self.out / "steps"
        while not target.exists() and not self.late():
            begin, count = time.time(), 10
            for _ in range(count):
                refresh(0)
                trainer.step(trainer.rate * 0.01)
            synchronize(trainer.device)
            each = (time.time() - begin) / count
            (self.out / f"{self.name}.speed").write_text(f"{each}\n")
        self.steps = int(target.read_text()) if target.exists() else 0
        return self.steps


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def arguments(parser, batch):
    parser.add_argument("name")
    parser.add_argument("--batch", type=int, default=batch,
                        help="sequences of a step")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=math.inf)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available()
                        else "cpu")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    return parser.parse_args()


def prepare(args):
    if args.device == "cpu":
        torch.set_num_threads(1)
    torch.manual_seed(1)
