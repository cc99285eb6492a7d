# SPDX-License-Identifier: Apache-2.0
"""Measures the host's cost of a GPU step of many small tensors, without a GPU.

The driver is the tests' fake one, which runs no kernels here. The tensors that pass for a GPU's lie
on the CPU. PyTorch's fused and foreach steps of the same tensors run in turn within the run. They
run on the CPU with four elements each, so that they compute almost nothing.

Gradients are new tensors before every step, and an untimed backward makes them, as in a training.
After a backward no gradient has a Python object yet, memory is fragmented, and the processor's
caches hold other data.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Callable

import torch

TENSORS = 161  # ResNet-50 has as many
ELEMENTS = 4


class Contender:
    def __init__(self, make: Callable[[list[torch.Tensor]], Any]) -> None:
        self.parameters = [torch.randn(ELEMENTS).requires_grad_() for _ in range(TENSORS)]
        self.optimizer = make(self.parameters)
        self.times: list[float] = []

    def give_gradients(self, backward: bool) -> None:
        if backward:
            torch.autograd.backward(
                [parameter * 2.0 for parameter in self.parameters], [torch.ones(ELEMENTS)] * TENSORS
            )
        else:
            for parameter in self.parameters:
                parameter.grad = torch.ones(ELEMENTS)

    def step(self, backward: bool) -> None:
        self.give_gradients(backward)
        began = time.perf_counter()
        self.optimizer.step()
        self.times.append(time.perf_counter() - began)
        for parameter in self.parameters:
            parameter.grad = None

    def median_us(self, warm_up: int) -> float:
        return statistics.median(self.times[warm_up:]) * 1e6


def on_no_device(library: str, modules: Path) -> Any:
    """paceline.optim with a driver that launches nothing."""
    (modules / "optim-cuda13-sm_90.cubin").write_text("a module that only the fake driver takes")
    os.environ["PACELINE_KERNELS"] = str(modules)
    fake = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    fake.fake_cuda_set(b"dry", 1)
    from paceline.optim import _device

    _device.KIND, _device.stream_of, _device.is_capturing = "cpu", lambda device: 1, lambda: False
    return fake


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--driver", required=True, help="the tests' libcuda.so.1")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument(
        "--warm",
        action="store_true",
        help="each by itself, so that it finds the caches as it left them",
    )
    parser.add_argument(
        "--given",
        action="store_true",
        help="gradients are given by the program, as nothing but a benchmark does",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(1)
    # PyTorch asks the fake driver too, which knows less than it wants.
    warnings.filterwarnings("ignore", message="CUDA initialization")
    with tempfile.TemporaryDirectory() as modules:
        fake = on_no_device(options.driver, Path(modules))
        from paceline import optim
        from paceline.optim import _patch

        adamw = torch.optim.AdamW
        contenders = {
            "ours": Contender(optim.AdamW),
            "ours, clipped": Contender(
                lambda parameters: optim.AdamW(parameters, max_grad_norm=1.0)
            ),
            "torch, by ours": Contender(adamw),
            "torch fused": Contender(lambda parameters: adamw(parameters, fused=True)),
            "torch foreach": Contender(lambda parameters: adamw(parameters, foreach=True)),
        }
        # As in a program that gives its optimizer to paceline.accelerate.
        why = _patch.accelerate(contenders["torch, by ours"].optimizer)
        assert not why, why
        names = list(contenders)
        for turn in [[name] for name in names] if options.warm else [names]:
            for _ in range(options.rounds + options.warm_up):
                random.shuffle(turn)  # each finds the caches as another one left them
                for name in turn:
                    contenders[name].step(not options.given)
                fake.fake_cuda_forget()
    medians = {name: one.median_us(options.warm_up) for name, one in contenders.items()}
    for name, median in medians.items():
        print(f"  {name:16} {median:8.0f} us of the host for {TENSORS} tensors")
    print(
        json.dumps(
            {
                "bench": "optim host",
                "ratio": round(medians["torch fused"] / medians["ours"], 3),
                "host_us": {name: round(median, 1) for name, median in medians.items()},
                "tensors": TENSORS,
                "gradients": "given" if options.given else "of a backward",
                "caches": "warm" if options.warm else "as other steps leave them",
                "pytorch": torch.__version__,
                "load": round(os.getloadavg()[0], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
