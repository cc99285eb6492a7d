# SPDX-License-Identifier: Apache-2.0
"""A class with the name, arguments and results of the one of mmdetection that is patched. What it
computes is that of accel/tests/ops/originals.py.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch

Tensor = torch.Tensor
sys.path.append(str(Path(__file__).resolve().parents[1] / "ops"))
originals: Any = importlib.import_module("originals")
INF, EPS = 100_000.0, 1e-7
_ASSIGNERS = "mmdet.models.task_modules.assigners"
MODULE = f"{_ASSIGNERS}.sim_ota_assigner"


class InstanceData:
    """Tensors of as many rows each."""

    def __init__(self, **tensors: Any) -> None:
        vars(self).update(tensors)

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __contains__(self, name: str) -> bool:
        return name in vars(self)


class AssignResult:
    def __init__(self, num_gts: int, gt_inds: Tensor, max_overlaps: Tensor, labels: Tensor) -> None:
        self.num_gts, self.gt_inds = num_gts, gt_inds
        self.max_overlaps, self.labels = max_overlaps, labels


def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, mode: str = "iou") -> Tensor:
    return originals.overlaps_of(bboxes1, bboxes2)


class BboxOverlaps2D:
    def __init__(self, scale: float = 1.0, dtype: Any = None) -> None:
        self.scale, self.dtype = scale, dtype

    def __call__(self, bboxes1: Tensor, bboxes2: Tensor, mode: str = "iou") -> Tensor:
        return bbox_overlaps(bboxes1, bboxes2, mode)


bbox_overlaps.__module__ = "mmdet.structures.bbox.bbox_overlaps"
BboxOverlaps2D.__module__ = f"{_ASSIGNERS}.iou2d_calculator"
BboxOverlaps2D.__call__.__module__ = BboxOverlaps2D.__module__


class SimOTAAssigner:
    def __init__(
        self,
        center_radius: float = 2.5,
        candidate_topk: int = 10,
        iou_weight: float = 3.0,
        cls_weight: float = 1.0,
        iou_calculator: Any = None,
    ) -> None:
        self.center_radius, self.candidate_topk = center_radius, candidate_topk
        self.iou_weight, self.cls_weight = iou_weight, cls_weight
        self.iou_calculator = iou_calculator or BboxOverlaps2D()

    def assign(
        self,
        pred_instances: Any,
        gt_instances: Any,
        gt_instances_ignore: Any = None,
        **kwargs: Any,
    ) -> AssignResult:
        boxes, truths = pred_instances.bboxes, gt_instances.bboxes
        known = truths.shape[0]
        overlaps = boxes.new_zeros(boxes.shape[:1])
        none = torch.zeros(boxes.shape[0], dtype=torch.long)
        if known == 0 or boxes.shape[0] == 0:
            return AssignResult(known, none, overlaps, none - 1)
        valid, _ = self.get_in_gt_and_in_center_info(pred_instances.priors, truths)
        if not bool(valid.any()):
            return AssignResult(known, none, overlaps, none - 1)
        winners, best = self.dynamic_k_matching(
            boxes.double(), pred_instances.scores.double(), pred_instances.priors.double(), truths,
            gt_instances.labels,
        )  # fmt: skip
        found = winners >= 0
        labels = torch.full_like(winners, -1)
        labels[found] = gt_instances.labels[winners[found]].long()
        overlaps = torch.full_like(overlaps, -INF)
        overlaps[found] = best[found].to(overlaps.dtype)
        return AssignResult(known, winners + 1, overlaps, labels)

    def get_in_gt_and_in_center_info(self, priors: Tensor, gt_bboxes: Tensor) -> Any:
        return originals.regions(priors, gt_bboxes, self.center_radius)

    def dynamic_k_matching(self, *tensors: Tensor) -> Any:
        boxes, scores, priors, truths, labels = tensors
        return originals.simota_image(
            boxes, scores, priors, truths.double(), labels.long(), self.center_radius,
            self.candidate_topk, self.iou_weight, self.cls_weight,
        )  # fmt: skip
