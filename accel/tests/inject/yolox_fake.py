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


def scene(
    seed: int, known: int = 5, classes: int = 3, *, side: int = 64, **changed: Any
) -> dict[str, Any]:
    """The second of two square images, as the head passes it."""
    draw = torch.Generator().manual_seed(seed)
    places, strides = [], []
    for stride in (8, 16, 32):
        cells = torch.arange(float(side // stride))
        rows, columns = torch.meshgrid(cells, cells, indexing="ij")
        places.append(torch.stack((columns.reshape(-1), rows.reshape(-1))))
        strides.append(torch.full((1, rows.numel()), float(stride)))
    (x, y), stride = torch.cat(places, 1), torch.cat(strides, 1)
    count = len(x)
    middles = torch.stack((x, y), 1) * stride.T + torch.randn(2, count, 2, generator=draw) * 6
    sides = torch.rand(2, count, 2, generator=draw) * 40
    boxes = torch.cat((middles, sides), 2).requires_grad_()
    corners = torch.rand(known, 2, generator=draw) * (side - 4)
    return {
        "batch_idx": 1,
        "num_gt": known,
        "total_num_anchors": count,
        "gt_bboxes_per_image": torch.cat(
            (corners, torch.rand(known, 2, generator=draw) * 40 + 3), 1
        ),
        "gt_classes": torch.randint(classes, (known,), generator=draw).float(),
        "bboxes_preds_per_image": boxes[1],
        "expanded_strides": stride,
        "x_shifts": x[None],
        "y_shifts": y[None],
        "cls_preds": torch.randn(2, count, classes, generator=draw).requires_grad_(),
        "bbox_preds": boxes,
        "obj_preds": torch.randn(2, count, 1, generator=draw),
        "labels": None,
        "imgs": None,
        **changed,
    }


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
