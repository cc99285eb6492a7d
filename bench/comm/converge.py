# SPDX-License-Identifier: Apache-2.0
"""What does a model learn under each compression of its gradients? 4 ranks on 2 pretended hosts
train with each and without any.

The models are the example's digits (a convolutional network, SGD) and a small transformer that
learns to reverse a sequence (SGD with momentum). It prints the accuracy on unseen data for each
codec, and that of PyTorch's own PowerSGD hook at the same rank and seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paceline.comm
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

RANKS = 4
LENGTH, SYMBOLS = 8, 12
STEPS = {"digits": 100, "reversing": 150}
# Name, learning rate, momentum (None: Adam's), factor for the transformer's steps.
# Signs and DGC need rates and steps of their own. Each is compared with the same steps without
# compression.
RUNS = (
    ("Disabled", 0.05, 0.9, 1),
    ("FP16", 0.05, 0.9, 1),
    ("BF16", 0.05, 0.9, 1),
    ("Int8", 0.05, 0.9, 1),
    ("TopK:ratio=0.05", 0.05, 0.9, 1),
    ("PowerSGD:rank=4,start=10", 0.05, 0.9, 1),
    ("torch PowerSGD", 0.05, 0.9, 1),
    ("Disabled", 0.2, 0.5, 1),
    ("DGC", 0.2, 0.9, 1),
    ("Disabled", 0.4, 0.0, 2),
    ("OneBit", 0.4, 0.0, 2),
    ("Disabled", 0.003, None, 1),
    ("OneBit", 0.003, None, 1),
)
FREEZE = 50  # the steps before OneBitAdam freezes its variance


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1024, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Reverser(nn.Module):
    """One attention block and one perceptron block, between embeddings."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.5)
        self.block = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(width, SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.block(self.symbols(x) + self.places)).transpose(1, 2)


def digits(rank: int) -> tuple[nn.Module, Callable[[int], Any], Any]:
    file = Path(__file__).parents[2] / "examples" / "digits" / "digits.csv.gz"
    with gzip.open(file, "rt") as lines:
        rows = torch.tensor(
            [[float(value) for value in line.split(",")] for line in lines if line[0].isdigit()]
        )
    images, labels = rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64].long()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    learned, asked = order[:1400], order[1400:]

    def batch(step: int) -> Any:
        some = learned[
            torch.randint(len(learned), (RANKS, 12), generator=torch.Generator().manual_seed(step))[
                rank
            ]
        ]
        return images[some], labels[some]

    return Digits(), batch, (images[asked], labels[asked])


def reversing(rank: int) -> tuple[nn.Module, Callable[[int], Any], Any]:
    def batch(step: int, size: int = 32) -> Any:
        x = torch.randint(
            SYMBOLS, (size, LENGTH), generator=torch.Generator().manual_seed(step * RANKS + rank)
        )
        return x, x.flip(1)

    return Reverser(), batch, batch(-1, 500)


def learn(
    make: Callable[[int], Any], rank: int, how: str, rate: float, momentum: float | None, steps: int
) -> float:
    torch.manual_seed(5)
    model, batch, (asked, answers) = make(rank)
    ddp = DistributedDataParallel(model)
    optimizer: torch.optim.Optimizer
    if momentum is not None:
        optimizer = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=momentum)
    elif how == "Disabled":
        optimizer = torch.optim.Adam(ddp.parameters(), lr=rate)
    else:
        optimizer = paceline.comm.OneBitAdam(ddp.parameters(), lr=rate, freeze=FREEZE)
    if how == "torch PowerSGD":
        state = powerSGD_hook.PowerSGDState(None, 4, start_powerSGD_iter=10)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        compression: Any = how
        if how == "DGC":
            compression = paceline.comm.DGC(optimizer, ratio=0.05, warmup=40)
        if how == "OneBit":
            compression = paceline.comm.OneBit(optimizer)
        paceline.comm.ddp_hook(ddp, compression=compression, host=f"host-{rank // 2}")
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, step / 20) * (1 - step / steps)
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    ddp.eval()
    with torch.no_grad():
        return float((ddp.module(asked).argmax(1) == answers).float().mean())


def run(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["PACELINE_NUMERICS"] = "Lossy"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=RANKS
    )
    table = []
    for how, rate, momentum, times in RUNS:
        row: dict[str, Any] = {"how": how, "rate": rate, "momentum": momentum}
        row["digits"] = round(learn(digits, rank, how, rate, momentum, STEPS["digits"]), 4)
        row["reversing"] = round(
            learn(reversing, rank, how, rate, momentum, times * STEPS["reversing"]), 4
        )
        table.append(row)
        if rank == 0:
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if rank == 0:
        print(json.dumps({"benchmark": "comm-converge", "ranks": RANKS, "table": table}))
    dist.destroy_process_group()


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-comm-") as folder:
        processes.spawn(run, (folder,), RANKS)


if __name__ == "__main__":
    main()
