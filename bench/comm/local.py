# SPDX-License-Identifier: Apache-2.0
"""Compares shared memory with TCP between ranks of one host, in turn within one run. The
processors, which all ranks share, are the bound.
"""

from __future__ import annotations

import json
import os
import statistics

from fabric import Fabric, run_ranks

SMALL = ("doubling", "tree")  # the same as in rank.py
LARGEST_SMALL = 256 << 10

CONTENDERS = (
    "hierarchical",
    "flat",
    "doubling",
    "tree",
    "chosen",
    "tcp",
    "gloo",
    "alltoall",
    "alltoall-tcp",
)
PLENTY = 1000  # megabits a second, from which the length of rounds follows
MIB = 1 << 20


def local(fabric: Fabric, ranks: int, sizes: list[int], rounds: int) -> None:
    words = (
        "--sizes",
        ",".join(map(str, sizes)),
        "--rounds",
        str(rounds),
        "--megabits",
        str(PLENTY),
    )
    told = run_ranks(fabric, ranks, "rank.py", *words, "--contenders", ",".join(CONTENDERS))
    rows = [one["rows"] for one in told]
    print(
        f"1 host x {ranks} ranks on {os.cpu_count()} processors, {rounds} rounds, load"
        f" {os.getloadavg()[0]:.1f}"
    )
    print(f"chosen: {told[0]['choice']}")
    table = {}
    for size in sizes:
        for name in CONTENDERS:
            if name in SMALL and size > LARGEST_SMALL:
                continue
            mine = [
                [row for row in rank if row["contender"] == name and row["size"] == size]
                for rank in rows
            ]
            seconds = statistics.median(row["seconds"] for row in mine[0])
            passes = 1 if "alltoall" in name else 2
            got = {
                "ms": round(seconds * 1e3, 2),
                "busbw_MBs": round(passes * (ranks - 1) / ranks * size / seconds / 1e6, 1),
                "processor_s_per_GB": round(
                    sum(statistics.median(row["processor"] for row in rank) for rank in mine)
                    / size
                    * 1e9,
                    2,
                ),
            }
            table[f"{name} {size}"] = got
            print(
                f"{size / MIB:8.3f} MiB  {name:12}  "
                + "  ".join(f"{key} {value}" for key, value in got.items())
            )

    def ratio(slow: str, quick: str) -> dict[str, float]:
        return {
            str(s): round(table[f"{slow} {s}"]["ms"] / table[f"{quick} {s}"]["ms"], 3)
            for s in sizes
        }

    print(
        json.dumps(
            {
                "benchmark": "comm-local",
                "ranks": ranks,
                "choice": told[0]["choice"],
                "tcp_over_hierarchical": ratio("tcp", "hierarchical"),
                "tcp_over_flat": ratio("tcp", "flat"),
                "tcp_over_memory_alltoall": ratio("alltoall-tcp", "alltoall"),
                "table": table,
            }
        )
    )
