# SPDX-License-Identifier: Apache-2.0
"""Kernel windows on a GPU: the window against the sum of torch.profiler's kernels, the profiler and
graph capture unharmed by windows before, after and during them, and what a window costs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from checks import Check, emit, overhead, run
from paceline._core import windows
from paceline._core.trace import trace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GPU = torch.device("cuda")
HEADER, RECORD, CAPACITY = 4096, 512, 1024
AMENDMENT, CUPTI = 3, 4
COMPUTE = (2, 3, 5, 7, 8, 10)  # phases
COMM, H2D, OTHER_COPIES = 4, 1, 11
WINDOWS = 10  # of which the cost is taken
PAIRS = 40
checks: list[Check] = []


def check(function: Check) -> Check:
    checks.append(function)
    return function


class Training:
    """Steps of some milliseconds, with copies from the host."""

    def __init__(self, width: int = 2048, layers: int = 12) -> None:
        torch.manual_seed(1)
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [nn.Linear(width, width), nn.GELU()]
        self.model = nn.Sequential(*parts).to(GPU)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        data = TensorDataset(torch.randn(64 * 512, width))
        self.loader = DataLoader(data, batch_size=512, pin_memory=True)
        self.batches = iter(self.loader)

    def step(self) -> None:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        loss = self.model(batch[0].to(GPU, non_blocking=True)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def report() -> Any:
    library = windows._library()
    assert library is not None, "the driver has not loaded libpaceline_cupti.so"
    found = windows._Report(size=ctypes.sizeof(windows._Report))
    library.paceline_window_report(ctypes.byref(found))
    return found


def published(ring: mmap.mmap) -> int:
    return int(struct.unpack_from("<Q", ring, 1024)[0])


def mapped() -> mmap.mmap:
    assert trace.lib is not None
    return mmap.mmap(trace.lib.ring_fd(), HEADER + CAPACITY * RECORD, prot=mmap.PROT_READ)


def amendments(since: int) -> list[dict[str, Any]]:
    """Of windows, among the records from number `since` on."""
    ring = mapped()
    found = []
    end = published(ring)
    for number in range(max(since, end - CAPACITY), end):
        raw = ring[HEADER + number % CAPACITY * RECORD :][:RECORD]
        source = raw[456:472]
        if raw[12] != AMENDMENT or CUPTI not in {byte >> 4 for byte in source}:
            continue
        found.append(
            {
                "step": struct.unpack_from("<Q", raw, 16)[0],
                "flags": struct.unpack_from("<Q", raw, 56)[0],
                "ns": struct.unpack_from("<16Q", raw, 192),
                "window": struct.unpack_from("<Q", raw, 320)[0],
                "kernels": struct.unpack_from("<I", raw, 424)[0],
                "graphs": struct.unpack_from("<I", raw, 428)[0],
            }
        )
    return found


def train_until(step: Callable[[], None], done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, f"not within 60 s; off: {report().off!r}"
        step()


def window(step: Callable[[], None], steps: int) -> list[dict[str, Any]]:
    """The amendments of a window that was asked for. One that came by itself may lie before it."""
    since = published(mapped())
    assert windows.request(steps)

    def run() -> list[dict[str, Any]]:
        found = amendments(since)[-steps:]
        whole = len(found) == steps and found[-1]["step"] - found[0]["step"] == steps - 1
        return found if whole else []

    train_until(step, lambda: bool(run()))
    found = run()
    assert all(sum(one["ns"]) == one["window"] for one in found)
    return found


def busy(found: list[dict[str, Any]]) -> float:
    """Milliseconds a step in which the device computed or copied."""
    phases = (*COMPUTE, COMM, H2D, OTHER_COPIES)
    return sum(one["ns"][phase] for one in found for phase in phases) / len(found) / 1e6


def profiled(step: Callable[[], None], steps: int) -> tuple[float, int]:
    """The union of torch.profiler's device intervals, in milliseconds a step, and its kernels."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    total, reached = 0.0, 0.0
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total / 1e3 / steps, len(spans) // steps


@check
def a_window_agrees_with_the_profiler() -> None:
    training = Training()
    for _ in range(20):
        training.step()
    torch.cuda.synchronize()
    ours = [busy(window(training.step, 16)) for _ in range(3)]
    theirs = [profiled(training.step, 16)[0] for _ in range(3)]
    ratio = statistics.median(ours) / statistics.median(theirs)
    emit({"check": "window against torch.profiler", "ours_ms": ours, "theirs_ms": theirs})
    assert abs(ratio - 1) < 0.03, f"a window says {ours} ms a step, torch.profiler {theirs} ms"


