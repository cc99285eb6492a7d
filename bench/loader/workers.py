# SPDX-License-Identifier: Apache-2.0
"""A loader with num_workers=0: PyTorch's in the training process against ours, which adds workers
where it predicts a gain (acceleration.loaderWorkers: Auto), in turn within one run.

Cases: a sample waits --sample-ms, as for a disk on the network, or computes as long. A step
computes --step-ms of processor time on --threads threads. Each contender runs --passes passes a
round.

The ratio is PyTorch's seconds over ours, as the median over rounds that are neighbours in time:
`ratio` of all passes, with the measuring and the forks, and `later` without the first pass. `same`
is PyTorch's against itself, in the same rounds: it tells how far noise goes.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import sys
import time
from typing import Any

import torch
from paceline._core import contract
from paceline.loader import DataLoader as Ours
from paceline.loader import _report
from torch.utils.data import DataLoader as Torchs
from torch.utils.data import Dataset


class Samples(Dataset):
    def __init__(self, size: int, waits: bool, seconds: float) -> None:
        self.size, self.waits, self.seconds = size, waits, seconds
        self.row = torch.ones(1024)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.waits:
            select.select([], [], [], self.seconds)
        end = time.thread_time() + (0 if self.waits else self.seconds)
        while time.thread_time() < end:
            pass
        return self.row * index, index


class Step:
    """A step whose work is the same each time: as many products as take `seconds` alone."""

    def __init__(self, seconds: float) -> None:
        self.matrix = torch.randn(256, 256)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < 0.5:
            torch.mm(self.matrix, self.matrix)
            done += 1
        self.products = max(1, round(done * seconds / 0.5))

    def __call__(self) -> None:
        for _ in range(self.products):
            torch.mm(self.matrix, self.matrix)


def passes(made: Any, step: Step, count: int) -> list[float]:
    """Returns the seconds of each pass."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        for batch in made:
            batch[0].sum()
            step()
        seconds.append(time.perf_counter() - began)
    return seconds


def compare(waits: bool, step: Step, options: argparse.Namespace) -> dict[str, Any]:
    samples = Samples(options.batches * options.batch, waits, options.sample_ms / 1e3)
    kinds = {"torch": Torchs, "ours": Ours, "again": Torchs}
    taken: dict[str, list[list[float]]] = {name: [] for name in kinds}
    chosen = []
    for number in range(options.rounds):
        names = list(kinds)
        for name in names if number % 2 == 0 else names[::-1]:
            made = kinds[name](samples, batch_size=options.batch, shuffle=True)
            taken[name].append(passes(made, step, options.passes))
            if name == "ours":
                chosen.append(_report.account_of(made).plan.entry("chosen"))

    def ratio(over: str, first: int) -> float:
        rounds = zip(taken["torch"], taken[over])
        return round(statistics.median(sum(t[first:]) / sum(o[first:]) for t, o in rounds), 3)

    print(f"  {'waits' if waits else 'computes'}: {chosen[-1]['text']}")
    return {
        "ratio": ratio("ours", 0),
        "later": ratio("ours", 1),
        "same": ratio("again", 0),
        "workers": [each["workers"] for each in chosen],
        "predicted": [round(each["predicted_gain"] or 1.0, 2) for each in chosen],
        "seconds": round(statistics.median(sum(each) for each in taken["torch"]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--batches", type=int, default=60, help="of a pass")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sample-ms", type=float, default=2)
    parser.add_argument("--step-ms", type=float, default=60)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    marks = sys.modules.get("paceline._tracing")
    if marks is not None:
        marks.uninstall()  # neither contender is traced
    os.environ[contract.LOADER_WORKERS] = "Auto"
    torch.set_num_threads(options.threads)
    step = Step(options.step_ms / 1e3)
    load = os.getloadavg()[0]
    print(
        f"PyTorch {torch.__version__}, batches of {options.batch} samples of"
        f" {options.sample_ms} ms, steps of {options.step_ms} ms on {options.threads} threads,"
        f" load {load:.2f}"
    )
    said: dict[str, Any] = {"bench": "loader-workers"}
    for name, waits in (("waits", True), ("computes", False)):
        said[name] = compare(waits, step, options)
        print(f"  {name:8} {said[name]}")
    said |= {"threads": options.threads, "pytorch": torch.__version__, "load": round(load, 2)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
