# SPDX-License-Identifier: Apache-2.0
"""A detector like FCOS3D (Wang et al., arXiv 2104.10956): its head, points and targets on a picture
of 900 x 1600 (nuScenes), behind a ResNet-18 with a feature pyramid, with SGD.
"""

from __future__ import annotations

from typing import NamedTuple

import originals
import torch
from paceline import ops
from task import Parts, Tensor, grid_points, rows_of, tower, uniform_boxes
from torch import nn
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import sigmoid_focal_loss
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

HEIGHT, WIDTH, CLASSES, TRUTHS, NUMBERS, ATTRIBUTES = 900, 1600, 10, 20, 9, 9


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = resnet_fpn_backbone(
            backbone_name="resnet18",
            weights=None,
            trainable_layers=5,
            returned_layers=[2, 3, 4],
            extra_blocks=LastLevelP6P7(256, 256),
        )
        self.classes, self.boxes = tower(256), tower(256)
        self.scores = nn.Conv2d(256, CLASSES, 1)
        self.numbers = nn.Conv2d(256, NUMBERS + 1 + ATTRIBUTES, 1)  # box, centerness, attribute

    def forward(self, pictures: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        levels = list(self.backbone(pictures).values())
        scores = [rows_of(self.scores(self.classes(level))) for level in levels]
        numbers = [rows_of(self.numbers(self.boxes(level))) for level in levels]
        return scores, numbers


class Batch(NamedTuple):
    pictures: Tensor
    scenes: list[originals.Objects]


class Training:
    def __init__(self, device: torch.device, ours: bool) -> None:
        self.device, self.ours, self.images = device, ours, 2 if device.type == "cuda" else 1
        self.model = Detector().to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4
        )
        self.head = originals.Head()
        self.points = [grid_points(HEIGHT, WIDTH, int(s), device) for s in self.head.strides]

    def scene(self) -> originals.Objects:
        boxes = uniform_boxes(TRUTHS, WIDTH, HEIGHT, self.device)
        return originals.Objects(
            boxes,
            torch.randint(0, CLASSES, (TRUTHS,), device=self.device),
            torch.randn(TRUTHS, NUMBERS, device=self.device),
            (boxes[:, :2] + boxes[:, 2:]) / 2,
            torch.rand(TRUTHS, device=self.device) * 60,
            torch.randint(0, ATTRIBUTES, (TRUTHS,), device=self.device),
        )

    def batch(self) -> Batch:
        pictures = torch.randn(self.images, 3, HEIGHT, WIDTH, device=self.device)
        return Batch(pictures, [self.scene() for _ in range(self.images)])

    def loss(self, batch: Batch, parts: Parts) -> Tensor:
        all_scores, all_numbers = self.model(batch.pictures)
        with parts.part("targets"), torch.no_grad():
            labels, boxes, centers, attributes = (
                torch.cat(levels) for levels in self.targets(batch)
            )
        # Rows lie as the targets': level after level, then image after image.
        scores = torch.cat([level.flatten(0, 1) for level in all_scores])
        numbers = torch.cat([level.flatten(0, 1) for level in all_numbers])
        matched = labels < CLASSES
        wanted = nn.functional.one_hot(labels, CLASSES + 1)[:, :CLASSES].float()
        box, center, attribute = numbers[matched].split((NUMBERS, 1, ATTRIBUTES), 1)
        which = sigmoid_focal_loss(scores, wanted, reduction="sum")
        where = nn.functional.smooth_l1_loss(box, boxes[matched], reduction="sum")
        middle = nn.functional.binary_cross_entropy_with_logits(
            center[:, 0], centers[matched], reduction="sum"
        )
        kind = nn.functional.cross_entropy(attribute, attributes[matched], reduction="sum")
        return (which + where + middle + kind) / matched.sum().clamp(min=1)

    def targets(self, batch: Batch) -> tuple[list[Tensor], ...]:
        """Labels, boxes, centernesses and attributes, for each level."""
        if not self.ours:
            return originals.fcos3d(self.points, batch.scenes, self.head)
        all_of = originals.Objects(*(torch.cat(field) for field in zip(*batch.scenes)))
        found = ops.fcos3d_targets(
            self.points,
            [TRUTHS * i for i in range(self.images + 1)],
            all_of.centers,
            all_of.depths,
            all_of.bboxes,
            all_of.boxes_3d,
            all_of.labels,
            all_of.attributes,
        )
        return tuple(found)
