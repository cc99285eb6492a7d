# SPDX-License-Identifier: Apache-2.0
"""One rank of the benchmark. It runs every contender in turn, round after round, and writes its
results to <folder>/rank-<n>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from native import Communicator, folder_store
from paceline.comm._addresses import addresses_of
from paceline.comm._hierarchy import Hierarchy
from paceline.comm._layout import Layout, own_host
from paceline.comm._members import Members

CODECS = {"fp16": 1, "bf16": 2, "int8": 3}
SMALL = ("doubling", "tree")  # algorithms for small arrays only
LARGEST_SMALL = 256 << 10
# Contenders that are communicators of ours, and their plans. With memory=tcp a host's ranks count
# as hosts of their own, so there is no hierarchy.
PLANS = {
    "chosen": "",
    "hierarchical": "algorithm=hierarchical",
    "one-rail": "algorithm=hierarchical",
    "flat": "algorithm=flat",
    "tcp": "algorithm=flat memory=tcp",
    "doubling": "algorithm=doubling",
    "tree": "algorithm=tree",
}
Run = Callable[[torch.Tensor], object]


def summing(communicator: Communicator) -> Run:
    return lambda data: communicator.all_reduce(data.data_ptr(), data.numel())


def swapping(communicator: Communicator, ranks: int) -> Run:
    """Runs an all-to-all in which each rank sends as many bytes as in the first half of an
    all-reduce.
    """
    other = torch.empty(0)

    def run(data: torch.Tensor) -> None:
        nonlocal other
        if other.numel() != data.numel():
            other = torch.empty_like(data)
        communicator.all_to_all(data.data_ptr(), other.data_ptr(), data.numel() // ranks)

    return run


def coded(communicator: Communicator, codec: int) -> Run:
    return lambda data: communicator.all_reduce_coded(data.data_ptr(), data.numel(), codec)


def open_mpi() -> Run:
    import mpi4py

    mpi4py.rc.threads = False
    from mpi4py import MPI

    def run(data: torch.Tensor) -> None:
        memory = MPI.memory.fromaddress(data.data_ptr(), 4 * data.numel())
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, [memory, data.numel(), MPI.FLOAT])

    return run


def by_hosts(ranks: int) -> Run:
    """Over PyTorch's own process groups, as on GPUs."""
    names: list[Any] = [None] * ranks
    dist.all_gather_object(names, own_host())
    sums = Hierarchy(Members(), Layout.of(names), torch.device("cpu"), timedelta(minutes=10))
    sums.prove(coded=False)
    return lambda data: sums.all_reduce(data, async_op=True).wait()


def sent_bytes() -> list[int]:
    """Returns the bytes that this network namespace has sent through each of its cables."""
    lines = [line.partition(":") for line in Path("/proc/self/net/dev").read_text().splitlines()]
    return [
        int(rest.split()[8]) for name, _, rest in sorted(lines) if name.strip().startswith("wire")
    ]


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=os.environ.get("OMPI_COMM_WORLD_RANK"))
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sizes", required=True, help="bytes, separated by commas")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--megabits", type=float, required=True)
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        help="of wire in each round, that small sizes fill by repeating",
    )
    parser.add_argument("--contenders", required=True, help="separated by commas")
    return parser.parse_args()


def main() -> None:
    told = arguments()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = ",".join(
        sorted(name for _, name in socket.if_nameindex() if "wire" in name)
    )
    dist.init_process_group(
        "gloo", init_method=f"file://{told.folder}/gloo", rank=told.rank, world_size=told.ranks
    )
    store = folder_store(told.folder)
    wires = addresses_of("wire")
    made: dict[str, Communicator] = {}

    def ours(name: str) -> Communicator:
        if name not in made:
            address = ",".join(wires[:1] if name == "one-rail" else wires)
            made[name] = Communicator(store, name, told.rank, told.ranks, PLANS[name], address)
        return made[name]

    def contender(name: str) -> Run:
        if name in PLANS:
            return summing(ours(name))
        if name in CODECS:
            return coded(ours("hierarchical"), CODECS[name])
        if name == "openmpi":
            return open_mpi()
        if name == "gloo":
            return lambda data: dist.all_reduce(data)
        if name == "gloo-by-hosts":
            return by_hosts(told.ranks)
        return swapping(ours({"alltoall": "flat", "alltoall-tcp": "tcp"}[name]), told.ranks)

    contenders = {name: contender(name) for name in told.contenders.split(",")}
    choice = made["chosen"].tune() if "chosen" in made else ""
    between = ours("flat")
    results = []
    for size in map(int, told.sizes.split(",")):
        data = torch.empty(size // 4)
        # Repeat small messages, or their time is noise.
        repeats = max(1, min(50, int(told.megabits * 1e6 / 8 * told.seconds / max(size, 1))))
        for round_number in range(-1, told.rounds):  # the first warms up
            for name, run in contenders.items():
                if name in SMALL and size > LARGEST_SMALL:
                    continue
                data.fill_(told.rank + 1.0)
                between.barrier()
                sent, used, begin = sent_bytes(), processor_seconds(), time.monotonic()
                for _ in range(repeats):
                    run(data)
                # All ranks report the slowest rank's time.
                between.barrier()
                seconds = (time.monotonic() - begin) / repeats
                rails = [
                    (after - before) / repeats
                    for before, after in zip(sent, sent_bytes(), strict=True)
                ]
                row = {
                    "contender": name,
                    "size": size,
                    "seconds": seconds,
                    "sent": sum(rails),
                    "rails": rails,
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
    (told.folder / f"rank-{told.rank}.json").write_text(
        json.dumps({"choice": choice, "rows": results})
    )
    for communicator in made.values():
        communicator.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
