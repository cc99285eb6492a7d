# SPDX-License-Identifier: Apache-2.0
"""The cost of tracing for a training step, measured in two ways that must agree.

The model is small, so that the share of tracing is large.

1. Marks: the time of one mark, as PyTorch's patched functions make it, times the marks of a step,
   divided by the step's time.
2. Toggled within one run: windows of steps alternate between the patches and PyTorch's own
   functions; the result is the median over neighbouring pairs of windows.

Run by bench/tracing/run, which puts the runtime on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch
from paceline import _tracing
from paceline._core.trace import trace
from paceline._tracing._checkpoints import timed_save
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MARKS_PER_STEP = 6  # a loader, a backward and an optimizer, entered and left


def make_model() -> nn.Module:
    """The model of examples/digits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Program:
    """An ordinary training loop that runs one window of steps at a time."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = make_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        data = TensorDataset(torch.randn(4096, 1, 8, 8), torch.randint(0, 10, (4096,)))
        self.loader = DataLoader(data, batch_size=16)
        self.loss_of = nn.CrossEntropyLoss()

    def window(self, steps: int) -> float:
        """The median time of a step in seconds."""
        times = []
        batches = iter(self.loader)
        for _ in range(steps):
            began = time.perf_counter_ns()
            images, labels = next(batches)
            self.optimizer.zero_grad()
            loss = self.loss_of(self.model(images), labels)
            # By name, as Tensor.backward does.
            loss.backward()
            self.optimizer.step()
            times.append(time.perf_counter_ns() - began)
        return statistics.median(times) / 1e9


def tracing_on(optimizer: Any) -> None:
    _tracing.install(torch)
    # The class's step is patched when an optimizer is made; this one exists already.
    (
        optimizer._patch_step_function
        if hasattr(optimizer, "_patch_step_function")
        else optimizer._hook_for_profile
    )()
    if trace.lib is not None:
        trace.lib.set_tracing(1)


def tracing_off() -> None:
    _tracing.uninstall()
    if trace.lib is not None:
        trace.lib.set_tracing(0)


def nanoseconds_per_mark(rounds: int) -> float:
    """A pair of marks around nothing, as the patched functions make them, less the loop itself."""
    assert trace.lib is not None
    save = timed_save(lambda: None)

    def bare() -> None:
        return None

    def cost(function: Any) -> float:
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter_ns()
            for _ in range(rounds):
                function()
            best = min(best, time.perf_counter_ns() - began)
        return best / rounds

    return (cost(save) - cost(bare)) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30, help="in one window")
    options = parser.parse_args()
    torch.set_num_threads(1)
    program = Program()
    program.window(options.steps)  # warm up, open the ring
    on, off, ratios = [], [], []
    for pair in range(options.pairs):
        # Which comes first alternates, so that a drift of the machine favours neither.
        for traced in (True, False) if pair % 2 == 0 else (False, True):
            if traced:
                tracing_on(program.optimizer)
                on.append(program.window(options.steps))
                tracing_off()
            else:
                tracing_off()
                off.append(program.window(options.steps))
        ratios.append(off[-1] / on[-1])
    tracing_on(program.optimizer)
    mark = nanoseconds_per_mark(20_000)
    step = statistics.median(off)
    share = mark * MARKS_PER_STEP / (step * 1e9)
    print(
        f"PyTorch {torch.__version__}: step {step * 1e6:.0f} us without tracing,"
        f" {statistics.median(on) * 1e6:.0f} us with"
    )
    print(f"{MARKS_PER_STEP} marks of {mark:.0f} ns: {share:.3%} of the step")
    print(
        json.dumps(
            {
                "bench": "tracing",
                "ratio": round(statistics.median(ratios), 4),
                "ns_per_mark": round(mark),
                "marks_per_step": MARKS_PER_STEP,
                "cost_share": round(share, 6),
                "step_us_off": round(step * 1e6, 1),
                "step_us_on": round(statistics.median(on) * 1e6, 1),
                "pytorch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
