# SPDX-License-Identifier: Apache-2.0
"""Loaders with pin_memory=True on a GPU: the cases of accel/tests against PyTorch's own loader and its pin thread, batches that die while they
are still being copied to the device, and the time of a training loop both ways. Prints a line for each check; ends with 1 if one failed."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from checks import Check, emit, run
from paceline import loader
from paceline.loader import _iterator
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "accel" / "tests"))
import loader_cases

GPU = torch.device("cuda")
BUSY_CYCLES = 100_000_000  # about 50 ms
ROUNDS, BATCHES, BATCH = 5, 60, 64
checks: list[Check] = []


def check(function: Check) -> Check:
    checks.append(function)
    return function


class Torchs(DataLoader):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "pin_memory": True})


class Ours(loader.DataLoader):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "pin_memory": True})


@check
def pinned_batches_are_those_of_torch() -> None:
    loader_cases.Rows.counts = False
    for name, case in loader_cases.CASES.items():
        if name == "batches_of_other_makes":  # PyTorch cannot pin one of them
            continue
        seen = []
        for kind in (Torchs, Ours):
            loader_cases.seed()
            loader_cases.CHANGED[0] = 1.0
            seen.append(case(kind))
        found = loader_cases.difference(seen[1], seen[0])
        assert not found, f"{name}{found}"


class Images(Dataset):
    """224-pixel images that cost little to make: each tells its index."""

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 224, 224), float(index)), index


def images(kind: Any) -> Any:
    return kind(Images(), batch_size=BATCH, num_workers=4, persistent_workers=True)


@check
def batches_that_die_while_the_device_copies_them() -> None:
    made = images(Ours)
    next(iter(made))
    assert type(made._iterator) is _iterator.Iterator, "PyTorch would be compared with itself"
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            kept = []
            torch.cuda._sleep(BUSY_CYCLES)  # all copies wait behind it, while their batches die
            for number, batch in enumerate(made):
                assert batch[0].is_pinned() and batch[1].is_pinned()
                kept.append(batch[0].to(GPU, non_blocking=True)[:, 0, 0, ::223].clone())
                del batch
                if number % 10 == 9:
                    torch.cuda._sleep(BUSY_CYCLES)
            stream.synchronize()
        indices = torch.arange(BATCHES * BATCH, dtype=torch.float32)
        assert torch.equal(torch.cat(kept).cpu(), indices[:, None].expand(-1, 2))


def epoch_s(batches: Any, work: torch.Tensor, multiplications: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for pixels, _ in batches:
        pixels.to(GPU, non_blocking=True).sum()
        for _ in range(multiplications):
            work @ work
    torch.cuda.synchronize()
    return time.perf_counter() - began


@check
def time_of_a_loop() -> None:
    """One step of the device is as long as PyTorch's loader takes for a batch, so that both are needed in full."""
    work = torch.randn(4096, 4096, device=GPU)
    loaders = {"torch": images(Torchs), "ours": images(Ours)}
    for made in loaders.values():
        epoch_s(made, work, 1)  # its workers are there, and pinned memory has been made
    seconds_of_one = epoch_s([(torch.zeros(1), 0)] * 100, work, 10) / 1000
    multiplications = max(1, round(epoch_s(loaders["torch"], work, 0) / BATCHES / seconds_of_one))
    in_memory = [(torch.zeros(BATCH, 3, 224, 224).pin_memory(), 0)] * BATCHES
    found: dict[str, list[float]] = {"torch": [], "ours": [], "memory": []}
    for _ in range(ROUNDS):
        for name, batches in (*loaders.items(), ("memory", in_memory)):
            found[name].append(epoch_s(batches, work, multiplications))
    seconds = {name: statistics.median(each) for name, each in found.items()}
    emit(
        {
            "loop": f"{BATCHES} batches of {BATCH} images from pinned memory",
            "ratio": round(seconds["torch"] / seconds["ours"], 3),
            "step_ms": {name: round(each / BATCHES * 1e3, 3) for name, each in seconds.items()},
            "stall": {name: round(1 - seconds["memory"] / seconds[name], 4) for name in ("torch", "ours")},
        }
    )


if __name__ == "__main__":
    sys.exit(run(checks))
