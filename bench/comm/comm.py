# SPDX-License-Identifier: Apache-2.0
"""Compares allreduces over links of a known rate, in turn within one run.

The contenders are Gloo, Open MPI and our three: hierarchical, flat, and as chosen at the start.
Hosts are network namespaces. Each has a cable into one switch, or into one for each rail. Both ends
of a cable are shaped. With one host there is no wire, and local.py makes the measurements.

For each contender and size it prints:
- the median time
- busbw: 2(n-1)/n bytes for each byte of the array, for n ranks
- the bytes that a host sent, against the bound 2(N-1)/N for N hosts
- how much of the wire's rate that is
- processor seconds of all ranks per GB of array

The ratio is Gloo's time over ours (hierarchical) at the largest size. It is the median over rounds
that are neighbours in time. At the end the rate is halved. If the times do not double, something
else than the wire was measured. The default rate is low enough that they double.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from typing import Any

import open_mpi
from by_hosts import by_hosts
from choosing import choosing
from fabric import NETWORKS, Fabric, run_ranks
from local import local
from models import MODELS
from rate import COMPARED, bound_bytes, calibrated, judged
from replayed import replay

CONTENDERS = ("chosen", "hierarchical", "flat", "tcp", "gloo")
CODECS = ("fp16", "bf16", "int8")
MIB = 1 << 20

Rows = list[list[dict[str, Any]]]  # one for each rank


def measure(
    fabric: Fabric,
    ranks: int,
    megabits: float,
    sizes: list[int],
    rounds: int,
    contenders: tuple[str, ...],
) -> tuple[str, Rows]:
    """Returns the choice that was made, and what each rank measured."""
    fabric.rate(megabits)
    words = [
        "--sizes",
        ",".join(map(str, sizes)),
        "--rounds",
        str(rounds),
        "--megabits",
        str(megabits),
    ]
    words += ["--contenders", ",".join(contenders)]
    told = run_ranks(fabric, ranks, "rank.py", *words, by_mpi="openmpi" in contenders)
    return told[0]["choice"], [one["rows"] for one in told]


def train(fabric: Fabric, ranks: int, megabits: float, rounds: int) -> None:
    """Measures steps of one model under DistributedDataParallel, over Gloo and ours in turn."""
    fabric.rate(megabits)
    told = run_ranks(fabric, ranks, "train.py", "--rounds", str(rounds))
    gloo, ours = (statistics.median(told[0][name]) for name in ("gloo", "ours"))
    alone = statistics.median(told[0]["alone"])
    print(
        f"{len(fabric.hosts)} hosts x {ranks} ranks, {megabits:g} Mbit/s, a model of"
        f" {told[0]['bytes'] / MIB:.1f} MiB, load {os.getloadavg()[0]:.1f}: step {ours * 1e3:.0f}"
        f" ms over ours ({told[0]['plan']}), {gloo * 1e3:.0f} ms over Gloo, {alone * 1e3:.0f} ms"
        " without communication"
    )
    print(
        json.dumps(
            {
                "benchmark": "comm-train",
                "hosts": len(fabric.hosts),
                "ranks": ranks,
                "megabits": megabits,
                "bytes": told[0]["bytes"],
                "ratio": round(
                    statistics.median(
                        g / o for g, o in zip(told[0]["gloo"], told[0]["ours"], strict=True)
                    ),
                    3,
                ),
                "ours_ms": round(ours * 1e3, 1),
                "gloo_ms": round(gloo * 1e3, 1),
                "alone_ms": round(alone * 1e3, 1),
            }
        )
    )


def pick(rows: list[dict[str, Any]], contender: str, size: int, key: str) -> list[Any]:
    return [row[key] for row in rows if row["contender"] == contender and row["size"] == size]


def summary(
    rows: Rows, fabric: Fabric, ranks: int, contender: str, size: int, megabits: float
) -> dict[str, Any]:
    hosts = len(fabric.hosts)
    total = hosts * ranks
    seconds = statistics.median(pick(rows[0], contender, size, "seconds"))
    # The first rank of each host counts the bytes that the host sent.
    sent = max(
        statistics.median(pick(rows[host * ranks], contender, size, "sent"))
        for host in range(hosts)
    )
    processor = sum(statistics.median(pick(rank, contender, size, "processor")) for rank in rows)
    told = {
        "ms": round(seconds * 1e3, 2),
        "busbw_MBs": round(2 * (total - 1) / total * size / seconds / 1e6, 1),
        "bytes_over_bound": round(sent / bound_bytes(hosts, size), 4),
        "of_wire": round(sent * 8 / seconds / (megabits * 1e6 * len(fabric.devices)), 4),
        "processor_s_per_GB": round(processor / size * 1e9, 2),
    }
    if len(fabric.devices) > 1:
        rails = zip(*pick(rows[0], contender, size, "rails"), strict=True)
        told["share_of_rails"] = [round(statistics.median(rail) / sent, 3) for rail in rails]
    return told


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each host")
    parser.add_argument("--rails", type=int, default=1, help="cables of each host, 1 to 3")
    parser.add_argument(
        "--megabits",
        type=float,
        help="of each link, a second; default: as many as leave the wire the bound here",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=25, help="the largest array")
    parser.add_argument(
        "--compressed",
        default="fp16,int8",
        help=f"of {','.join(CODECS)}, between hosts only; or nothing",
    )
    parser.add_argument(
        "--choice",
        action="store_true",
        help="what is chosen against flat and hierarchical, over many sizes",
    )
    parser.add_argument(
        "--by-hosts",
        action="store_true",
        help="by way of hosts over Gloo's groups, as on GPUs over NCCL's, against flat",
    )
    parser.add_argument(
        "--train", action="store_true", help="steps of a model instead of allreduces"
    )
    parser.add_argument(
        "--replay", choices=MODELS, help="steps of this model with timers for its computing"
    )
    parser.add_argument(
        "--shrink", type=int, default=4, help="how many times fewer bytes the replayed model has"
    )
    told = parser.parse_args()
    told.codecs = tuple(filter(None, told.compressed.split(",")))
    if not set(told.codecs) <= set(CODECS):
        raise SystemExit(f"bench: --compressed {told.compressed}: use some of {','.join(CODECS)}")
    if told.hosts < 1:
        raise SystemExit(f"bench: --hosts {told.hosts}: use 1 or more")
    if not 1 <= told.rails <= len(NETWORKS):
        raise SystemExit(f"bench: --rails {told.rails}: use 1 to {len(NETWORKS)}")
    return told


def over(seconds: dict[str, list[float]], name: str) -> float:
    """Returns the median of the ratios of a contender's rounds to ours of the same round."""
    pairs = zip(seconds[name], seconds["hierarchical"], strict=True)
    return round(statistics.median(theirs / ours for theirs, ours in pairs), 3)


