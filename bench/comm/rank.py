# SPDX-License-Identifier: Apache-2.0
"""One rank of the benchmark: every contender in turn, round after round. Each rank writes what it saw to <folder>/rank-<n>.json."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from native import Communicator, folder_store

CODECS = {"fp16": 1, "bf16": 2, "int8": 3}
SMALL = ("doubling", "tree")  # for arrays of so many bytes at most
LARGEST_SMALL = 256 << 10
Run = Callable[[torch.Tensor], None]


def swapping(communicator: Communicator, ranks: int) -> Run:
    """Everyone's pieces to everyone; as many bytes leave each rank as in an allreduce's first half."""
    other = torch.empty(0)

    def run(data: torch.Tensor) -> None:
        nonlocal other
        if other.numel() != data.numel():
            other = torch.empty_like(data)
        communicator.alltoall(data.data_ptr(), other.data_ptr(), data.numel() // ranks)

    return run


def coded(communicator: Communicator, codec: int) -> Run:
    return lambda data: communicator.allreduce_coded(data.data_ptr(), data.numel(), codec)


def sent_bytes(device: str) -> int:
    """What this network namespace has sent through a device."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == device:
            return int(rest.split()[8])
    raise RuntimeError(f"no device {device} in this namespace")


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sizes", required=True, help="bytes, separated by commas")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--megabits", type=float, required=True)
    parser.add_argument("--local", action="store_true", help="all ranks are on one host: other contenders")
    parser.add_argument("--compressed", default="", help="codecs, separated by commas")
    told = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "wire"
    dist.init_process_group("gloo", init_method=f"file://{told.folder}/gloo", rank=told.rank, world_size=told.ranks)
    store = folder_store(told.folder)
    ours = {
        algorithm: Communicator(store, algorithm, told.rank, told.ranks, f"algorithm={algorithm}")
        for algorithm in ("hierarchical", "flat")
    }
    ours["chosen"] = Communicator(store, "chosen", told.rank, told.ranks, "")
    # Ranks of a host by TCP as well, which knows no hierarchy.
    ours["tcp"] = Communicator(store, "tcp", told.rank, told.ranks, "algorithm=flat memory=tcp")
    choice = ours["chosen"].tune()
    contenders: dict[str, Run] = {
        "chosen": lambda data: ours["chosen"].allreduce(data.data_ptr(), data.numel()),
        "hierarchical": lambda data: ours["hierarchical"].allreduce(data.data_ptr(), data.numel()),
        "flat": lambda data: ours["flat"].allreduce(data.data_ptr(), data.numel()),
        "tcp": lambda data: ours["tcp"].allreduce(data.data_ptr(), data.numel()),
        "gloo": lambda data: dist.all_reduce(data),
    }
    if told.local:
        for name in SMALL:
            ours[name] = Communicator(store, name, told.rank, told.ranks, f"algorithm={name}")
        contenders["doubling"] = lambda data: ours["doubling"].allreduce(data.data_ptr(), data.numel())
        contenders["tree"] = lambda data: ours["tree"].allreduce(data.data_ptr(), data.numel())
        contenders["alltoall"] = swapping(ours["flat"], told.ranks)
        contenders["alltoall-tcp"] = swapping(ours["tcp"], told.ranks)
    for name in filter(None, told.compressed.split(",")):
        contenders[name] = coded(ours["hierarchical"], CODECS[name])
    results = []
    for size in map(int, told.sizes.split(",")):
        data = torch.empty(size // 4)
        # Half a second's worth of wire, so that small messages are more than noise.
        repeats = max(1, min(50, int(told.megabits * 1e6 / 8 * 0.5 / max(size, 1))))
        for round_number in range(-1, told.rounds):  # the first warms up
            for name, run in contenders.items():
                if name in SMALL and size > LARGEST_SMALL:
                    continue
                data.fill_(told.rank + 1.0)
                ours["flat"].barrier()
                sent, used, begin = sent_bytes("wire"), processor_seconds(), time.monotonic()
                run(data)
                for _ in range(repeats - 1):
                    run(data)
                # Until all have it: the slowest rank's time is everyone's.
                ours["flat"].barrier()
                seconds = (time.monotonic() - begin) / repeats
                row = {
                    "contender": name,
                    "size": size,
                    "seconds": seconds,
                    "sent": (sent_bytes("wire") - sent) / repeats,
                    "processor": (processor_seconds() - used) / repeats,
                }
                wanted = told.ranks * (told.ranks + 1) / 2
                if (
                    repeats == 1
                    and "alltoall" not in name
                    and abs(float(data[0]) - wanted) > (0.02 * wanted if name in CODECS else 0)
                ):
                    raise RuntimeError(f"{name} adds up wrong: {float(data[0])}")
                if round_number >= 0:
                    results.append(row)
    (told.folder / f"rank-{told.rank}.json").write_text(json.dumps({"choice": choice, "rows": results}))
    for communicator in ours.values():
        communicator.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
