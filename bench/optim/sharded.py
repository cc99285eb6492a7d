# SPDX-License-Identifier: Apache-2.0
"""Measures what an AdamW step of sharded parameters (DTensors) costs the host, on the CPU.

Two ranks hold 161 parameters of eight elements each, so that a step computes almost nothing. The
baselines are PyTorch's fused and foreach steps. Ours makes the step of the same class, as in a
program with `acceleration: {}`. The contenders take turns, and gradients are new before every step.
Beside the time stands the processor time of the thread, which other work changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from paceline.optim import _patch, _report
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

TENSORS, ELEMENTS, RANKS = 161, 8, 2
Contender = tuple[Any, list[tuple[float, float]]]  # seconds: of time, of the thread's processor


def contender(mesh: Any, ours: bool, **options: Any) -> Contender:
    parameters = [
        torch.nn.Parameter(distribute_tensor(torch.randn(ELEMENTS), mesh, [Shard(0)]))
        for _ in range(TENSORS)
    ]
    optimizer = torch.optim.AdamW(parameters, **options)
    if ours:
        why = _patch.accelerate(optimizer)
        assert not why, why
    return optimizer, []


def step(one: Contender) -> None:
    optimizer, times = one
    for parameter in optimizer.param_groups[0]["params"]:
        part = torch.randn(ELEMENTS // RANKS)
        parameter.grad = DTensor.from_local(part, parameter.device_mesh, parameter.placements)
    dist.barrier()
    began, began_thread = time.perf_counter(), time.thread_time()
    optimizer.step()
    times.append((time.perf_counter() - began, time.thread_time() - began_thread))


def rank_of(rank: int, port: int, rounds: int, warm_up: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    contenders = {
        "torch fused": contender(mesh, False, fused=True),
        "torch foreach": contender(mesh, False, foreach=True),
        "ours": contender(mesh, True),
    }
    for _ in range(rounds + warm_up):
        for one in contenders.values():
            step(one)
    outcome = _report.outcome_of(contenders["ours"][0])
    assert outcome.fused == TENSORS, vars(outcome)
    if rank == 0:
        tell({name: times[warm_up:] for name, (_, times) in contenders.items()})
    dist.destroy_process_group()


def tell(times: dict[str, list[tuple[float, float]]]) -> None:
    medians = {
        name: [round(statistics.median(each) * 1e6) for each in zip(*steps)]
        for name, steps in times.items()
    }
    for name, (wall, processor) in medians.items():
        print(f"  {name:14} {wall:8} us, {processor:8} us of a processor, for {TENSORS} shards")
    print(
        json.dumps(
            {
                "bench": "optim shards",
                "ratio": round(medians["torch fused"][0] / medians["ours"][0], 2),
                "processor_ratio": round(medians["torch fused"][1] / medians["ours"][1], 2),
                "host_us": medians,
                "tensors": TENSORS,
                "ranks": RANKS,
                "pytorch": torch.__version__,
                "load": round(os.getloadavg()[0], 2),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=5)
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(rank_of, args=(port, options.rounds, options.warm_up), nprocs=RANKS)


if __name__ == "__main__":
    main()
