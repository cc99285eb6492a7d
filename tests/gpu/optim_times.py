# SPDX-License-Identifier: Apache-2.0
"""Measures optimizer steps on a GPU: paceline.optim and PyTorch's own, in turn within one run.

The floor is the number of bytes that a step must move, divided by the measured rate of a copy on
this device.

Gradients are new tensors before every step. Autograd makes them outside the measured time, as a
backward pass after zero_grad(set_to_none=True) does. Tensors made in Python already have their
Python object, so reading them as `.grad` would cost the host less than in training.

Times are medians of CUDA events around the step. Each step is measured twice. On an idle device the
host's part counts. With work queued in front, as after a backward pass, only the device's part
counts. Host time is the time of the call itself, on the idle device.

Each row is printed as a line of JSON as soon as it is measured; a row that fails leaves the others.
`ratio` is PyTorch's usual code over ours on the idle device, and `ratio_device` with queued work.
Above 1, ours is faster.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from checks import emit
from paceline import optim
from paceline.optim import _report

GPU = torch.device("cuda")
CLIP = 1.0
QUEUED_CYCLES = (
    20_000_000  # about 10 ms, longer than the host needs for any step but PyTorch's loop
)
Tensors = list[torch.Tensor]


def transformer() -> list[tuple[int, ...]]:
    """241 tensors, 353.8 million elements: 24 layers of width 1024, and an embedding."""
    width = 1024
    layer: list[tuple[int, ...]] = [
        (3 * width, width),
        (width, width),
        (4 * width, width),
        (width, 4 * width),
    ]
    layer += [(width,), (width,), (3 * width,), (width,), (4 * width,), (width,)]
    return layer * 24 + [(50304, width)]


def residual() -> list[tuple[int, ...]]:
    """161 tensors, 29.7 million elements: ResNet-50's, with a wider last layer."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolutions = [(width, inside, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if block == 0:
                convolutions.append((4 * width, inside, 1, 1))
            for shape in convolutions:
                shapes += [shape, (shape[0],), (shape[0],)]
            inside = 4 * width
    return [*shapes, (3022, inside), (3022,)]


def make(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Tensors:
    torch.manual_seed(1)
    return [(torch.randn(shape, device=GPU) * 0.02).to(dtype).requires_grad_() for shape in shapes]


@dataclass
class Contender:
    """One way to make a step."""

    parameters: Tensors
    run: Callable[[], Any]
    idle: list[tuple[Any, Any]] = field(default_factory=list)
    queued: list[tuple[Any, Any]] = field(default_factory=list)
    host: list[float] = field(default_factory=list)

    def step(self, gradients: Tensors, behind_work: bool) -> None:
        torch.autograd.backward(self.parameters, gradients)
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        if behind_work:
            torch.cuda._sleep(QUEUED_CYCLES)
        began.record()
        before = time.perf_counter()
        self.run()
        took = time.perf_counter() - before
        ended.record()
        if behind_work:
            self.queued.append((began, ended))
        else:
            self.idle.append((began, ended))
            self.host.append(took)
        torch.cuda.synchronize()
        for parameter in self.parameters:
            parameter.grad = None

    def results(self, warm_up: int) -> tuple[float, float, float]:
        """Milliseconds on the idle device and behind queued work, microseconds of the host."""

        def median(events: list[tuple[Any, Any]]) -> float:
            return statistics.median(began.elapsed_time(ended) for began, ended in events[warm_up:])

        return median(self.idle), median(self.queued), statistics.median(self.host[warm_up:]) * 1e6


Make = Callable[[Tensors], Callable[[], Any]]


def torchs(kind: Any, clip: bool = False, **options: Any) -> Make:
    def build(parameters: Tensors) -> Callable[[], Any]:
        optimizer = kind(parameters, **options)

        def run() -> None:
            if clip:
                torch.nn.utils.clip_grad_norm_(parameters, CLIP, foreach=True)
            optimizer.step()

        return run

    return build


def torchs_masters(parameters: Tensors) -> Callable[[], Any]:
    """As users write it: masters of their own, gradients cast up, clipped, stepped, values cast
    down.
    """
    masters = [parameter.detach().float().requires_grad_() for parameter in parameters]
    optimizer = torch.optim.AdamW(masters, fused=True)

    def run() -> None:
        for master, parameter in zip(masters, parameters, strict=True):
            master.grad = parameter.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, CLIP, foreach=True)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)

    return run


ours_of: list[Any] = []


def ours(kind: Any, **options: Any) -> Make:
    def build(parameters: Tensors) -> Callable[[], Any]:
        optimizer = kind(parameters, **options)
        ours_of.append(optimizer)
        return optimizer.step

    return build


@dataclass
class Row:
    name: str
    shapes: list[tuple[int, ...]]
    dtype: torch.dtype
    bytes_per_element: int
    usual: str  # the contender that the ratio is of
    contenders: dict[str, Make]
    goal_ms: float | None = None  # on an H200


