# SPDX-License-Identifier: Apache-2.0
"""Runs a recipe as it is, and measures windows of its steps. It is the same with and without
Paceline, and knows Paceline for one thing: where it is on, `paceline.explain()` is asked after
each window.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

# A launcher tells a lone process of a group with one rank. A script that is started by hand has
# none of it, and the trainers would make a process group.
if os.environ.get("WORLD_SIZE") == "1":
    for name in ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"):
        os.environ.pop(name, None)
    for name in [name for name in os.environ if name.startswith(("ROLE_", "TORCHELASTIC_"))]:
        del os.environ[name]
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)

import torch

LONGEST_TUNING = 300.0  # seconds
MOST_WAITING = 160  # steps until the tuner must have begun
WINDOW, TUNE = b"g", b"t"  # words of the bench
SECONDS = {WINDOW: "seconds", TUNE: "tuned"}  # what the time since a word is told as


class Steps:
    """Measures windows of steps. Before each window it tells the bench that it has come so far, and
    waits for its word: the bench lets one run go on at a time. At the word TUNE it goes on until
    nothing is being tried any more.
    """

    def __init__(self, gate: socket.socket | None, first: int, window: int) -> None:
        self._gate, self._first, self._window = gate, first, window
        self._done = 0
        self._began = 0.0
        self._counted: int | None = None
        self._word = WINDOW

    def ended(self, of: object = None) -> None:
        """`of` is the optimizer: the first one's steps are the recipe's."""
        if self._counted is None:
            self._counted = id(of)
        if id(of) != self._counted or self._gate is None:
            return
        self._done += 1
        since = self._done - self._first
        if since < 0 or since % self._window != 0 or self._is_being_tuned(since):
            return
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # what the host has queued is part of the window
        told: dict[str, Any] = {"step": self._done}
        if since == 0 and isinstance(of, torch.optim.Optimizer):
            keep_weights(of)
        if since > 0:
            told[SECONDS[self._word]] = (time.perf_counter() - self._began) / self._window
            device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else "CPU"
            told |= {"explained": explained(), "device": device, "torch": torch.__version__}
        self._gate.sendall(json.dumps(told).encode() + b"\n")
        self._word = self._gate.recv(1)
        if self._word not in SECONDS:
            os._exit(1)  # the bench has given up
        self._began = time.perf_counter()

    def _is_being_tuned(self, since: int) -> bool:
        if self._word != TUNE or time.perf_counter() - self._began > LONGEST_TUNING:
            return False
        undecided = [
            entry["reason"]
            for feature in (explained() or {}).values()
            for entry in feature["seen"]
            if entry["state"] == "waiting"
        ]
        # A program without an optimizer of PyTorch waits for ever.
        begun = not any(why.startswith("it is tried after") for why in undecided)
        return bool(undecided) and (begun or since < MOST_WAITING)


def keep_weights(optimizer: torch.optim.Optimizer) -> None:
    """Saves what this rank has of the weights, while training has not amplified rounding much."""
    found = {}
    for group, options in enumerate(optimizer.param_groups):
        for number, parameter in enumerate(options["params"]):
            value = parameter.detach()
            # Of FSDP2's tensors, this rank's piece.
            value = value.to_local() if hasattr(value, "to_local") else value
            found[f"{group}.{number}"] = value.cpu().clone()
    torch.save(found, "early.pt")


def explained() -> dict[str, Any] | None:
    """What Paceline has done in this process, or None without it."""
    if os.environ.get("PACELINE_DISABLE") == "1":
        return None
    import paceline

    found: dict[str, Any] = paceline.explain(as_dict=True)
    return found


def watch_optimizers(steps: Steps) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: steps.ended(optimizer))


def watch_backward(steps: Steps) -> None:
    original = torch.Tensor.backward
    depth = 0

    @functools.wraps(original)
    def backward(self: Any, *args: Any, **kwargs: Any) -> None:
        # A subclass of Tensor calls this again for what it wraps.
        nonlocal depth
        depth += 1
        try:
            original(self, *args, **kwargs)
        finally:
            depth -= 1
        if depth == 0:
            steps.ended()

    torch.Tensor.backward = backward


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--gate", required=True, help="Unix socket on which the bench listens")
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--mark", choices=("optimizer", "backward"), required=True)
    arguments = parser.parse_args()
    gate = None
    if os.environ.get("RANK", "0") == "0":
        gate = socket.socket(socket.AF_UNIX)
        gate.connect(arguments.gate)
    steps = Steps(gate, arguments.warm_up, arguments.window)
    (watch_optimizers if arguments.mark == "optimizer" else watch_backward)(steps)
    sys.argv = [str(arguments.recipe)]
    runpy.run_path(str(arguments.recipe), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
