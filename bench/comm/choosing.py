# SPDX-License-Identifier: Apache-2.0
"""Is the choice by measurement as quick as the better of flat and hierarchical, at every size? All
three are measured in turn within one run.
"""

from __future__ import annotations

import json
import os
import statistics

from fabric import Fabric, run_ranks

CONTENDERS = ("chosen", "hierarchical", "flat")
SMALLEST = 4096
WITHIN = 1.03
SHARE = 0.95  # the fraction of sizes at which it must be
SECONDS = 0.1  # on the wire in each repetition


def choosing(fabric: Fabric, ranks: int, megabits: float, rounds: int, largest: int) -> None:
    fabric.rate(megabits)
    sizes = [SMALLEST]
    while sizes[-1] < largest:
        sizes.append(min(int(SMALLEST * 2 ** (len(sizes) / 2)) // 4 * 4, largest))
    words = [
        "--sizes",
        ",".join(map(str, sizes)),
        "--rounds",
        str(rounds),
        "--megabits",
        str(megabits),
    ]
    words += ["--seconds", str(SECONDS), "--contenders", ",".join(CONTENDERS)]
    told = run_ranks(fabric, ranks, "rank.py", *words)
    print(
        f"{len(fabric.hosts)} hosts x {ranks} ranks, {megabits:g} Mbit/s, {rounds} repetitions, "
        f"load {os.getloadavg()[0]:.1f}\nchosen: {told[0]['choice']}"
    )
    ratios = {}
    table = {}
    for size in sizes:
        seconds = {
            name: [
                row["seconds"]
                for row in told[0]["rows"]
                if row["contender"] == name and row["size"] == size
            ]
            for name in CONTENDERS
        }
        medians = {name: statistics.median(seconds[name]) * 1e3 for name in CONTENDERS}
        table.update({f"{name} {size}": {"ms": round(medians[name], 3)} for name in CONTENDERS})
        better = min(("hierarchical", "flat"), key=lambda name: medians[name])
        # Compare it with the round next to it in time.
        ratios[size] = statistics.median(
            c / b for c, b in zip(seconds["chosen"], seconds[better], strict=True)
        )
        print(
            f"{size:9} bytes  "
            + "  ".join(f"{name} {medians[name]:.2f} ms" for name in CONTENDERS)
            + f"  chosen over {better} {ratios[size]:.3f}"
        )
    good = sum(ratio <= WITHIN for ratio in ratios.values())
    reached = good >= SHARE * len(sizes)
    print(
        f"chosen within {WITHIN - 1:.0%} of the better of flat and hierarchical at {good} of"
        f" {len(sizes)} sizes (goal {SHARE:.0%}): {'reached' if reached else 'missed'}"
    )
    print(
        json.dumps(
            {
                "benchmark": "comm-choice",
                "hosts": len(fabric.hosts),
                "ranks": ranks,
                "megabits": megabits,
                "ratio": round(1 / statistics.median(ratios.values()), 3),
                "worst": round(max(ratios.values()), 3),
                "within": good,
                "sizes": len(sizes),
                "reached": reached,
                "choice": told[0]["choice"],
                "table": table,
            }
        )
    )
