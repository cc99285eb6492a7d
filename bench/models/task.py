# SPDX-License-Identifier: Apache-2.0
"""What a model's training is made of, and a clock for its parts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn

Tensor = torch.Tensor


class Parts:
    """Seconds of a step by part. A part that runs within another one counts alone."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}
        self._open: list[float] = []  # seconds of the parts within each open part

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = self.now()
        self._open.append(0.0)
        yield
        took = self.now() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + took - self._open.pop()
        if self._open:
            self._open[-1] += took


class Task(Protocol):
    """One model and its training. A module of this folder has one as Training(device, ours)."""

    model: nn.Module  # what is compiled
    optimizer: torch.optim.Optimizer

    def batch(self) -> Any:
        """The next batch, on the device."""

    def loss(self, batch: Any, parts: Parts) -> Tensor:
        """Assignment of targets and voxelisation are the part "targets"."""


def uniform_boxes(count: int, width: int, height: int, device: torch.device) -> Tensor:
    """Boxes x1, y1, x2, y2 of 10 to 210 pixels a side, anywhere in the picture."""
    centers = torch.rand(count, 2, device=device) * torch.tensor([width, height], device=device)
    halves = (torch.rand(count, 2, device=device) * 200 + 10) / 2
    return torch.cat((centers - halves, centers + halves), 1)


def grid_points(height: int, width: int, stride: int, device: torch.device) -> Tensor:
    """The middle of each cell of a feature map, row by row, in pixels of the picture."""
    ys = torch.arange(-(-height // stride), device=device) * stride + stride / 2
    xs = torch.arange(-(-width // stride), device=device) * stride + stride / 2
    along_y, along_x = torch.meshgrid(ys, xs, indexing="ij")
    return torch.stack((along_x.flatten(), along_y.flatten()), 1)


def tower(channels: int, depth: int = 2) -> nn.Sequential:
    """Convolutions of a head."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.SiLU(inplace=True),
        ]
    return nn.Sequential(*layers)


def rows_of(level: Tensor) -> Tensor:
    """(images, channels, height, width) as (images, height * width, channels)."""
    return level.flatten(2).transpose(1, 2)
