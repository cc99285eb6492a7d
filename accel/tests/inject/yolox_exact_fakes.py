# SPDX-License-Identifier: Apache-2.0
"""A class with the name, arguments and results of the one of YOLOX's repository after 0.3.0.

Each pair of a ground truth and a prior in any region gets a cost, and each ground truth is matched
by itself. Tensors of 16 bits are computed as under CUDA's autocast: sums and differences in 16
bits, products and logarithms in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from yolox_fake import MODULE, scene

Tensor = torch.Tensor
__all__ = ["MODULE", "YOLOXHead", "bboxes_iou", "later_scene"]


def bboxes_iou(bboxes_a: Tensor, bboxes_b: Tensor, xyxy: bool = True) -> Tensor:
    assert not xyxy
    (middle_a, sides_a), (middle_b, sides_b) = (each.split(2, 1) for each in (bboxes_a, bboxes_b))
    low = torch.max((middle_a - sides_a / 2)[:, None], middle_b - sides_b / 2)
    high = torch.min((middle_a + sides_a / 2)[:, None], middle_b + sides_b / 2)
    meets = (low < high).all(2)
    shared = (high - low).float().prod(2) * meets
    areas_a, areas_b = sides_a.float().prod(1), sides_b.float().prod(1)
    return shared / (areas_a[:, None] + areas_b - shared)


def costs_of(
    boxes: Tensor,
    truths: Tensor,
    gt_classes: Tensor,
    logits: Tensor,
    objectness: Tensor,
    classes: int,
) -> tuple[Tensor, Tensor]:
    """Costs and overlaps of all pairs."""
    overlaps = bboxes_iou(truths, boxes, False)
    scores = (logits.float().sigmoid() * objectness.float().sigmoid()).sqrt()
    wanted = functional.one_hot(gt_classes.long(), classes).float()
    losses = functional.binary_cross_entropy(
        scores.repeat(len(truths), 1, 1),
        wanted[:, None].repeat(1, len(scores), 1),
        reduction="none",
    )
    return losses.sum(2) + 3.0 * -torch.log(overlaps + 1e-8), overlaps


def matched(costs: Tensor, overlaps: Tensor, gt_classes: Tensor, near: Tensor) -> Any:
    matches = torch.zeros_like(costs, dtype=torch.bool)
    highest = overlaps.topk(min(10, costs.shape[1]), dim=1)[0]
    for truth, count in enumerate(highest.sum(1).int().clamp(min=1).tolist()):
        matches[truth, costs[truth].sort(stable=True)[1][:count]] = True
    several = matches.sum(0) > 1
    cheapest = costs.min(0)[1]
    matches[:, several] = False
    matches[cheapest[several], several] = True
    taken = matches.any(0)
    index = matches.to(torch.uint8).argmax(0)[taken]
    found = torch.zeros_like(near)
    found[near.nonzero()[taken, 0]] = True
    return gt_classes[index], found, overlaps.t()[taken, index], index, int(taken.sum())


class YOLOXHead(torch.nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    @torch.no_grad()
    def get_assignments(
        self,
        batch_idx: int,
        num_gt: int,
        gt_bboxes_per_image: Tensor,
        gt_classes: Tensor,
        bboxes_preds_per_image: Tensor,
        expanded_strides: Tensor,
        x_shifts: Tensor,
        y_shifts: Tensor,
        cls_preds: Tensor,
        obj_preds: Tensor,
        mode: str = "gpu",
    ) -> Any:
        near, inside = self.get_geometry_constraint(
            gt_bboxes_per_image, expanded_strides, x_shifts, y_shifts
        )
        costs, overlaps = costs_of(
            bboxes_preds_per_image[near], gt_bboxes_per_image, gt_classes,
            cls_preds[batch_idx][near], obj_preds[batch_idx][near], self.num_classes,
        )  # fmt: skip
        return self.simota_matching(costs + 1e6 * ~inside, overlaps, gt_classes, near)

    def get_geometry_constraint(self, truths: Tensor, strides: Tensor, *places: Tensor) -> Any:
        reach, along = strides * 1.5, []
        for middle, place in zip(truths[:, :2].split(1, 1), places):
            at = (place + 0.5) * strides
            along.append((at - (middle - reach) > 0) & (middle + reach - at > 0))
        inside = along[0] & along[1]
        near = inside.any(0)
        return near, inside[:, near]

    def simota_matching(self, *tensors: Tensor) -> Any:
        return matched(*tensors)


def later_scene(
    seed: int,
    known: int = 5,
    classes: int = 3,
    dtype: torch.dtype = torch.float32,
    *,
    side: int = 64,
    **changed: Any,
) -> dict[str, Any]:
    """As a head of this class passes it. In some scenes predictions or ground truths are equal, and in
    some a ground truth wants more priors than lie in its region.
    """
    given = scene(seed, known, classes, side=side)
    for name in ("total_num_anchors", "bbox_preds", "labels", "imgs"):
        del given[name]
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            given[name] = value.detach()
    boxes, truths = given["bboxes_preds_per_image"], given["gt_bboxes_per_image"]
    draw = torch.Generator().manual_seed(seed)
    kind = seed % 4
    if kind == 1:  # many predictions without a fault
        boxes[torch.randperm(len(boxes), generator=draw)[:12]] = truths[0]
    if kind == 2 and known > 1:  # two ground truths that cost the same
        truths[1] = truths[0]
        given["gt_classes"][1] = given["gt_classes"][0]
    if kind == 3:  # priors that cost the same
        given["cls_preds"][1] = 0.5
        given["obj_preds"][1] = 0.5
        boxes[1::2] = boxes[0].clone()
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            given[name] = value.to(dtype)
    return {**given, **changed}
