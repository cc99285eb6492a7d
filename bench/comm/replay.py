# SPDX-License-Identifier: Apache-2.0
"""One rank of a replayed training. Timers stand for computing; buckets of a model's gradients
become ready as models.py computes, and are summed over real transports. All contenders make a step
in turn. It writes its results to <folder>/rank-<n>.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from models import MODELS
from paceline.comm import Communicator
from paceline.comm._compression import Codec, Residual
from paceline.comm._power_sgd import Power

Wait = Callable[[], Any]
# Begins the sum of bucket n. Returns what to call once all buckets have begun, and the wait.
Start = Callable[[int, torch.Tensor], tuple[Wait | None, Wait]]


def shrunk(shape: tuple[int, ...], times: int) -> tuple[int, int]:
    """Shrinks a shape to a matrix of fewer rows. A vector, or a shape with few rows, becomes one
    row.
    """
    if len(shape) == 1:
        return 1, math.ceil(shape[0] / times)
    return math.ceil(shape[0] / times), math.prod(shape[1:])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--shrink", type=int, required=True)
    parser.add_argument(
        "--seconds", type=float, required=True, help="that computing a step takes here"
    )
    return parser.parse_args()


def measured(
    step: Callable[[Start | None], float],
    contenders: dict[str, Start],
    buckets: list[torch.Tensor],
    told: argparse.Namespace,
) -> dict[str, list[float]]:
    """Returns the seconds of each contender's steps. "alone" only computes."""
    seconds: dict[str, list[float]] = {name: [] for name in ("alone", *contenders)}
    wanted = told.ranks * (told.ranks + 1) / 2
    for round_number in range(-1, told.rounds):  # the first warms up
        for name in seconds:
            took = step(contenders.get(name))
            got = float(buckets[0][0])
            if name in contenders and abs(got - wanted) > (
                0.05 * wanted if name in ("fp16", "powersgd") else 0
            ):
                raise RuntimeError(f"{name} adds up wrong: {got}")
            if round_number >= 0:
                seconds[name].append(took)
    return seconds


def main() -> None:
    told = arguments()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "wire0"
    patience = timedelta(minutes=10)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{told.folder}/gloo",
        rank=told.rank,
        world_size=told.ranks,
        timeout=patience,
    )
    model = MODELS[told.model]()
    slower = told.seconds / model.seconds()
    ready = [bucket.ready * slower for bucket in model.buckets()]
    shapes = [[shrunk(shape, told.shrink) for shape in bucket.shapes] for bucket in model.buckets()]
    buckets = [torch.empty(sum(map(math.prod, one))) for one in shapes]
    flat, inside = (
        Communicator(plan=f"algorithm={name}", timeout=patience)
        for name in ("flat", "hierarchical")
    )
    half = [
        Residual(Codec("FP16"), torch.zeros(inside.residual_count(bucket.numel())))
        for bucket in buckets
    ]
    # A vector is not compressed.
    matrices = [
        tuple(torch.Size(shape if shape[0] > 1 else shape[1:]) for shape in one) for one in shapes
    ]
    power = [
        Power(one, 1, number, told.ranks, torch.device("cpu"))
        for number, one in enumerate(matrices)
    ]

    def gloo(_number: int, bucket: torch.Tensor) -> tuple[Wait | None, Wait]:
        return None, dist.all_reduce(bucket, async_op=True).wait

    contenders: dict[str, Start] = {
        "gloo": gloo,
        "flat": lambda _, bucket: (None, flat.all_reduce(bucket, async_op=True).wait),
        "hierarchical": lambda _, bucket: (None, inside.all_reduce(bucket, async_op=True).wait),
        "fp16": lambda number, bucket: half[number].start(inside, bucket, 0),
        "powersgd": lambda number, bucket: power[number].start(inside, bucket, 0),
    }

    def step(start: Start | None) -> float:
        for bucket in buckets:
            bucket.fill_(told.rank + 1.0)
        flat.barrier()
        began = time.monotonic()
        begun = []
        for number, (at, bucket) in enumerate(zip(ready, buckets, strict=True)):
            time.sleep(max(began + at - time.monotonic(), 0))
            if start is not None:
                begun.append(start(number, bucket))
        time.sleep(max(began + told.seconds - time.monotonic(), 0))
        for turn, _ in begun:
            if turn is not None:
                turn()
        for _, wait in begun:
            wait()
        # All ranks report the slowest rank's time.
        flat.barrier()
        return time.monotonic() - began

    seconds = measured(step, contenders, buckets, told)
    sizes = [4 * bucket.numel() for bucket in buckets]
    (told.folder / f"rank-{told.rank}.json").write_text(
        json.dumps({"seconds": seconds, "buckets": sizes})
    )
    for communicator in (flat, inside):
        communicator.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
