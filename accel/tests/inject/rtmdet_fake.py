# SPDX-License-Identifier: Apache-2.0
"""A class with the name, arguments and results of RTMDet's assigner in mmdetection.

Each pair of a ground truth and a prior in any box gets a cost of each class, and each ground truth
is matched by itself. Of equal costs the lowest index comes first.
"""

from __future__ import annotations

from typing import Any

import torch
from simota_fake import AssignResult, BboxOverlaps2D, InstanceData
from torch.nn import functional

Tensor = torch.Tensor
INF, EPS = 100_000_000, 1e-7
MODULE = "mmdet.models.task_modules.assigners.dynamic_soft_label_assigner"


def center_of_mass(masks: Tensor, eps: float = 1e-7) -> Tensor:
    sides = [torch.arange(length) for length in masks.shape[1:]]
    size = masks.flatten(1).sum(1).float().clamp(min=eps)
    x, y = (masks * sides[1]).sum((1, 2)) / size, (masks * sides[0][:, None]).sum((1, 2)) / size
    return torch.stack((x, y), 1)


def class_costs(scores: Tensor, labels: Tensor, overlaps: Tensor) -> Tensor:
    wanted = functional.one_hot(labels.long(), scores.shape[1]).float() * overlaps[..., None]
    each = scores[:, None].repeat(1, len(labels), 1)
    losses = functional.binary_cross_entropy_with_logits(each, wanted, reduction="none")
    costs: Tensor = (losses * (wanted - each.sigmoid()).abs().pow(2.0)).sum(2)
    return costs


class DynamicSoftLabelAssigner:
    def __init__(
        self,
        soft_center_radius: float = 3.0,
        topk: int = 13,
        iou_weight: float = 3.0,
        iou_calculator: Any = None,
    ) -> None:
        self.soft_center_radius, self.topk, self.iou_weight = soft_center_radius, topk, iou_weight
        self.iou_calculator = iou_calculator or BboxOverlaps2D()

    def assign(
        self,
        pred_instances: Any,
        gt_instances: Any,
        gt_instances_ignore: Any = None,
        **kwargs: Any,
    ) -> AssignResult:
        priors, truths = pred_instances.priors, gt_instances.bboxes
        none = priors.new_zeros(len(priors), dtype=torch.long)
        x, y = priors[:, :1], priors[:, 1:2]
        inside = (x > truths[:, 0]) & (x < truths[:, 2]) & (y > truths[:, 1]) & (y < truths[:, 3])
        valid = inside.any(1)
        if not bool(valid.any()):
            overlaps = pred_instances.bboxes.new_zeros(len(priors))
            return AssignResult(len(truths), none, overlaps, none - 1)
        centers = (truths[:, :2] + truths[:, 2:]) / 2
        if hasattr(gt_instances, "masks"):
            centers = center_of_mass(gt_instances.masks, EPS)
        near = priors[valid]
        overlaps = self.iou_calculator(pred_instances.bboxes[valid], truths)
        costs = class_costs(pred_instances.scores[valid], gt_instances.labels, overlaps)
        costs = costs + -torch.log(overlaps + EPS) * self.iou_weight
        away = (near[:, None, :2] - centers).pow(2).sum(2).sqrt() / near[:, 2:3]
        costs = costs + torch.pow(10, away - self.soft_center_radius)
        index = none - 1
        index[valid] = self.dynamic_k_matching(costs, overlaps)
        found = index >= 0
        best = priors.new_full((len(priors),), -float(INF))
        best[found] = overlaps[index[valid] >= 0, index[found]]
        labels = none - 1
        labels[found] = gt_instances.labels[index[found]].long()
        return AssignResult(len(truths), index + 1, best, labels)

    def dynamic_k_matching(self, costs: Tensor, overlaps: Tensor) -> Tensor:
        takes = torch.zeros_like(costs, dtype=torch.bool)
        highest = overlaps.topk(min(self.topk, len(costs)), 0)[0].sum(0)
        for truth, count in enumerate(highest.int().clamp(min=1).tolist()):
            takes[costs[:, truth].sort(stable=True)[1][:count], truth] = True
        several = takes.sum(1) > 1
        takes[several] = functional.one_hot(costs[several].min(1)[1], costs.shape[1]).bool()
        return torch.where(takes.any(1), takes.to(torch.uint8).argmax(1), -1)


def scene(
    seed: int,
    known: int = 5,
    classes: int = 8,
    dtype: torch.dtype = torch.float32,
    side: int = 64,
) -> tuple[Any, Any]:
    """Predictions of an image, and its ground truths. In some scenes predictions or ground truths
    are equal, in some ground truths hold no prior, and in some a network has not learnt yet.
    """
    draw = torch.Generator().manual_seed(seed)
    grids = []
    for stride in (8, 16, 32):
        at = torch.arange(side // stride) * float(stride)
        rows, columns = torch.meshgrid(at, at, indexing="ij")
        strides = torch.full_like(rows, stride)
        grids.append(torch.stack((columns, rows, strides, strides), -1).reshape(-1, 4))
    priors = torch.cat(grids)
    count = len(priors)
    corner = torch.rand(known, 2, generator=draw) * side * 0.8
    sides = torch.rand(known, 2, generator=draw) * side * 0.6 + 2
    truths = torch.cat((corner, corner + sides), 1)
    labels = torch.randint(classes, (known,), generator=draw)
    middles = priors[:, :2] + torch.randn(count, 2, generator=draw) * priors[:, 2:] / 2
    half = priors[:, 2:] * torch.rand(count, 2, generator=draw) * 2
    boxes = torch.cat((middles - half, middles + half), 1)
    scores = torch.randn(count, classes, generator=draw) * 2 - 3
    kind = seed % 5
    if kind == 1:  # many predictions without a fault
        boxes[torch.randperm(count, generator=draw)[: count // 4]] = truths[0]
    if kind == 2 and known > 1:  # two ground truths that cost the same
        truths[1], labels[1] = truths[0], labels[0]
    if kind == 3:  # priors that cost the same, on both sides of a ground truth
        truths[0] = torch.tensor([3.0, 3.0, 45.0, 45.0])
        boxes[:], scores[:] = truths[0], -2.0
    if kind == 4:
        truths[-1, 2:] = truths[-1, :2] + 0.5
        scores = scores * 0.01 - 4.6
    predictions = InstanceData(bboxes=boxes, scores=scores.to(dtype), priors=priors)
    return predictions, InstanceData(bboxes=truths, labels=labels)
