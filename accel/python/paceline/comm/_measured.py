# SPDX-License-Identifier: Apache-2.0
"""Measures at a job's start for which sizes the sum by way of hosts is clearly quicker than the
process group's own. _hierarchy and _patch use it.

Both ways take turns in rounds, from small arrays to large ones, until BUDGET_S is spent. Each round
ends with a small all-reduce of the times, which keeps the slowest rank's. So all ranks see the same
times, end at the same round, and choose the same way. It also says whether a rank could not read
its times: then all ranks raise.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Ways = tuple[Callable[[Tensor], object], Callable[[Tensor], object]]

BUDGET_S = 1.5
ROUNDS = 12  # at most for each size, beside one that connects
LEAST_ROUNDS = 3
# Three quarters of the rounds must be so many times as quick by way of hosts.
MARGIN = 1.05
NEAR = math.sqrt(2)  # sizes within this factor of each other need no measurement of their own
MOST_SIZES = 4
MOST_BYTES = 64 << 20  # of one array: above it the ratio stays, and memory does not


@dataclass(frozen=True)
class Row:
    """How many times as quick the way by hosts was for arrays of `size` bytes: the median of the
    rounds, and what three quarters of them reached.
    """

    size: int
    median: float
    reached: float

    @property
    def gains(self) -> bool:
        return self.reached >= MARGIN


@dataclass(frozen=True)
class Choice:
    """What was measured, by ascending size."""

    rows: tuple[Row, ...]

    def by_hosts(self, size: int) -> bool:
        """Tells whether an array of `size` bytes is summed by way of hosts. A measured size that is
        near decides, else both neighbours, and above all of them the largest.
        """
        near = [row for row in self.rows if size <= NEAR * row.size and row.size <= NEAR * size]
        if near:
            return min(near, key=lambda row: abs(math.log(size / row.size))).gains
        below = [row for row in self.rows if row.size < size]
        above = [row for row in self.rows if row.size > size]
        return bool(below) and all(row.gains for row in (below[-1], *above[:1]))

    def __str__(self) -> str:
        return ", ".join(
            f"{row.size / (1 << 20):.1f} MiB {'by hosts' if row.gains else 'flat'}"
            f" ({row.median:.2f})"
            for row in self.rows
        )


def sizes_to_measure(buckets: Sequence[int], least: int) -> list[int]:
    """Returns which sizes stand for those of a job's buckets, in bytes: `least`, below which
    nothing is summed by way of hosts, and few others. Empty if no bucket is so large.
    """
    kept: list[int] = []
    for size in sorted((min(size, MOST_BYTES) for size in buckets if size >= least), reverse=True):
        if not kept or size * NEAR < kept[-1]:
            kept.append(size)
    if not kept:
        return []
    if len(kept) >= MOST_SIZES:  # the largest, the smallest, and those in between evenly
        steps = [(len(kept) - 1) * number / (MOST_SIZES - 2) for number in range(MOST_SIZES - 1)]
        kept = [kept[round(step)] for step in steps]
    return [least, *(size for size in reversed(kept) if size > NEAR * least)]


class Meter:
    """Measures two ways of a sum: that of `group`, and by way of hosts. The constructor takes the
    memory, so that measuring fails on no rank for lack of it.
    """

    def __init__(self, ways: Ways, group: Any, device: torch.device, sizes: Sequence[int]) -> None:
        self._ways = ways
        self._group = group
        self._sizes = list(sizes)
        self._array = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
        self._told = torch.zeros(4, dtype=torch.float64, device=device)
        self._began = 0.0

    def run(self) -> Choice:
        """Measures. All ranks call it, with the same sizes."""
        self._began = time.perf_counter()
        rows: list[Row] = []
        spent = cost = 0.0  # seconds since the beginning, and of one round of the last size
        for number, size in enumerate(self._sizes):
            expected = cost * size / self._sizes[max(0, number - 1)]
            if spent + (1 + LEAST_ROUNDS) * expected > BUDGET_S:
                break
            until = spent + (BUDGET_S - spent) / (len(self._sizes) - number)
            array = self._array[: size // 4 * 4].view(torch.float32)
            ratios: list[float] = []
            for turn in range(1 + ROUNDS):
                before = spent
                flat, by_hosts, spent = self._round(array, turn)
                cost = spent - before
                if turn > 0:  # the first one connects
                    ratios.append(flat / by_hosts)
                enough = len(ratios) >= LEAST_ROUNDS
                if spent + cost > (until if enough else BUDGET_S):
                    break
            if len(ratios) < LEAST_ROUNDS:
                break
            ratios.sort()
            rows.append(Row(size, statistics.median(ratios), ratios[len(ratios) // 4]))
        return Choice(tuple(rows))

    def _round(self, array: Tensor, turn: int) -> tuple[float, float, float]:
        """Sums an array both ways. Returns the seconds of each, and those since the beginning."""
        marks: list[Any] = [None, None]
        for way in (0, 1) if turn % 2 else (1, 0):
            # All ranks begin together, or the first would time its wait for the others.
            dist.all_reduce(self._told.zero_(), group=self._group)
            begin = _mark(array.device)
            self._ways[way](array)
            marks[way] = (begin, _mark(array.device))
        seconds, error = self._read(marks)
        told = [*seconds, time.perf_counter() - self._began, float(bool(error))]
        self._told.copy_(torch.tensor(told, dtype=torch.float64, device="cpu"))
        dist.all_reduce(self._told, op=dist.ReduceOp.MAX, group=self._group)
        flat, by_hosts, spent, failed = self._told.tolist()
        if failed:
            raise error or RuntimeError("another rank could not measure which way is quicker")
        return flat, by_hosts, spent

    def _read(self, marks: list[Any]) -> tuple[list[float], Exception | None]:
        try:
            return [_seconds(*one) for one in marks], None
        except Exception as error:
            return [0.0, 0.0], error


def _mark(device: torch.device) -> Any:
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _seconds(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return float(end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
