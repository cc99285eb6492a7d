# SPDX-License-Identifier: Apache-2.0
"""Measures what a call of an operator on a GPU costs its host, without a GPU.

The driver is the tests' fake one, which runs no kernels here. The tensors that pass for a GPU's lie
on the CPU, and are small, so that PyTorch's own operations compute almost nothing. The numbers of
levels, images and ground truths are those of bench/ops/operators.py. What PyTorch asks the driver
for, such as the current stream, and what its launches cost beyond a call on the CPU, is not in it.
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

Calls = dict[str, Callable[[], Any]]
STRIDES = (8, 16, 32, 64, 128)
TRUTHS, IMAGES = 20, 2
MULTIPROCESSORS = 132
TURN = 20  # calls in a row


def on_no_device(library: str, modules: Path) -> Any:
    """paceline.ops with a driver that launches nothing."""
    for name in ("attention", "fcos3d", "simota"):
        path = modules / f"{name}-cuda13-sm_90.cubin"
        path.write_text("a module that only the fake driver takes")
    os.environ["PACELINE_KERNELS"] = str(modules)
    fake = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    fake.fake_cuda_set(b"dry", 1)
    from paceline.ops import _device, _window_kernels

    _device.KIND, _device.stream_of = "cpu", lambda device: 1
    kernels: Any = _window_kernels
    kernels.multiprocessors = lambda index: MULTIPROCESSORS
    return fake


def fcos3d_targets() -> Calls:
    """Five levels of two images."""
    from paceline import ops

    points = [torch.rand(1024 // stride, 2) for stride in STRIDES]
    rows = TRUTHS * IMAGES
    truths = [
        torch.rand(rows, 2),
        torch.rand(rows),
        torch.rand(rows, 4),
        torch.rand(rows, 9),
        torch.randint(0, 10, (rows,)),
        torch.randint(0, 9, (rows,)),
    ]
    offsets = [TRUTHS * image for image in range(IMAGES + 1)]

    def rooms() -> Any:
        """What no caller can do without: the memory of the results, as PyTorch gives it."""
        sizes = [IMAGES * len(each) for each in points]
        shapes = [shape for size in sizes for shape in ((size,), (size, 9), (size,), (size,))]
        return [torch.empty(shape) for shape in shapes]

    return {
        "fcos3d_targets": lambda: ops.fcos3d_targets(points, offsets, *truths),
        "memory of its results": rooms,
    }


def simota_assign() -> Calls:
    """Eight images."""
    from paceline import ops

    images, priors, classes = 8, 84, 80
    boxes, scores = torch.rand(images, priors, 4), torch.rand(images, priors, classes)
    places, truths = torch.rand(priors, 4), torch.rand(images * TRUTHS, 4)
    labels = torch.randint(0, classes, (images * TRUTHS,))
    offsets = [TRUTHS * image for image in range(images + 1)]
    return {
        "simota_assign": lambda: ops.simota_assign(boxes, scores, places, offsets, truths, labels)
    }


def window_attention() -> Calls:
    """Windows of 7 x 7 tokens with a mask, from one tensor of q, k and v."""
    from paceline import ops

    windows, tokens, heads = 4, 49, 3
    places = torch.arange(tokens)
    index = places[:, None] - places + tokens - 1
    mask = torch.zeros(windows, tokens, tokens)
    qkv = torch.randn(windows, tokens, 3, heads, 32).half()
    table = torch.randn(2 * tokens - 1, heads)
    learned = qkv.clone().requires_grad_(), table.clone().requires_grad_()
    out_grad = torch.randn(windows, tokens, heads * 32).half()

    def backward() -> None:
        out = ops.window_attention(*learned, index, mask)
        torch.autograd.grad(out, learned, out_grad)

    return {
        "window_attention": lambda: ops.window_attention(qkv, table, index, mask),
        "window_attention, backward": backward,
    }


def turn(call: Callable[[], Any]) -> list[float]:
    times = []
    for _ in range(TURN):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--driver", required=True, help="the tests' libcuda.so.1")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", help="the operator to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    random.seed(1)
    # PyTorch asks the fake driver too, which knows less than it wants.
    warnings.filterwarnings("ignore", message="CUDA initialization")
    with tempfile.TemporaryDirectory() as modules:
        fake = on_no_device(options.driver, Path(modules))
        made = {**fcos3d_targets(), **simota_assign(), **window_attention()}
        names = [name for name in made if not options.only or name.startswith(options.only)]
        times: dict[str, list[float]] = {name: [] for name in names}
        launches = {}
        for name in names:
            fake.fake_cuda_forget()
            turn(made[name])  # warms up
            launches[name] = told(fake) // TURN
        for _ in range(options.rounds):
            random.shuffle(names)  # each finds the caches as another one left them
            for name in names:
                times[name] += turn(made[name])
            fake.fake_cuda_forget()
    medians = {name: statistics.median(own) * 1e6 for name, own in times.items()}
    for name, median in medians.items():
        print(f"  {name:28} {median:8.1f} us of the host, {launches[name]} launches")
    line: dict[str, Any] = {
        "bench": "ops host",
        "host_us": {name: round(median, 1) for name, median in medians.items()},
        "launches": launches,
        "pytorch": torch.__version__,
        "load": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(line))


def told(fake: Any) -> int:
    """How many kernels were launched."""
    fake.fake_cuda_log.restype = ctypes.c_char_p
    lines = fake.fake_cuda_log().decode().splitlines()
    return sum(line.startswith("cuLaunchKernel ") for line in lines)


if __name__ == "__main__":
    main()
