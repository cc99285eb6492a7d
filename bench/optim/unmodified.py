# SPDX-License-Identifier: Apache-2.0
"""Measures the step of an unmodified program's AdamW on the CPU, for the tensors of small models.

PyTorch's fused step is the baseline. Ours makes the step of the same class, as in a program with
`acceleration: {}`. Gradients are new tensors before every step, and an untimed backward makes them,
as in a training. The contenders take turns; who begins is drawn by chance.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from typing import Any

import torch
from paceline.optim import _choice, _patch

Shapes = list[tuple[int, ...]]


def transformer(layers: int, width: int, words: int, positions: int) -> Shapes:
    """The parameters of a GPT-2; a BERT of the same size has the same but for a few."""
    block: Shapes = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(words, width), (positions, width), *(layers * block), (width,), (width,)]


FOUR: Shapes = [(4,)]
LORA: Shapes = [(8, 768), (2304, 8), (8, 768), (768, 8)]
MODELS = {
    "161 tensors of four elements": 161 * FOUR,
    "LoRA of rank 8, 12 layers of 768": 12 * LORA,
    "GPT of 4 layers of 128": transformer(4, 128, 1000, 64),
    "GPT of 6 layers of 384": transformer(6, 384, 65, 256),
    "BERT of 4 layers of 256": transformer(4, 256, 30522, 512),
    "GPT of 12 layers of 384": transformer(12, 384, 10000, 512),
}


class Contender:
    def __init__(self, shapes: Shapes, ours: bool, **options: Any) -> None:
        torch.manual_seed(1)
        self.parameters = [(torch.randn(shape) * 0.02).requires_grad_() for shape in shapes]
        self.ones = [torch.ones(shape) for shape in shapes]
        self.optimizer = torch.optim.AdamW(self.parameters, **options)
        self.times: list[float] = []
        if ours:
            why = _patch.accelerate(self.optimizer)
            assert not why, why

    def step(self) -> None:
        torch.autograd.backward([parameter * 0.01 for parameter in self.parameters], self.ones)
        began = time.perf_counter()
        self.optimizer.step()
        self.times.append(time.perf_counter() - began)
        self.optimizer.zero_grad()


def race(shapes: Shapes, rounds: int, warm_up: int) -> dict[str, list[float]]:
    contenders = {
        "torch fused": Contender(shapes, False, fused=True),
        "torch foreach": Contender(shapes, False, foreach=True),
        "ours for fused": Contender(shapes, True, fused=True),
        "ours for foreach": Contender(shapes, True),
    }
    names = list(contenders)
    for _ in range(rounds + warm_up):
        random.shuffle(names)
        for name in names:
            contenders[name].step()
    return {name: one.times[warm_up:] for name, one in contenders.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", action="append", choices=MODELS, help="of these models alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    random.seed(1)
    _choice.choice.use(True)  # as where the tuner has kept it
    rows = []
    for model in options.model or MODELS:
        times = race(MODELS[model], options.rounds, options.warm_up)
        theirs, foreach, ours = (
            statistics.median(times[name])
            for name in ("torch fused", "torch foreach", "ours for fused")
        )
        pairs = zip(times["torch fused"], times["ours for fused"])
        ratio = statistics.median(one / other for one, other in pairs)
        millions = sum(torch.Size(shape).numel() for shape in MODELS[model]) / 1e6
        row = {
            "model": model,
            "tensors": len(MODELS[model]),
            "millions": round(millions, 2),
            "fused_ms": round(theirs * 1e3, 3),
            "foreach_ms": round(foreach * 1e3, 3),
            "ours_ms": round(ours * 1e3, 3),
            "ours_for_foreach_ms": round(statistics.median(times["ours for foreach"]) * 1e3, 3),
            "ratio": round(ratio, 3),
        }
        rows.append(row)
        print(
            f"  {model:34} {len(MODELS[model]):4} tensors {millions:7.2f} M: fused"
            f" {row['fused_ms']:8.3f} ms, foreach {row['foreach_ms']:8.3f} ms, ours"
            f" {row['ours_ms']:8.3f} ms, ratio {ratio:.2f}; for foreach"
            f" {row['ours_for_foreach_ms']:.3f}"
        )
    print(
        json.dumps(
            {
                "bench": "optim unmodified",
                "rows": rows,
                "threads": options.threads,
                "pytorch": torch.__version__,
                "load": round(os.getloadavg()[0], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
