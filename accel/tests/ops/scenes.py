# SPDX-License-Identifier: Apache-2.0
"""Small random scenes for the operators, with the cases that are rare in large ones: no ground
truth, equal distances and costs, points in no order, odd sizes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
import originals  # noqa: E402 - where the package lies is known only now

Tensor = torch.Tensor
torch.set_num_threads(1)  # tensors are small here, and waiting threads of torch's spin
HEAD = originals.Head(
    strides=(8, 16, 32), ranges=((-1, 24), (24, 64), (64, originals.FAR)), radius=1.5
)


class Own(Tensor):
    """A subclass, as FakeTensor and DTensor are."""


@contextlib.contextmanager
def other_defaults() -> Iterator[None]:
    """Programs may choose another device and dtype for tensors that name none."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        # PyTorch 1.13 has no default device.
        device = torch.device("meta")
        with device if hasattr(device, "__enter__") else contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


def upto(limit: int) -> int:
    """A random number from 0 to the limit."""
    return int(torch.randint(limit + 1, ()))


def offsets_of(counts: list[int]) -> list[int]:
    return [0, *torch.tensor(counts, dtype=torch.int64).cumsum(0).tolist()]


def grid(width: int, height: int, stride: int) -> Tensor:
    """The points of a feature map, row by row."""
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((xs.flatten(), ys.flatten()), 1) * float(stride) + stride // 2


class Fcos3d(NamedTuple):
    points: list[Tensor]
    images: list[originals.Objects]

    def batch(self) -> originals.Objects:
        return originals.Objects(*(torch.cat(field) for field in zip(*self.images)))

    def offsets(self) -> list[int]:
        return offsets_of([len(each.labels) for each in self.images])

    def double(self) -> Fcos3d:
        def wide(tensor: Tensor) -> Tensor:
            return tensor.double() if tensor.is_floating_point() else tensor

        return Fcos3d(
            [each.double() for each in self.points],
            [originals.Objects(*map(wide, each)) for each in self.images],
        )


def fcos3d(images: int, whole: bool) -> Fcos3d:
    """With `whole` numbers many points are equally far from two ground truths."""
    width, height = 1 + upto(9), 1 + upto(6)
    points = [
        grid(max(1, width >> i), max(1, height >> i), int(stride))
        for i, stride in enumerate(HEAD.strides)
    ]
    if upto(7) == 0:  # in no order, as no feature map has them
        points = [each[torch.randperm(len(each))] for each in points]

    def image() -> originals.Objects:
        count = upto(5)
        centers = torch.rand(count, 2) * torch.tensor([width * 8.0, height * 8.0])
        extent = torch.rand(count, 4) * 60
        if whole:
            centers, extent = centers.round(), extent.round()
        if count > 1 and upto(1):
            centers[1] = centers[0]
        return originals.Objects(
            torch.cat((centers - extent[:, :2], centers + extent[:, 2:]), 1),
            torch.randint(0, 10, (count,)),
            torch.randn(count, 9),
            centers,
            torch.rand(count) * 60,
            torch.randint(0, 9, (count,)),
        )

    return Fcos3d(points, [image() for _ in range(images)])


class Simota(NamedTuple):
    boxes: Tensor
    scores: Tensor
    priors: Tensor
    truths: list[Tensor]
    labels: list[Tensor]

    def offsets(self) -> list[int]:
        return offsets_of([len(each) for each in self.labels])


def simota(images: int) -> Simota:
    size, classes = 1 + upto(7), 1 + upto(3)
    places = []
    for stride in (8, 16, 32):
        side = max(1, size * 8 // stride)
        centers = grid(side, side, stride)
        places.append(torch.cat((centers, torch.full_like(centers, float(stride))), 1))
    priors = torch.cat(places)
    count = len(priors)
    reach = priors[:, 2:] * torch.rand(images, count, 2) * 3
    boxes = torch.cat((priors[:, :2] - reach, priors[:, :2] + reach), 2)
    scores = torch.rand(images, count, classes)
    truths, labels = [], []
    for i in range(images):
        known = upto(4)
        centers = torch.rand(known, 2) * size * 8
        halves = torch.rand(known, 2) * 30
        truth = torch.cat((centers - halves, centers + halves), 1).round()
        label = torch.randint(0, classes, (known,))
        if known > 1 and upto(2) == 0:  # two that cost the same
            truth[1], label[1] = truth[0], label[0]
        if known > 0 and upto(1):  # predictions without a fault, and two that cost the same
            exact = torch.randperm(count)[: 1 + upto(5)]
            boxes[i, exact] = truth[0]
            scores[i, exact[-1]] = scores[i, exact[0]]
        truths.append(truth)
        labels.append(label)
    return Simota(boxes, scores, priors, truths, labels)
