# SPDX-License-Identifier: Apache-2.0
"""A rate of links at which they are the bound, and not the processors that all hosts of this machine share."""

from __future__ import annotations

import math
import statistics

from fabric import Fabric, run_ranks

# Over what the processors need when nothing holds them up: they are not free of other work, and Gloo needs more.
MARGIN = 4
MOST = 400.0  # megabits a second
LARGE = 4 << 20  # bytes, of the array that is tried


def bound_bytes(hosts: int, size: int) -> float:
    """What each host must send at the least for the sum of an array."""
    return 2 * (hosts - 1) / hosts * size


def calibrated(fabric: Fabric, ranks: int) -> float:
    """Megabits a second, by links that are not shaped yet."""
    words = ("--sizes", str(LARGE), "--rounds", "3", "--megabits", str(MOST), "--contenders", "hierarchical")
    told = run_ranks(fabric, ranks, "rank.py", *words)
    seconds = statistics.median(row["seconds"] for row in told[0]["rows"])
    megabits = min(bound_bytes(len(fabric.hosts), LARGE) * 8 / 1e6 / (MARGIN * seconds) / len(fabric.devices), MOST)
    digits = 10 ** math.floor(math.log10(megabits) - 1)
    chosen = math.floor(megabits / digits) * digits
    print(
        f"{LARGE >> 20} MiB take the processors {seconds * 1e3:.0f} ms where no link is shaped: {chosen:g} Mbit/s, "
        f"at which the wire takes {MARGIN} times as long or more (--megabits chooses another rate)"
    )
    return chosen


def holds(seconds: float, at_half: float) -> bool:
    """Times that do not double at half the rate mean that something else than the wire was measured."""
    return 1.8 <= at_half / seconds <= 2.2
