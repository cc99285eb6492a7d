# SPDX-License-Identifier: Apache-2.0
"""A class with the name, arguments and results of the one of mmdetection3d that is patched. What it
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
INF = 1e8
MODULE = "mmdet3d.models.dense_heads.fcos_mono3d_head"


class Boxes3D:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return self.tensor.shape[0]


class FCOSMono3DHead(torch.nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.strides = (8, 16)
        self.regress_ranges = ((-1, 48), (48, 1e8))
        self.center_sampling, self.center_sample_radius = True, 1.5
        self.centerness_alpha, self.norm_on_bbox = 2.5, True
        self.num_classes = self.background_label = 10
        self.attr_background_label, self.bbox_code_size = 9, 9
        for name, value in settings.items():
            setattr(self, name, value)

    def loss_by_feat(self) -> None:
        pass

    def get_targets(self, points: Any, batch_gt_instances_3d: Any, batch_gt_instances: Any) -> Any:
        if "attr_labels" not in batch_gt_instances_3d[0]:
            for each in batch_gt_instances_3d:
                each.attr_labels = torch.full_like(each.labels_3d, self.attr_background_label)
        pairs = zip(batch_gt_instances_3d, batch_gt_instances)
        head = originals.Head(
            self.strides, self.regress_ranges, self.center_sample_radius, self.centerness_alpha,
            self.background_label, self.attr_background_label,
        )  # fmt: skip
        return originals.fcos3d(
            [each.float() for each in points], [self._get_target_single(*each) for each in pairs],
            head,
        )  # fmt: skip

    def _get_target_single(self, solid: Any, flat: Any) -> Any:
        boxes = solid.bboxes_3d
        boxes = boxes if isinstance(boxes, Tensor) else boxes.tensor
        before = boxes.clone()
        boxes[..., 6] = -torch.atan2(boxes[..., 0], boxes[..., 2]) + boxes[..., 6]
        return originals.Objects(
            flat.bboxes, solid.labels_3d, before, solid.centers_2d, solid.depths, solid.attr_labels
        )