def rows() -> list[Row]:
    adamw, sgd = torch.optim.AdamW, torch.optim.SGD
    momentum: dict[str, Any] = {"lr": 0.1, "momentum": 0.9}
    wide, narrow = torch.float32, torch.bfloat16
    return [
        Row(
            "AdamW fp32, 353.8 M in 241",
            transformer(),
            wide,
            28,
            "torch fused",
            {
                "torch loop": torchs(adamw, foreach=False, fused=False),
                "torch foreach": torchs(adamw, foreach=True),
                "torch fused": torchs(adamw, fused=True),
                "ours": ours(optim.AdamW),
            },
        ),
        Row(
            "clip + AdamW fp32, 353.8 M in 241",
            transformer(),
            wide,
            32,
            "torch fused",
            {
                "torch foreach": torchs(adamw, clip=True, foreach=True),
                "torch fused": torchs(adamw, clip=True, fused=True),
                "ours": ours(optim.AdamW, max_grad_norm=CLIP),
            },
            3.0,
        ),
        Row(
            "clip + AdamW bf16, fp32 masters, 353.8 M in 241",
            transformer(),
            narrow,
            30,
            "torch masters",
            {"torch masters": torchs_masters, "ours": ours(optim.AdamW, max_grad_norm=CLIP)},
            2.85,
        ),
        Row(
            "AdamW fp32, 29.7 M in 161",
            residual(),
            wide,
            28,
            "torch fused",
            {
                "torch loop": torchs(adamw, foreach=False, fused=False),
                "torch foreach": torchs(adamw, foreach=True),
                "torch fused": torchs(adamw, fused=True),
                "ours": ours(optim.AdamW),
            },
            0.25,
        ),
        Row(
            "SGD momentum fp32, 29.7 M in 161",
            residual(),
            wide,
            20,
            "torch fused",
            {
                "torch foreach": torchs(sgd, foreach=True, **momentum),
                "torch fused": torchs(sgd, fused=True, **momentum),
                "ours": ours(optim.SGD, **momentum),
            },
        ),
    ]


def copy_rate() -> float:
    """Bytes a second, read and written, of a copy far larger than the caches."""
    source = torch.randn(1 << 29, device=GPU)
    target = torch.empty_like(source)
    times = []
    for _ in range(12):
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        target.copy_(source)
        ended.record()
        torch.cuda.synchronize()
        times.append(began.elapsed_time(ended) / 1e3)
    return 2 * source.numel() * source.element_size() / statistics.median(times[2:])


def race(row: Row, rounds: int, warm_up: int) -> dict[str, Contender]:
    gradients = [gradient.detach() for gradient in make(row.shapes, row.dtype)]
    contenders = {}
    for name, build in row.contenders.items():
        parameters = make(row.shapes, row.dtype)
        contenders[name] = Contender(parameters, build(parameters))
    names = list(contenders)
    for number in range(rounds + warm_up):
        for place in range(len(names)):
            for behind_work in (False, True):
                contenders[names[(place + number) % len(names)]].step(gradients, behind_work)
    return contenders


def measure(row: Row, rate: float, rounds: int, warm_up: int) -> None:
    contenders = race(row, rounds, warm_up)
    elements = sum(parameter.numel() for parameter in contenders["ours"].parameters)
    floor = row.bytes_per_element * elements / rate * 1e3
    results = {name: contender.results(warm_up) for name, contender in contenders.items()}
    goal = f", goal {row.goal_ms} ms (H200)" if row.goal_ms else ""
    print(f"\n{row.name}: {elements / 1e6:.1f} M elements, floor {floor:.3f} ms{goal}")
    for name, (idle, queued, host) in results.items():
        print(
            f"  {name:16} {idle:8.3f} ms, behind work {queued:8.3f} ms = {floor / queued:4.0%} of"
            f" the copy's rate, host {host:7.0f} us"
        )
    outcome = _report.outcome_of(ours_of[-1])
    if outcome.where != "the GPU":
        raise RuntimeError(f"ours was PyTorch's own step: {outcome.device}")
    emit(
        {
            "benchmark": row.name,
            "ratio": round(results[row.usual][0] / results["ours"][0], 3),
            "ratio_device": round(results[row.usual][1] / results["ours"][1], 3),
            "baseline": row.usual,
            "idle_ms": {name: round(one[0], 4) for name, one in results.items()},
            "device_ms": {name: round(one[1], 4) for name, one in results.items()},
            "host_us": {name: round(one[2], 1) for name, one in results.items()},
            "floor_ms": round(floor, 4),
            "share_of_copy_rate": round(floor / results["ours"][1], 3),
            "goal_ms": row.goal_ms,
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=5)
    options = parser.parse_args()
    rate = copy_rate()
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: a copy moves"
        f" {rate / 1e12:.2f} TB/s"
    )
    emit(
        {
            "benchmark": "copy",
            "device": torch.cuda.get_device_name(),
            "tb_per_s": round(rate / 1e12, 3),
        }
    )
    failed = 0
    for row in rows():
        try:
            measure(row, rate, options.rounds, options.warm_up)
        except Exception as error:  # the other rows are to be had all the same
            failed = 1
            print(f"FAILED: {row.name}\n{traceback.format_exc()}")
            emit({"benchmark": row.name, "error": f"{type(error).__name__}: {error}"[:300]})
        ours_of.clear()
        gc.collect()
        torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
