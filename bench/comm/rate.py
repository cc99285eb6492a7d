# SPDX-License-Identifier: Apache-2.0
"""Finds a rate at which the links are the bound, and not the processors that all hosts of this
machine share.
"""

from __future__ import annotations

import math
import statistics

from fabric import Fabric, run_ranks

# The contenders of the ratio. Both times must double at half the rate, or the ratio depends on the
# processors too.
COMPARED = ("hierarchical", "gloo")
# By which factor the links are slower than the processors, which have other work too.
MARGIN = 4
MOST = 400.0  # megabits a second
LARGE = 4 << 20  # bytes of the array that is tried


def bound_bytes(hosts: int, size: int) -> float:
    """Returns the bytes that each host must send for the sum of an array."""
    return 2 * (hosts - 1) / hosts * size


def calibrated(fabric: Fabric, ranks: int) -> float:
    """Chooses a rate in megabits a second, by a trial over links that are not shaped yet."""
    words = (
        "--sizes",
        str(LARGE),
        "--rounds",
        "3",
        "--megabits",
        str(MOST),
        "--contenders",
        ",".join(COMPARED),
    )
    told = run_ranks(fabric, ranks, "rank.py", *words)
    seconds = max(
        statistics.median(row["seconds"] for row in told[0]["rows"] if row["contender"] == name)
        for name in COMPARED
    )
    megabits = min(
        bound_bytes(len(fabric.hosts), LARGE) * 8 / 1e6 / (MARGIN * seconds) / len(fabric.devices),
        MOST,
    )
    digits = 10 ** math.floor(math.log10(megabits) - 1)
    chosen = math.floor(megabits / digits) * digits
    print(
        f"{LARGE >> 20} MiB take the processors up to {seconds * 1e3:.0f} ms where no link is"
        f" shaped: {chosen:g} Mbit/s, at which the wire takes {MARGIN} times as long or more"
        " (--megabits chooses another rate)"
    )
    return chosen


def doubles(times: float) -> bool:
    """Tells whether a time doubled at half the rate. If not, something else than the wire was a
    bound.
    """
    return 1.8 <= times <= 2.2


def judged(slower: dict[str, float]) -> tuple[bool, str]:
    """Returns whether all compared times doubled, and a text with the factor of each."""
    words = ", ".join(
        f"{name} {times:.2f}" + ("" if doubles(times) else " (!)") for name, times in slower.items()
    )
    valid = all(doubles(slower[name]) for name in COMPARED)
    verdict = (
        "the wire was the bound of those compared"
        if valid
        else "not only the wire was the bound: no valid ratio"
    )
    return valid, f"at half the rate: {words} times as long; {verdict}"
