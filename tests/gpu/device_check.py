# SPDX-License-Identifier: Apache-2.0
"""Checks the device's times of steps on a real GPU.

The phases of a PyTorch step must agree with torch.profiler's within 3 %. A captured graph and a
profiler must be unharmed. It also prints what the events cost a launch-bound step of about 10 ms
and a compute-bound one: steps with and without events in turn, in one process. Prints a line for
each check; ends with 1 if one failed.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from checks import Check, emit, overhead, run
from paceline import _tracing
from paceline._core.trace import trace
from paceline._tracing import _device
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEADER, RECORD, CAPACITY = 4096, 512, 1024
AMENDMENT = 3
PHASES = {"forward": 2, "backward": 3, "optimizer": 5}
WITHIN = 0.03
PAIRS, BLOCK = 100, 6  # blocks of steps with events and without
PROFILED = 20
checks: list[Check] = []


def check(function: Check) -> Check:
    checks.append(function)
    return function


class Resident(Dataset):
    """Batches that lie on the device: delivering one queues no work."""

    def __init__(self, batch: int, width: int) -> None:
        self.batch = torch.randn(batch, width, device="cuda")

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batch


class Loop:
    """A training loop: `layers` of `width`."""

    def __init__(self, layers: int, width: int, batch: int) -> None:
        torch.manual_seed(1)
        blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
        self.model = nn.Sequential(*blocks).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(Resident(batch, width), batch_size=None)
        self.batches = self._forever()

    def _forever(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def step(self, named: Callable[[str], Any] = lambda name: contextlib.nullcontext()) -> None:
        batch = next(self.batches)
        with named("forward"):
            loss = self.model(batch).square().mean()
        with named("backward"):
            loss.backward()
        with named("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


def amendments() -> list[dict[str, float]]:
    """Seconds of the device by phase, of the steps in this process's ring, oldest first. Waits for
    the publishing thread, which asks the device 20 times a second.
    """
    torch.cuda.synchronize()
    time.sleep(0.2)
    assert trace.lib is not None
    ring = trace.lib.ring_fd()
    (end,) = struct.unpack("<Q", os.pread(ring, 8, 1024))
    found = []
    for number in range(max(0, end - CAPACITY + 1), end):
        raw = os.pread(ring, RECORD, HEADER + number % CAPACITY * RECORD)
        if raw[12] == AMENDMENT:
            device = struct.unpack_from("<16Q", raw, 192)
            found.append({name: device[index] / 1e9 for name, index in PHASES.items()})
    return found


def seconds_by_phase(events: list[dict[str, Any]]) -> dict[str, float]:
    """The same by torch.profiler's trace, of a mean step: from the end of the last kernel of one
    phase to the end of the last one of the next. A kernel belongs to the phase in which it was
    launched, by any thread.
    """
    ranges = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in events
        if event.get("cat") == "user_annotation" and event["name"] in PHASES
    )
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    ends = [0.0] * len(ranges)
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memset", "gpu_memcpy"):
            continue
        at = launched.get(event["args"]["correlation"], -1)
        index = bisect.bisect(ranges, (at, float("inf"), "")) - 1
        if index >= 0 and at <= ranges[index][1]:
            ends[index] = max(ends[index], event["ts"] + event["dur"])
    times: dict[str, list[float]] = {name: [] for name in PHASES}
    for index in range(1, len(ranges)):
        times[ranges[index][2]].append((ends[index] - ends[index - 1]) / 1e6)
    return {name: statistics.mean(found) for name, found in times.items()}


@check
def phases_agree_with_the_profiler() -> None:
    loop = Loop(layers=12, width=8192, batch=4096)
    for _ in range(5):
        loop.step()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            loop.step(torch.profiler.record_function)
        torch.cuda.synchronize()
    for _ in range(2):  # a step is over at the next batch, and the last one is not
        loop.step()
    ours = amendments()[-PROFILED - 1 : -1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        theirs = seconds_by_phase(json.loads(path.read_text())["traceEvents"])
    for name, expected in theirs.items():
        measured = statistics.mean(step[name] for step in ours)
        emit({"phase": name, "events_ms": measured * 1e3, "profiler_ms": expected * 1e3})
        assert abs(measured / expected - 1) <= WITHIN, (name, measured, expected)


@check
def a_captured_graph_is_unharmed() -> None:
    loop = Loop(layers=4, width=512, batch=64)
    for _ in range(3):
        loop.step()
    static = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        loop.model(static).square().mean().backward()
        loop.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loop.model(static).square().mean().backward()
            time.sleep(0.5)  # the publishing thread asks for events meanwhile
    for _ in range(20):
        graph.replay()
    for _ in range(5):
        loop.step()
    assert amendments(), "events are recorded again after the capture"


def cost(name: str, loop: Loop) -> None:
    """What events cost a step: blocks with and without, each pair in a random order."""
    library = trace.lib
    assert library is not None

    def block(with_events: bool) -> float:
        _device.stop(library)
        if with_events:
            for mark in _device.MARKS:
                setattr(library, mark, _device._on_stream(torch, library, mark))
        loop.step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(BLOCK):
            loop.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / BLOCK

    block(True)
    ratios, plain = [], []
    for _ in range(PAIRS):
        order = [True, False] if random.random() < 0.5 else [False, True]
        times = {with_events: block(with_events) for with_events in order}
        ratios.append(times[True] / times[False] - 1)
        plain.append(times[False])
    told, least = overhead(ratios)
    emit({"events": name, "step_ms": statistics.median(plain) * 1e3, **told})
    assert least <= 0.01, f"events cost at least {least:.2%} of a {name} step"


@check
def events_cost_a_launch_bound_step_at_most_a_percent() -> None:
    # About 10 ms of launches: the kernels themselves take less.
    cost("launch-bound", Loop(layers=160, width=64, batch=8))


@check
def events_cost_a_compute_bound_step_at_most_a_percent() -> None:
    cost("compute-bound", Loop(layers=6, width=4096, batch=1024))


if __name__ == "__main__":
    if not trace.patches:  # as on PyTorch before 2.5
        _tracing.install(torch)
    sys.exit(run(checks))
