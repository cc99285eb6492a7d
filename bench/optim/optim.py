# SPDX-License-Identifier: Apache-2.0
"""A training step's end, from gradients to new parameters, on the CPU: paceline.optim against
PyTorch's own, in turn within one run, beside the time that memory alone would take.

1. unscale + clip + AdamW step. PyTorch's as users write it (scaler.unscale_, clip_grad_norm_, a
   fused optimizer, scaler.step); ours
   with max_grad_norm in the optimizer, by scaler.step and by scaled_step. The ratio of the last
   line is this one's.
2. The bare AdamW step: PyTorch's fused and foreach code, ours.
3. bfloat16 parameters with float32 masters, clipped: PyTorch's as users write it (masters of their
   own, gradients cast up, fused step,
   values cast down), ours.
4. The bare AdamW step of many tensors of four elements each: what is around the loops.

Gradients are made anew before every step, outside the time. The floor is the bytes that a step must
move over the bytes per second that plain operations on a large array move, measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any, Callable

import torch
from paceline import optim
from paceline.optim._native import functions

# Shares of a model's elements: a few large tensors, many small ones.
SHARES = (0.30, 0.20, 0.15, 0.10, 0.10, 0.05, 0.05)
SMALL = 40
TINY, TINY_ROUNDS = 161, 200
CLIP = 1.0
SCALE = 1024.0


def make_parameters(elements: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(1)
    small = [elements // 1000 + i for i in range(SMALL)]
    sizes = [int(elements * share) for share in SHARES] + small
    return [(torch.randn(size) * 0.02).to(dtype).requires_grad_() for size in sizes]


def tiny_parameters() -> list[torch.Tensor]:
    return [torch.randn(4).requires_grad_() for _ in range(TINY)]


def count(parameters: list[torch.Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)


class Contender:
    """One way to end a step: `run` is timed, everything else is not."""

    def __init__(
        self, parameters: list[torch.Tensor], make: Callable[..., Callable[[], None]]
    ) -> None:
        self.parameters = parameters
        self.run = make(self.parameters)
        self.times: list[float] = []

    def step(self, scale: float) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.randn_like(parameter).mul_(scale)
        began = time.perf_counter()
        self.run()
        self.times.append(time.perf_counter() - began)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times[1:])


def started_scaler() -> Any:
    """A scaler that has scaled a loss, so that it is ready to step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1_000_000)
    scaler.scale(torch.ones(()))
    return scaler


def torchs_scaled(parameters: list[torch.Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(parameters, fused=True)
    scaler = started_scaler()

    def run() -> None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        scaler.step(optimizer)
        scaler.update()

    return run


def ours_scaled(folded: bool) -> Callable[[list[torch.Tensor]], Callable[[], None]]:
    def make(parameters: list[torch.Tensor]) -> Callable[[], None]:
        optimizer = optim.AdamW(parameters, max_grad_norm=CLIP)
        scaler = started_scaler()

        def run() -> None:
            if folded:
                optimizer.scaled_step(scaler)
            else:
                scaler.step(optimizer)
            scaler.update()

        return run

    return make


def bare(kind: Any, **options: Any) -> Callable[[list[torch.Tensor]], Callable[[], None]]:
    return lambda parameters: kind(parameters, **options).step


def torchs_masters(parameters: list[torch.Tensor]) -> Callable[[], None]:
    masters = [parameter.detach().float().requires_grad_() for parameter in parameters]
    optimizer = torch.optim.AdamW(masters, fused=True)

    def run() -> None:
        for master, parameter in zip(masters, parameters):
            master.grad = parameter.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, CLIP)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)

    return run


def ours_masters(parameters: list[torch.Tensor]) -> Callable[[], None]:
    return optim.AdamW(parameters, max_grad_norm=CLIP).step


