# SPDX-License-Identifier: Apache-2.0
"""Checks loaders with pin_memory=True on a GPU.

It compares the cases of accel/tests with PyTorch's own loader and its pin thread. It checks batches
that die while they are being copied to the device, and early copies of the next batch. It measures
a training loop each way. Prints a line for each check; ends with 1 if one failed.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from checks import Check, emit, run
from paceline import loader
from paceline.loader import _iterator, _report
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "accel" / "tests" / "loader"))
import loader_cases

GPU = torch.device("cuda")
BUSY_CYCLES = 100_000_000  # about 50 ms
ROUNDS, BATCHES, WORKERS = 5, 60, 4
IMAGE_BYTES = 3 * 224 * 224 * 4


def batch_size() -> int:
    """64, or less: PyTorch's workers pass batches through /dev/shm, which has 64 MB in a container.
    Three batches of each worker must fit into half of it.
    """
    shm = os.statvfs("/dev/shm")
    room = shm.f_bavail * shm.f_frsize // 2
    return max(1, min(64, room // (3 * WORKERS * IMAGE_BYTES)))


BATCH = batch_size()
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
    for name in loader_cases.CASES:
        if name == "batches_of_other_makes":  # PyTorch cannot pin one of them
            continue
        seen = [loader_cases.observed(name, kind) for kind in (Torchs, Ours)]
        found = loader_cases.difference(seen[1], seen[0])
        assert not found, f"{name}{found}"


class Early(Ours):
    """Copies the next batch to the device before the program does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "device_copies": True})


class Images(Dataset):
    """224-pixel images that cost little to make: each tells its index."""

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 224, 224), float(index)), index


def images(kind: Any) -> Any:
    return kind(Images(), batch_size=BATCH, num_workers=WORKERS, persistent_workers=True)


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


@check
def early_copies_are_those_that_the_program_would_have_made() -> None:
    made = images(Early)
    for blocking in (False, True):
        wrong, other = [], torch.cuda.Stream()
        for number, (pixels, labels) in enumerate(made):
            if number % 5 == 0:
                torch.cuda._sleep(BUSY_CYCLES // 10)
            if number % 20 == 17:
                pixels.add_(1.0)  # what was copied early is not it any more
                labels.add_(1)
            with torch.cuda.stream(other if number % 20 == 7 else torch.cuda.current_stream()):
                there, numbers = (
                    pixels.to(GPU, non_blocking=not blocking),
                    labels.cuda(non_blocking=not blocking),
                )
                assert (
                    there._version == 0
                    and there.stride() == pixels.stride()
                    and there.device == numbers.device
                )
                wrong.append((there != numbers.view(-1, 1, 1, 1)).any())
            if blocking:
                pixels.fill_(-1.0)  # the call has waited for the copy
            if number % 20 == 7:
                torch.cuda.current_stream().wait_stream(other)
            del there, numbers  # their memory is used again in the order of the stream
            time.sleep(
                0.03
            )  # the next batch has come, as where the device is slower than the loader
        assert not torch.stack(wrong).any()
    told = _report.account_of(made).told()
    assert told["copied"] > BATCHES and not told["copies_reason"], told


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
    """One step of the device is 1.3 times as long as PyTorch's loader takes for a batch, as in
    bench/loader.
    """
    work = torch.randn(4096, 4096, device=GPU)
    loaders = {"torch": images(Torchs), "ours": images(Ours), "early": images(Early)}
    for made in loaders.values():
        epoch_s(made, work, 1)  # its workers are there, and pinned memory has been made
    seconds_of_one = epoch_s([(torch.zeros(1), 0)] * 100, work, 10) / 1000
    multiplications = max(
        1, round(1.3 * epoch_s(loaders["torch"], work, 0) / BATCHES / seconds_of_one)
    )
    on_device = [(torch.zeros(BATCH, 3, 224, 224, device=GPU), 0)] * BATCHES
    contenders = {**loaders, "device": on_device}
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, batches in contenders.items():
            found[name].append(epoch_s(batches, work, multiplications))
    seconds = {name: statistics.median(each) for name, each in found.items()}
    emit(
        {
            "loop": f"{BATCHES} batches of {BATCH} images from pinned memory",
            "ratio": round(seconds["torch"] / seconds["early"], 3),
            "step_ms": {name: round(each / BATCHES * 1e3, 3) for name, each in seconds.items()},
            # Against batches that are on the device already: what is left of loading and copying.
            "stall": {name: round(1 - seconds["device"] / seconds[name], 4) for name in loaders},
            "early": _report.account_of(loaders["early"]).told()["copied"],
        }
    )


if __name__ == "__main__":
    sys.exit(run(checks))
