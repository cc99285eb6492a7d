# SPDX-License-Identifier: Apache-2.0
"""A LiDAR detector like CenterPoint with pillars (Yin et al., arXiv 2006.11275), with AdamW.

Settings are those of mmdetection3d for nuScenes: 250,000 points go into pillars of 0.2 m. Features
of pillars, convolutions from above, and a map of centres follow.
"""

from __future__ import annotations

import originals
import torch
from paceline import ops
from task import Parts, Tensor
from torch import nn

POINTS, SIDE, CLASSES = 250_000, 512, 10
SIZE = (0.2, 0.2, 8.0)
SPAN = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0)
MOST_POINTS, MOST_PILLARS = 20, 30_000
COLUMNS = 5  # x, y, z, reflectance, time


def layers(before: int, after: int, depth: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for number in range(depth):
        stride = 2 if number == 0 else 1
        parts += [
            nn.Conv2d(before if number == 0 else after, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*parts)


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pillars = nn.Sequential(
            nn.Linear(COLUMNS + 3, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(inplace=True)
        )
        self.down = nn.ModuleList((layers(64, 64, 4), layers(64, 128, 6), layers(128, 256, 6)))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(width, 128, 2**level, 2**level)
            for level, width in enumerate((64, 128, 256))
        )
        self.head = nn.Conv2d(384, CLASSES + 10, 3, padding=1)

    def forward(self, points: Tensor, counts: Tensor, coords: Tensor) -> Tensor:
        known = torch.arange(points.shape[1], device=points.device) < counts[:, None]
        middle = points[..., :3].sum(1, keepdim=True) / counts[:, None, None]
        features = torch.cat((points, points[..., :3] - middle), 2) * known[..., None]
        found = self.pillars(features.flatten(0, 1)).view(*points.shape[:2], -1)
        best = found.masked_fill(~known[..., None], 0).amax(1)
        canvas = best.new_zeros(SIDE * SIDE, best.shape[1])
        rows = coords[:, 1].long() * SIDE + coords[:, 2].long()  # of z, y, x
        level = canvas.index_put((rows,), best).t().reshape(1, -1, SIDE, SIDE)
        levels = []
        for down, up in zip(self.down, self.up):
            level = down(level)
            levels.append(up(level))
        result: Tensor = self.head(torch.cat(levels, 1))
        return result


class Training:
    def __init__(self, device: torch.device, ours: bool) -> None:
        self.device, self.ours = device, ours
        self.model = Detector().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.low, self.size = (torch.tensor(each, device=device) for each in (SPAN[:3], SIZE))
        self.grid = torch.tensor([SIDE, SIDE, 1], device=device)

    def batch(self) -> tuple[Tensor, Tensor]:
        """A cloud as a turning LiDAR sees it, and the map of its centres."""
        angle = torch.sort(torch.rand(POINTS, device=self.device) * 6.2832)[0]
        distance = 3 + torch.rand(POINTS, device=self.device) ** 2 * 50
        others = torch.rand(POINTS, 3, device=self.device) * torch.tensor(
            [2.0, 1.0, 0.5], device=self.device
        ) - torch.tensor([1.7, 0.0, 0.0], device=self.device)
        places = torch.stack((distance * angle.cos(), distance * angle.sin()), 1)
        side = SIDE // 2
        return torch.cat((places, others), 1), torch.rand(
            1, CLASSES, side, side, device=self.device
        )

    def loss(self, batch: tuple[Tensor, Tensor], parts: Parts) -> Tensor:
        cloud, centers = batch
        with parts.part("targets"):
            points, counts, coords = self.pillars_of(cloud)
        found = self.model(points, counts, coords)
        binary = nn.functional.binary_cross_entropy_with_logits
        return binary(found[:, :CLASSES], centers) + found[:, CLASSES:].abs().mean()

    def pillars_of(self, cloud: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Points (V, MOST_POINTS, COLUMNS), their counts (V), and coords (V, 3): z, y, x."""
        if self.ours:
            found = ops.voxelize(cloud, SIZE, SPAN, max_points=MOST_POINTS, max_voxels=MOST_PILLARS)
            assert found.points is not None
            return found.points, found.counts, found.coords[:, 1:]
        grouped = originals.voxels_unique(
            cloud, self.size, self.low, self.grid, MOST_POINTS, MOST_PILLARS
        )
        assert grouped.points is not None
        return grouped.points, grouped.counts, grouped.coords