def memory_rate(elements: int) -> float:
    """Bytes per second, read and written, of arrays far larger than the caches: the better of
    copying one and of scaling one where it is (which need not fetch what it overwrites).
    """
    source, target = torch.ones(elements * 2), torch.empty(elements * 2)

    def median(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(6):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    return (
        8
        * source.numel()
        / min(median(lambda: target.copy_(source)), median(lambda: source.mul_(1.0)))
    )


def race(rounds: int, scale: float, **contenders: Contender) -> dict[str, Contender]:
    """All of them in turn; who begins changes from round to round."""
    names = list(contenders)
    for number in range(rounds + 1):
        for place in range(len(names)):
            contenders[names[(place + number) % len(names)]].step(scale)
    return contenders


def ratio(baseline: Contender, ours: Contender) -> float:
    """Median over the rounds, each against its neighbour in time."""
    return statistics.median(b / o for b, o in zip(baseline.times[1:], ours.times[1:]))


def show(title: str, results: dict[str, Contender], floor_bytes: int, rate: float) -> None:
    elements = count(next(iter(results.values())).parameters)
    floor = floor_bytes * elements / rate
    print(f"{title}; floor {floor_bytes} bytes an element: {floor * 1e3:.1f} ms at memory's rate")
    for name, result in results.items():
        print(
            f"  {name:28} {result.seconds * 1e3:8.1f} ms  {result.seconds / elements * 1e9:6.3f} ns"
            f" an element, {floor / result.seconds:.0%} of memory's rate"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--millions", type=float, default=30, help="elements of the model")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    elements = int(options.millions * 1e6)
    rate = memory_rate(elements)
    wide, narrow = torch.float32, torch.bfloat16
    print(
        f"PyTorch {torch.__version__}, {options.threads} threads, {functions().simd}, load"
        f" {os.getloadavg()[0]:.2f}; memory moves {rate / 1e9:.1f} GB/s"
    )
    scaled = race(
        options.rounds,
        SCALE,
        torch_fused=Contender(make_parameters(elements, wide), torchs_scaled),
        ours_scaler_step=Contender(make_parameters(elements, wide), ours_scaled(False)),
        ours_scaled_step=Contender(make_parameters(elements, wide), ours_scaled(True)),
    )
    show("unscale + clip + AdamW", scaled, 32, rate)
    scaled_ratio = ratio(scaled["torch_fused"], scaled["ours_scaled_step"])
    scaler_ratio = ratio(scaled["torch_fused"], scaled["ours_scaler_step"])
    scaled_share = (
        32 * count(scaled["torch_fused"].parameters) / rate / scaled["ours_scaled_step"].seconds
    )
    del scaled
    steps = race(
        options.rounds,
        1.0,
        torch_fused=Contender(make_parameters(elements, wide), bare(torch.optim.AdamW, fused=True)),
        torch_foreach=Contender(
            make_parameters(elements, wide), bare(torch.optim.AdamW, foreach=True)
        ),
        ours=Contender(make_parameters(elements, wide), bare(optim.AdamW)),
    )
    show("bare AdamW", steps, 28, rate)
    bare_ratio = ratio(steps["torch_fused"], steps["ours"])
    foreach_ratio = ratio(steps["torch_foreach"], steps["ours"])
    bare_share = 28 * count(steps["ours"].parameters) / rate / steps["ours"].seconds
    del steps
    masters = race(
        options.rounds,
        1.0,
        torch_fused=Contender(make_parameters(elements, narrow), torchs_masters),
        ours=Contender(make_parameters(elements, narrow), ours_masters),
    )
    show("bfloat16, masters, clip", masters, 30, rate)
    tiny = race(
        TINY_ROUNDS,
        1.0,
        torch_fused=Contender(tiny_parameters(), bare(torch.optim.AdamW, fused=True)),
        ours=Contender(tiny_parameters(), bare(optim.AdamW)),
    )
    print(f"bare AdamW of {TINY} tensors of four elements each")
    for name, result in tiny.items():
        print(f"  {name:28} {result.seconds * 1e6:8.1f} us")
    print(
        json.dumps(
            {
                "bench": "optim",
                "ratio": round(scaled_ratio, 3),
                "scaler_step_ratio": round(scaler_ratio, 3),
                "bare_ratio": round(bare_ratio, 3),
                "bare_over_foreach": round(foreach_ratio, 3),
                "masters_ratio": round(ratio(masters["torch_fused"], masters["ours"]), 3),
                "tiny_ratio": round(ratio(tiny["torch_fused"], tiny["ours"]), 3),
                "memory_share": round(scaled_share, 3),
                "bare_memory_share": round(bare_share, 3),
                "memory_gb_per_s": round(rate / 1e9, 1),
                "elements": count(masters["ours"].parameters),
                "threads": options.threads,
                "simd": functions().simd,
                "pytorch": torch.__version__,
                "load": round(os.getloadavg()[0], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
