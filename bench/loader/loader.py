# SPDX-License-Identifier: Apache-2.0
"""Compares paceline.loader.DataLoader with a tuned torch.utils.data.DataLoader (persistent workers,
prefetching), in turn within one run.

One row is three epochs of synthetic images. The workers make them as a decoder would: 8-bit pixels
from memory, cast and normalised. Each contender runs twice a round. The first loop only reads each
batch once (the null model). The second loop feeds a device whose step takes 1.3 times as long as
PyTorch's loader takes for a batch. The device works through its queue as a GPU does. The loop is at
most --queued steps ahead of it; with 0 it waits for every step. Before that, the same loop feeds
the device from memory.

For each contender it prints:
- images per second with the null model
- with the device, the wait for the first batch of later epochs
- with the device, the 95th percentile of all waits
- stall: the loss of speed against the slower of loader (null model) and device (fed from memory)
- no_processor: the share of time that the device idled because every processor was taken, while the
  training or the worker that waited longest was ready to run (from /proc/PID/schedstat)
- processor seconds of loop and workers per 1,000 samples, and their memory

The ratio is ours over PyTorch's, in images per second with the null model. It is the median over
rounds that are neighbours in time.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from paceline.loader import DataLoader as Ours
from torch.utils.data import DataLoader as Torchs
from torch.utils.data import Dataset

EPOCHS = 3


class Images(Dataset):
    def __init__(self, size: int, side: int, decode_s: float) -> None:
        self.size = size
        self.decode_s = decode_s
        self.pixels = torch.randint(0, 256, (16, 3, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        end = time.thread_time() + self.decode_s
        while time.thread_time() < end:
            pass
        return self.pixels[index % 16].float().sub_(127.5).div_(58.0), index % 1000


@dataclass
class Result:
    """Of one contender, a value for each round."""

    rates: list[float] = field(default_factory=list)
    rates_with_device: list[float] = field(default_factory=list)
    rates_from_memory: list[float] = field(default_factory=list)
    no_processor: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    first_waits: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)

    def told(self) -> dict[str, float]:
        rates = zip(self.rates, self.rates_from_memory, self.rates_with_device)
        stalls = [1 - both / min(null, device) for null, device, both in rates]
        return {
            "images_per_s": round(statistics.median(self.rates), 1),
            "stall": round(statistics.median(stalls), 3),
            "no_processor": round(statistics.median(self.no_processor), 3),
            "first_batch_ms": round(statistics.median(self.first_waits) * 1e3, 2),
            "p95_wait_ms": round(statistics.quantiles(self.waits, n=20)[18] * 1e3, 2),
            "cpu_s_per_1000": round(statistics.median(self.processor), 3),
            "resident_mib": round(statistics.median(self.resident)),
        }


class Device:
    """Works through its steps one after the other; the host is at most `queued` steps ahead."""

    def __init__(self, step_s: float, queued: int, pids: list[int]) -> None:
        self.step_s, self.queued = step_s, queued
        self.idle_without_processor = 0.0
        self._free = time.perf_counter()  # when it will have done all that it was given
        self._files = [Path(f"/proc/{pid}/schedstat") for pid in (os.getpid(), *pids)]
        self._before = self._ready()

    def _ready(self) -> list[float]:
        """Seconds that each process has been ready to run without a processor."""
        return [int(file.read_text(encoding="ascii").split()[1]) / 1e9 for file in self._files]

    def step(self) -> None:
        ready = self._ready()
        training, *workers = (now - before for now, before in zip(ready, self._before))
        began = time.perf_counter()
        self.idle_without_processor += min(
            max(0.0, began - self._free), training + max(workers, default=0.0)
        )
        self._before = ready
        self._free = max(began, self._free) + self.step_s
        self._wait(self._free - self.queued * self.step_s)

    def drain(self) -> None:
        self._wait(self._free)

    @staticmethod
    def _wait(end: float) -> None:
        time.sleep(max(0.0, end - time.perf_counter()))


def processor_seconds(pids: list[int]) -> float:
    """Of this process and the workers that are still there."""
    total = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    for pid in pids:
        with Path(f"/proc/{pid}/stat").open(encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def resident_mib(pids: list[int]) -> float:
    """What is shared counts once. Batches that PyTorch's workers have sent and nobody has opened
    yet are in nobody's memory.
    """
    total = 0
    for pid in (os.getpid(), *pids):
        with Path(f"/proc/{pid}/smaps_rollup").open(encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total / 1024


class Run:
    """A loader whose workers are there and have touched their memory: the first epoch is outside
    the time.
    """

    def __init__(self, kind: Any, images: Images, options: argparse.Namespace) -> None:
        self.loader = kind(
            images,
            batch_size=options.batch,
            shuffle=True,
            num_workers=options.workers,
            persistent_workers=True,
            prefetch_factor=options.prefetch,
        )
        for batch in self.loader:
            self.in_memory = batch
        self.in_memory = [tensor.clone() for tensor in self.in_memory]
        self.pids = [worker.pid for worker in self.loader._iterator._workers]

    def epochs(
        self, source: Any, device: Device | None = None, result: Result | None = None
    ) -> float:
        """Images a second."""
        began, samples = time.perf_counter(), 0
        for _ in range(EPOCHS):
            asked, first = time.perf_counter(), True
            for batch in source:
                got = time.perf_counter()
                if result is not None:
                    result.waits.append(got - asked)
                    if first:
                        result.first_waits.append(got - asked)
                first = False
                batch[0].sum()
                samples += len(batch[1])
                if device is not None:
                    device.step()
                asked = time.perf_counter()
        if device is not None:
            device.drain()
        return samples / (time.perf_counter() - began)

    def measure(self, device_s: float, queued: int, result: Result) -> None:
        processor = processor_seconds(self.pids)
        result.rates.append(self.epochs(self.loader))
        used = processor_seconds(self.pids) - processor
        result.processor.append(used / (EPOCHS * len(self.loader.dataset)) * 1000)
        result.resident.append(resident_mib(self.pids))
        in_memory = [self.in_memory] * len(self.loader)
        result.rates_from_memory.append(self.epochs(in_memory, Device(device_s, queued, [])))
        device = Device(device_s, queued, self.pids)
        rate = self.epochs(self.loader, device, result)
        result.rates_with_device.append(rate)
        result.no_processor.append(
            device.idle_without_processor * rate / (EPOCHS * len(self.loader.dataset))
        )


def idle_seconds() -> tuple[float, float]:
    """Of all processors together: idle, and in all."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--batches", type=int, default=20, help="of an epoch")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument(
        "--decode-ms", type=float, default=0, help="processor time added to each image"
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--no-prefetch", action="store_true", help="ours does not prefetch the next epoch"
    )
    parser.add_argument(
        "--queued", type=int, default=1, help="steps that the loop is ahead of the device"
    )
    options = parser.parse_args()
    marks = sys.modules.get("paceline._tracing")
    if marks is not None:
        marks.uninstall()  # neither contender is traced
    torch.set_num_threads(1)
    images = Images(options.batches * options.batch, options.side, options.decode_ms / 1e3)
    load = os.getloadavg()[0]
    first = Run(Torchs, images, options)
    device_s = 1.3 * options.batch / first.epochs(first.loader)
    del first
    idle = idle_seconds()
    results = {"torch": Result(), "ours": Result()}
    # An image is a function of its index: the program says so, as one whose samples are must.
    kinds = {
        "torch": Torchs,
        "ours": functools.partial(Ours, prefetch_next_epoch=not options.no_prefetch),
    }
    for number in range(options.rounds):
        for name in ("torch", "ours") if number % 2 == 0 else ("ours", "torch"):
            Run(kinds[name], images, options).measure(device_s, options.queued, results[name])
    ours, torchs = results["ours"], results["torch"]
    idle_share = (idle_seconds()[0] - idle[0]) / max(1.0, idle_seconds()[1] - idle[1])
    ratios = [o / t for o, t in zip(ours.rates, torchs.rates)]
    print(
        f"PyTorch {torch.__version__}, {options.workers} workers, batches of {options.batch} images"
        f" of {options.side} pixels and {options.decode_ms} ms, a device step of"
        f" {device_s * 1e3:.1f} ms, load {load:.2f} at the beginning, {os.getloadavg()[0]:.2f} at"
        f" the end, processors idle {idle_share:.0%} of the time"
    )
    said: dict[str, Any] = {"bench": "loader", "ratio": round(statistics.median(ratios), 3)}
    for name, result in results.items():
        said[name] = result.told()
        print(f"  {name:6} {said[name]}")
    print(f"  ratios of the rounds: {' '.join(f'{ratio:.2f}' for ratio in ratios)}")
    print(
        json.dumps(
            {
                **said,
                "workers": options.workers,
                "decode_ms": options.decode_ms,
                "pytorch": torch.__version__,
                "load": round(load, 2),
                "processors_idle": round(idle_share, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
