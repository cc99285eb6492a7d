# SPDX-License-Identifier: Apache-2.0
"""Compares sums by way of hosts over PyTorch's own process groups with a flat all-reduce of the
same library. On GPUs the groups are NCCL's. Here Gloo's stand for them, so only the ratio says
something.
"""

from __future__ import annotations

import json
import os
import statistics

from fabric import Fabric, run_ranks
from rate import bound_bytes, doubles

CONTENDERS = ("gloo", "gloo-by-hosts")
MIB = 1 << 20


def by_hosts(fabric: Fabric, ranks: int, megabits: float, rounds: int, sizes: list[int]) -> None:
    def measured(
        megabits: float, rounds: int, sizes: list[int]
    ) -> dict[str, dict[int, list[float]]]:
        fabric.rate(megabits)
        words = ["--sizes", ",".join(map(str, sizes)), "--rounds", str(rounds)]
        words += ["--megabits", str(megabits), "--contenders", ",".join(CONTENDERS)]
        rows = run_ranks(fabric, ranks, "rank.py", *words)[0]["rows"]
        sent.update({(row["contender"], row["size"]): row["sent"] for row in rows})
        return {
            name: {
                size: [
                    row["seconds"]
                    for row in rows
                    if row["contender"] == name and row["size"] == size
                ]
                for size in sizes
            }
            for name in CONTENDERS
        }

    sent: dict[tuple[str, int], float] = {}
    seconds = measured(megabits, rounds, sizes)
    bytes_sent = dict(sent)
    half = measured(megabits / 2, 2, sizes[-1:])
    hosts = len(fabric.hosts)
    print(
        f"{hosts} hosts x {ranks} ranks, {megabits:g} Mbit/s, {rounds} rounds, load"
        f" {os.getloadavg()[0]:.1f}: Gloo's groups stand for NCCL's"
    )
    ratios, table = {}, {}
    for size in sizes:
        flat, ours = (seconds[name][size] for name in CONTENDERS)
        # Rounds that are neighbours in time.
        ratios[str(size)] = round(
            statistics.median(f / o for f, o in zip(flat, ours, strict=True)), 3
        )
        for name in CONTENDERS:
            over = bytes_sent[name, size] / bound_bytes(hosts, size)
            row = {
                "ms": round(statistics.median(seconds[name][size]) * 1e3, 2),
                "bytes_over_bound": round(over, 3),
            }
            table[f"{name} {size}"] = row
            print(f"{size / MIB:8.3f} MiB  {name:14} {row['ms']:10.2f} ms, {over:.3f} of the bound")
        print(f"{size / MIB:8.3f} MiB  by hosts {ratios[str(size)]:.3f} times as quick as flat")
    slower = {
        name: round(
            statistics.median(half[name][sizes[-1]]) / statistics.median(seconds[name][sizes[-1]]),
            3,
        )
        for name in CONTENDERS
    }
    valid = all(map(doubles, slower.values()))
    print(f"at half the rate: {slower}; the wire was {'the' if valid else 'not the only'} bound")
    print(
        json.dumps(
            {
                "benchmark": "comm-by-hosts",
                "hosts": hosts,
                "ranks": ranks,
                "megabits": megabits,
                "ratio": ratios[str(sizes[-1])],
                "ratios": ratios,
                "half_rate": slower,
                "valid": valid,
                "table": table,
            }
        )
    )