@check
def compute_is_divided_and_nothing_is_lost() -> None:
    found = window(Training().step, 8)
    assert all(one["flags"] & 1 << 4 == 0 for one in found), "records were lost"
    forward, backward, optimizer = (sum(one["ns"][phase] for one in found) for phase in (2, 3, 5))
    undivided = sum(one["ns"][10] for one in found)
    assert forward and optimizer and backward > forward, (forward, backward, optimizer)
    assert undivided < 0.05 * (forward + backward + optimizer), undivided


@check
def windows_come_back_after_the_profiler() -> None:
    training = Training()
    training.step()  # makes the optimizer's state
    _, before = profiled(training.step, 4)
    assert before > 50, f"torch.profiler sees {before} kernels a step after windows"
    window(training.step, 4)
    _, after = profiled(training.step, 4)
    assert after == before, f"{before} kernels a step, and {after} after a window"
    assert not report().off, report().off


@check
def the_profiler_may_begin_in_the_middle_of_a_window() -> None:
    training = Training()
    for _ in range(3):
        assert windows.request(64)
        training.step()
        _, kernels = profiled(training.step, 4)
        assert kernels > 50, f"torch.profiler saw {kernels} kernels a step"
    window(training.step, 4)


@check
def a_graph_is_captured_and_replayed_in_windows() -> None:
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).to(GPU)
    batch = torch.randn(256, 1024, device=GPU)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(batch).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    other = Training(width=256, layers=2)
    assert windows.request(64)  # open while the graph is captured
    other.step()
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(batch).sum()
        loss.backward()
    graph.replay()
    torch.cuda.synchronize()
    expected = float(loss)

    def step() -> None:
        graph.replay()
        other.step()

    found = window(step, 8)
    assert all(one["graphs"] == 1 for one in found), [one["graphs"] for one in found]
    torch.cuda.synchronize()
    assert float(loss) == expected
    with torch.profiler.profile():
        graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert float(loss) == expected, "the graph replays as before"


def _times(step: Callable[[], None], count: int) -> list[float]:
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - began) * 100)
    return found


@check
def the_cost_of_a_window() -> None:
    """No bar: the line is for the design's page. Two steps of 500 run in a window."""
    for name, training in (
        ("compute-bound", Training()),
        ("launch-bound", Training(width=64, layers=120)),
    ):
        for _ in range(20):
            training.step()
        outside = _times(training.step, 10)
        inside = []
        began = time.monotonic()
        for _ in range(WINDOWS):
            before = report().windows
            assert windows.request(20)
            train_until(training.step, lambda: windows._library() is not None)
            inside += _times(training.step, 1)
            train_until(training.step, lambda before=before: report().windows > before)
        seconds = (time.monotonic() - began) / WINDOWS
        after = _times(training.step, 10)
        row = {
            "window_s": round(seconds, 2),
            "before_ms": round(statistics.median(outside), 4),
            "in_window_ms": round(statistics.median(inside), 4),
            "after_ms": round(statistics.median(after), 4),
        }
        row["in_window"] = round(row["in_window_ms"] / row["before_ms"] - 1, 4)
        row["residual"] = round(row["after_ms"] / row["before_ms"] - 1, 4)
        emit({"benchmark": f"kernel window, {name} step", **row})


class Trainer:
    """A launch-bound training process that makes a block of steps when told to."""

    def __init__(self, with_windows: bool) -> None:
        environment = dict(os.environ)
        if not with_windows:
            del environment[windows.VARIABLE]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--blocks"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.block()

    def block(self) -> float:
        """Seconds of ten steps."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def make_blocks() -> None:
    training = Training(width=64, layers=120)
    for _ in range(20):
        training.step()
    if windows.VARIABLE in os.environ:
        window(training.step, 4)
    for _ in sys.stdin:
        print(_times(training.step, 1)[0] / 100, flush=True)


@check
def windows_leave_little_behind() -> None:
    """A process that has had a window, and one without the library, in turn. Printed: the design's
    page says when windows may be on by default.
    """
    trainers = [Trainer(with_windows) for with_windows in (True, False)]
    try:
        ratios = []
        for _ in range(PAIRS):
            order = random.sample((0, 1), 2)
            seconds = {number: trainers[number].block() for number in order}
            ratios.append(seconds[0] / seconds[1] - 1)
    finally:
        for trainer in trainers:
            trainer.end()
    emit({"benchmark": "a launch-bound step between kernel windows", **overhead(ratios)[0]})


if __name__ == "__main__":
    assert os.path.basename(os.environ.get(windows.VARIABLE, "")) == windows.LIBRARY
    if "--blocks" in sys.argv:
        make_blocks()
    else:
        sys.exit(run(checks))