def chosen_over_best(table: dict[str, Any], size: int) -> float:
    """Returns the median time of the choice over that of the quicker of the two."""
    best = min(table[f"flat {size}"]["ms"], table[f"hierarchical {size}"]["ms"])
    return round(table[f"chosen {size}"]["ms"] / best, 3)


def main() -> None:
    told = arguments()
    sizes = [size for size in (64 << 10, MIB, 4 * MIB) if size < told.mib * MIB] + [told.mib * MIB]
    contenders = (*CONTENDERS, *(("one-rail",) if told.rails > 1 else ()), *told.codecs)
    if why := open_mpi.why_not():
        print(f"without Open MPI: {why}")
    else:
        contenders = (*contenders, "openmpi")
    fabric = Fabric(told.hosts, told.rails)
    try:
        fabric.up()
        if told.hosts == 1:
            local(fabric, told.ranks, [4096, *sizes], told.rounds)
            return
        megabits = told.megabits or calibrated(fabric, told.ranks)
        if told.choice:
            choosing(fabric, told.ranks, megabits, told.rounds, sizes[-1])
            return
        if told.by_hosts:
            by_hosts(fabric, told.ranks, megabits, told.rounds, sizes)
            return
        if told.train:
            train(fabric, told.ranks, megabits, told.rounds)
            return
        if told.replay:
            replay(fabric, told.ranks, megabits, told.rounds, told.replay, told.shrink)
            return
        choice, rows = measure(fabric, told.ranks, megabits, sizes, told.rounds, contenders)
        _, half = measure(fabric, told.ranks, megabits / 2, sizes[-1:], 2, COMPARED)
    finally:
        fabric.down()

    print(
        f"{told.hosts} hosts x {told.ranks} ranks, {told.rails} x {megabits:g} Mbit/s,"
        f" {told.rounds} rounds, load {os.getloadavg()[0]:.1f}"
    )
    print(f"chosen: {choice}")
    print(
        "bytes as the kernel counts them on the link, with headers, segmentation offloaded to it"
        " (the default of veth)"
    )
    table = {}
    for size in sizes:
        for contender in contenders:
            got = summary(rows, fabric, told.ranks, contender, size, megabits)
            table[f"{contender} {size}"] = got
            shown = "  ".join(f"{key} {value}" for key, value in got.items())
            print(f"{size / MIB:8.3f} MiB  {contender:12}  {shown}")
    largest = sizes[-1]
    seconds = {name: pick(rows[0], name, largest, "seconds") for name in contenders}
    slowed = {name: pick(half[0], name, largest, "seconds") for name in COMPARED}
    slower = {
        name: round(statistics.median(slowed[name]) / statistics.median(seconds[name]), 3)
        for name in COMPARED
    }
    valid, verdict = judged(slower)
    print(verdict)

    print(
        json.dumps(
            {
                "benchmark": "comm",
                "hosts": told.hosts,
                "ranks": told.ranks,
                "rails": told.rails,
                "megabits": megabits,
                "bytes": largest,
                "ratio": over(seconds, "gloo"),
                "over_hierarchical": {
                    name: over(seconds, name) for name in contenders if name != "hierarchical"
                },
                "half_rate": slower,
                "choice": choice,
                "chosen_over_best": {str(size): chosen_over_best(table, size) for size in sizes},
                "valid": valid,
                "table": table,
            }
        )
    )


if __name__ == "__main__":
    main()
