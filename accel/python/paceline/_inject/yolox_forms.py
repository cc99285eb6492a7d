# SPDX-License-Identifier: Apache-2.0
"""SimOTA of YOLOX's own repository, which has radius, weights and number of overlaps in its code.

Release 0.3.0 matches priors in boxes and centre regions, as mmdetection does. In float32 that is
the operator's algorithm. In 16 bits the original rounds the corners of boxes by as much as half a
pixel, and matches others.

The states of the repository after 0.3.0 match in centre regions only, of which each has a few
priors. There regions, overlaps and costs are computed as the original computes them, in the types
and under the autocast that the program has. So the same priors are matched to the bit, in 16 bits,
too. What is spared are the costs of pairs that cannot match, and a search for each ground truth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from paceline._inject.detection_forms import FLOATS, Call, Form, why_not_tensors

Tensor = torch.Tensor
_MODULE = "yolox.models.yolo_head"
_LEAST_OVERLAP, _IOU_WEIGHT, _TOPK = 1e-8, 3.0, 10
_OUTSIDE = 1e6  # what a prior outside a centre region costs more, after 0.3.0


def _read(head: Any, given: dict[str, Any], dtypes: tuple[torch.dtype, ...]) -> list[Tensor] | str:
    """The tensors of one image: predicted and true boxes, classes, strides, places along x and y,
    and logits of classes and objects.
    """
    if given.get("mode", "gpu") != "gpu":
        return "the mode that spares a GPU's memory"
    image, boxes = given["batch_idx"], given["bboxes_preds_per_image"].detach()
    names = ("gt_bboxes_per_image", "gt_classes", "expanded_strides", "x_shifts", "y_shifts")
    logits = [given[name].detach()[image] for name in ("cls_preds", "obj_preds")]
    tensors = [boxes, *(given[name] for name in names), *logits]
    why = why_not_tensors(tensors, dtypes, boxes)
    if why:
        return why
    count, known = given.get("total_num_anchors", len(boxes)), given["num_gt"]
    wanted = [(count, 4), (known, 4), (known,), *[(1, count)] * 3]
    wanted += [(count, head.num_classes), (count, 1)]
    if [each.shape for each in tensors] != wanted:
        return "tensors of other shapes"
    if 0 in (count, known):
        return "no ground truths or no predictions"
    return tensors


def _corners(boxes: Tensor) -> Tensor:
    """Of boxes x, y, width, height, rounded as the original rounds them."""
    half = boxes[:, 2:] * 0.5
    return torch.cat((boxes[:, :2] - half, boxes[:, :2] + half), 1)


def _read_release(head: Any, given: dict[str, Any], _: dict[str, Any]) -> Call | str:
    tensors = _read(head, given, (torch.float32,))
    if isinstance(tensors, str):
        return tensors
    boxes, gt_boxes, labels, strides, *places, logits, objectness = tensors

    def compute() -> Any:
        from paceline.ops import simota_assign

        x, y = ((each[0] + 0.5) * strides[0] for each in places)
        found = simota_assign(
            _corners(boxes)[None],
            (logits.sigmoid() * objectness.sigmoid()).sqrt()[None],
            torch.stack((x, y, strides[0], strides[0]), 1),
            [0, len(labels)],
            _corners(gt_boxes),
            labels.long(),
            least_overlap=_LEAST_OVERLAP,
        )
        matched = found.gt_index[0] >= 0
        index = found.gt_index[0][matched]
        return labels[index], matched, found.overlaps[0][matched], index, len(index)

    return Call(boxes.device, compute)


def _read_later(head: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    tensors = _read(head, given, FLOATS)
    if isinstance(tensors, str):
        return tensors

    def compute() -> Any:
        return _assign(head, tensors, library["bboxes_iou"])

    return Call(tensors[0].device, compute, needs_kernels=False)


def _assign(head: Any, tensors: list[Tensor], overlaps_of: Callable[..., Tensor]) -> Any:
    """As the original assigns, with the library's own regions and overlaps."""
    from paceline.ops._simota import winners

    boxes, gt_boxes, labels, strides, x, y, logits, objectness = tensors
    near, inside = head.get_geometry_constraint(gt_boxes, strides, x, y)
    places = near.nonzero()[:, 0]
    overlaps = overlaps_of(gt_boxes, boxes[places], False)
    with torch.autocast(boxes.device.type, enabled=False):
        classes = F.one_hot(labels.to(torch.int64), head.num_classes).float()
        logits, objectness = logits[places].float(), objectness[places].float()
        scores = (logits.sigmoid() * objectness.sigmoid()).sqrt()

    def costs_of(pairs: Tensor) -> Tensor:
        """Of these pairs; infinite for others."""
        truth, prior = pairs.nonzero(as_tuple=True)
        with torch.autocast(boxes.device.type, enabled=False):
            of_class = F.binary_cross_entropy(scores[prior], classes[truth], reduction="none")
            of_class = of_class.sum(-1)
        of_overlap = -torch.log(overlaps[truth, prior] + _LEAST_OVERLAP)
        cost = of_class + _IOU_WEIGHT * of_overlap + _OUTSIDE * ~inside[truth, prior]
        costs = cost.new_full(pairs.shape, float("inf"))
        costs[truth, prior] = cost
        return costs

    highest = overlaps.topk(min(_TOPK, len(places)), 1)[0]
    wanted = highest.sum(1).int().clamp(min=1)
    costs = costs_of(inside)
    enough = costs.lt(_OUTSIDE / 2).sum(1).ge(wanted)
    # Rounding to 16 bits makes overlaps below 0, whose logarithm is NaN: the least of all costs.
    if not bool((enough & overlaps.ge(0).all(1)).all()):
        costs = costs_of(torch.ones_like(inside))
    found = winners(costs.t(), wanted)
    rows = found.ge(0).nonzero()[:, 0]
    index = found[rows]
    matched = torch.zeros_like(near)
    matched[places[rows]] = True
    return labels[index], matched, overlaps[index, rows], index, len(index)


