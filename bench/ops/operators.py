# SPDX-License-Identifier: Apache-2.0
"""Window attention, FCOS3D targets, SimOTA and voxelisation: the original algorithm, its best
simple fix, one of both under torch.compile, mmcv's loop in C++ (voxelisation only), and
paceline.ops, in turn within one run. Shapes are those of published models.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import random
import time
from typing import Any, Callable

import originals
import torch
from contest import Result, contest
from paceline import ops
from paceline.ops import _native

Tensor = torch.Tensor
Contenders = dict[str, Callable[[], Any]]
WINDOWS = "window_attention"


def grid_points(height: int, width: int, stride: int) -> Tensor:
    """The points of a feature map, row by row, in pixels of the image."""
    ys, xs = torch.meshgrid(
        torch.arange(-(-height // stride)) * stride + stride // 2,
        torch.arange(-(-width // stride)) * stride + stride // 2,
        indexing="ij",
    )
    return torch.stack((xs.flatten(), ys.flatten()), 1).float()


def random_boxes(count: int, width: int, height: int) -> Tensor:
    centers = torch.rand(count, 2) * torch.tensor([width, height])
    halves = (torch.rand(count, 2) * 200 + 10) / 2
    return torch.cat((centers - halves, centers + halves), 1)


def window_attention(backward: bool = False) -> Contenders:
    """Swin-T's first layer on a picture: 64 windows of 7 x 7 tokens, 3 heads, masked."""
    side, heads, windows = 7, 3, 64
    tokens, entries = side**2, (2 * side - 1) ** 2
    qkv = torch.randn(windows, tokens, 3, heads, 32, requires_grad=backward)
    table = torch.randn(entries, heads, requires_grad=backward)
    index = torch.randint(0, entries, (tokens, tokens))
    mask = torch.where(torch.rand(windows, tokens, tokens) < 0.1, -100.0, 0.0)
    out_grad = torch.randn(windows, tokens, heads * 32)

    def call(attention: Callable[..., Tensor]) -> Callable[[], Any]:
        if not backward:
            return lambda: attention(qkv, table, index, mask)
        return lambda: torch.autograd.grad(
            attention(qkv, table, index, mask), (qkv, table), out_grad
        )

    return {
        "original": call(originals.window_attention),
        "fix": call(originals.fused_window_attention),
        "compiled": call(torch.compile(originals.window_attention)),
        "ours": call(ops.window_attention),
    }


def fcos3d(images: int = 2, truths: int = 20) -> Contenders:
    """FCOS3D on nuScenes: two images of 900 x 1600, five levels, 30,229 points."""
    head = originals.Head()
    points = [grid_points(900, 1600, int(stride)) for stride in head.strides]

    def scene() -> originals.Objects:
        boxes = random_boxes(truths, 1600, 900)
        return originals.Objects(
            boxes,
            torch.randint(0, 10, (truths,)),
            torch.randn(truths, 9),
            (boxes[:, :2] + boxes[:, 2:]) / 2,
            torch.rand(truths) * 60,
            torch.randint(0, 9, (truths,)),
        )

    scenes = [scene() for _ in range(images)]
    every = originals.Objects(*(torch.cat(field) for field in zip(*scenes)))
    offsets = [truths * i for i in range(images + 1)]
    fixed = originals.fixed_fcos3d_image
    compiled = torch.compile(fixed)
    return {
        "original": lambda: originals.fcos3d(points, scenes, head),
        "fix": lambda: originals.fcos3d(points, scenes, head, fixed),
        "compiled": lambda: originals.fcos3d(points, scenes, head, compiled),
        "ours": lambda: ops.fcos3d_targets(
            points,
            offsets,
            every.centers,
            every.depths,
            every.bboxes,
            every.boxes_3d,
            every.labels,
            every.attributes,
        ),
    }


def simota(images: int = 8, truths: int = 20, classes: int = 80) -> Contenders:
    """YOLOX on COCO: eight images of 640 x 640, 8,400 priors, 80 classes."""
    places = []
    for stride in (8, 16, 32):
        centers = grid_points(640, 640, stride)
        places.append(torch.cat((centers, torch.full_like(centers, stride)), 1))
    priors = torch.cat(places)
    low = priors[:, :2] - priors[:, 2:] * (1 + 3 * torch.rand(images, len(priors), 2))
    high = priors[:, :2] + priors[:, 2:] * (1 + 3 * torch.rand(images, len(priors), 2))
    boxes = torch.cat((low, high), 2)
    scores = torch.rand(images, len(priors), classes) ** 3
    known = [random_boxes(truths, 640, 640) for _ in range(images)]
    labels = [torch.randint(0, classes, (truths,)) for _ in range(images)]
    offsets = [truths * i for i in range(images + 1)]
    compiled = torch.compile(originals.simota_image, dynamic=True)

    def each_image(assign: Any, **settings: Any) -> list[Any]:
        return [
            assign(boxes[i], scores[i], priors, known[i], labels[i], stable=False, **settings)
            for i in range(images)
        ]

    gathered = originals.gathered_class_costs
    return {
        "original": lambda: each_image(originals.simota_image),
        "fix": lambda: each_image(originals.simota_image, costs_of=gathered),
        "compiled": lambda: each_image(compiled, costs_of=gathered),
        "ours": lambda: ops.simota_assign(
            boxes, scores, priors, offsets, torch.cat(known), torch.cat(labels)
        ),
    }


