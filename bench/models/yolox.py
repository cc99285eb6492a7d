# SPDX-License-Identifier: Apache-2.0
"""A detector like YOLOX-S (Ge et al., arXiv 2107.08430): its head, priors and assignment on
pictures of 640 x 640, behind a ResNet-18 with a feature pyramid, with SGD.
"""

from __future__ import annotations

from typing import NamedTuple

import originals
import torch
from paceline import ops
from task import Parts, Tensor, grid_points, rows_of, tower, uniform_boxes
from torch import nn
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

SIDE, CLASSES, TRUTHS, STRIDES = 640, 80, 20, (8, 16, 32)


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = resnet_fpn_backbone(
            backbone_name="resnet18", weights=None, trainable_layers=5, returned_layers=[2, 3, 4]
        )
        self.classes, self.boxes = tower(256), tower(256)
        self.scores = nn.Conv2d(256, CLASSES, 1)
        self.sides = nn.Conv2d(256, 5, 1)  # of the box, and whether there is one

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        levels = list(self.backbone(pictures).values())[: len(STRIDES)]
        scores = [rows_of(self.scores(self.classes(level))) for level in levels]
        sides = [rows_of(self.sides(self.boxes(level))) for level in levels]
        return torch.cat(scores, 1), torch.cat(sides, 1)


class Batch(NamedTuple):
    pictures: Tensor
    boxes: list[Tensor]
    labels: list[Tensor]


class Training:
    def __init__(self, device: torch.device, ours: bool) -> None:
        self.device, self.ours, self.images = device, ours, 16 if device.type == "cuda" else 2
        self.model = Detector().to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        rows = []
        for stride in STRIDES:
            centers = grid_points(SIDE, SIDE, stride, device) - stride / 2
            rows.append(torch.cat((centers, torch.full_like(centers, stride)), 1))
        self.priors = torch.cat(rows)

    def batch(self) -> Batch:
        each = range(self.images)
        return Batch(
            torch.randn(self.images, 3, SIDE, SIDE, device=self.device),
            [uniform_boxes(TRUTHS, SIDE, SIDE, self.device) for _ in each],
            [torch.randint(0, CLASSES, (TRUTHS,), device=self.device) for _ in each],
        )

    def loss(self, batch: Batch, parts: Parts) -> Tensor:
        scores, sides = self.model(batch.pictures)
        centers = sides[..., :2] * self.priors[:, 2:] + self.priors[:, :2]
        halves = sides[..., 2:4].clamp(max=6).exp() * self.priors[:, 2:] / 2
        boxes = torch.cat((centers - halves, centers + halves), -1)
        with parts.part("targets"), torch.no_grad():
            seen = (scores.sigmoid() * sides[..., 4:].sigmoid()).sqrt()  # as mmdetection
            winners, overlaps = self.assigned(boxes, seen, batch)
        matched = winners.ge(0)
        truths, labels = torch.cat(batch.boxes), torch.cat(batch.labels)
        first = torch.arange(self.images, device=self.device)[:, None] * TRUTHS
        chosen = (winners + first)[matched]
        wanted = nn.functional.one_hot(labels[chosen], CLASSES) * overlaps[matched][:, None]
        binary = nn.functional.binary_cross_entropy_with_logits
        whether = binary(sides[..., 4], matched.float(), reduction="sum")
        which = binary(scores[matched], wanted, reduction="sum")
        where = (boxes[matched] - truths[chosen]).abs().sum() / SIDE
        return (whether + which + where) / matched.sum().clamp(min=1)

    def assigned(self, boxes: Tensor, seen: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The number of each prior's ground truth within its picture, or -1, and their overlap."""
        if self.ours:
            offsets = [TRUTHS * i for i in range(self.images + 1)]
            found = ops.simota_assign(
                boxes, seen, self.priors, offsets, torch.cat(batch.boxes), torch.cat(batch.labels)
            )
            return found.gt_index, found.overlaps
        rows = [
            originals.simota_image(boxes[i], seen[i], self.priors, *truths, stable=False)
            for i, truths in enumerate(zip(batch.boxes, batch.labels))
        ]
        winners, overlaps = zip(*rows)
        return torch.stack(winners), torch.stack(overlaps)
