# SPDX-License-Identifier: Apache-2.0
"""Trains one model in one way, and prints what its steps took as one line of JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import statistics

import torch
from task import Parts, Task


def step(task: Task, parts: Parts) -> float:
    """Seconds of one step."""
    began = parts.now()
    with parts.part("data"):
        batch = task.batch()
    with parts.part("forward"):
        loss = task.loss(batch, parts)
    with parts.part("backward"):
        task.optimizer.zero_grad()
        loss.backward()
    with parts.part("optimizer"):
        task.optimizer.step()
    seconds = parts.now() - began
    if not bool(torch.isfinite(loss)):
        raise SystemExit(f"the loss is {float(loss)}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--ours", action="store_true", help="targets and voxels by paceline.ops")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    # What the compiler cannot capture is no news of a benchmark.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    torch.manual_seed(1)
    device = torch.device(options.device)
    task: Task = importlib.import_module(options.model).Training(device, options.ours)
    if options.compile:
        task.model.compile()
    for _ in range(options.warm_up):
        step(task, Parts(device))
    seconds, found = [], []
    for _ in range(options.steps):
        parts = Parts(device)
        seconds.append(step(task, parts))
        found.append(parts.seconds)
    medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
    print(json.dumps({"step": statistics.median(seconds), "parts": medians}))


if __name__ == "__main__":
    main()
