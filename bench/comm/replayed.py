# SPDX-License-Identifier: Apache-2.0
"""Replays steps of a named model: what does communication cost if computing and wire have the ratio
of 4 x 8 GPUs at 25 Gbit/s?

It is the published case of AIAK-Training against PyTorch's DistributedDataParallel over TCP. Its
claims are printed beside our figures. Its makers measured on GPUs with NCCL, and we measure on CPUs
with timers for the computing, so only ratios compare.
"""

from __future__ import annotations

import json
import os
import statistics
from typing import Any

from fabric import Fabric, run_ranks
from models import MODELS
from rate import bound_bytes, judged

PUBLISHED_MEGABITS = 25_000
PUBLISHED = (
    "AIAK-Training says of ResNet-50, BERT and VGG-16, 4 x 8 GPUs at 25 Gbit/s: 26 to 78 % more"
    " samples a second"
)


def replay(
    fabric: Fabric, ranks: int, megabits: float, rounds: int, name: str, shrink: int
) -> None:
    model = MODELS[name]()

    def replayed(megabits: float, rounds: int) -> tuple[float, dict[str, Any]]:
        # Bytes and rate are scaled, each by its own factor. Scale the computing so that the ratio
        # of both stays.
        seconds = model.seconds() * PUBLISHED_MEGABITS / megabits / shrink
        fabric.rate(megabits)
        words = ("--rounds", rounds, "--model", name, "--shrink", shrink, "--seconds", seconds)
        # Each rank waits for all, so the times of one rank are those of all.
        return seconds, run_ranks(fabric, ranks, "replay.py", *map(str, words))[0]

    seconds, told = replayed(megabits, rounds)
    _, half = replayed(megabits / 2, 1)
    steps: dict[str, list[float]] = told["seconds"]
    medians = {contender: statistics.median(times) for contender, times in steps.items()}
    hosts = len(fabric.hosts)
    size = sum(told["buckets"])
    wire = bound_bytes(hosts, size) * 8 / (megabits * 1e6)
    print(
        f"{hosts} hosts x {ranks} ranks, {megabits:g} Mbit/s, {rounds} rounds, load"
        f" {os.getloadavg()[0]:.1f}: {name}, batch {model.batch}, gradients of"
        f" {model.bytes() / 1e6:.1f} MB shrunk {shrink} times, {len(told['buckets'])} buckets;"
        f" computing {seconds:.2f} s a step (computed, not recorded), the wire's bound {wire:.2f} s"
    )
    for contender, median in medians.items():
        over = (
            f", {steps_per_second(medians, contender):+.0%} steps a second of gloo's"
            if contender != "gloo"
            else ""
        )
        print(f"{contender:12}  step {median:.3f} s{over}")
    print(PUBLISHED)
    slower = {
        contender: round(statistics.median(half["seconds"][contender]) / median, 3)
        for contender, median in medians.items()
    }
    valid, verdict = judged(slower)
    print(f"computing twice as long, {verdict}")
    ratios = {
        contender: round(
            statistics.median(g / o for g, o in zip(steps["gloo"], steps[contender], strict=True)),
            3,
        )
        for contender in medians
        if contender != "gloo"
    }
    answer = {
        "benchmark": "comm-replay",
        "model": name,
        "hosts": hosts,
        "ranks": ranks,
        "megabits": megabits,
        "bytes": size,
        "compute_over_wire": round(seconds / wire, 3),
        "ratio": ratios["hierarchical"],
        "gloo_over": ratios,
        "half_rate": slower,
        "valid": valid,
        "step_ms": {contender: round(median * 1e3, 1) for contender, median in medians.items()},
    }
    print(json.dumps(answer))


def steps_per_second(medians: dict[str, float], contender: str) -> float:
    return medians["gloo"] / medians[contender] - 1
