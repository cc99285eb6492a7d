# SPDX-License-Identifier: Apache-2.0
"""Runs all benchmarks of the communicator between hosts, one after another.

They are all-reduces, the choice by measurement, several devices, sums by way of hosts over
PyTorch's groups, a training and replayed models.
Each runs as a program of its own, whose output is shown. If one fails, it is named at the end and
the others still run. At the end come bus bandwidth over size, a line for each part, and one line of
JSON. Its ratio is that of the first part: Gloo's time over ours for the largest array.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN = Path(__file__).with_name("run")
MIB = 1 << 20
# By which factor a replayed model is shrunk. All have about 5 to 20 MB then, which takes seconds.
SHRINK = {"resnet50": 16, "swin-t": 16, "vgg16": 32, "bert-base": 32}


def parts(hosts: int, ranks: int, mib: int, rounds: int | None) -> dict[str, list[str]]:
    def words(default: int, *more: object) -> list[str]:
        return [str(one) for one in (*more, "--rounds", rounds or default)]

    here = ("--hosts", hosts, "--ranks", ranks)
    found = {
        "allreduce": words(5, *here, "--mib", mib),
        "choice": words(10, *here, "--choice", "--mib", mib),
        "rails": words(5, "--hosts", 2, "--ranks", 2, "--rails", 2, "--mib", mib),
        "by-hosts": words(5, "--hosts", 2, "--ranks", 4, "--by-hosts", "--mib", mib),
        "train": words(5, "--hosts", 2, "--ranks", 2, "--train"),
    }
    for model, shrink in SHRINK.items():
        found[model] = words(3, *here, "--replay", model, "--shrink", shrink)
    return found


def carried_out(command: list[str]) -> dict[str, Any] | None:
    """Reads a part's last line of JSON; None if it failed or wrote none."""
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line
    try:
        answer = json.loads(last)
    except ValueError:
        answer = None
    return (
        answer
        if process.returncode == 0 and isinstance(answer, dict) and "ratio" in answer
        else None
    )


def busbw(table: dict[str, dict[str, float]]) -> list[str]:
    """Prints one line for each contender and size."""
    found: dict[str, dict[int, float]] = {}
    for key, row in table.items():
        name, size = key.rsplit(" ", 1)
        found.setdefault(name, {})[int(size)] = row["busbw_MBs"]
    sizes = sorted({size for row in found.values() for size in row})
    lines = ["busbw, MB/s    " + "".join(f"{size / MIB:10.3f} MiB" for size in sizes)]
    for name, rates in found.items():
        lines.append(
            f"{name:15}"
            + "".join(f"{rates[size]:14.1f}" if size in rates else 14 * " " for size in sizes)
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=8, help="of each host")
    parser.add_argument("--mib", type=int, default=25, help="the largest array")
    parser.add_argument("--rounds", type=int, help="of every part; default: what each needs")
    parser.add_argument(
        "--megabits", type=float, help="of each link, a second; default: each part chooses"
    )
    told = parser.parse_args()
    rate = [] if told.megabits is None else ["--megabits", str(told.megabits)]
    answers: dict[str, dict[str, Any]] = {}
    failed = []
    for name, words in parts(told.hosts, told.ranks, told.mib, told.rounds).items():
        print(f"== {name}: bench/comm/run {' '.join([*words, *rate])}", flush=True)
        answer = carried_out([str(RUN), *words, *rate])
        if answer is None:
            failed.append(name)
        else:
            answers[name] = answer

    print(f"== summary: {told.hosts} hosts x {told.ranks} ranks, load {os.getloadavg()[0]:.1f}")
    if "allreduce" in answers:
        print("\n".join(busbw(answers["allreduce"]["table"])))
    for name, answer in answers.items():
        judged = {
            True: "the wire was the bound",
            False: "NOT VALID: not only the wire was the bound",
            None: "",
        }
        print(f"{name:12}  ratio {answer['ratio']:.3f}  {judged[answer.get('valid')]}")
    if failed:
        print(f"FAILED: {', '.join(failed)}", flush=True)
    print(
        json.dumps(
            {
                "benchmark": "comm-all",
                "hosts": told.hosts,
                "ranks": told.ranks,
                "ratio": answers.get("allreduce", {}).get("ratio"),
                "parts": {
                    name: {key: one.get(key) for key in ("ratio", "valid")}
                    for name, one in answers.items()
                },
                "failed": failed,
            }
        ),
        flush=True,
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
