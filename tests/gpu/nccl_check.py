# SPDX-License-Identifier: Apache-2.0
"""Checks that NCCL's profiler plugin counts every collective of a step, and harms none.

Two ranks on one GPU, each with an NCCL_HOSTID of its own. NCCL then uses sockets of loopback, so
the numbers are right and the times mean nothing. Ends with 1 if a check failed.

    tests/gpu/nccl_check.py
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import paceline
import torch
import torch.distributed as dist
from checks import emit, run
from paceline._core.library import Library
from ranks import Ranks

RANKS, STEPS, EACH, LIMIT_S = 2, 5, 7, 45
ELEMENTS = 1 << 18  # float32
AMENDMENT, COMM_TOTAL, PROFILER = 3, 1 << 4, 1 << 2
UNKNOWN = (1 << 64) - 1
together = Ranks(__file__, RANKS, LIMIT_S)


@dataclass
class Told:
    """Of one step, by its amendments."""

    operations: int
    payload: int
    total_ns: int | None
    groups: int


class Ring:
    """This process's ring, as paceline/step_record.h has it."""

    def __init__(self) -> None:
        self.library = Library()
        assert self.library.open(None) == 0
        descriptor = self.library.ring_fd()
        self.memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=mmap.PROT_READ)

    def told(self) -> dict[int, Told]:
        steps: dict[int, Told] = {}
        (end,) = struct.unpack_from("<Q", self.memory, 1024)
        for number in range(end):
            raw = self.memory[4096 + 512 * number : 4096 + 512 * (number + 1)]
            if raw[12] != AMENDMENT:
                continue
            (step,) = struct.unpack_from("<Q", raw, 16)
            total, payload = (
                struct.unpack_from("<Q", raw, 328)[0],
                struct.unpack_from("<Q", raw, 352)[0],
            )
            operations, groups = struct.unpack_from("<II", raw, 376)
            (valid,) = struct.unpack_from("<Q", raw, 448)
            steps[step] = Told(operations, payload, total if valid & COMM_TOTAL else None, groups)
        return steps

    def wait_for(self, step: int) -> dict[int, Told]:
        end = time.monotonic() + 10
        while step not in (told := self.told()):
            assert time.monotonic() < end, f"no amendment of step {step}: {told}"
            time.sleep(0.05)
        return told

    @property
    def capabilities(self) -> int:
        return struct.unpack_from("<Q", self.memory, 224)[0]

    def collectives(self) -> tuple[int, int, int]:
        """Number of the last enqueued one, of the last that ended, and the communicator's id."""
        time.sleep(0.3)  # the plugin looks 20 times a second
        enqueued, group, done = struct.unpack_from("<QQQ", self.memory, 1152 + 24)
        return enqueued, done, group


@together.check
def every_collective_is_counted(rank: int) -> None:
    ring = Ring()
    part = torch.ones(ELEMENTS, device=together.device)
    whole = torch.empty(RANKS * ELEMENTS, device=together.device)
    dist.all_reduce(part)
    torch.cuda.synchronize()
    ring.library.step(-1)  # the first step begins; what was before belongs to none
    for number in range(STEPS):
        for _ in range(EACH):
            part.fill_(1)
            dist.all_reduce(part)
        dist.all_gather_into_tensor(whole, part)
        torch.cuda.synchronize()
        assert torch.all(whole == RANKS), "the plugin changes results"
        ring.library.step(number)
    ring.library.step(STEPS)
    told = ring.wait_for(STEPS)
    assert ring.capabilities & PROFILER
    payload = 4 * ELEMENTS * (EACH + RANKS)
    for step in range(1, STEPS + 1):
        assert told[step].operations == EACH + 1, told
        assert told[step].payload == payload and told[step].groups == 1, told
    enqueued, done, group = ring.collectives()
    assert group != 0 and enqueued == 1 + STEPS * (EACH + 1), (enqueued, group)
    assert done in (enqueued, UNKNOWN)
    timed = [step.total_ns for step in told.values() if step.total_ns is not None]
    assert all(0 < total < 60e9 for total in timed), told
    if rank == 0:
        version = ".".join(map(str, torch.cuda.nccl.version()))
        emit(
            {"nccl": version, "collectives_counted": STEPS * (EACH + 1), "steps_timed": len(timed)}
        )


@together.check
def collectives_of_a_graph_are_right_and_numbered_alike(rank: int) -> None:
    ring = Ring()
    values = torch.ones(ELEMENTS, device=together.device)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(values)
        side.synchronize()
        values.fill_(1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            dist.all_reduce(values)
        for _ in range(10):
            values.fill_(1)
            graph.replay()
        side.synchronize()
    assert torch.all(values == RANKS), "the plugin changes results of a graph"
    enqueued, _, _ = ring.collectives()
    all_ranks = [torch.zeros(1, dtype=torch.int64, device=together.device) for _ in range(RANKS)]
    mine = torch.tensor([enqueued % (1 << 63)], device=together.device)
    dist.all_gather(all_ranks, mine)
    assert len({int(number) for number in all_ranks}) == 1, all_ranks


if __name__ == "__main__":
    if len(sys.argv) > 2:
        together.take_part(sys.argv[2:], "nccl")
    else:
        plugin = Path(paceline.__file__).resolve().parents[2] / "lib" / "libpaceline_nccl.so"
        assert plugin.exists(), f"{plugin} is not built"
        os.environ["NCCL_PROFILER_PLUGIN"] = str(plugin)
        sys.exit(run(together.checks))
