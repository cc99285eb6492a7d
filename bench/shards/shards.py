# SPDX-License-Identifier: Apache-2.0
"""Samples of tar shards in one process, bytes only: Python's tarfile as a stream, grouped as
webdataset groups, against paceline.loader.TarShards in the shuffled order of ShardSampler, in turn
within one run.

A round reads all shards once, from memory (they have just been written). Ours opens the shards anew
each time, so its index is in the time; theirs is not shuffled, which needs a buffer on top. The
ratio is samples per second of processor time, ours over theirs, each round against its neighbour in
time, the median.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import statistics
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.loader import ShardSampler, TarShards

NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")


def write(path: Path, samples: int, size: int) -> Path:
    data = os.urandom(size)
    with tarfile.open(path, "w") as archive:
        for number in range(samples):
            for extension, content in (("jpg", data), ("cls", b"123")):
                info = tarfile.TarInfo(f"{path.stem}{number:06}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def theirs(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        sample: dict[str, Any] = {}
        with tarfile.open(path, "r|") as archive:
            for member in archive:
                name = NAME.match(member.name)
                file = archive.extractfile(member)
                if name is None or file is None:
                    continue
                if sample and sample["__key__"] != name[1]:
                    yield sample
                    sample = {}
                sample["__key__"] = name[1]
                sample[name[2].lower()] = file.read()
        yield sample


def ours(paths: list[Path]) -> Iterator[dict[str, Any]]:
    shards = TarShards(paths)
    return (shards[number] for number in ShardSampler(shards, seed=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--samples", type=int, default=300, help="of a shard")
    parser.add_argument("--bytes", type=int, default=60_000, help="of a sample")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    readers = {"tarfile": theirs, "ours": ours}
    rates: dict[str, list[float]] = {name: [] for name in readers}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write(Path(folder) / f"{shard:03}.tar", options.samples, options.bytes)
            for shard in range(options.shards)
        ]
        for number in range(options.rounds):
            keys = {}
            for name in readers if number % 2 == 0 else reversed(readers):
                began = time.process_time()
                keys[name] = [sample["__key__"] for sample in readers[name](paths)]
                rates[name].append(len(keys[name]) / (time.process_time() - began))
            assert (
                sorted(keys["ours"]) == keys["tarfile"]
                and len(keys["ours"]) == options.shards * options.samples
            )
    ratios = [one / other for one, other in zip(rates["ours"], rates["tarfile"])]
    medians = {name: round(statistics.median(values)) for name, values in rates.items()}
    print(
        f"samples of {options.bytes} bytes a second of processor time: {medians}, load {load:.2f}"
        " at the beginning"
    )
    print(f"  ratios of the rounds: {' '.join(f'{ratio:.2f}' for ratio in ratios)}")
    said = {
        "bench": "shards",
        "ratio": round(statistics.median(ratios), 3),
        **medians,
        "bytes": options.bytes,
    }
    print(json.dumps({**said, "load": round(load, 2)}))


if __name__ == "__main__":
    main()
