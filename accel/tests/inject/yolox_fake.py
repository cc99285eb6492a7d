# SPDX-License-Identifier: Apache-2.0
"""A class with the name, arguments and results of the one of YOLOX that is patched. What it
computes is that of accel/tests/ops/originals.py, with YOLOX's constants.
"""

from __future__ import annotations

from typing import Any

import torch
from simota_fake import originals

Tensor = torch.Tensor
MODULE = "yolox.models.yolo_head"


def bboxes_iou(bboxes_a: Tensor, bboxes_b: Tensor, xyxy: bool = True) -> Tensor:
    found: Tensor = originals.overlaps_of(bboxes_a, bboxes_b)
    return found


class YOLOXHead(torch.nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    @torch.no_grad()
    def get_assignments(
        self,
        batch_idx: int,
        num_gt: int,
        total_num_anchors: int,
        gt_bboxes_per_image: Tensor,
        gt_classes: Tensor,
        bboxes_preds_per_image: Tensor,
        expanded_strides: Tensor,
        x_shifts: Tensor,
        y_shifts: Tensor,
        cls_preds: Tensor,
        bbox_preds: Tensor,
        obj_preds: Tensor,
        labels: Any,
        imgs: Any,
        mode: str = "gpu",
    ) -> Any:
        stride = expanded_strides[0].double()
        places = [(each[0].double() + 0.5) * stride for each in (x_shifts, y_shifts)]
        priors = torch.stack((*places, stride, stride), 1)
        of_class, of_object = (each[batch_idx].double() for each in (cls_preds, obj_preds))
        scores = (of_class.sigmoid() * of_object.sigmoid()).sqrt()
        truths = [each.double() for each in (bboxes_preds_per_image, gt_bboxes_per_image)]
        return self.dynamic_k_matching(*truths, scores, priors, gt_classes)

    def get_in_boxes_info(self, *tensors: Tensor) -> Any:
        return originals.regions(*tensors, 2.5)

    def dynamic_k_matching(self, *tensors: Tensor) -> Any:
        boxes, truths, scores, priors, gt_classes = tensors
        corners = []
        for one in (boxes, truths):
            middle, sides = one.split(2, 1)
            corners.append(torch.cat((middle - sides / 2, middle + sides / 2), 1))
        found = originals.simota_image(
            corners[0], scores, priors, corners[1], gt_classes.long(), least_overlap=1e-8
        )
        matched = found.winners >= 0
        index = found.winners[matched]
        overlaps = found.overlaps[matched].float()
        return gt_classes[index], matched, overlaps, index, int(matched.sum())