def _form(owner: str, **more: Any) -> Form:
    return Form(_MODULE, owner, "get_assignments", functions=("bboxes_iou",), **more)


_LATER: dict[str, Any] = {
    "signature": (
        *("self", "batch_idx", "num_gt", "gt_bboxes_per_image", "gt_classes"),
        *("bboxes_preds_per_image", "expanded_strides", "x_shifts", "y_shifts"),
        *("cls_preds", "obj_preds", "mode"),
    ),
    "helpers": ("get_geometry_constraint", "simota_matching"),
    "read": _read_later,
    "release": "YOLOX's main branch, nor that of pixeltable-yolox 0.4.3",
    "digests": (
        "0affb3a76cce9ca1dde041f6e5fb61c7d974fa9c5b2ca04c33865d71dc672781",
        # Of pixeltable-yolox 0.4.3, which may match nothing.
        "82362f16569703986104dcbb5d334eaf1924f87750de8d71d10fb938e043edc0",
    ),
}
FORMS = (
    _form(
        "YOLOXHead",
        signature=(
            *("self", "batch_idx", "num_gt", "total_num_anchors", "gt_bboxes_per_image"),
            *("gt_classes", "bboxes_preds_per_image", "expanded_strides", "x_shifts", "y_shifts"),
            *("cls_preds", "bbox_preds", "obj_preds", "labels", "imgs", "mode"),
        ),
        helpers=("get_in_boxes_info", "dynamic_k_matching"),
        read=_read_release,
        release="yolox 0.3.0",
        digests=("06751fea69cd80e628456cb06a74711725f40c4500e38230959a415fed9f925e",),
    ),
    _form("YOLOXHead", **_LATER),
    _form("YoloxHead", **_LATER),  # of pixeltable-yolox
)