def dense_grid(library: Any, points: Tensor, setting: dict[str, Any]) -> Tensor:
    """mmcv's loop in C++ (dense_grid.cpp)."""
    most, size, low = setting["max_voxels"], setting["size"], setting["low"]
    filled = torch.zeros(most, setting["max_points"], points.shape[1])
    coords = torch.zeros((most, 3), dtype=torch.int32)
    counts = torch.zeros(most, dtype=torch.int32)
    whole = ctypes.c_int64
    found = library.dense_grid(
        ctypes.c_void_p(points.data_ptr()),
        whole(points.shape[0]),
        whole(points.shape[1]),
        (ctypes.c_float * 3)(*low.tolist()),
        (ctypes.c_float * 3)(*size.tolist()),
        (whole * 3)(*(int(each) for each in setting["grid"])),
        whole(setting["max_points"]),
        whole(most),
        *(ctypes.c_void_p(each.data_ptr()) for each in (filled, coords, counts)),
    )
    return filled[:found]  # a view, as mmcv returns


def voxelisation(
    library: Any,
    count: int,
    size: tuple[float, float, float],
    span: tuple[float, ...],
    max_points: int,
    max_voxels: int,
) -> Contenders:
    """A cloud as a turning LiDAR sees it: by angle, and less dense in the distance."""
    angle, distance = torch.sort(torch.rand(count) * 6.2832)[0], 3 + torch.rand(count) ** 2 * 50
    height, reflectance = -1.7 + torch.rand(count) * 2, torch.rand(count)
    points = torch.stack((distance * angle.cos(), distance * angle.sin(), height, reflectance), 1)
    low, sides = torch.tensor(span[:3]), torch.tensor(size)
    setting = {
        "size": sides,
        "low": low,
        "grid": torch.round((torch.tensor(span[3:]) - low) / sides),
        "max_points": max_points,
        "max_voxels": max_voxels,
    }
    compiled = torch.compile(originals.voxels_by_key, dynamic=True)
    return {
        "original": lambda: originals.voxels_unique(points, **setting),
        "fix": lambda: originals.voxels_by_key(points, **setting),
        "compiled": lambda: compiled(points, **setting),
        "dense grid": lambda: dense_grid(library, points, setting),
        "ours": lambda: ops.voxelize(
            points, size, span, max_points=max_points, max_voxels=max_voxels
        ),
    }


def cases(library: Any) -> dict[str, Callable[[], Contenders]]:
    kitti = (0.0, -39.68, -3.0, 69.12, 39.68, 1.0)
    second = (0.0, -40.0, -3.0, 70.4, 40.0, 1.0)
    nuscenes = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0)
    return {
        "fcos3d": fcos3d,
        "simota": simota,
        "voxelisation": lambda: voxelisation(
            library, 120_000, (0.16, 0.16, 4.0), kitti, 32, 16_000
        ),
        "voxelisation, SECOND": lambda: voxelisation(
            library, 120_000, (0.05, 0.05, 0.1), second, 5, 40_000
        ),
        "voxelisation, CenterPoint": lambda: voxelisation(
            library, 250_000, (0.1, 0.1, 0.2), nuscenes, 10, 120_000
        ),
        WINDOWS: window_attention,
        f"{WINDOWS}, backward": lambda: window_attention(backward=True),
    }


def gains_of(milliseconds: dict[str, float]) -> dict[str, float]:
    """How many times as long as ours each other contender takes."""
    ours = milliseconds["ours"]
    return {one: round(each / ours, 2) for one, each in milliseconds.items() if one != "ours"}


def report(name: str, results: dict[str, Result]) -> None:
    """Prints a row for each contender."""
    ours = results["ours"]
    for contender, result in results.items():
        print(
            f"  {name:26} {contender:10} {result.ms:10.3f} ms ({result.first_ms:.3f} the first)"
            f" {result.mib:8.1f} MiB"
            f" {result.first_ms / ours.first_ms:8.1f} x the first, {result.ms / ours.ms:.1f} x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--dense-grid", required=True, help="compiled dense_grid.cpp")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="the operator to measure")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    random.seed(1)
    # What the compiler cannot capture of the baselines is no news of a benchmark.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    if why := _native.why_unavailable():
        raise SystemExit(f"bench: the library cannot be used: {why}")
    library = ctypes.CDLL(options.dense_grid)
    library.dense_grid.restype = ctypes.c_int64
    line: dict[str, Any] = {"bench": "ops"}
    gains, first_gains, milliseconds, first, memory = {}, {}, {}, {}, {}
    for name, make in cases(library).items():
        if options.only and not name.startswith(options.only):
            continue
        # Of one thread, processor time is not disturbed by other programs.
        clock = time.process_time if options.threads == 1 else time.perf_counter
        results = contest(make(), options.rounds, clock)
        report(name, results)
        gains[name] = gains_of({one: each.ms for one, each in results.items()})
        first_gains[name] = gains_of({one: each.first_ms for one, each in results.items()})
        milliseconds[name] = {one: round(each.ms, 3) for one, each in results.items()}
        first[name] = {one: round(each.first_ms, 3) for one, each in results.items()}
        memory[name] = {one: round(each.mib, 1) for one, each in results.items()}
    # On a processor ours is PyTorch's operations for windows, so it is no gain to keep to.
    own = {name: each for name, each in gains.items() if not name.startswith(WINDOWS)}
    line["ratio"] = min(each["original"] for each in (own or gains).values())
    line.update({name: each["original"] for name, each in gains.items() if "," not in name})
    line.update(gains=gains, first_gains=first_gains, ms=milliseconds, first_ms=first, mib=memory)
    line["threads"] = options.threads
    line.update(pytorch=torch.__version__, load=round(os.getloadavg()[0], 2))
    print(json.dumps(line))


if __name__ == "__main__":
    main()
