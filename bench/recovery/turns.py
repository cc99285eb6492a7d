# SPDX-License-Identifier: Apache-2.0
"""The recovery benchmarks: jobs of each contender in turns, a table for each, then a line of JSON.

A recovery is the seconds of each of its parts, and of `all`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

Recovery = dict[str, float]


class Job(Protocol):
    def recover(self, number: int) -> Recovery:
        """Takes something from the job while it trains, and waits until it trains again."""

    def end(self) -> None: ...


def in_turns(
    contenders: Iterable[str], count: int, turns: int, begin: Callable[[str, Path], Job]
) -> dict[str, list[Recovery]]:
    """So many recoveries of each contender, in so many jobs. `begin` is given an empty folder."""
    recoveries: dict[str, list[Recovery]] = {contender: [] for contender in contenders}
    for turn in range(turns):
        for contender, measured in recoveries.items():
            with tempfile.TemporaryDirectory(prefix="paceline-recovery-") as folder:
                job = begin(contender, Path(folder))
                try:
                    for number in range(turn, count, turns):
                        measured.append(job.recover(number))
                        print(f"{contender}: {measured[-1]['all']:.2f} s", flush=True)
                finally:
                    job.end()
    return recoveries


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def show(title: str, recoveries: list[Recovery]) -> None:
    print(f"\n{title}, {len(recoveries)} recoveries, in ms")
    print(f"  {'':12}{'median':>8}{'p95':>8}{'max':>8}")
    for part in recoveries[0]:
        values = [recovery[part] * 1e3 for recovery in recoveries]
        median = statistics.median(values)
        print(f"  {part:12}{median:8.0f}{quantile(values, 0.95):8.0f}{max(values):8.0f}")


def conclude(
    bench: str,
    bar: float,
    python: str,
    ours: list[Recovery],
    baseline: str,
    theirs: list[Recovery],
) -> int:
    """Prints the result. 1 if a recovery of ours took longer than the bar, in seconds; else 0."""
    version = [python, "-c", "import torch; print(torch.__version__)"]
    torch = subprocess.run(version, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    mine, other = ([one["all"] for one in recoveries] for recoveries in (ours, theirs))
    result = {
        "bench": bench,
        "ratio": round(statistics.median(other) / statistics.median(mine), 2),
        "baseline": baseline,
        "torch": torch,
        "median_ms": round(statistics.median(mine) * 1e3),
        "p95_ms": round(quantile(mine, 0.95) * 1e3),
        "max_ms": round(max(mine) * 1e3),
        "baseline_median_ms": round(statistics.median(other) * 1e3),
        "baseline_max_ms": round(max(other) * 1e3),
        "within_bar": sum(seconds <= bar for seconds in mine),
        "recoveries": len(mine),
        "bar_ms": bar * 1e3,
        "load": round(os.getloadavg()[0], 1),
    }
    missed = result["within_bar"] != result["recoveries"]
    if missed:
        print(f"the bar is missed: {result['max_ms']} ms (load {result['load']})", file=sys.stderr)
    print(json.dumps(result))
    return 1 if missed else 0
